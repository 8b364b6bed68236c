"""Fair regression under bounded group loss (algorithm 2); it may be infeasible, and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fairfrontier.train.regression.loss import Loss
from fairfrontier.train.regression.oracle.oracle import Response, RiskOracle
from fairfrontier.train.regression.parity import standard_error, weigh_groups
from fairfrontier.train.regression.predictor import Predictor
from fairfrontier.train.regression.saddle import (
    Column,
    Progress,
    SaddleProblem,
    Schedule,
    mix,
    solve_saddle,
)

# Constants among which the best is sought for the tolerance.
CONSTANTS = 21


@dataclass(frozen=True, eq=False)
class BoundedLossProblem:
    """min_Q Ê[ℓ(Y, f(X))]  s.t.  Ê[ℓ(Y, f(X)) | A = a] ≤ ζ_a for all a.

    Attributes
    ----------
    value : callable
        From predictions, shape (n_samples,), to the rows' losses.
    group : ndarray of int64, shape (n_samples,)
        Codes 0, …, n_groups − 1, each taken.
    weight : ndarray of float64, shape (n_samples,)
        Sums to 1.
    share : ndarray of float64, shape (n_groups,)
        p_a.
    budget : ndarray of float64, shape (n_groups,)
        ζ̂_a.
    radius, tolerance : float
        B and ν.
    iterations : int
        Cap.
    schedule : {"adaptive", "theory"}
        See ``SaddleProblem``; the rate of ``theory`` is ν / (2B).
    """

    value: Callable[[np.ndarray], np.ndarray]
    group: np.ndarray
    weight: np.ndarray
    share: np.ndarray
    budget: np.ndarray
    radius: float
    tolerance: float
    iterations: int
    schedule: Schedule

    def sum_group_losses(self, response: Response) -> np.ndarray:
        """Return the groups' mean losses of an answer; a problem of rows elsewhere asks there."""
        return sum_group_losses(self, response.score)


@dataclass(frozen=True, eq=False)
class BoundedLossResult:
    """A randomised predictor, or none.

    Attributes
    ----------
    predictors : tuple of Predictor
        Those of positive probability; empty when no mixture found keeps the bounds.
    weight : ndarray of float64, shape (n_predictors,)
        Their probabilities.
    feasible : bool
        Whether γ̂_a ≤ ζ̂_a + (1 + 2ν) / B for every group.
    multiplier : ndarray of float64, shape (n_groups,)
        λ of the best lower bound.
    loss : float
        Of the mixture; infinite when there is none.
    group_loss : ndarray of float64, shape (n_groups,)
        γ̂ of the mixture; when there is none of the mixture that ``reachable`` describes.
    reachable : ndarray of float64, shape (n_groups,)
        ζ̂_a + s for the least s ≥ 0 with which some mixture keeps all bounds: budgets of this shape
        that can be met.
    alone : ndarray of float64, shape (n_groups,)
        Least loss of each group among the predictors found, some of which were asked to serve it
        alone: with an exact oracle no ζ_a below it can be met.
    gap : float
        As in ``ParityResult``.
    relative : bool
        Whether the oracle is not exact.
    iterations, calls : int
        Iterations, oracle calls.
    converged : bool
        Whether the tolerance was met.
    """

    predictors: tuple[Predictor, ...]
    weight: np.ndarray
    feasible: bool
    multiplier: np.ndarray
    loss: float
    group_loss: np.ndarray
    reachable: np.ndarray
    alone: np.ndarray
    gap: float
    relative: bool
    iterations: int
    calls: int
    converged: bool


