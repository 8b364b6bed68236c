"""What the two problems of fair regression share: their rows, their settings, their solution.

Fair regression under statistical parity, by exponentiated gradient (algorithm 1).

Fair regression under bounded group loss (algorithm 2), which may be infeasible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fairfrontier.models.regression.grid import (
    accumulate_costs,
    choose_targets,
    count_levels,
    grid_labels,
    level_values,
    measure_parity,
    round_down,
    tabulate_loss,
)
from fairfrontier.models.regression.loss import Loss
from fairfrontier.models.regression.oracle import Costs, Oracle
from fairfrontier.models.regression.predictor import ConstantPredictor, Predictor
from fairfrontier.models.regression.saddle import Column, Progress, SaddleProblem, mix, solve_saddle
from fairfrontier.runtime.cluster.executor import Block, Rows
from fairfrontier.runtime.errors import DataError


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
    """

    rows: Rows
    share: np.ndarray
    budget: np.ndarray
    radius: float
    tolerance: float
    iterations: int


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


@dataclass(frozen=True, eq=False, kw_only=True)
class ParityProblem(ConstrainedProblem):
    """min_Q Ê[ℓ_α(Y, f(X))]  s.t.  |P̂[f ≥ z | A = a] − P̂[f ≥ z]| ≤ ε_a for all a and z ∈ Z.

    Rows have the column ``cell``, a_i · n_labels + ỹ_i.

    Attributes
    ----------
    table : ndarray of float64, shape (n_labels, N + 1)
        ℓ_α of each label cell at each level.
    mass : ndarray of float64, shape (n_labels,)
        Weight of the rows of each label cell; adds up to 1.
    """

    table: np.ndarray
    mass: np.ndarray

    @property
    def n_grid(self) -> int:
        """N."""
        return int(self.table.shape[1]) - 1

    @property
    def n_cells(self) -> int:
        """Number of pairs of a group and a label."""
        return int(self.share.size * self.table.shape[0])

    def judge(self, predictor: Predictor) -> tuple[float, np.ndarray]:
        """Return the discretised loss and γ̂, shape (n_groups, N), of predictions rounded down.

        O(n + n_groups · N); (n_labels + n_groups)(N + 1) numbers come from every block.
        """
        sizes = (self.share.size, self.table.shape[0], self.n_grid)
        joint, counts = self.rows.sum(_count_levels, predictor, *sizes)
        return float(np.sum(joint * self.table)), measure_parity(counts)


