"""What the two problems of fair regression share: their rows, their settings, their solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fairfrontier.runtime.cluster.executor import Rows
from fairfrontier.runtime.errors import DataError
from fairfrontier.train.regression.predictor import Predictor
from fairfrontier.train.regression.saddle import Schedule


@dataclass(frozen=True, eq=False, kw_only=True)
class ConstrainedProblem:
    """min_Q Ê[ℓ(Y, f(X))] over mixtures Q of predictors, with a bound for each group.

    Attributes
    ----------
    rows : Rows
        With the columns ``group``, codes 0, …, n_groups − 1, all of which occur, ``share``, weights
        that add up to 1, and those of the problem.
    share, budget : ndarray of float64, shape (n_groups,)
        p_a, and ε̂_a or ζ̂_a.
    radius, tolerance : float
        B and ν.
    iterations : int
        Cap.
    schedule : {"adaptive", "theory"}
        See ``SaddleProblem``.
    """

    rows: Rows
    share: np.ndarray
    budget: np.ndarray
    radius: float
    tolerance: float
    iterations: int
    schedule: Schedule


@dataclass(frozen=True, eq=False, kw_only=True)
class Solution:
    """A randomised predictor and how good it is: the fitted attributes of `Reduction`."""

    predictors: tuple[Predictor, ...]
    probability: np.ndarray
    multiplier: np.ndarray
    loss: float
    group_value: np.ndarray
    gap: float
    exact: bool
    converged: bool
    iterations: int
    calls: int
    reachable: np.ndarray = field(default_factory=lambda: np.zeros(0))
    alone: np.ndarray = field(default_factory=lambda: np.zeros(0))


def describe_groups(
    group: np.ndarray, weight: np.ndarray, budget: float | Sequence[float], inflation: float
) -> tuple[dict[str, np.ndarray], float]:
    """Return the fields of a problem that describe its groups, and the least budget.

    Budgets grow by C' / sqrt(n_a), with C' the inflation and n_a the weight of group a. DataError
    when there is one group only, a group without weight, or no more weight than one row has:
    weights are numbers of rows, on which tolerances and slacks depend.
    """
    total: np.ndarray = np.bincount(group, weights=weight)
    if total.size < 2:
        raise DataError(
            "All training rows are in one group.", "Name an attribute with two groups or more."
        )
    if (total <= 0).any():
        raise DataError(
            "A group has no weight among the training rows.", "Leave its rows out, or merge it."
        )
    if total.sum() <= 1.0 + 1e-9:
        raise DataError(
            f"The weights of all training rows add up to {total.sum():.3g} rows.",
            "Give numbers of rows, not shares: multiply them by the number of rows.",
        )
    allowed = np.broadcast_to(np.asarray(budget, dtype=np.float64), total.shape)
    fields = {"share": total / total.sum(), "budget": allowed + inflation / np.sqrt(total)}
    return fields, float(allowed.min())


def choose_tolerance(losses: np.ndarray, weight: np.ndarray) -> float:
    """Return half a standard error of the best constant's mean loss, in the manner of the authors.

    ``losses`` are those of the constants, float64, shape (n_samples, n_constants).
    """
    mean = weight @ losses / weight.sum()
    best = losses[:, int(np.argmin(mean))]
    deviation, total = float(weight @ (best - mean.min()) ** 2), float(weight.sum())
    return 0.5 * max(float(np.sqrt(deviation / total / total)), 1e-9)
