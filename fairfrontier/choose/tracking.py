"""A finished study among the runs that people keep in MLflow."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.choose.choosing import BUNDLE, FOLDER, read_finished
from fairfrontier.choose.config import LogConfig
from fairfrontier.choose.select import Study
from fairfrontier.deployment.bundle import MANIFEST, REFUSED, Bundle, load_bundle
from fairfrontier.report.finding import list_versions
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.version import version
from fairfrontier.runtime.writer import drafting, locking, restore
from fairfrontier.study.frontier import KEYS, summarise

PARTS = ("validation", "test")
# Text of a table (changes.csv) and ids of its rows (decisions.parquet) stay where they are.
ARTIFACTS = (
    *("*.html", "*.png", "frontier.csv", "models.csv", "points.parquet", "published.csv"),
    "summary.json",
)
PAPERS = ("*.html", "*.md", "*.png", "*.csv", "choice.json")
# Tags by which a study that was logged before is found.
STUDY, CHOICE, PARENT = "fairfrontier.study", "fairfrontier.choice", "mlflow.parentRunId"
# The folder that is logged, and its machine: whoever holds its lock knows that no log of it runs.
SOURCE = "fairfrontier.source"
# Milliseconds after which a log of elsewhere is taken for cut off.
ABANDONED = 24 * 3600 * 1000
MODEL = "bundle"
MOST_LETTERS = 6_000
# What an address may hold before the host: a name and a password.
_SECRET = re.compile(r"(?<=://)[^/@\s]*@")


@dataclass(frozen=True)
class Logged:
    """Where a study is in MLflow.

    ``run`` is the id of its run and ``settings`` the number of those nested in it, ``model`` the
    URI of the choice's bundle, if there is one. ``files`` is where MLflow keeps those of the run.
    ``new`` and ``new_model`` say what was not there before.
    """

    experiment: str
    run: str
    settings: int
    model: str | None
    files: str
    new: bool
    new_model: bool


def log_study(config: LogConfig) -> Logged:
    """Log a finished study to MLflow: a run for it, and one nested in it for every setting.

    The run of the study has its files; a setting's has its parameters, and every measure of all
    rows and of an attribute as the mean over the seeds, ``validation/MEASURE`` and
    ``test/MEASURE``. Where `select` left a choice, its papers are files of the run, and its bundle
    is a logged model: a pyfunc that MLflow loads by `load_bundle`, without pickle. What was logged
    before, by a digest of the results, is not logged again; what a log that was cut off left is
    deleted, that of another folder or machine after a day.

    Raises
    ------
    ConfigError
        When the study was not run.
    ModuleNotFoundError
        When MLflow is not installed.
    StoreError
        When MLflow or its server refuses, or the bundle was altered.

    Notes
    -----
    O(settings) requests. Rates of single levels are in points.parquet, not in runs.
    """
    study = read_finished(config)
    mlflow = _import_mlflow()
    with _explaining(), locking(study.folder):
        client = mlflow.MlflowClient(config.to)
        name = config.experiment or str(study.facts["study"])
        found = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if found is None else found.experiment_id
        digest, source = _digest(study), _name_source(study.folder)
        runs = client.search_runs([experiment], f"tags.`{STUDY}` = '{digest}'")
        complete = [run for run in runs if run.info.status == "FINISHED"]
        for run in runs:
            if run not in complete and _is_cut_off(run.data.tags, run.info.start_time, source):
                _delete(client, run)
        settings = study.frontier[KEYS].drop_duplicates()
        parent = (
            complete[0].info.run_id
            if complete
            else _log_runs(client, experiment, study, settings, {STUDY: digest, SOURCE: source})
        )
        model, new = _log_choice(mlflow, client, experiment, parent, study.folder / FOLDER, source)
        files = _SECRET.sub("", client.get_run(parent).info.artifact_uri)
    return Logged(name, parent, len(settings), model, files, not complete, new)


def _import_mlflow() -> Any:
    """Return the module mlflow, which else reports its use to its makers and draws bars."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    with warnings.catch_warnings():
        # It warns of type hints of its own.
        warnings.simplefilter("ignore")
        import mlflow
        import mlflow.pyfunc
    return mlflow


