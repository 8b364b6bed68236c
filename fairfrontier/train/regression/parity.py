"""Fair regression under statistical parity, by exponentiated gradient (algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairfrontier.runtime.cluster.executor import Block, Rows
from fairfrontier.train.regression.grid import (
    accumulate_costs,
    choose_targets,
    count_levels,
    grid_labels,
    level_values,
    measure_parity,
    round_down,
    tabulate_loss,
)
from fairfrontier.train.regression.loss import Loss
from fairfrontier.train.regression.oracle.oracle import Costs, Oracle
from fairfrontier.train.regression.predictor import ConstantPredictor, Predictor
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
    solve_saddle,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class ParityProblem(ConstrainedProblem):
    """min_Q Ê[ℓ_α(Y, f(X))]  s.t.  |P̂[f ≥ z | A = a] − P̂[f ≥ z]| ≤ ε_a for all a and z ∈ Z.

    Rows have the column ``cell``, a_i · n_labels + ỹ_i. The rate of the schedule ``theory`` is
    ν / (8B).

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
    schedule: Schedule = "adaptive",
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
        schedule=schedule,
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
        problem.tolerance / (8.0 * problem.radius),
        problem.tolerance,
        problem.iterations,
        problem.schedule,
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
