"""Learners of fair metrics by their short names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from array_api_compat import is_dask_array

from fairfrontier.prepare.split import Split
from fairfrontier.runtime.errors import ConfigError, refuse_unknown
from fairfrontier.runtime.registry import Registry
from fairfrontier.similarity.fair_metric import FairMetric

Learner = Callable[..., FairMetric]
Function = TypeVar("Function", bound=Learner)
METRICS: Registry[Learner] = Registry(
    "fair metric", "fair_metric", ("fairfrontier.similarity",), "fairfrontier.metrics"
)
# Learners that also take a split whose X is a Dask array.
PARTITIONED = ("subspace", "face")


def fair_metric(name: str) -> Callable[[Function], Function]:
    """Register a learner ``(split, **parameters) -> FairMetric`` under a short name."""

    def register(function: Function) -> Function:
        METRICS.add(name, function, function)
        return function

    return register


def learn(name: str, split: Split, **parameters: Any) -> FairMetric:
    """Learn a fair metric from the train part of a split.

    Parameters
    ----------
    name : str
        A registered learner, e.g. ``"subspace"``.
    split : Split
        As returned by ``fairfrontier.prepare.load``.
    **parameters
        Those of the learner, whose signature has their defaults.

    Returns
    -------
    FairMetric
        With NumPy arrays; its methods compute on the backend of their arguments.

    Raises
    ------
    ConfigError
        For an unknown learner or parameter, a split without protected attributes, or one whose X is
        a Dask array where the learner needs its rows in memory.
    """
    learner = METRICS.find(name)
    known = [key for key in inspect.signature(learner).parameters if key != "split"]
    refuse_unknown(parameters, known, f"The metric {name!r} has no parameter")
    if is_dask_array(split.train.X) and name not in PARTITIONED:
        raise ConfigError(
            f"The metric {name!r} is learnt from rows in memory, and those of {split.dataset} stay "
            "in partitions.",
            f"Choose {' or '.join(PARTITIONED)}.",
        )
    return learner(split, **parameters)