@contextmanager
def _explaining() -> Iterator[None]:
    """Turn errors of MLflow, and of what it writes to, into one sentence without a password."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        told = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise StoreError(
            f"MLflow cannot use its database: {_SECRET.sub('', told).rstrip('.')}.",
            "If a log was killed and left mlflow.db unfinished, remove it; else check --to.",
        ) from None
    # Those of requests are OSErrors.
    except (MlflowException, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise StoreError(
            f"MLflow says: {_SECRET.sub('', lines[0]).rstrip('.')}.",
            "Check --to, and that the server runs and takes your credentials.",
        ) from None


def _digest(study: Study) -> str:
    """Return what tells the results of a study from others; times of a run are no part of it."""
    digests = [hash_file(study.folder / name) for name in ("points.parquet", "frontier.csv")]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _name_source(folder: Path) -> str:
    """Return what tells a folder of this machine from others, without its path."""
    return hashlib.sha256(f"{socket.gethostname()}:{folder.resolve()}".encode()).hexdigest()


def _is_cut_off(tags: Mapping[str, str], started: int, source: str) -> bool:
    """Return whether the log is dead that began a run or model, in milliseconds, and left it."""
    return tags.get(SOURCE) == source or time.time() * 1000 - started > ABANDONED


def _delete(client: Any, parent: Any) -> None:
    """Delete a run and those nested in it, of which a search returns a page."""
    query = f"tags.`{PARENT}` = '{parent.info.run_id}'"
    while runs := client.search_runs([parent.info.experiment_id], query):
        for run in runs:
            client.delete_run(run.info.run_id)
    client.delete_run(parent.info.run_id)


def _log_runs(
    client: Any, experiment: str, study: Study, settings: pd.DataFrame, marks: Mapping[str, str]
) -> str:
    """Log the run of a study and those of its settings, and return the id of the first."""
    tags = {**marks, **{key: str(study.facts[key]) for key in ("study", "profile")}}
    tags["dataset"] = str(study.summary["dataset"])
    tags |= {f"version.{name}": number for name, number in list_versions().items()}
    parent = client.create_run(experiment, tags=tags, run_name=study.folder.name).info.run_id
    params = {"objective": study.objective, "fairness": ", ".join(study.fairness)}
    _log_batch(client, parent, {}, params)
    fits = study.points[[*KEYS, "seed"]].drop_duplicates().merge(settings, on=KEYS)
    measures = {
        part: dict(tuple(summarise(_leave_out_levels(study.points), fits, part).groupby(KEYS)))
        for part in PARTS
        if part in set(study.points["part"])
    }
    chosen = study.frontier[study.frontier["on_frontier"]]
    efficient = set(chosen[KEYS].itertuples(index=False, name=None))
    by_group = study.models[study.models["needs_groups"].astype(bool)]
    needing = set(by_group[KEYS].itertuples(index=False, name=None))
    for method, setting in settings.itertuples(index=False, name=None):
        key = (method, setting)
        tags = {
            PARENT: parent,
            "digest": marks[STUDY],
            "method": method,
            "on_frontier": str(key in efficient),
            "needs_groups": str(key in needing),
        }
        run = client.create_run(experiment, tags=tags, run_name=method).info.run_id
        metrics = {
            f"{part}/{_clean(name)}": value
            for part, of_part in measures.items()
            if key in of_part
            for name, value in zip(of_part[key]["name"], of_part[key]["value"], strict=True)
            if np.isfinite(value)
        }
        _log_batch(client, run, metrics, json.loads(setting))
        client.set_terminated(run)
    for path in _list_files(study.folder, ARTIFACTS):
        client.log_artifact(parent, str(path))
    client.set_terminated(parent)
    return str(parent)


def _leave_out_levels(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points of all rows, of whole attributes, and of certificates' budgets."""
    group = points["group"].astype(str)
    level = group.str.contains("=", regex=False) & ~group.str.startswith("budget=")
    return points[~level]


