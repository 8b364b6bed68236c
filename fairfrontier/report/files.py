"""The files that a study leaves behind."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairfrontier.figure.certified import Exposure, expose_chosen
from fairfrontier.figure.frontier import draw_frontier
from fairfrontier.prepare.embedding.feature import name_encoder
from fairfrontier.report.changes import list_text_changes
from fairfrontier.report.page import STYLE, TEMPLATE, render_report
from fairfrontier.report.summary import build_summary, list_versions
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import list_names
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import MANIFEST, Store, hash_file
from fairfrontier.runtime.writer import filling
from fairfrontier.study import drawing
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.expand import Planned
from fairfrontier.study.frontier import name_columns
from fairfrontier.study.publication import Reproduction
from fairfrontier.study.results import SCHEMA, StudyResults
from fairfrontier.study.saved_model import list_models

KIND = "results"
# Named, not imported: an ordinary run needs none of them.
REPRODUCING = ("fairfrontier.reproduce.reproduction",)
FILES = (
    "points.parquet",
    "frontier.csv",
    "frontier.png",
    "published.csv",
    "report.html",
    "summary.json",
    "models.csv",
    "changes.csv",
)


def write_results(
    results: StudyResults,
    folder: Path,
    seconds: float,
    *,
    home: Path,
    store: Store | None = None,
    reproduction: Reproduction | None = None,
) -> dict[str, Path]:
    """Write everything that a study leaves behind.

    Parameters
    ----------
    results : StudyResults
        Points and frontier.
    folder : Path
        ``data/results/STUDY`` or ``data/results/STUDY@PROFILE``; made where it is missing.
    seconds : float
        Wall-clock time of the run.
    home : Path
        The project root.
    store : Store, optional
        Holds the fits, for models.csv and the figures that the study asks for; without one they
        are left out.
    reproduction : Reproduction, optional
        Claims and published numbers, where the study has them.

    Returns
    -------
    dict of str to Path
        File name -> path; published.csv only where the study reproduces a table, changes.csv only
        where its dataset has texts, and NAME.png for each of its ``figures``.

    Raises
    ------
    StoreError
        When the folder cannot be written; then no file in it has changed.

    Notes
    -----
    All files are made before the first one is replaced. points.parquet depends on the points
    alone: equal points are equal bytes, with the same version of pyarrow.
    """
    study, plan, points, frontier = results.study, results.plan, results.points, results.frontier
    reproduction = reproduction or Reproduction()
    summary = build_summary(results, reproduction.claims, seconds)
    models = changes = None
    # Points may be of a table that has no YAML.
    with suppress(ConfigError):
        if store is not None:
            models = list_models(plan, store, home)
            changes = list_text_changes([each.group for each in plan], home)
        encoder = name_encoder(study.dataset, home)
        summary |= {} if encoder is None else {"encoder": encoder}
    title = f"{study.study}: {study.frontier.accuracy.replace('_', ' ')} against fairness"
    pictures: dict[str, drawing.Picture] = {}
    exposed: dict[tuple[str, str], Exposure] = {}
    if store is not None:
        scene = drawing.Scene(study, plan, points, store, home)
        pictures = {name: drawing.FIGURES.find(name).draw(scene) for name in study.figures}
        exposed = expose_chosen(scene)
    figure = draw_frontier(
        frontier, study.frontier.accuracy, study.select_on, reproduction.rows, title
    )
    report = render_report(results, summary, figure, reproduction, pictures, exposed)
    files = {
        "points.parquet": _to_parquet(points),
        "frontier.csv": _to_csv(name_columns(frontier, study.frontier.accuracy)),
        "frontier.png": figure,
        "report.html": report.encode(),
        "summary.json": (json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode(),
    }
    files |= {_name_file(name): picture.png for name, picture in pictures.items()}
    if models is not None:
        files["models.csv"] = _to_csv(models)
    if changes is not None:
        files["changes.csv"] = _to_csv(changes, quoting=csv.QUOTE_NONNUMERIC)
    if reproduction.published is not None:
        files["published.csv"] = _to_csv(reproduction.published)
    return _replace_files(folder, files)


def describe_results(
    study: StudyConfig,
    plan: Sequence[Planned],
    points: Sequence[str],
    home: Path,
    store: Store | None = None,
) -> dict[str, Any]:
    """Return all that the files of a study depend on, but for the seconds that it took.

    Parameters
    ----------
    study : StudyConfig
        What was asked.
    plan : sequence of Planned
        What was run.
    points : sequence of str
        The key of each one's points in the store.
    home : Path
        The project root.
    store : Store, optional
        Keeps the digest of the source.
    """
    figures = [drawing.FIGURES.find(name).draw.__module__ for name in study.figures]
    references = list_names("publication", home).values()
    return {
        "study": study.model_dump(mode="json"),
        "plan": [
            {
                "points": key,
                "blocks": each.blocks,
                "method": each.group.method,
                "members": [[member.seed, member.setting] for member in each.group.members],
            }
            for each, key in zip(plan, points, strict=True)
        ],
        "references": {path.name: hash_file(path) for path in references},
        "template": [hash_file(TEMPLATE), hash_file(STYLE)],
        "source": source_digest([__name__, *REPRODUCING, *figures], store=store),
        "libraries": list_versions(),
    }


def keep_results(files: Mapping[str, Path], store: Store, description: Mapping[str, Any]) -> None:
    """Keep the files of a study in the store, so that the same study need not be written again."""
    with store.writing(KIND, store.key(KIND, description), description) as folder:
        for name, path in files.items():
            shutil.copyfile(path, folder / name)


def restore_results(folder: Path, store: Store, description: Mapping[str, Any]) -> bool:
    """Put the kept files of a study where its results belong; False where none are kept."""
    entry = store.read(KIND, store.key(KIND, description))
    if entry is None:
        return False
    kept = {path.name: path.read_bytes() for path in entry.iterdir() if path.name != MANIFEST}
    if any(not _is_same(folder / name, content) for name, content in kept.items()):
        _replace_files(folder, kept)
    return True


def _is_same(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _to_parquet(points: pd.DataFrame) -> bytes:
    """Return Parquet without pandas' own metadata, which names versions."""
    table = pa.Table.from_pandas(points, schema=SCHEMA, preserve_index=False)
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd", version="2.6")
    return sink.getvalue()


def _name_file(figure: str) -> str:
    return f"{figure}.png"


def _to_csv(table: pd.DataFrame, **options: Any) -> bytes:
    """Return CSV in which every float reads back as itself."""
    return str(table.to_csv(index=False, lineterminator="\n", **options)).encode()


def _replace_files(folder: Path, files: Mapping[str, bytes]) -> dict[str, Path]:
    """Put the files of a study where its results belong, all at once."""
    owned = {*FILES, *map(_name_file, drawing.FIGURES.all())}
    with filling(folder, owned) as work:
        for name, content in files.items():
            (work / name).write_bytes(content)
    return {name: folder / name for name in files}
