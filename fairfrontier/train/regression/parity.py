"""Fair regression under statistical parity, by exponentiated gradient (algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairfrontier.runtime.errors import DataError
from fairfrontier.train.regression.grid import (
    LabelGrid,
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
from fairfrontier.train.regression.oracle.oracle import Costs, Oracle, Response
from fairfrontier.train.regression.predictor import ConstantPredictor, Predictor
from fairfrontier.train.regression.saddle import (
    Column,
    Progress,
    SaddleProblem,
    Schedule,
    solve_saddle,
)


@dataclass(frozen=True, eq=False)
class ParityProblem:
    """min_Q Ê[ℓ_α(Y, f(X))]  s.t.  |P̂[f ≥ z | A = a] − P̂[f ≥ z]| ≤ ε_a for all a and z ∈ Z.

    Attributes
    ----------
    table : ndarray of float64, shape (n_labels, N + 1)
        ℓ_α of each label cell at each level.
    labels : LabelGrid
        Cells of the labels.
    group : ndarray of int64, shape (n_samples,)
        Codes 0, …, n_groups − 1, each taken.
    weight : ndarray of float64, shape (n_samples,)
        Sums to 1.
    share : ndarray of float64, shape (n_groups,)
        p_a.
    budget : ndarray of float64, shape (n_groups,)
        ε̂_a.
    radius, tolerance : float
        B and ν.
    iterations : int
        Cap.
    schedule : {"adaptive", "theory"}
        See ``SaddleProblem``; the rate of ``theory`` is ν / (8B).
    """

    table: np.ndarray
    labels: LabelGrid
    group: np.ndarray
    weight: np.ndarray
    share: np.ndarray
    budget: np.ndarray
    radius: float
    tolerance: float
    iterations: int
    schedule: Schedule

    @property
    def n_grid(self) -> int:
        """N."""
        return int(self.table.shape[1]) - 1

    @property
    def cell(self) -> np.ndarray:
        """a_i · n_labels + ỹ_i of each row."""
        found: np.ndarray = self.group * self.table.shape[0] + self.labels.code
        return found

    @property
    def n_cells(self) -> int:
        """Number of pairs of a group and a label."""
        return int(self.share.size * self.table.shape[0])

    def judge(self, response: Response) -> tuple[float, np.ndarray]:
        """Return ``judge`` of an oracle's answer; a problem of rows elsewhere asks there."""
        return judge(self, response.score)


@dataclass(frozen=True, eq=False)
class ParityResult:
    """A randomised predictor.

    Attributes
    ----------
    predictors : tuple of Predictor
        Those of positive probability.
    weight : ndarray of float64, shape (n_predictors,)
        Their probabilities.
    multiplier : ndarray of float64, shape (n_groups, N)
        λ⁺ − λ⁻ of the best lower bound.
    loss : float
        Discretised loss of the mixture, ℓ_α.
    parity : ndarray of float64, shape (n_groups, N)
        γ̂ of the mixture, its predictions rounded down.
    gap : float
        How much better a mixture within the budgets could be. If ``relative``, as far as the oracle
        tells: a better best response might find more.
    relative : bool
        Whether the oracle is not exact.
    iterations, calls : int
        Iterations, oracle calls.
    converged : bool
        Whether the tolerance was met.
    seen : tuple of Column
        All predictors found, for ``solve_parity(..., seen=)`` with another budget.
    """

    predictors: tuple[Predictor, ...]
    weight: np.ndarray
    multiplier: np.ndarray
    loss: float
    parity: np.ndarray
    gap: float
    relative: bool
    iterations: int
    calls: int
    converged: bool
    seen: tuple[Column, ...]

    @property
    def disparity(self) -> float:
        """max_{a,z} |γ̂_{a,z}|."""
        return float(np.abs(self.parity).max())


