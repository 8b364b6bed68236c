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

from fairfrontier.prepare import load
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.embedding.base import ENCODING
from fairfrontier.prepare.embedding.choice import settle_encoder
from fairfrontier.prepare.embedding.variant import encode_versions
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.finder import find_yaml

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


@task(task_run_name="settle the encoder of {dataset}", tags=["prepare"], cache_policy=NO_CACHE)
def settle_texts(dataset: str, home: str) -> str | None:
    """Return which encoder a dataset's texts get, None without texts; it is fetched if need be."""
    path = find_yaml("dataset", dataset, Path(home))
    feature = read_dataset(path, Path(home)).features.text
    if feature is None or feature.supplied:
        return None if feature is None else feature.encoder
    return settle_encoder(feature.encoder, Path(home), FetchArtifact(path.stem))


@task(task_run_name="encode {dataset} seed {seed}", tags=["prepare"], cache_policy=NO_CACHE)
def encode_table(
    dataset: str, seed: int, rows: int | None, select_on: str | None, noise: float | None, home: str
) -> int:
    """Encode all texts and versions of a split with all cores; fits then look them up.

    Returns how many versions there are. Progress shows as an artifact.
    """
    shown = FetchArtifact(Path(dataset).stem)
    split = load(
        dataset,
        seed,
        rows=rows,
        select_on=select_on,  # type: ignore[arg-type]
        home=Path(home),
        noise=noise,
        progress=shown,
    )
    return encode_versions(split, shown)


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
        if split.text_encoder is not None:
            row["texts by"] = split.text_encoder
        for attribute, levels in part.attributes.items():
            codes = part.group(attribute)
            for code, level in enumerate(levels):
                row[f"{attribute}={level}"] = round(float(np.mean(codes == code)), 4)
        table.append(row)
    return table
