"""Choosing slack and rates on validation rows, by the rule of the paper."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from fairfrontier.train.noisy.lagrangian import TOLERANCE
from fairfrontier.train.noisy.problem import Setting

# Settings of which a model may be given several values.
CHOSEN = ("slack", "learning_rate", "multiplier_rate", "inner_rate")


def list_candidates(setting: Setting) -> list[Setting]:
    """Return a setting for every combination of the listed values."""
    values = {name: np.atleast_1d(getattr(setting, name)).tolist() for name in CHOSEN}
    if setting.inner != "ascent":
        values["inner_rate"] = values["inner_rate"][:1]
    return [
        replace(setting, **dict(zip(values, each, strict=True)))
        for each in itertools.product(*values.values())
    ]


def rank_candidates(trials: np.ndarray) -> int:
    """Return which of (error, violation) is chosen: the least error of those without violation.

    Where all violate a constraint, the least violation, and the least error of equal ones; of
    equals the first. An unknown violation, as no group has a row of an event, counts as the
    largest.
    """
    error = trials[:, 0]
    violation = np.where(np.isnan(trials[:, 1]), np.inf, trials[:, 1])
    feasible = violation <= TOLERANCE
    if feasible.any():
        return int(np.argmin(np.where(feasible, error, np.inf)))
    return int(np.lexsort((error, violation))[0])


def describe_choice(setting: Setting, names: Iterable[str]) -> dict[str, float]:
    """Return the slack and rates of a setting, of those that an estimator has."""
    return {name: float(getattr(setting, name)) for name in CHOSEN if name in names}
