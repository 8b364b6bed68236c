"""The objective of a study: what accuracy means, and the cut of scores that serves it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fairfrontier.runtime.errors import ConfigError, nearest

# A name, or {"costs": {"false_positive": 1, "false_negative": 5}}.
Objective = str | Mapping[str, Mapping[str, float]]
# Every method keeps its own weights and cuts.
OWN = "own"
RANKED = ("accuracy", "balanced_accuracy", "f1", "auc", "log_loss")
COSTS = ("false_positive", "false_negative")
COST_MEASURE = "error_cost"
SUMS = {"f1": "balanced_accuracy", "auc": "balanced_accuracy", "log_loss": "accuracy"}
# A class-weight parameter -> its values where classes count alike, and where rows do.
CLASS_WEIGHTS: dict[str, tuple[Any, Any]] = {
    "scale_pos_weight": ("balanced", 1.0),
    "class_weight": ("balanced", None),
    "balanced": (True, False),
}
# Rounds without a lower log loss on validation rows, for methods with ``early_stopping``.
PATIENCE = 20


def read_costs(objective: Objective) -> tuple[float, float] | None:
    """Return the costs of a false positive and of a false negative; None for a named objective.

    ConfigError is raised for an objective that is neither known nor ``{costs: ...}``.
    """
    if isinstance(objective, str):
        if objective not in RANKED:
            raise ConfigError(
                f"There is no objective {objective!r}.", nearest(objective, [*RANKED, "costs"])
            )
        return None
    costs = objective.get("costs") if isinstance(objective, Mapping) else None
    if isinstance(costs, Mapping) and set(costs) == set(COSTS) and len(objective) == 1:
        pair = [costs[name] for name in COSTS]
        if all(_is_price(cost) for cost in pair):
            return float(pair[0]), float(pair[1])
    raise ConfigError(
        f"The objective {objective!r} is no objective.",
        f"Give one of {', '.join(RANKED)}, or {{costs: {{false_positive: 1, false_negative: 5}}}}, "
        "with numbers above 0.",
    )


def _is_price(cost: Any) -> bool:
    number = isinstance(cost, int | float) and not isinstance(cost, bool)
    return number and 0 < cost < math.inf


def list_serving(objective: Objective, method: Any) -> dict[str, Any]:
    """Return the parameters of a class of classifiers by which it serves an objective.

    Classes count alike under the balanced accuracy, and rows under all else; under costs the
    positives of a method whose decisions stay those at 1/2 count c_FN/c_FP times, which moves that
    point to where both errors cost the same. What can is stopped early on validation rows, and has
    its budget in units of the data. An objective that ``method.objectives`` lacks is replaced by a
    sum over rows: f1 and auc by the balanced accuracy, and log_loss by the accuracy.
    """
    costs = read_costs(objective)
    serving = weigh_classes(objective, method)
    if costs is not None and method.constrains_decisions:
        serving["scale_pos_weight"] = costs[1] / costs[0]
    lacks = isinstance(objective, str) and objective not in method.objectives
    serving["objective"] = SUMS[str(objective)] if lacks else objective
    serving["early_stopping"] = PATIENCE
    known = inspect.signature(method).parameters
    if "budget_share" in known:
        serving["budget"] = None
    return {name: value for name, value in serving.items() if name in known}


def weigh_classes(objective: Objective, method: Any) -> dict[str, Any]:
    """Return a method's class weights: classes count alike under the balanced accuracy alone."""
    position = 0 if objective == "balanced_accuracy" else 1
    known = inspect.signature(method).parameters
    return {name: values[position] for name, values in CLASS_WEIGHTS.items() if name in known}


def weigh_rows(objective: Objective, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return what a right decision on each row adds to the objective, float64, adding up to 1.

    The objective is accuracy, balanced_accuracy or costs; ``y`` has codes 0 and 1.
    """
    costs, code = read_costs(objective), np.asarray(y, dtype=np.int64)
    gain = np.asarray(weight, dtype=np.float64)
    if costs is not None:
        gain = gain * np.asarray(costs)[code]
    elif objective == "balanced_accuracy":
        total = np.bincount(code, weights=gain, minlength=2)
        gain = gain / (np.count_nonzero(total) * total)[code]
    return np.asarray(gain / gain.sum())


def choose_cut(score: np.ndarray, y: np.ndarray, weight: np.ndarray, objective: Objective) -> float:
    """Return the cut t at which the decisions 1{score ≥ t} are best on the given rows.

        accuracy            max Σ w 1{decision = y}
        balanced_accuracy   max (TPR + TNR)/2; also for auc, which depends on no cut
        f1                  max 2 TP/(2 TP + FP + FN)
        costs               min c_FP FP + c_FN FN

    All distinct cuts are compared. t is 1/2 where that is among the best; else the middle of two
    adjacent scores, the one nearest to 1/2 of equally good ones. For log_loss t is 1/2.

    Parameters
    ----------
    score : ndarray of float64, shape (n_samples,)
        P(Y=1|x).
    y : ndarray of int, shape (n_samples,)
        Codes 0 and 1; t is 1/2 where one of them has no weight.
    weight : ndarray of float64, shape (n_samples,)
        At least 0.
    objective : str or mapping
        As in a study.

    Notes
    -----
    O(n log n), one sort. The optimum is optimistic on these rows: report it on others.
    """
    costs = read_costs(objective)
    positive, negative = weight * (y == 1), weight * (y != 1)
    totals = positive.sum(), negative.sum()
    if objective == "log_loss" or not min(totals) > 0:
        return 0.5
    values, rank = np.unique(score, return_inverse=True)
    descending = values[::-1]
    # True and false positives where the k highest of the distinct scores are selected, k = 0, ….
    hits, alarms = (
        np.append(0.0, np.cumsum(np.bincount(rank, side, values.size)[::-1]))
        for side in (positive, negative)
    )
    if objective == "f1":
        gain = 2 * hits / (hits + alarms + totals[0])
    elif costs is not None:
        gain = costs[1] * hits - costs[0] * alarms
    elif objective == "accuracy":
        gain = hits - alarms
    else:
        gain = hits / totals[0] - alarms / totals[1]
    best = np.flatnonzero(gain >= gain.max() - 1e-12 * np.abs(gain).max())
    if np.searchsorted(-descending, -0.5, side="right") in best:
        return 0.5
    upper = np.append(np.nextafter(1.0, 2.0), descending)[best]
    lower = np.append(descending, 0.0)[best]
    middle = (upper + lower) / 2
    # The middle of adjacent numbers may be the lower one.
    cuts = np.where(middle > lower, middle, upper)
    return float(cuts[np.argmin(np.abs(cuts - 0.5))])
