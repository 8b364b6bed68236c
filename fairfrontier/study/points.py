"""The points of a fit group: its stored scores, measured on every part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.evaluate.certificate.adversarial_gap import GapCertificate, Loss, certify_gaps
from fairfrontier.evaluate.certificate.box import BoxBound, bound_part
from fairfrontier.evaluate.certificate.certificate import Certificate, certify_part
from fairfrontier.evaluate.measure.registry import MEASURES
from fairfrontier.evaluate.verb import COLUMNS, tabulate
from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.metric.kept import digest_metric, load_metric
from fairfrontier.prepare.digest import digest_split
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import Store, canonical_json
from fairfrontier.train.fit.fitting import fit
from fairfrontier.train.fit.group import FitGroup, Member
from fairfrontier.train.fit.input import load_split
from fairfrontier.train.fit.kept import KIND as FIT
from fairfrontier.train.fit.kept import read_facts
from fairfrontier.train.fit.key import WITHIN as TRAINING
from fairfrontier.train.fit.score_file import read_scores
from fairfrontier.train.neural.estimator import NeuralNetwork
from fairfrontier.train.prediction import Prediction
from fairfrontier.train.registry import load_model

KIND = "points"
# What measures: the room of evaluating, and what computes for it below.
WITHIN = ("fairfrontier.evaluate", *TRAINING)
LIBRARIES = ("numpy", "pandas", "scipy", "xgboost-cpu")
KEYS = ("dataset", "method", "setting", "seed", "part", "measure", "group")
POINT_COLUMNS = (*KEYS, "value", "n", "low", "high")


def tabulate_group(group: FitGroup, store: Store, home: Path) -> pd.DataFrame:
    """Return the points of a fit group, training it first where the store does not hold it.

    Parameters
    ----------
    group : FitGroup
        The fit.
    store : Store
        Holds fits and points.
    home : Path
        The project root.

    Returns
    -------
    DataFrame
        Columns ``POINT_COLUMNS``; no row where the method does not support the split.
    """
    trained = fit(group, store, home)
    description = _describe(trained, group, store, home)
    found = store.key(KIND, description)
    entry = store.read(KIND, found)
    if entry is None:
        table = _measure(group, store.path(FIT, trained), store, home)
        with store.writing(KIND, found, description) as folder:
            table.to_parquet(folder / "points.parquet", index=False)
    else:
        table = pd.read_parquet(entry / "points.parquet")
    settings = pd.Series([canonical_json(each.setting) for each in group.members], dtype="str")
    seeds = pd.Series([each.seed for each in group.members], dtype="int64")
    table = table.assign(
        method=group.method,
        setting=table.member.map(settings).astype("str"),
        seed=table.member.map(seeds).astype("int64"),
    )
    return table[list(POINT_COLUMNS)]


def points_key(fit_key: str, group: FitGroup, store: Store, home: Path) -> str:
    """Return the key of the points that belong to a stored fit of the group.

    Parameters
    ----------
    fit_key : str
        Of the fit.
    group : FitGroup
        What was fitted, and how it is measured.
    store : Store
        Knows what splits and metrics hold; those that it does not know are made.
    home : Path
        The project root.
    """
    return store.key(KIND, _describe(fit_key, group, store, home))


def _describe(fit_key: str, group: FitGroup, store: Store, home: Path) -> dict[str, Any]:
    # Measures are found by walking, which the digest of this module's imports does not see.
    modules = [__name__, *sorted({each.module for each in MEASURES.all().values()})]
    return {
        "fit": fit_key,
        "data": [digest_split(group.find_split(each), store, home).whole for each in group.members],
        "certificate": _describe_certificate(group, store, home),
        "minimum": group.minimum,
        "source": source_digest(modules, within=WITHIN, store=store),
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def _describe_certificate(group: FitGroup, store: Store, home: Path) -> dict[str, Any] | None:
    """Return what is certified, with the digests of the metrics in the place of what they are."""
    if group.certificate is None:
        return None
    metrics: list[str | None] = []
    for each in group.members:
        request = group.find_certified(each)
        try:
            metrics.append(None if request is None else digest_metric(request, store, home))
        except (ConfigError, DataError):
            # A regression is not certified; any other group will say why.
            metrics.append("refused")
    return {**group.certificate, "metric": metrics}


def _measure(group: FitGroup, folder: Path, store: Store, home: Path) -> pd.DataFrame:
    """Measure every member of a stored fit on every part."""
    tables = [pd.DataFrame(columns=["member", "dataset", "part", *COLUMNS])]
    if read_facts(folder)["skipped"] is not None:
        return tables[0]
    tables = []
    for number, member in enumerate(group.members):
        split = load_split(group, member, home)
        metric = load_certified(group, member, split, store, home)
        scores = read_scores(folder / f"scores-{number}.npz")
        tables += [
            tabulate(
                scores[name],
                part,
                minimum=group.minimum,
                certificates=_certify(group, metric, _outputs(group, scores[name]), part),
                gaps=certify_losses(group, metric, scores[name], part),
                boxes=_bound(group, metric, split, folder / f"model-{number}", part),
            ).assign(member=number, dataset=split.dataset, part=name)
            for name, part in split.parts()
        ]
    return pd.concat(tables, ignore_index=True)


def _outputs(group: FitGroup, scores: Prediction) -> Prediction:
    """Return what is certified: a post-processor's decisions in the place of its model's scores."""
    return scores if group.then is None else replace(scores, score=scores.decision)


def load_certified(
    group: FitGroup, member: Member, split: Split, store: Store, home: Path
) -> FairMetric | None:
    """Return the metric under which a member is certified; None where it is not."""
    request = group.find_certified(member)
    if request is None or split.task == "regression":
        return None
    return load_metric(request, store, home)


def _certify(
    group: FitGroup, metric: FairMetric | None, scores: Prediction, part: Part
) -> tuple[Certificate, ...]:
    """Certify a member on the parts that are asked for."""
    asked = group.certificate
    if asked is None or metric is None or part.name not in asked["parts"]:
        return ()
    return certify_part(scores, part, metric, asked["budgets"], asked["rows"])


def certify_losses(
    group: FitGroup,
    metric: FairMetric | None,
    scores: Prediction,
    part: Part,
    budgets: Sequence[float] | None = None,
    **effort: Any,
) -> tuple[GapCertificate, ...]:
    """Certify the losses of a member on the parts that are asked for.

    Of a post-processed model its decisions alone: the scores are still those of the model.
    ``metric`` is that of `load_certified`, ``effort`` goes to ``certify_gaps``: replicates and
    tolerance.
    """
    asked = group.certificate
    if asked is None or metric is None or part.name not in asked["parts"]:
        return ()
    losses: tuple[Loss, ...] = ("log", "error") if group.then is None else ("error",)
    return certify_gaps(
        scores,
        part,
        metric,
        budgets or asked["budgets"],
        rows=asked["rows"],
        losses=losses,
        **effort,
    )


def _bound(
    group: FitGroup, metric: FairMetric | None, split: Split, folder: Path, part: Part
) -> tuple[BoxBound, ...]:
    """Bound a net from below on the part that reports."""
    asked = group.certificate
    if asked is None or metric is None or part.name != "test":
        return ()
    model = load_model(folder)
    if not isinstance(model, NeuralNetwork):
        return ()
    return bound_part(model.network_, part, split.train, metric, asked["budgets"])