def build_bounded_loss(
    y: np.ndarray,
    group: np.ndarray,
    weight: np.ndarray,
    *,
    loss: Loss,
    budget: float | Sequence[float],
    radius: float | None = None,
    tolerance: float | None = None,
    iterations: int = 50,
    inflation: float = 0.0,
    schedule: Schedule = "adaptive",
) -> BoundedLossProblem:
    """Make the problem of rows with labels in [0, 1].

    Parameters
    ----------
    y, group, weight, tolerance, iterations, inflation, schedule
        As ``build_parity``; the inflation is C' of assumption 2.
    loss : Loss
        Its values bound ζ: they lie in [0, 1] whatever the labels' range.
    budget : float or sequence of float, shape (n_groups,)
        ζ_a.
    radius : float, optional
        B; 100 / max{min_a ζ_a, .001} when None, so that accepted bounds are exceeded by little more
        than a hundredth of the least.

    Raises
    ------
    DataError
        As ``parity.weigh_groups``.
    """
    total = weigh_groups(group, weight)
    allowed = np.broadcast_to(np.asarray(budget, dtype=np.float64), total.shape)
    if tolerance is None:
        constants = loss.value(y[:, None], np.linspace(0.0, 1.0, CONSTANTS)[None, :])
        tolerance = 0.5 * standard_error(constants, weight)
    return BoundedLossProblem(
        lambda score: np.asarray(loss.value(y, np.clip(score, 0.0, 1.0))),
        group,
        weight / total.sum(),
        total / total.sum(),
        allowed + inflation / np.sqrt(total),
        100.0 / min(max(float(allowed.min()), 1e-3), 1.0) if radius is None else radius,
        tolerance,
        iterations,
        schedule,
    )


def sum_group_losses(problem: BoundedLossProblem, score: np.ndarray) -> np.ndarray:
    """Return the mean loss of each group, shape (n_groups,); O(n)."""
    rows = problem.weight * problem.value(score)
    sums: np.ndarray = np.bincount(problem.group, weights=rows, minlength=problem.share.size)
    losses: np.ndarray = sums / problem.share
    return losses


def solve_bounded_loss(
    problem: BoundedLossProblem,
    oracle: RiskOracle,
    seen: Sequence[Column] = (),
    progress: Progress | None = None,
) -> BoundedLossResult:
    """Play algorithm 2 and mix what was found, unless the mixture breaks a bound.

    Parameters
    ----------
    problem : BoundedLossProblem
    oracle : RiskOracle
        Best response to row weights 1/n + λ_a / n_a.
    seen : sequence of Column
        Predictors of another budget on the same rows and loss.
    progress : callable, optional
        Called with (iterations done, iterations).

    Notes
    -----
    With an exact oracle an answer without predictors after convergence proves that no mixture keeps
    the bounds. Without convergence, or with another oracle, it says that none was found. The cost
    is two oracle calls and O(n) an iteration, and n_groups calls at the start for ``alone``.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression. ICML 2019, algorithm 2, theorem 3.
    """
    n_groups = problem.share.size

    def judge(factor: np.ndarray) -> Column:
        response = oracle.minimise(factor)
        losses = problem.sum_group_losses(response)
        return Column(float(problem.share @ losses), losses, response.predictor)

    # No group may lose all weight: a design of one group's rows alone can be singular.
    single = [judge(np.where(np.arange(n_groups) == a, 1.0, 1e-6)) for a in range(n_groups)]
    game = SaddleProblem(
        problem.budget,
        problem.radius,
        lambda multiplier: judge(1.0 + multiplier / problem.share),
        problem.tolerance / (2.0 * problem.radius),
        problem.tolerance,
        problem.iterations,
        problem.schedule,
        oracle.exact,
    )
    found = solve_saddle(game, [*seen, *single], progress)
    constraints = np.stack([each.constraint for each in found.seen])
    nearest = mix(np.zeros(len(found.seen)), constraints, problem.budget, 1.0)
    slack = (1.0 + 2.0 * problem.tolerance) / problem.radius
    feasible = bool((found.constraint <= problem.budget + slack).all())
    return BoundedLossResult(
        predictors=tuple(each.predictor for each in found.columns) if feasible else (),
        weight=found.weight if feasible else np.zeros(0),
        feasible=feasible,
        multiplier=found.multiplier,
        loss=found.loss if feasible else np.inf,
        group_loss=found.constraint if feasible else nearest.weight @ constraints,
        reachable=problem.budget + nearest.value,
        alone=constraints.min(axis=0),
        gap=found.gap,
        relative=not oracle.exact,
        iterations=found.iterations,
        calls=found.calls + n_groups,
        converged=found.converged,
    )