def _count_levels(
    block: Block, predictor: Predictor, n_groups: int, n_labels: int, n_grid: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of levels by label and by group."""
    level, weight = round_down(predictor.score(block.X), n_grid), block["share"]
    by_label = count_levels(level, block["cell"] % n_labels, weight, n_labels, n_grid)
    return by_label, count_levels(level, block["group"], weight, n_groups, n_grid)


def build_parity(
    rows: Rows,
    y: np.ndarray,
    group: np.ndarray,
    weight: np.ndarray,
    *,
    loss: Loss,
    budget: float | Sequence[float],
    n_grid: int = 40,
    radius: float | None = None,
    tolerance: float | None = None,
    iterations: int = 50,
    inflation: float = 0.0,
) -> ParityProblem:
    """Make the problem of rows, given their labels in [0, 1] and group codes 0, …, n_groups − 1.

    By default B is 1 / max{min_a ε_a, .01}: multipliers of an optimum sum to at most (largest loss
    of a constant) / min_a ε_a. For the other parameters see `Reduction`, for what is refused
    ``describe_groups``.
    """
    fields, least = describe_groups(group, weight, budget, inflation)
    labels = grid_labels(y, weight, n_grid)
    table = tabulate_loss(loss, labels.value, n_grid)
    if tolerance is None:
        tolerance = choose_tolerance(table[labels.code], weight)
    share, cell = weight / weight.sum(), group * table.shape[0] + labels.code
    return ParityProblem(
        **fields,
        rows=rows.attach(group=group, weight=weight, share=share, cell=cell),
        table=table,
        mass=np.bincount(labels.code, weights=share, minlength=table.shape[0]),
        radius=1.0 / max(least, 0.01) if radius is None else radius,
        tolerance=tolerance,
        iterations=iterations,
    )


def find_costs(problem: ParityProblem, multiplier: np.ndarray) -> Costs:
    """Return the costs that an oracle minimises for λ⁺ − λ⁻, shape (n_groups, N)."""
    total = accumulate_costs(problem.table, multiplier, problem.share)
    return Costs(total, choose_targets(total))


def solve_parity(
    problem: ParityProblem, oracle: Oracle, progress: Progress | None = None
) -> Solution:
    """Play algorithm 1 and mix the predictors found.

    Notes
    -----
    If converged with an exact oracle, the loss exceeds that of any mixture within the budgets by at
    most the gap, and |γ̂| ≤ ε̂_a + (2 + 2ν) / B (theorem 4). The guarantee is for predictions
    rounded down to the grid, and then for every real z. O(n + n_groups · n_labels · N) and two
    oracle calls an iteration.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression: quantitative definitions and reduction-based
    algorithms. ICML 2019, algorithm 1, appendix F.
    """
    shape = (problem.share.size, problem.n_grid)

    def respond(multiplier: np.ndarray) -> Column:
        upper, lower = multiplier.reshape(2, *shape)
        predictor = oracle.respond(find_costs(problem, upper - lower))
        loss, parity = problem.judge(predictor)
        return Column(loss, np.concatenate([parity.reshape(-1), -parity.reshape(-1)]), predictor)

    bound = np.tile(np.repeat(problem.budget, problem.n_grid), 2)
    game = SaddleProblem(
        bound,
        problem.radius,
        respond,
        problem.tolerance,
        problem.iterations,
        oracle.exact,
        paired=True,
    )
    # With the best constant every budget can be met, whatever the oracle misses.
    result = solve_saddle(game, [] if oracle.exact else [_best_constant(problem)], progress)
    upper, lower = result.multiplier.reshape(2, *shape)
    parity = result.constraint[: bound.size // 2].reshape(shape)
    return Solution(
        predictors=tuple(column.predictor for column in result.columns),
        probability=result.weight,
        multiplier=upper - lower,
        loss=result.loss,
        group_value=np.abs(parity).max(axis=1),
        gap=result.gap,
        exact=oracle.exact,
        converged=result.converged,
        iterations=result.iterations,
        calls=result.calls,
    )


def _best_constant(problem: ParityProblem) -> Column:
    mean = problem.mass @ problem.table
    best = ConstantPredictor(float(level_values(problem.n_grid, mean)[int(np.argmin(mean))]))
    loss, parity = problem.judge(best)
    return Column(loss, np.tile(parity.reshape(-1), 2), best)


# Constants among which the best is sought for the tolerance.
CONSTANTS = np.linspace(0.0, 1.0, 21)


@dataclass(frozen=True, eq=False, kw_only=True)
class BoundedLossProblem(ConstrainedProblem):
    """min_Q Ê[ℓ(Y, f(X))]  s.t.  Ê[ℓ(Y, f(X)) | A = a] ≤ ζ_a for all a.

    Rows have the column ``y``, labels in [0, 1].
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
    )


def solve_bounded_loss(
    problem: BoundedLossProblem, oracle: Oracle, progress: Progress | None = None
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
        predictor = oracle.respond(factor)
        losses = problem.judge(predictor)
        return Column(float(problem.share @ losses), losses, predictor)

    # No group may lose all weight: a design of one group's rows alone can be singular.
    single = [judge(np.where(np.arange(n_groups) == a, 1.0, 1e-6)) for a in range(n_groups)]
    game = SaddleProblem(
        problem.budget,
        problem.radius,
        lambda multiplier: judge(1.0 + multiplier / problem.share),
        problem.tolerance,
        problem.iterations,
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
