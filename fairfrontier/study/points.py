"""The points of a fit group: its stored scores, measured on every part and counted on test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.metrics.certificate.certificate import (
    GapCertificate,
    Loss,
    bound_part,
    certify_gaps,
    certify_part,
)
from fairfrontier.metrics.measure.registry import MEASURES
from fairfrontier.metrics.statistic.rate import SUMS, count_scores
from fairfrontier.metrics.verb import COLUMNS, tabulate
from fairfrontier.models.fit.fitting import fit
from fairfrontier.models.fit.group import KIND as FIT
from fairfrontier.models.fit.group import FitGroup, Member, load_split, read_facts
from fairfrontier.models.fit.key import WITHIN as TRAINING
from fairfrontier.models.fit.key import WITHOUT, key
from fairfrontier.models.fit.training import read_scores
from fairfrontier.models.neural.estimator import NeuralNetwork
from fairfrontier.models.objective import read_costs
from fairfrontier.models.prediction import Prediction, check_features, task_of
from fairfrontier.models.registry import load_model
from fairfrontier.prepare.loader import digest_split
from fairfrontier.prepare.split import Part, Split
from fairfrontier.prepare.table.frame import read_result
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import Store, canonical_json
from fairfrontier.runtime.version import version
from fairfrontier.similarity.fair_metric import FairMetric
from fairfrontier.similarity.kept import digest_metric, load_metric
from fairfrontier.study.frontier import SCHEMA

KIND = "points"
# The code that measures: the evaluation, and the modules below that compute for it.
WITHIN = ("fairfrontier.metrics", *TRAINING)
LIBRARIES = ("numpy", "pandas", "scipy", "xgboost-cpu")


def tabulate_group(group: FitGroup, store: Store, home: Path) -> pd.DataFrame:
    """Return the points of a fit group, training it first if the store does not hold it.

    The frame has the columns of `results.SCHEMA`, and no row where the method does not support the
    split.
    """
    trained = fit(group, store, home)
    description = _describe(trained, group, store, home)
    name = store.key(KIND, description)
    entry = store.read(KIND, name)
    if entry is None:
        with store.writing(KIND, name, description) as folder:
            table, counted = _measure(group, store.path(FIT, trained), store, home)
            table.to_parquet(folder / "points.parquet", index=False)
            counted.to_parquet(folder / "scores.parquet", index=False)
    else:
        table = read_result(entry / "points.parquet")
    return _name_members(table, group)[list(SCHEMA.names)]


def read_counts(group: FitGroup, store: Store, home: Path) -> pd.DataFrame | None:
    """Return the scores on the test part that `count_scores` counted, by method, setting and seed.

    None where the store does not hold the group's points.
    """
    entry = store.read(KIND, points_key(key(group, store, home), group, store, home))
    if entry is None:
        return None
    return _name_members(read_result(entry / "scores.parquet"), group)


def _name_members(table: pd.DataFrame, group: FitGroup) -> pd.DataFrame:
    """Return a table with the method, setting and seed of each row's ``member``."""
    settings = pd.Series([canonical_json(member.setting) for member in group.members], dtype="str")
    seeds = pd.Series([member.seed for member in group.members], dtype="int64")
    return table.assign(
        method=group.method,
        setting=table.member.map(settings).astype("str"),
        seed=table.member.map(seeds).astype("int64"),
    )


def points_key(fit_key: str, group: FitGroup, store: Store, home: Path) -> str:
    """Return the key of the points of a group's stored fit.

    Splits and metrics whose digests the store does not know are prepared first.
    """
    return store.key(KIND, _describe(fit_key, group, store, home))


