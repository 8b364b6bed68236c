"""Artifacts of a run on the Prefect server: tables, the card with its figure, links, progress."""

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

from fairfrontier.prepare.embedding.encoder import ENCODING
from fairfrontier.report.finding import escape_markdown
from fairfrontier.runtime.text_file import read_csv

# Progress is for people: publishing more often would only load the server.
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
    """Publish a table; Prefect's page shows texts in its cells as Markdown."""
    rows = [
        {key: escape_markdown(cell) if isinstance(cell, str) else cell for key, cell in row.items()}
        for row in to_rows(table)
    ]
    description = escape_markdown(description)
    create_table_artifact(rows, key=make_key(slug, name), description=description)


def publish_results(slug: str, folder: Path) -> None:
    """Publish the results of a study: the frontier, the card with its figure, links."""
    frontier = read_csv(folder / "frontier.csv", dtype={"method": "str"})
    # Settings are long: the numbers come first.
    frontier["setting"] = frontier.pop("setting")
    publish_table(slug, "frontier", frontier, f"Fairness frontier of {slug}")
    pictures = sorted(path.name for path in folder.glob("*.png"))
    _publish_files(slug, folder, [*LINKED, *pictures], write_card(slug, folder))


def _publish_files(slug: str, folder: Path, names: Iterable[str], card: str) -> None:
    """Publish a card, and links to the existing files in one artifact: each costs a request."""
    paths = [path for path in (folder / name for name in names) if path.is_file()]
    links = "\n".join(f"- [{path.name}]({path.resolve().as_uri()})" for path in paths)
    for name, text in (("card", card), ("files", links)):
        described = escape_markdown(f"{name.capitalize()} of {slug}")
        create_markdown_artifact(text, key=make_key(slug, name), description=described)


def publish_debiasing(slug: str, folder: Path, names: Sequence[str]) -> None:
    """Publish the results of debiasing: groups, bias, the card with its figure, links."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    shown = summary["reported_on"]
    groups = read_csv(folder / "groups.csv")
    rows = groups.loc[groups["part"] == shown].drop(columns="part")
    publish_table(slug, "groups", rows, f"Rates of the groups of {slug}, before and after")
    bias = pd.DataFrame([row for row in summary["bias"] if row["part"] == shown])
    publish_table(slug, "bias", bias, f"Bias of {slug}, before and after")
    _publish_files(slug, folder, names, write_card(slug, folder, "groups.png"))


def publish_audit(slug: str, folder: Path, names: Sequence[str]) -> None:
    """Publish the results of an audit: its tables, the card with its figure, links."""
    summary = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    if "impact" in summary:
        impact = pd.DataFrame(summary["impact"])
        publish_table(slug, "impact", impact, f"Rates and impact ratios of {slug}")
        if summary["limits"]:
            limits = pd.DataFrame(summary["limits"])
            publish_table(slug, "limits", limits, f"Limits of {slug}")
        _publish_files(slug, folder, names, write_card(slug, folder, "impact.png", "audit.json"))
        return
    conclusions = pd.DataFrame(summary["conclusions"]).drop(columns="sentence")
    publish_table(slug, "conclusions", conclusions, f"What holds of {slug} whatever the groups")
    bounds = read_csv(folder / "bounds.csv", na_values={"value": [""]})
    publish_table(slug, "bounds", bounds, f"Bounds of the rates of true groups of {slug}")
    _publish_files(slug, folder, names, write_card(slug, folder, "bounds.png", "audit.json"))


def publish_monitor(slug: str, folder: Path, names: Sequence[str]) -> None:
    """Publish what watching a bundle found: all checks, the card with its figure, links."""
    checks = read_csv(folder / "checks.csv", na_values={"value": [""]})
    publish_table(slug, "checks", checks, f"What changed of {slug}, or passed a limit")
    _publish_files(slug, folder, names, write_card(slug, folder, "rates.png", "monitor.json"))


def write_card(
    slug: str, folder: Path, picture: str = "frontier.png", summary_name: str = "summary.json"
) -> str:
    """Return the card of a run: counts, claims and a figure, as unindented markdown."""
    summary = json.loads((folder / summary_name).read_text(encoding="utf-8"))
    lines = [f"# {escape_markdown(slug)}", ""]
    if "seconds" in summary:
        lines += [f"Made in {float(summary['seconds']):.0f} s.", ""]
    for name, count in dict(summary.get("counts", {})).items():
        lines.append(f"- {name.replace('_', ' ')}: {count}")
    for claim in summary.get("claims", []):
        held = {True: "holds", False: "**does not hold**"}.get(claim["held"], "not checked")
        lines.append(f"- {escape_markdown(claim['sentence'])} — {held}")
    figure = folder / picture
    if figure.is_file():
        code = base64.b64encode(figure.read_bytes()).decode("ascii")
        lines += ["", f"![{figure.stem}](data:image/png;base64,{code})"]
    return "\n".join(lines)


class FetchArtifact:
    """A callback that shows how much of a file was fetched, or how many texts were encoded.

    Nothing is shown before the first call. The dataset names the artifact.
    """

    def __init__(self, dataset: str) -> None:
        self._dataset = dataset
        self._shown: dict[str, UUID] = {}
        self._written = 0.0

    def __call__(self, name: str, arrived: int, total: int | None) -> None:
        """Move the bar; there is none when the total is unknown."""
        now = time.monotonic()
        if not total or (arrived < total and now - self._written < PUBLISH_SECONDS):
            return
        self._written = now
        share = 100.0 * arrived / total
        if name in self._shown:
            show_progress(self._shown[name], share)
            return
        verb, amount = "fetch", f"{total / 1e6:.1f} MB"
        if name.startswith(ENCODING):
            verb, amount = "encode", f"{total:,} texts"
        key = make_key(self._dataset, verb)
        description = escape_markdown(f"{name}, {amount}")
        made = create_progress_artifact(share, key=key, description=description)
        self._shown[name] = UUID(str(made))
