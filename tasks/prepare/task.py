"""Prefect's door to preparing: load a table once, before anything is trained on it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE

from tasks.prepare import load
from tasks.prepare.split import Split

# The artifact is for people: more often would only load the server.
PUBLISH_SECONDS = 2.0


@task(task_run_name="prepare {dataset} seed {seed}", tags=["prepare"], cache_policy=NO_CACHE)
def prepare_table(
    dataset: str, seed: int, rows: int | None, select_on: str | None, home: str
) -> list[dict[str, Any]]:
    """Load a dataset and return what its parts hold; see `describe_split`.

    Files that have to be fetched show their progress as an artifact.
    """
    split = load(
        dataset,
        seed,
        rows=rows,
        select_on=select_on,  # type: ignore[arg-type]
        home=Path(home),
        progress=FetchArtifact(Path(dataset).stem),
    )
    return describe_split(split)


class FetchArtifact:
    """A callback that shows the bytes of files being fetched; nothing is shown until some arrive.

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
        made = create_progress_artifact(
            share, key=f"{self._slug}-fetch", description=f"{name}, {total / 1e6:.1f} MB"
        )
        self._shown[name] = UUID(str(made))


def describe_split(split: Split) -> list[dict[str, Any]]:
    """Return one plain row per part: its size, the label's mean, and the share of each group."""
    table = []
    for name, part in split.parts():
        row: dict[str, Any] = {
            "part": name,
            "rows": part.n_samples,
            "features": int(part.X.shape[1]),
            "label mean": round(float(np.mean(part.y)), 4),
        }
        for attribute, levels in part.attributes.items():
            codes = part.group(attribute)
            for code, level in enumerate(levels):
                row[f"{attribute}={level}"] = round(float(np.mean(codes == code)), 4)
        table.append(row)
    return table