def _describe(fit_key: str, group: FitGroup, store: Store, home: Path) -> dict[str, Any]:
    # Measures are discovered by walking the package, so no import of this module names them.
    modules = [__name__, *sorted({measure.module for measure in MEASURES.all().values()})]
    return {
        "fit": fit_key,
        "data": [digest_split(group.find_split(m), store, home).total for m in group.members],
        "certificate": _describe_certificate(group, store, home),
        "minimum": group.minimum,
        "costs": _find_costs(group),
        "source": source_digest(modules, within=WITHIN, without=WITHOUT, store=store),
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def _find_costs(group: FitGroup) -> tuple[float, float] | None:
    return None if group.objective is None else read_costs(group.objective)


def _describe_certificate(group: FitGroup, store: Store, home: Path) -> dict[str, Any] | None:
    """Return the certificate's configuration, with the digests of its metrics."""
    if group.certificate is None:
        return None
    metrics: list[str | None] = []
    for member in group.members:
        request = group.find_certified(member)
        try:
            metrics.append(None if request is None else digest_metric(request, store, home))
        except (ConfigError, DataError):
            # A regression is not certified; any other group reports why when it is measured.
            metrics.append("refused")
    return {**group.certificate, "metric": metrics}


def _measure(
    group: FitGroup, fitted: Path, store: Store, home: Path
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measure every member of a stored fit on every part, and count its scores on test."""
    points = pd.DataFrame(columns=["member", "dataset", "part", *COLUMNS])
    counts = pd.DataFrame(columns=["member", "group", "bin", *SUMS])
    if read_facts(fitted)["skipped"] is not None:
        return points, counts
    tables, counted = [], []
    for number, member in enumerate(group.members):
        split = load_split(group, member, home)
        metric = load_certified(group, member, split, store, home)
        scores = read_scores(fitted / f"scores-{number}.npz")
        for name, part in split.parts():
            model = fitted / f"model-{number}"
            certified = _certify(group, metric, scores[name], part, split, model)
            table = tabulate(
                scores[name], part, minimum=group.minimum, costs=_find_costs(group), **certified
            )
            tables.append(table.assign(member=number, dataset=split.dataset, part=name))
            if name == "test" and task_of(part) == "binary":
                counted.append(count_scores(scores[name].score, part).assign(member=number))
    points = pd.concat(tables, ignore_index=True)
    return points, pd.concat(counted or [counts], ignore_index=True)


def load_certified(
    group: FitGroup, member: Member, split: Split, store: Store, home: Path
) -> FairMetric | None:
    """Return the metric under which a member is certified; None if it is not."""
    request = group.find_certified(member)
    if request is None or split.task == "regression":
        return None
    return load_metric(request, store, home)


def _certify(
    group: FitGroup,
    metric: FairMetric | None,
    scores: Prediction,
    part: Part,
    split: Split,
    folder: Path,
) -> dict[str, Any]:
    """Return the certificates, gaps and boxes of a member for `tabulate`.

    Certificates and gaps are those of the chosen parts, of a post-processor's decisions if there is
    one; boxes bound the output shift of a network from below on the test part.
    """
    options = group.certificate
    if options is None or metric is None or part.name not in options["parts"]:
        return {}
    budgets, rows = options["budgets"], options["rows"]
    outputs = scores if group.then is None else replace(scores, score=scores.decision)
    certified: dict[str, Any] = {
        "certificates": certify_part(outputs, part, metric, budgets, rows),
        "gaps": certify_losses(group, metric, scores, part),
    }
    if part.name == "test" and isinstance(model := load_model(folder), NeuralNetwork):
        check_features(model, part)
        certified["boxes"] = bound_part(model.network_, part, split.train, metric, budgets)
    return certified


def certify_losses(
    group: FitGroup,
    metric: FairMetric | None,
    scores: Prediction,
    part: Part,
    budgets: Sequence[float] | None = None,
    **effort: Any,
) -> tuple[GapCertificate, ...]:
    """Certify the losses of a member on the chosen parts.

    For a post-processed model only its decisions are certified, since the scores are the model's.
    ``metric`` is from `load_certified`; ``effort``, replicates and tolerance, goes to
    `certify_gaps`.
    """
    options = group.certificate
    if options is None or metric is None or part.name not in options["parts"]:
        return ()
    losses: tuple[Loss, ...] = ("log", "error") if group.then is None else ("error",)
    chosen, rows = budgets or options["budgets"], options["rows"]
    return certify_gaps(scores, part, metric, chosen, rows=rows, losses=losses, **effort)
