"""The key of a fit: a digest of everything its outcome depends on."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fairfrontier.models.base import Estimator
from fairfrontier.models.fit import post_processing, training
from fairfrontier.models.fit.group import KIND, LAYOUT, FitGroup, Member, find_metric
from fairfrontier.models.persistence import FORMAT
from fairfrontier.models.registry import METHODS
from fairfrontier.prepare.loader import digest_split
from fairfrontier.runtime.arrays import device_present
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import Store
from fairfrontier.similarity.kept import digest_metric

# A fit's source is the import closure of its method within these: the room of training, and what
# computes for it below. All else that runs before a fit is covered by the digests of its results.
WITHIN = (
    "fairfrontier.models",
    "fairfrontier.similarity.fair_metric",
    "fairfrontier.runtime.arrays",
    "fairfrontier.runtime.cluster.executor",
    "fairfrontier.runtime.cluster.logistic",
    "fairfrontier.runtime.seeds",
)
# Write and read what was fitted, in a ``FORMAT`` that is part of the key, and describe it.
WITHOUT = ("fairfrontier.models.persistence", "fairfrontier.models.thresholds.rulebook")
# What the numbers of a fit depend on; a new version of one of them requires a new fit.
LIBRARIES = ("array-api-compat", "numpy", "scikit-learn", "scipy", "skops", "xgboost-cpu")


def describe(group: FitGroup, store: Store, home: Path) -> dict[str, Any]:
    """Return everything a fit's outcome depends on, without its name and its certificates.

    Plain values: digests of the arrays that the method takes and of the metric, the setting, the
    digest of the source that runs, versions. A post-processor's fit is described by the key of its
    models' fit and the same of its own. Splits and metrics that the store does not know are made.
    """
    if group.then is not None:
        rule = METHODS.find(group.then["method"])
        return {
            "base": key(group.base, store, home),
            "then": group.then,
            "data": [_digest_scored(group, member, store, home) for member in group.members],
            "source": _digest_source(post_processing.__name__, [rule], store),
        }
    cls = METHODS.find(group.estimator)
    return {
        "layout": [LAYOUT, FORMAT],
        "estimator": group.estimator,
        "members": [{"seed": m.seed, "parameters": m.parameters} for m in group.members],
        "data": [_digest_taken(group, member, cls, store, home) for member in group.members],
        "metric": [_digest_metric(group, member, store, home) for member in group.members],
        "threads": group.threads,
        **({"objective": group.objective} if _chooses_cut(group, cls) else {}),
        "device": "cupy" if "cupy" in cls.backends and device_present() else "numpy",
        "source": _digest_source(training.__name__, [cls, *_find_named(group, cls)], store),
        "libraries": _versions(cls.libraries),
    }


def _chooses_cut(group: FitGroup, cls: type[Estimator]) -> bool:
    return group.objective is not None and training.chooses_cut(cls)


def key(group: FitGroup, store: Store, home: Path) -> str:
    """Return the key of a fit in the store; see ``describe``."""
    return store.key(KIND, describe(group, store, home))


def _find_named(group: FitGroup, cls: type[Estimator]) -> list[Any]:
    """Return the methods and solvers that the members' parameters name."""
    solver = cls.solver_parameter if cls.solvers else None
    named = [(cls.learner_parameter, METHODS), (solver, cls.solvers)]
    return [
        registry.find(each)
        for name, registry in named
        if name is not None and registry is not None
        for each in sorted({m.parameters.get(name, getattr(cls(), name)) for m in group.members})
    ]


def _digest_source(module: str, used: Sequence[Any], store: Store) -> str:
    modules = [module, training.__name__, *(each.__module__ for each in used)]
    return source_digest(modules, within=WITHIN, without=WITHOUT, store=store)


def _digest_taken(
    group: FitGroup, member: Member, cls: type[Estimator], store: Store, home: Path
) -> str:
    """Return the digest of the arrays used by a fit: to train, and to predict on every part."""
    fields = {
        "sample_weight": ("weight",),
        "sensitive_features": ("groups",),
        "true_groups": ("true_groups",),
        "counterfactuals": ("variants", "variant_groups"),
    }
    trained = {"X", "y"}.union(*(fields.get(keyword, ()) for keyword in cls.fit_takes))
    predicted = {"X", "variants"}
    if "sensitive_features" in cls.predict_needs:
        predicted |= {"groups", "variant_groups"}
    if "ids" in cls.predict_needs:
        predicted.add("ids")

    cut = _chooses_cut(group, cls)

    def is_taken(part: str, field: str) -> bool:
        return (
            field in predicted
            or (cut and part in ("train", "validation") and field in ("y", "weight"))
            or (part == "train" and field in trained)
            or (part == "validation" and "validation" in cls.fit_takes)
        )

    return digest_split(group.find_split(member), store, home).select(is_taken)


def _digest_scored(group: FitGroup, member: Member, store: Store, home: Path) -> str:
    """Return the digest of what a post-processor uses beside the scores, on any part."""
    fields = {"ids", "y", "weight", "groups", "variant_groups"}
    return digest_split(group.find_split(member), store, home).select(
        lambda _, field: field in fields
    )


def _digest_metric(group: FitGroup, member: Member, store: Store, home: Path) -> str | None:
    request = find_metric(group, member)
    if request is None:
        return None
    try:
        return digest_metric(request, store, home)
    except (ConfigError, DataError):
        # A method that the split does not suit needs none; any other fit raises the error.
        return "refused"


@cache
def _versions(further: tuple[str, ...]) -> dict[str, str]:
    versions = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in (*LIBRARIES, *further):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            # The GPU build of XGBoost has another name.
            versions[name] = importlib.metadata.version("xgboost")
    return versions
