"""The files that a study leaves behind."""

from __future__ import annotations

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
from fairfrontier.report.page import STYLE, TEMPLATE, render_report
from fairfrontier.report.summary import build_summary, check_claims, list_versions
from fairfrontier.reproduce.figure.oracle_calls import time_calls
from fairfrontier.reproduce.publication import compare, read_publication
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.finder import list_names
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import MANIFEST, Store, hash_file
from fairfrontier.runtime.writer import filling
from fairfrontier.study import drawing
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.frontier import build_frontier, list_fits
from fairfrontier.study.plan import Planned, expand
from fairfrontier.study.saved_model import list_models

KIND = "results"
KEYS = ("dataset", "method", "setting", "seed", "part", "measure", "group")
SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("method", pa.string()),
        ("setting", pa.string()),
        ("seed", pa.int64()),
        ("part", pa.string()),
        ("measure", pa.string()),
        ("group", pa.string()),
        ("value", pa.float64()),
        ("n", pa.int64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
FILES = (
    "points.parquet",
    "frontier.csv",
    "frontier.png",
    "published.csv",
    "report.html",
    "summary.json",
    "models.csv",
)
# Made of the texts after these: that of other results must not stay.
CHANGES = "changes.csv"


def write_results(
    study: StudyConfig,
    points: pd.DataFrame,
    folder: Path,
    seconds: float,
    *,
    plan: Sequence[Planned] | None = None,
    skipped: Mapping[str, str] | None = None,
    home: Path | None = None,
    store: Store | None = None,
) -> dict[str, Path]:
    """Write everything that a study leaves behind.

    Parameters
    ----------
    study : StudyConfig
        What was asked.
    points : DataFrame
        One row per dataset × method × setting × seed × part × measure × group, in any order.
    folder : Path
        ``data/results/STUDY`` or ``data/results/STUDY@PROFILE``; made where it is missing.
    seconds : float
        Wall-clock time of the run.
    plan : sequence of Planned, optional
        What was run; unfolded from the study by default.
    skipped : mapping of str to str, optional
        Row label -> why it could not be run.
    home : Path, optional
        The project root, for the published numbers.
    store : Store, optional
        Holds the fits, for models.csv and the figures that the study asks for; without one they
        are left out.

    Returns
    -------
    dict of str to Path
        File name -> path; published.csv only where the study reproduces a table, and NAME.png for
        each of its ``figures``.

    Raises
    ------
    DataError
        When two rows of ``points`` share their key, or a measure of the frontier is missing.
    StoreError
        When the folder cannot be written; then no file in it has changed.

    Notes
    -----
    All files are made before the first one is replaced. points.parquet depends on the points
    alone: equal points are equal bytes, with the same version of pyarrow.
    """
    plan = expand(study, home) if plan is None else plan
    skipped = skipped or {}
    points = sort_points(points)
    frontier = build_frontier(
        points,
        list_fits(plan, "frontier"),
        study.frontier.accuracy,
        study.frontier.fairness,
        study.select_on,
    )
    publication = published = None
    if study.published is not None:
        publication, table = read_publication(study.published.reproduces, home)
        published = compare(
            points,
            list_fits(plan, "published"),
            publication,
            table,
            study.profile,
            study.published.select_on,
        )
    timed = store is not None and any(each.speed is not None for each in study.claims)
    calls = time_calls(plan, store, home or find_home()) if timed and store else {}
    claims = check_claims(study, points, plan, seconds=calls, home=home)
    summary = build_summary(study, plan, points, frontier, claims, seconds, skipped)
    models = None
    # Points may be of a table that has no YAML.
    with suppress(ConfigError):
        models = list_models(plan, store, home or find_home()) if store is not None else None
        encoder = name_encoder(study.dataset, home or find_home())
        summary |= {} if encoder is None else {"encoder": encoder}
    title = f"{study.study}: {study.frontier.accuracy.replace('_', ' ')} against fairness"
    pictures: dict[str, drawing.Picture] = {}
    exposed: dict[tuple[str, str], Exposure] = {}
    if store is not None:
        scene = drawing.Scene(study, plan, points, store, home or find_home())
        pictures = {name: drawing.FIGURES.find(name).draw(scene) for name in study.figures}
        exposed = expose_chosen(scene)
    # Points of a curve are no methods, which the figure sets side by side.
    shown = None if publication is None or publication.tables[table].along else published
    figure = draw_frontier(frontier, study.frontier.accuracy, study.select_on, shown, title)
    files = {
        "points.parquet": _to_parquet(points),
        "frontier.csv": _to_csv(frontier),
        "frontier.png": figure,
        "report.html": render_report(
            study,
            plan,
            points,
            frontier,
            summary,
            figure,
            publication,
            published,
            pictures,
            exposed,
        ).encode(),
        "summary.json": (json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode(),
    }
    files |= {_name_file(name): picture.png for name, picture in pictures.items()}
    if models is not None:
        files["models.csv"] = _to_csv(models)
    if published is not None:
        files["published.csv"] = _to_csv(published)
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
        "source": source_digest([__name__, *figures], store=store),
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


def sort_points(points: pd.DataFrame) -> pd.DataFrame:
    """Return points in their one order: the columns of points.parquet, sorted by all keys.

    Raises
    ------
    DataError
        When a column is missing, or two rows share their key.
    """
    missing = [name for name in SCHEMA.names if name not in points.columns]
    if missing:
        raise DataError(
            f"The points lack the column {missing[0]}.", f"Give {', '.join(SCHEMA.names)}."
        )
    ordered: pd.DataFrame = points[SCHEMA.names].sort_values(
        list(KEYS), kind="stable", ignore_index=True
    )
    double = ordered.duplicated(list(KEYS))
    if double.any():
        first = ordered.loc[double, list(KEYS)].iloc[0].tolist()
        raise DataError(
            f"Two points stand for {' '.join(str(each) for each in first)}.",
            "Give the rows of the study different labels.",
        )
    return ordered


def _to_parquet(points: pd.DataFrame) -> bytes:
    """Return Parquet without pandas' own metadata, which names versions."""
    table = pa.Table.from_pandas(points, schema=SCHEMA, preserve_index=False)
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd", version="2.6")
    return sink.getvalue()


def _name_file(figure: str) -> str:
    return f"{figure}.png"


def _to_csv(table: pd.DataFrame) -> bytes:
    """Return CSV in which every float reads back as itself."""
    return table.to_csv(index=False, lineterminator="\n").encode()


def _replace_files(folder: Path, files: Mapping[str, bytes]) -> dict[str, Path]:
    """Put the files of a study where its results belong, all at once."""
    owned = {*FILES, CHANGES, *map(_name_file, drawing.FIGURES.all())}
    with filling(folder, owned) as work:
        for name, content in files.items():
            (work / name).write_bytes(content)
    return {name: folder / name for name in files}
