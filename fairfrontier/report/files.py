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

from fairfrontier.figure.certificate import Exposure, expose_chosen
from fairfrontier.figure.frontier import draw_frontier
from fairfrontier.prepare.embedding.feature import name_encoder
from fairfrontier.report.finding import list_versions
from fairfrontier.report.page import (
    SOURCES,
    average_counts,
    build_summary,
    list_text_changes,
    render_report,
)
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import list_names
from fairfrontier.runtime.option import check_again
from fairfrontier.runtime.source import PACKAGES, file_digest
from fairfrontier.runtime.store import Store, hash_file
from fairfrontier.runtime.text_file import to_csv
from fairfrontier.runtime.writer import filling, recover
from fairfrontier.study import drawing
from fairfrontier.study.frontier import (
    SCHEMA,
    Searched,
    StudyResults,
    list_fits,
    name_columns,
    trace_mixtures,
)
from fairfrontier.study.reproduction import Reproduction
from fairfrontier.study.resolve import list_models
from fairfrontier.study.run import StudyRun

KIND = "results"


def write_results(
    results: StudyResults,
    folder: Path,
    seconds: float,
    *,
    home: Path,
    store: Store | None = None,
    reproduction: Reproduction | None = None,
    asked: Sequence[str] = (),
) -> dict[str, Path]:
    """Write everything that a study leaves behind, and return file name -> path.

    Without a store, models.csv, scores.parquet and the study's further figures are left out;
    scores.parquet is written where there are two classes, changes.csv is written
    where the dataset has texts, published.csv where a table is reproduced. The report's commands
    name study and folder as they were ``asked`` for. All files are made
    before the first one is replaced: with StoreError, when the folder cannot be written, no file in
    it has changed. Equal points are equal bytes of points.parquet, with one version of pyarrow.
    """
    study, plan, points, frontier = results.study, results.plan, results.points, results.frontier
    reproduction = reproduction or Reproduction()
    summary = build_summary(results, reproduction.claims, seconds)
    models = changes = counts = None
    # The table of the points may have no YAML.
    with suppress(ConfigError):
        if store is not None:
            models = list_models(plan, store, home)
            changes = list_text_changes([planned.group for planned in plan], home)
            counts = average_counts(plan, store, home, study.minimum)
        encoder = name_encoder(study.dataset, home)
        summary |= {} if encoder is None else {"encoder": encoder}
    accuracy = study.frontier.accuracy
    title = f"{study.study}: {accuracy.replace('_', ' ')} against fairness"
    pictures: dict[str, drawing.Picture] = {}
    exposed: dict[tuple[str, str], Exposure] = {}
    if store is not None:
        scene = drawing.Scene(study, plan, points, frontier, store, home)
        pictures = {name: drawing.FIGURES.find(name).draw(scene) for name in study.figures}
        exposed = expose_chosen(scene)
    mixtures = trace_mixtures(points, list_fits(plan, "frontier"), frontier, accuracy)
    figure = draw_frontier(
        frontier, accuracy, study.select_on, reproduction.points, title, mixtures
    )
    report = render_report(
        results, summary, figure, reproduction, pictures, exposed, models, counts, asked
    )
    files = {
        "points.parquet": _to_parquet(points, SCHEMA),
        "frontier.csv": to_csv(name_columns(frontier, accuracy)),
        "frontier.png": figure,
        "report.html": report.encode(),
        "summary.json": (json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode(),
    }
    files |= {f"{name}.png": picture.png for name, picture in pictures.items()}
    if models is not None:
        files["models.csv"] = to_csv(models)
    if counts is not None and len(counts):
        files["scores.parquet"] = _to_parquet(counts)
    if changes is not None:
        files["changes.csv"] = to_csv(changes)
    if reproduction.published is not None:
        files["published.csv"] = to_csv(reproduction.published)
    return _replace_files(folder, files)


def describe_results(run: StudyRun) -> dict[str, Any]:
    """Return everything on which the files of a study depend, except the seconds that it took."""
    modules = [drawing.FIGURES.find(name).draw.__module__ for name in run.study.figures]
    packages = {module.partition(".")[0] for module in modules}
    references = list_names("publication", run.home).values()
    return {
        "study": run.study.model_dump(mode="json"),
        "plan": [
            {
                "points": key,
                "blocks": planned.blocks,
                "method": planned.group.method,
                "members": [[member.seed, member.setting] for member in planned.group.members],
            }
            for planned, key in zip(run.plan, run.points, strict=True)
        ],
        "references": {path.name: hash_file(path) for path in references},
        "template": [hash_file(path) for path in SOURCES],
        # To write a report again costs less than to find what an edit changes in it.
        "source": file_digest(tuple(sorted({*PACKAGES, *packages}))),
        "libraries": list_versions(),
        # The report counts failed trials, which are no fits of the plan.
        "searched": None if run.searched is None else _describe_search(run.searched),
        # The report's commands name it.
        "asked": run.options.shown,
    }


def _describe_search(searched: Searched) -> dict[str, Any]:
    """Return what the report says of a search."""
    return {
        "trials": searched.trials,
        "failed": searched.list_failed(),
        "absent": dict(searched.absent),
    }


def keep_results(files: Mapping[str, Path], store: Store, description: Mapping[str, Any]) -> None:
    """Keep the files of a study in the store."""
    with store.writing(KIND, store.key(KIND, description), description) as folder:
        for name, path in files.items():
            shutil.copyfile(path, folder / name)


def restore_results(folder: Path, store: Store, description: Mapping[str, Any]) -> bool:
    """Restore the kept files of a study to its folder; False where none are kept."""
    recover(folder)
    files = store.list_files(KIND, store.key(KIND, description))
    if files is None:
        return False
    kept = {name: path.read_bytes() for name, path in files.items()}
    paths = {name: folder / name for name in kept}
    if any(not path.is_file() or path.read_bytes() != kept[name] for name, path in paths.items()):
        _replace_files(folder, kept)
    return True


def _to_parquet(frame: pd.DataFrame, schema: pa.Schema | None = None) -> bytes:
    """Return Parquet without pandas' own metadata, which contains versions."""
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd", version="2.6")
    return sink.getvalue()


def _replace_files(folder: Path, files: Mapping[str, bytes]) -> dict[str, Path]:
    """Replace the files of a study in its folder, all at once."""
    owned = drawing.list_files()
    with filling(folder, owned, check=check_again(folder, owned, "run")) as work:
        for name, content in files.items():
            (work / name).write_bytes(content)
    return {name: folder / name for name in files}
