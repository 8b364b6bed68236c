"""Choosing rates of training on validation rows, by the rule of the paper."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from fairfrontier.train.base import unit_weight
from fairfrontier.train.noisy.lagrangian import TOLERANCE
from fairfrontier.train.noisy.training_table import ROBUST

if TYPE_CHECKING:
    from fairfrontier.train.noisy.estimator import NoisyGroups

# Parameters of which a model may be given several values.
CHOSEN = ("slack", "learning_rate", "multiplier_rate", "inner_rate")


def list_values(model: NoisyGroups) -> dict[str, list[float]]:
    """Return the values to choose from, of those parameters that the approach uses."""
    used = {
        "slack": model.approach != "unconstrained",
        "learning_rate": True,
        "multiplier_rate": model.approach != "unconstrained",
        "inner_rate": model.approach in ROBUST and model.inner == "ascent",
    }
    found = {name: np.atleast_1d(getattr(model, name)).tolist() for name in CHOSEN}
    return {name: each if used[name] else each[:1] for name, each in found.items()}


def list_candidates(model: NoisyGroups) -> list[NoisyGroups]:
    """Return unfitted copies of a model, one for every combination of the listed values."""
    values = list_values(model)
    return [
        clone(model).set_params(**dict(zip(values, each, strict=True)))
        for each in itertools.product(*values.values())
    ]


def try_candidates(candidates: Sequence[NoisyGroups], data: Mapping[str, Any]) -> np.ndarray:
    """Return error and largest constraint of fitted candidates on validation rows, (C, 2).

    Without validation rows they are those that training saw. The constraints are those of the
    approach, as its inner player tells them, so that true groups have a part only under
    ``true_groups``; with ``validation_groups`` "true" they are those on the true groups.
    """
    part = data.get("validation")
    for each in candidates:
        each.trials_, each.chosen_ = np.zeros((0, 2)), _describe(each)
    if part is None:
        return np.array([(each.error_, each.violation_) for each in candidates])
    weight = unit_weight(part.weight, len(part.y))
    told = {"true_groups": part.true_groups, "sample_weight": part.weight}
    found = []
    for each in candidates:
        decision = each.decide(part.X) @ each.probability_
        error = float(np.average(np.abs(decision - part.y), weights=weight))
        judge = each
        if each.validation_groups == "true" and each.approach != "unconstrained":
            judge = clone(each).set_params(approach="true_groups")
            judge.set_state(each.get_state())
        found.append((error, judge.violation(part.X, part.y, part.groups, **told)))
    return np.array(found)


def rank_candidates(trials: np.ndarray) -> int:
    """Return which of (error, violation) is chosen: the least error of those without violation.

    Where all violate a constraint, the least violation, and the least error of equal ones; of
    equals the first. A violation that cannot be told, as no group has a row of an event, counts as
    the largest.
    """
    error = trials[:, 0]
    violation = np.where(np.isnan(trials[:, 1]), np.inf, trials[:, 1])
    feasible = violation <= TOLERANCE
    if feasible.any():
        return int(np.argmin(np.where(feasible, error, np.inf)))
    return int(np.lexsort((error, violation))[0])


def settle(model: NoisyGroups, candidates: Sequence[NoisyGroups], data: Mapping[str, Any]) -> None:
    """Make a model the candidate that validation rows choose."""
    trials = try_candidates(candidates, data)
    best = candidates[rank_candidates(trials)]
    best.trials_ = trials
    best.chosen_ = _describe(best)
    model.set_state(best.get_state())


def _describe(model: NoisyGroups) -> dict[str, float]:
    return {name: float(getattr(model, name)) for name in CHOSEN}
