"""What the Prefect server shows of a run: tables, the card with its figure, links, progress."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from fairfrontier.prepare.embedding.base import ENCODING

# Progress is for people: more often would only load the server.
PUBLISH_SECONDS = 2.0
LINKED = (
    "report.html",
    "points.parquet",
    "frontier.csv",
    "published.csv",
    "summary.json",
    "models.csv",
    "changes.csv",
)


def make_key(*names: str) -> str:
    """Return an artifact's key: lowercase letters and digits, joined by dashes."""
    return "-".join(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in names)


def to_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table as plain rows: Prefect refuses NumPy's numbers, JSON refuses NaN."""
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records", double_precision=6))
    return rows


def start_progress(slug: str, what: str = "fits") -> UUID:
    """Publish a progress bar and return its id."""
    key, description = make_key(slug, what), f"{what.capitalize()} done"
    return UUID(str(create_progress_artifact(0.0, key=key, description=description)))


def show_progress(artifact: UUID, share: float) -> None:
    """Move a progress bar, in per cent."""
    update_progress_artifact(artifact, progress=share)


def publish_table(slug: str, name: str, table: pd.DataFrame, description: str) -> None:
    """Publish a table."""
    create_table_artifact(to_rows(table), key=make_key(slug, name), description=description)


def publish_results(slug: str, folder: Path) -> None:
    """Publish what a study left in its folder: the frontier, the card with its figure, links."""
    frontier = pd.read_csv(folder / "frontier.csv")
    # The setting is long: behind the numbers it does not push them out of sight.
    frontier["setting"] = frontier.pop("setting")
    publish_table(slug, "frontier", frontier, f"Fairness frontier of {slug}")
    create_markdown_artifact(
        write_card(slug, folder), key=make_key(slug, "card"), description=f"Card of {slug}"
    )
    publish_links(slug, [*(folder / name for name in LINKED), *sorted(folder.glob("*.png"))])


def publish_links(slug: str, paths: Iterable[Path]) -> None:
    """Publish links to those of the files that are there, in one artifact: each is a request."""
    lines = [f"- [{path.name}]({path.resolve().as_uri()})" for path in paths if path.is_file()]
    create_markdown_artifact(
        "\n".join(lines), key=make_key(slug, "files"), description=f"Files of {slug}"
    )


def publish_debiasing(slug: str, folder: Path, names: Sequence[str]) -> None:
    """Publish what debiasing left in its folder: groups, bias, the card with its figure, links."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    shown = summary["reported_on"]
    groups = pd.read_csv(folder / "groups.csv")
    rows = groups.loc[groups["part"] == shown].drop(columns="part")
    publish_table(slug, "groups", rows, f"Rates of the groups of {slug}, before and after")
    bias = pd.DataFrame([each for each in summary["bias"] if each["part"] == shown])
    publish_table(slug, "bias", bias, f"Bias of {slug}, before and after")
    card = write_card(slug, folder, "groups.png")
    create_markdown_artifact(card, key=make_key(slug, "card"), description=f"Card of {slug}")
    publish_links(slug, [folder / name for name in names])


def publish_audit(slug: str, folder: Path, names: Sequence[str]) -> None:
    """Publish what an audit left in its folder: conclusions, bounds, the card with its figure."""
    summary = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    conclusions = pd.DataFrame(summary["conclusions"]).drop(columns="sentence")
    publish_table(slug, "conclusions", conclusions, f"What holds of {slug} whatever the groups")
    bounds = pd.read_csv(folder / "bounds.csv", keep_default_na=False, na_values={"value": [""]})
    publish_table(slug, "bounds", bounds, f"Bounds of the rates of true groups of {slug}")
    card = write_card(slug, folder, "bounds.png", "audit.json")
    create_markdown_artifact(card, key=make_key(slug, "card"), description=f"Card of {slug}")
    publish_links(slug, [folder / name for name in names])


def write_card(
    slug: str, folder: Path, picture: str = "frontier.png", summary_name: str = "summary.json"
) -> str:
    """Return the card of a run: counts, claims and a figure, as unindented markdown."""
    summary = json.loads((folder / summary_name).read_text(encoding="utf-8"))
    lines = [f"# {slug}", ""]
    if "seconds" in summary:
        lines += [f"Made in {float(summary['seconds']):.0f} s.", ""]
    for name, count in dict(summary.get("counts", {})).items():
        lines.append(f"- {name.replace('_', ' ')}: {count}")
    for claim in summary.get("claims", []):
        held = {True: "holds", False: "**does not hold**"}.get(claim["held"], "not checked")
        lines.append(f"- {claim['sentence']} — {held}")
    figure = folder / picture
    if figure.is_file():
        code = base64.b64encode(figure.read_bytes()).decode("ascii")
        lines += ["", f"![{figure.stem}](data:image/png;base64,{code})"]
    lines += ["", f"Files: `{folder}`"]
    return "\n".join(lines)


class FetchArtifact:
    """A callback that shows how much of files is fetched, or how many texts are encoded.

    Nothing is shown until some have arrived.

    Parameters
    ----------
    dataset : str
        Names the artifact.
    """

    def __init__(self, dataset: str) -> None:
        self._slug = re.sub(r"[^a-z0-9]+", "-", dataset.lower()).strip("-")
        self._shown: dict[str, UUID] = {}
        self._written = 0.0

    def __call__(self, name: str, arrived: int, total: int | None) -> None:
        """Move the bar; servers that do not say how much there is get none."""
        now = time.monotonic()
        if not total or (arrived < total and now - self._written < PUBLISH_SECONDS):
            return
        self._written = now
        share = 100.0 * arrived / total
        if name in self._shown:
            update_progress_artifact(self._shown[name], progress=share)
            return
        counts = name.startswith(ENCODING)
        amount = f"{total:,} texts" if counts else f"{total / 1e6:.1f} MB"
        made = create_progress_artifact(
            share,
            key=f"{self._slug}-{'encode' if counts else 'fetch'}",
            description=f"{name}, {amount}",
        )
        self._shown[name] = UUID(str(made))
