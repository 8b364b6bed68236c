"""The ideal algorithm of soft assignments: best responses over a finite class of classifiers.

    min_p E_{k∼p} f_k  s.t.  E_{k∼p} max_{w ∈ W(θ_k)} g_c(θ_k, w) ≤ 0  for every constraint c

as a game: the multipliers ascend, and the other player responds with the best classifier, found by
an oracle that examines all of them. Of a classifier only its error and its cells matter, so the
rows are not needed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from array_api_compat import device

from fairfrontier.models.noisy.assignment import fill_best
from fairfrontier.models.noisy.rate import (
    N_CELLS,
    RATE_CELLS,
    Rate,
    RateCells,
    project_capped_simplex,
    project_simplex,
    sum_cells,
)
from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.runtime.errors import DataError

Array = Any
Side = Literal["below", "above"]


@dataclass(frozen=True, eq=False)
class IdealProblem:
    """A finite class of K classifiers and the constraints on their mixture.

    ``error``, (K,), is f_k ≥ 0; ``cells``, (K, m̂, 4), P(Ĝ=k, Ŷ=ŷ, Y=y) of each classifier;
    ``posterior``, (m̂, m), P(G=j | Ĝ=k), rows summing to 1; ``budget`` α.
    """

    error: Array
    cells: Array
    posterior: Array
    rates: tuple[Rate, ...]
    budget: float


@dataclass(frozen=True, eq=False)
class IdealSolution:
    """A stochastic classifier.

    ``probability``, (K,), is that of each classifier, ``error`` E f, and ``violation``, (C,), E
    max_w g_c, rate by rate and group by group, in units of the rate. ``gap`` is max_λ L(p, λ) −
    min_k L(k, mean λ) over the multipliers allowed.
    """

    probability: Array
    error: float
    violation: Array
    gap: float
    iterations: int


def robust_constraints(problem: IdealProblem) -> Array:
    """Return max_{w ∈ W(θ_k)} g_c(θ_k, w) of every classifier, float64, shape (K, C).

    In the h-form, divided by ½ P(event | G=j) of the plain assignment P(G=j | Ĝ=k), a constant, so
    that values are in units of the rate. The sign is that of the ratios' maximum, and by linearity
    a mixture with E max_w g_c ≤ 0 meets the constraint on the true groups in expectation.
    """
    xp = array_namespace(problem.cells)
    values = []
    for score, scale in _scores(problem):
        values.append(maximise_assignment(score, problem.cells, problem.posterior) * scale)
    return xp.concat(values, axis=1)


def solve_ideal(
    problem: IdealProblem,
    *,
    iterations: int = 2000,
    response: Literal["exact", "nested"] = "exact",
    inner_iterations: int = 200,
    slack: float = 0.01,
    tolerance: float = 0.0,
    inner_radius: float | None = None,
) -> IdealSolution:
    """Find a mixture of classifiers that is near-optimal and near-feasible, by algorithm 1.

    Multipliers sum to R = T^{1/4} at most, and their learning rate is R / (B_λ √T), with B_λ the
    largest norm of a constraint vector.

    Parameters
    ----------
    problem : IdealProblem
    iterations : int
        T.
    response : {"exact", "nested"}
        How the best response to λ is found. ``exact``: min_k f_k + Σ λ_c max_w g_c, with the maxima
        in closed form. ``nested``: algorithm 3, in which w ascends on the simplices alone and the
        oracle minimises over classifiers and over multipliers μ of the total probabilities.
    inner_iterations : int
        Q of algorithm 3.
    slack : float
        τ > 0, by which algorithm 3 relaxes the total probabilities.
    tolerance : float
        κ ≥ 0: the oracle takes the first classifier that is within it of the best.
    inner_radius : float, optional
        R', the largest sum of μ; B'/τ by default (lemma 6, whose margin γ is τ here: the plain
        assignment satisfies all total probabilities exactly).

    Notes
    -----
    O(T K C) with exact responses, O(T Q K C m m̂) with nested ones. With exact responses E f exceeds
    that of the best feasible classifier by O(R/√T) at most, and E max_w g_c is at most B/R +
    O(1/√T), with B a bound of f. Nested responses have no guarantee: the proof of theorem 5 moves
    the maximum over w into the mean over q (23), and a mixture that does well against one w for all
    its classifiers may do badly against a w for each, which ``gap`` shows.

    References
    ----------
    Wang et al., NeurIPS 2020, algorithms 1 and 3, theorems 4 and 5.
    """
    xp = array_namespace(problem.cells)
    constraint = robust_constraints(problem)
    where = device(constraint)
    radius = iterations**0.25
    largest = float(xp.max(xp.sqrt(xp.sum(constraint**2, axis=1))))
    learning_rate = radius / (max(largest, 1e-12) * iterations**0.5)
    nested = (
        _Nested(problem, inner_iterations, slack, tolerance, inner_radius)
        if response == "nested"
        else None
    )
    n_classifiers, n_constraints = constraint.shape
    counts = xp.zeros((n_classifiers,), dtype=xp.float64, device=where)
    places = xp.arange(n_classifiers, dtype=xp.int64, device=where)
    multiplier = xp.zeros((n_constraints,), dtype=xp.float64, device=where)
    total = 0.0 * multiplier
    for _ in range(iterations):
        total = total + multiplier
        if nested is not None:
            mixture = nested.respond(multiplier)
        else:
            value = problem.error + constraint @ multiplier
            mixture = xp.astype(places == _first(value, tolerance), xp.float64)
        counts = counts + mixture
        step = learning_rate * (mixture @ constraint)
        multiplier = project_capped_simplex(multiplier + step, radius)
    probability, mean = counts / iterations, total / iterations
    error, violation = float(probability @ problem.error), probability @ constraint
    upper = error + radius * max(0.0, float(xp.max(violation)))
    lower = float(xp.min(problem.error + constraint @ mean))
    return IdealSolution(probability, error, violation, upper - lower, iterations)


def _first(value: Array, tolerance: float) -> Array:
    """Return the first index within the tolerance of the least value."""
    xp = array_namespace(value)
    return xp.argmax(xp.astype(value <= xp.min(value) + tolerance, xp.int64))


def _scores(problem: IdealProblem) -> list[tuple[Array, Array]]:
    """Return for each rate h of every classifier and cell, (K, 4), and the scale of each group."""
    xp = array_namespace(problem.cells)
    size = xp.sum(problem.cells, axis=-1)[0, :]
    prior = xp.sum(problem.posterior * size[:, None], axis=0)
    scores = []
    for rate in problem.rates:
        cells = RATE_CELLS[rate.cells]
        among = sum_cells(problem.cells, cells.among)[0, :]
        inside = xp.sum(problem.posterior * among[:, None], axis=0) / prior
        score = score_constraint(
            problem.cells, cells, problem.budget, "below" if rate.floor else "above"
        )
        scores.append((score, 2.0 / inside))
    return scores


class _Nested:
    """Algorithm 3: the best response to λ, with the total probabilities as a separate game."""

    def __init__(
        self,
        problem: IdealProblem,
        iterations: int,
        slack: float,
        tolerance: float,
        radius: float | None,
    ) -> None:
        xp = array_namespace(problem.cells)
        self._error, self._iterations = problem.error, iterations
        self._slack, self._tolerance = slack, tolerance
        m = problem.posterior.shape[1]
        size = xp.sum(problem.cells, axis=-1)
        prior = xp.sum(problem.posterior * size[0, :, None], axis=0)
        # ∂g_c/∂w_j(c, k) of every classifier, shape (K, C, m̂, 4), where j is the group of c.
        gains: list[Array] = []
        groups: list[int] = []
        for score, scale in _scores(problem):
            gain = score[:, None, :] * problem.cells
            gains.append(gain[:, None, :, :] * (scale / prior)[:, None, None])
            groups += range(m)
        self._gain, self._groups = xp.concat(gains, axis=1), groups
        # P(cell | Ĝ=k), shape (K, m̂, 4), and P(G=j | Ĝ=k), shape (m, m̂).
        self._share = problem.cells / xp.where(size > 0, size, 1.0)[..., None]
        self._target = xp.matrix_transpose(problem.posterior)
        every = xp.zeros((N_CELLS,), dtype=xp.float64, device=device(self._target))
        plain = self._target[:, :, None] + every
        self._start = xp.stack([plain] * len(groups))
        bound = float(xp.max(xp.sum(xp.abs(self._gain), axis=(2, 3))))
        self._radius = bound / slack if radius is None else radius

    def respond(self, multiplier: Array) -> Array:
        """Return the mixture, shape (K,), that responds to λ."""
        xp = array_namespace(self._error)
        weight = self._start
        n_classifiers, n_constraints = self._gain.shape[:2]
        places = xp.arange(n_classifiers, dtype=xp.int64, device=device(self._error))
        counts = 0.0 * self._error
        seen = self._target.shape[1]
        for step in range(1, self._iterations + 1):
            own = xp.stack([weight[c, j, ...] for c, j in enumerate(self._groups)])
            value = xp.sum(self._gain * own, axis=(2, 3))
            missed = xp.sum(weight[None, ...] * self._share[:, None, None, :, :], axis=-1)
            missed = missed - self._target
            excess = xp.reshape(xp.abs(missed), (n_classifiers, n_constraints, -1)) - self._slack
            worst = xp.maximum(xp.max(excess, axis=-1), 0.0)
            lagrangian = self._error + (value - self._radius * worst) @ multiplier
            chosen = int(_first(lagrangian, self._tolerance))
            counts = counts + xp.astype(places == chosen, xp.float64)
            # The oracle's μ: all of R' on the total probability that is missed most.
            gradient = xp.zeros_like(weight)
            for c, j in enumerate(self._groups):
                gradient[c, j, ...] += self._gain[chosen, c, ...]
                if float(worst[chosen, c]) > 0:
                    u = int(xp.argmax(excess[chosen, c, :]))
                    group, noisy = u // seen, u % seen
                    side = 1.0 if float(missed[chosen, c, group, noisy]) > 0 else -1.0
                    gradient[c, group, noisy, :] -= (
                        side * self._radius * self._share[chosen, noisy, :]
                    )
            size = xp.sqrt(xp.sum(gradient**2, axis=(1, 2, 3), keepdims=True))
            # The step of theorem 5 but for its constant: steps shrink as 1/√q, w moves within 1.
            gradient = gradient / xp.where(size > 0, size, 1.0) / step**0.5
            columns = xp.moveaxis(weight + gradient, 1, -1)
            weight = xp.moveaxis(project_simplex(columns), -1, 1)
        return counts / self._iterations


def score_constraint(cells: Array, rate: RateCells, budget: Array | float, side: Side) -> Array:
    """Return h of lemmas 2 to 5 (Wang et al., 2020), by which a row of a cell adds to a constraint.

    below:  h = ½ (1{among} (r − α) − 1{good}),  for  r − r_j − α ≤ 0
    above:  h = ½ (1{good} − 1{among} (r + α)),  for  r_j − r − α ≤ 0

    with r the rate of all rows; of shape (..., 4). E[h | G=j] has the constraint's sign and is ½
    P(among | G=j) times its value. ``side`` says whether a group may not fall below the rate of
    all, as for the true positive rate, or not rise above it, as for the false positive rate.
    DataError when no row is in the rate's denominator.
    """
    xp = array_namespace(cells)
    total = xp.sum(cells, axis=-2)
    among = sum_cells(total, rate.among)
    if bool(xp.any(among <= 0)):
        raise DataError(
            f"No row is in the denominator of the rate {rate.name}.",
            "Constrain another rate, or use more rows.",
        )
    overall = sum_cells(total, rate.good) / among
    zero = xp.zeros_like(overall)
    columns = []
    for cell in range(N_CELLS):
        good = float(cell in rate.good)
        if cell not in rate.among:
            columns.append(zero)
        elif side == "below":
            columns.append((overall - budget - good) / 2)
        else:
            columns.append((good - overall - budget) / 2)
    return xp.stack(columns, axis=-1)


def maximise_assignment(score: Array, cells: Array, posterior: Array) -> Array:
    """Return max_{w ∈ W(θ)} E[h w(j | Ŷ, Y, Ĝ)] / P(G=j) for each true group j, shape (..., m).

    A fractional knapsack in each noisy group: the mass b_kj P(Ĝ=k) of group j takes the cells in
    the order of their h (``score``, shape (..., 4)), largest first. What remains is enough for the
    other groups, whose maxima need not be reached together. DataError when a true group has no
    probability in these rows. O(M m m̂) whatever the number of rows.

    References
    ----------
    Wang et al., NeurIPS 2020, equations 5 and 6. N. Kallus, X. Mao, A. Zhou. Assessing algorithmic
    fairness with unobserved protected class using data combination. Management Science 68, 2022,
    proposition 9.
    """
    xp = array_namespace(cells)
    prior = share_groups(cells, posterior)
    mass = fill_best(xp.broadcast_to(score[..., None, :], cells.shape), cells, posterior)
    gain = xp.sum(xp.sum(mass, axis=-2) * score[..., None, :], axis=-1)
    return gain / prior


def share_groups(cells: Array, posterior: Array) -> Array:
    """Return P(G=j) = Σ_k P(G=j | Ĝ=k) P(Ĝ=k), shape (..., m); DataError where it is 0."""
    xp = array_namespace(cells)
    prior = xp.sum(posterior * xp.sum(cells, axis=-1)[..., None], axis=-2)
    if bool(xp.any(prior <= 0)):
        lead = tuple(range(prior.ndim - 1))
        absent = xp.any(prior <= 0, axis=lead) if lead else prior <= 0
        group = int(xp.argmax(xp.astype(absent, xp.int64)))
        raise DataError(
            f"The true group {group} has no probability in these rows under the noise model.",
            "Leave the group out, or look at the noise model.",
        )
    return prior