def _clean(name: str) -> str:
    """Return a name in the letters that MLflow takes."""
    return re.sub(r"[^\w.\- :]", "_", name)


def _log_batch(
    client: Any, run: str, metrics: Mapping[str, float], params: Mapping[str, Any]
) -> None:
    from mlflow.entities import Metric, Param

    now = int(time.time() * 1000)
    texts = {
        _clean(name): value if isinstance(value, str) else json.dumps(value)
        for name, value in params.items()
    }
    client.log_batch(
        run,
        metrics=[Metric(name, float(value), now, 0) for name, value in metrics.items()],
        params=[Param(name, text[:MOST_LETTERS]) for name, text in texts.items()],
    )


def _list_files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())


def _log_choice(
    mlflow: Any, client: Any, experiment: str, run: str, folder: Path, source: str
) -> tuple[str | None, bool]:
    """Log the choice that a folder holds, and return the URI of its model and whether it is new."""
    restore(folder)
    if not (folder / BUNDLE / MANIFEST).is_file():
        return None, False
    bundle = load_bundle(folder / BUNDLE)
    digest = hash_file(folder / BUNDLE / MANIFEST)
    logged, _, known = client.get_run(run).data.tags.get(CHOICE, "").partition(" ")
    if logged and known == digest:
        return logged, False
    of_run = f"source_run_id = '{run}'"
    for old in client.search_logged_models([experiment], of_run):
        if old.status == "PENDING" and _is_cut_off(old.tags, old.creation_timestamp, source):
            client.delete_logged_model(old.model_id)
    for path in _list_files(folder, PAPERS):
        client.log_artifact(run, str(path), FOLDER)
    methods = [str(each["method"]) for each in bundle.manifest["models"]]
    tags = {"method": " or ".join(methods), "needs_groups": ", ".join(bundle.needed_groups)}
    tags[SOURCE] = source
    model = client.create_logged_model(experiment, MODEL, run, tags=tags).model_id
    # The next log removes a killed one's; that is nobody else's to read.
    with drafting(Path(tempfile.gettempdir())) as draft:
        work = tempfile.mkdtemp(dir=draft)
        mlflow.pyfunc.save_model(
            f"{work}/{MODEL}",
            loader_module=__name__,
            data_path=str(folder / BUNDLE),
            signature=_describe_columns(bundle),
            pip_requirements=[f"fairfrontier[cpu]=={version('fairfrontier')}"],
        )
        client.log_model_artifacts(model, f"{work}/{MODEL}")
    client.finalize_logged_model(model, "READY")
    uri = f"models:/{model}"
    client.set_tag(run, CHOICE, f"{uri} {digest}")
    return uri, True


def _describe_columns(bundle: Bundle) -> Any:
    """Return MLflow's signature: the raw columns that decisions need or may use, and what they are.

    Cells are of any type, as a bundle reads numbers and levels from numbers and text.
    """
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, Schema

    encoder, own = bundle.encoder, [bundle.row_id] if bundle.row_id else []
    needed = [*own, *encoder.features, *encoder.find_columns(bundle.needed_groups)]
    names = dict.fromkeys([*needed, *encoder.list_read(None, encoder.names)])
    inputs = [ColSpec(AnyType(), name, required=name in needed) for name in names]
    kinds = dict.fromkeys(bundle.scores, "double") | {REFUSED: "string"}
    outputs = [ColSpec(kinds.get(name, AnyType()), name) for name in bundle.columns]
    return ModelSignature(Schema(inputs), Schema(outputs))


def _load_pyfunc(path: str) -> SimpleNamespace:
    """Return what MLflow calls: `Bundle.decide` as ``predict``."""
    return SimpleNamespace(predict=load_bundle(path).decide)