def build_parity(
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
    """Make the problem of rows with labels in [0, 1].

    Parameters
    ----------
    y : ndarray of float64, shape (n_samples,)
    group : ndarray of int64, shape (n_samples,)
        Codes 0, …, n_groups − 1.
    weight : ndarray of float64, shape (n_samples,)
    loss : Loss
    budget : float or sequence of float, shape (n_groups,)
        ε_a.
    n_grid, radius, tolerance, iterations, schedule
        N, B, ν, the cap and the schedule. B is 1 / max{min_a ε_a, .01} when None: multipliers of an
        optimum sum to at most (largest loss of a constant) / min_a ε_a. ν is half a standard error
        of the loss of the best constant when None, in the manner of the authors.
    inflation : float
        C' of assumption 1: ε̂_a = ε_a + C' / sqrt(n_a), n_a the weight of group a.

    Raises
    ------
    DataError
        As ``weigh_groups``.
    """
    total = weigh_groups(group, weight)
    allowed = np.broadcast_to(np.asarray(budget, dtype=np.float64), total.shape)
    if radius is None:
        radius = 1.0 / max(float(allowed.min()), 0.01)
    labels = grid_labels(y, weight, n_grid)
    table = tabulate_loss(loss, labels.value, n_grid)
    if tolerance is None:
        tolerance = 0.5 * standard_error(table[labels.code], weight)
    return ParityProblem(
        table,
        labels,
        group,
        weight / total.sum(),
        total / total.sum(),
        allowed + inflation / np.sqrt(total),
        radius,
        tolerance,
        iterations,
        schedule,
    )


def weigh_groups(group: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the weight of each group, shape (n_groups,).

    Raises
    ------
    DataError
        When there is one group only, a group without weight, or no more weight than one row has:
        weights are numbers of rows, of which tolerances and slacks depend.
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
    return total


def standard_error(losses: np.ndarray, weight: np.ndarray) -> float:
    """Return the standard error of the mean loss in the column whose mean is least, at least 1e-9.

    Parameters
    ----------
    losses : ndarray of float64, shape (n_samples, n_constants)
    weight : ndarray of float64, shape (n_samples,)
    """
    mean = weight @ losses / weight.sum()
    best = losses[:, int(np.argmin(mean))]
    variance = float(weight @ (best - mean.min()) ** 2 / weight.sum())
    return max(float(np.sqrt(variance / weight.sum())), 1e-9)


def find_costs(problem: ParityProblem, multiplier: np.ndarray) -> Costs:
    """Return what an oracle is given for λ⁺ − λ⁻, shape (n_groups, N)."""
    total = accumulate_costs(problem.table, multiplier, problem.share)
    return Costs(total, choose_targets(total)[2], problem.cell)


def judge(problem: ParityProblem, score: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the discretised loss and γ̂, shape (n_groups, N), of predictions rounded down.

    Notes
    -----
    One bincount over (group, level) and one over (label, level): O(n + n_groups · N).
    """
    n_grid, n_labels = problem.n_grid, problem.table.shape[0]
    level = round_down(score, n_grid)
    joint = count_levels(level, problem.labels.code, problem.weight, n_labels, n_grid)
    counts = count_levels(level, problem.group, problem.weight, problem.share.size, n_grid)
    return float(np.sum(joint * problem.table)), measure_parity(counts)


def solve_parity(
    problem: ParityProblem,
    oracle: Oracle,
    seen: Sequence[Column] = (),
    progress: Progress | None = None,
) -> ParityResult:
    """Play algorithm 1 and mix what was found.

    Parameters
    ----------
    problem : ParityProblem
    oracle : Oracle
    seen : sequence of Column
        ``seen`` of a result on the same rows and loss with another budget.
    progress : callable, optional
        Called with (iterations done, iterations).

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
    # Cells are the same in every call.
    cell = problem.cell

    def respond(multiplier: np.ndarray) -> Column:
        upper, lower = multiplier.reshape(2, *shape)
        total = accumulate_costs(problem.table, upper - lower, problem.share)
        response = oracle.respond(Costs(total, choose_targets(total)[2], cell))
        loss, parity = problem.judge(response)
        return Column(
            loss, np.concatenate([parity.reshape(-1), -parity.reshape(-1)]), response.predictor
        )

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
    # With the best constant every budget can be kept, whatever the oracle misses.
    start = [*seen] if seen or oracle.exact else [_best_constant(problem)]
    found = solve_saddle(game, start, progress)
    upper, lower = found.multiplier.reshape(2, *shape)
    return ParityResult(
        tuple(each.predictor for each in found.columns),
        found.weight,
        upper - lower,
        found.loss,
        found.constraint[: bound.size // 2].reshape(shape),
        found.gap,
        not oracle.exact,
        found.iterations,
        found.calls,
        found.converged,
        found.seen,
    )


def _best_constant(problem: ParityProblem) -> Column:
    mean = problem.weight @ problem.table[problem.labels.code]
    best = float(level_values(problem.n_grid, problem.weight)[int(np.argmin(mean))])
    loss, parity = judge(problem, np.full(problem.weight.size, best))
    return Column(loss, np.tile(parity.reshape(-1), 2), ConstantPredictor(best))
