"""Fair regression under bounded group loss (algorithm 2), which may be infeasible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairfrontier.runtime.cluster.executor import Block, Rows
from fairfrontier.train.regression.loss import Loss
from fairfrontier.train.regression.oracle.oracle import RiskOracle
from fairfrontier.train.regression.predictor import Predictor
from fairfrontier.train.regression.problem import (
    ConstrainedProblem,
    Solution,
    choose_tolerance,
    describe_groups,
)
from fairfrontier.train.regression.saddle import (
    Column,
    Progress,
    SaddleProblem,
    Schedule,
    mix,
    solve_saddle,
)

# Constants among which the best is sought for the tolerance.
CONSTANTS = np.linspace(0.0, 1.0, 21)


@dataclass(frozen=True, eq=False, kw_only=True)
class BoundedLossProblem(ConstrainedProblem):
    """min_Q Ê[ℓ(Y, f(X))]  s.t.  Ê[ℓ(Y, f(X)) | A = a] ≤ ζ_a for all a.

    Rows have the column ``y``, labels in [0, 1]. The rate of the schedule ``theory`` is ν / (2B).
    """

    loss: Loss

    def judge(self, predictor: Predictor) -> np.ndarray:
        """Return the mean loss of each group, shape (n_groups,), of clipped predictions."""
        sums = self.rows.sum(_sum_losses, predictor, self.loss, self.share.size)
        losses: np.ndarray = sums / self.share
        return losses


def _sum_losses(block: Block, predictor: Predictor, loss: Loss, n_groups: int) -> np.ndarray:
    value = loss.value(block["y"], np.clip(predictor.score(block.X), 0.0, 1.0))
    return np.bincount(block["group"], weights=block["share"] * value, minlength=n_groups)


def build_bounded_loss(
    rows: Rows,
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
    """Make the problem of rows, given their labels in [0, 1]; arguments as for ``build_parity``.

    The budgets ζ_a bound values of the scaled loss, which lie in [0, 1] whatever the labels' range.
    By default B is 100 / max{min_a ζ_a, .001}, so that accepted bounds are exceeded by little more
    than a hundredth of the least.
    """
    fields, least = describe_groups(group, weight, budget, inflation)
    if tolerance is None:
        tolerance = choose_tolerance(loss.value(y[:, None], CONSTANTS[None, :]), weight)
    return BoundedLossProblem(
        **fields,
        rows=rows.attach(y=y, group=group, weight=weight, share=weight / weight.sum()),
        loss=loss,
        radius=100.0 / min(max(least, 1e-3), 1.0) if radius is None else radius,
        tolerance=tolerance,
        iterations=iterations,
        schedule=schedule,
    )


def solve_bounded_loss(
    problem: BoundedLossProblem, oracle: RiskOracle, progress: Progress | None = None
) -> Solution:
    """Play algorithm 2 and mix the predictors found, unless the mixture breaks a bound.

    The oracle is asked for best responses to row weights 1/n + λ_a / n_a. A mixture is accepted if
    γ̂_a ≤ ζ̂_a + (1 + 2ν) / B for every group; else the solution has no predictors and an infinite
    loss, and its group values are those of the mixture that ``reachable`` describes.

    Notes
    -----
    With an exact oracle, a solution without predictors after convergence proves that no mixture
    meets the bounds. Without convergence, or with another oracle, none was found. The cost is two
    oracle calls and O(n) an iteration, and n_groups calls at the start for ``alone``.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression. ICML 2019, algorithm 2, theorem 3.
    """
    n_groups = problem.share.size

    def judge(factor: np.ndarray) -> Column:
        predictor = oracle.minimise(factor)
        losses = problem.judge(predictor)
        return Column(float(problem.share @ losses), losses, predictor)

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
    result = solve_saddle(game, single, progress)
    constraints = np.stack([column.constraint for column in result.seen])
    nearest = mix(np.zeros(len(result.seen)), constraints, problem.budget, 1.0)
    slack = (1.0 + 2.0 * problem.tolerance) / problem.radius
    feasible = bool((result.constraint <= problem.budget + slack).all())
    return Solution(
        predictors=tuple(column.predictor for column in result.columns) if feasible else (),
        probability=result.weight if feasible else np.zeros(0),
        multiplier=result.multiplier,
        loss=result.loss if feasible else np.inf,
        group_value=result.constraint if feasible else nearest.weight @ constraints,
        gap=result.gap,
        exact=oracle.exact,
        converged=result.converged,
        iterations=result.iterations,
        calls=result.calls + n_groups,
        reachable=problem.budget + nearest.value,
        alone=constraints.min(axis=0),
    )
