"""A game between predictors and multipliers, by exponentiated gradient and a linear programme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log, sqrt
from typing import Any

import numpy as np
from scipy.optimize import linprog

Progress = Callable[[int, int], None]

# Sum of the multipliers at the start: useful ones are rarely above 1, while B may be 100, and
# heuristic oracles answer huge multipliers with useless predictors.
START = 0.1
# Weights of the programme below this are zero to its tolerance.
NEGLIGIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class Column:
    """A predictor as the game sees it: its loss, and the vector g that the bounds constrain."""

    loss: float
    constraint: np.ndarray
    predictor: Any


@dataclass(frozen=True, eq=False)
class SaddleProblem:
    """min_Q max_λ  loss(Q) + λᵀ(g(Q) − b),  λ ≥ 0, ‖λ‖₁ ≤ B, over distributions Q of predictors.

    Attributes
    ----------
    bound : ndarray of float64, shape (n_constraints,)
        b.
    radius : float
        B > 0.
    respond : callable
        From λ to a predictor that (nearly) minimises loss(f) + λᵀ g(f).
    tolerance : float
        ν: the game ends when neither player can gain more.
    iterations : int
        Cap.
    exact : bool
        Whether responses are best ones. If not, what is queried is the mean of the programme's
        multipliers, which have few large entries, and those of the gradient steps.
    paired : bool
        Whether the second half of g is the first half negated, as with |γ| ≤ ε: then multipliers
        of a pair cancel out.
    """

    bound: np.ndarray
    radius: float
    respond: Callable[[np.ndarray], Column]
    tolerance: float
    iterations: int
    exact: bool = True
    paired: bool = False


@dataclass(frozen=True, eq=False)
class SaddleResult:
    """A mixture of predictors and how good it is.

    ``columns`` are the predictors of positive probability and ``weight`` their probabilities;
    ``multiplier`` is λ of the best lower bound; ``loss`` and ``constraint`` are those of the
    mixture. ``upper`` is max_λ L(Q, λ), and ``lower`` is min_f L(f, λ) as far as the best responses
    are exact: by no more than the ``gap`` between them can the loss exceed that of a mixture within
    the bounds (else the gap is relative to the oracle). ``calls`` are the best responses asked for,
    ``seen`` is every predictor found.
    """

    columns: tuple[Column, ...]
    weight: np.ndarray
    multiplier: np.ndarray
    loss: float
    constraint: np.ndarray
    upper: float
    lower: float
    gap: float
    iterations: int
    calls: int
    converged: bool
    seen: tuple[Column, ...]


@dataclass(frozen=True, eq=False)
class Mixture:
    """Solution of the programme: q, its dual λ with ‖λ‖₁ ≤ B, and the loss of q.

    ``value`` is loss(q) + B max{0, max_k (g_k(q) − b_k)}.
    """

    weight: np.ndarray
    multiplier: np.ndarray
    loss: float
    value: float


def mix(loss: np.ndarray, constraint: np.ndarray, bound: np.ndarray, radius: float) -> Mixture:
    """Find the best mixture of given predictors.

    min_{q, s}  lossᵀq + B s   s.t.   gᵀq − s ≤ b,  Σ q = 1,  q ≥ 0, s ≥ 0

    ``loss`` has shape (n_columns,), ``constraint`` (g) shape (n_columns, n_constraints). By HiGHS,
    some milliseconds for 160 constraints and 100 predictors.
    """
    n_columns, n_constraints = constraint.shape
    result = linprog(
        np.append(loss, radius),
        A_ub=np.hstack([constraint.T, -np.ones((n_constraints, 1))]),
        b_ub=bound,
        A_eq=np.append(np.ones(n_columns), 0.0)[None, :],
        b_eq=[1.0],
        method="highs-ds",
    )
    if result.x is None:  # pragma: no cover - the programme is feasible and bounded
        raise RuntimeError(f"HiGHS: {result.message}")
    weight = np.where(result.x[:-1] > NEGLIGIBLE, result.x[:-1], 0.0)
    weight /= weight.sum()
    multiplier = np.maximum(-result.ineqlin.marginals, 0.0)
    excess = max(0.0, float(np.max(weight @ constraint - bound)))
    mean = float(weight @ loss)
    return Mixture(weight, multiplier, mean, mean + radius * excess)


@dataclass
class _Play:
    """Predictors seen, multipliers queried, and the least Lagrangian at each of these."""

    problem: SaddleProblem
    columns: list[Column]
    queried: list[np.ndarray] = field(default_factory=list)
    least: list[float] = field(default_factory=list)

    def respond(self, multiplier: np.ndarray) -> Column:
        """Answer λ, and keep the predictor if it is new."""
        column = self.problem.respond(multiplier)
        if not any(self._same(column, other) for other in self.columns):
            self.columns.append(column)
            # A response that is not exact can be worse than one found later.
            gain = column.constraint - self.problem.bound
            for i, earlier in enumerate(self.queried):
                self.least[i] = min(self.least[i], column.loss + float(gain @ earlier))
        self.queried.append(multiplier)
        values = self.losses + (self.constraints - self.problem.bound) @ multiplier
        self.least.append(float(np.min(values)))
        return column

    @property
    def lower(self) -> float:
        """The best lower bound on the value, over the predictors seen."""
        return max(self.least)

    @property
    def multiplier(self) -> np.ndarray:
        """The multipliers of that bound."""
        return self.queried[int(np.argmax(self.least))]

    @staticmethod
    def _same(column: Column, other: Column) -> bool:
        return column.loss == other.loss and np.array_equal(column.constraint, other.constraint)

    @property
    def losses(self) -> np.ndarray:
        return np.array([column.loss for column in self.columns])

    @property
    def constraints(self) -> np.ndarray:
        return np.stack([column.constraint for column in self.columns])

    def mix(self) -> Mixture:
        return mix(self.losses, self.constraints, self.problem.bound, self.problem.radius)


def solve_saddle(
    problem: SaddleProblem, seen: Sequence[Column] = (), progress: Progress | None = None
) -> SaddleResult:
    """Play until neither side gains more than the tolerance, then mix all predictors seen.

    λ_t = B exp(θ_t) / (1 + Σ exp(θ_t)),  f_t = best response to λ_t,
    θ_{t+1} = θ_t + η (g(f_t) − b) / √t

    Ours are a start near 0, the step η = sqrt(log(1/π)) / max |g(f_1) − b| with π the share of a
    multiplier at the start, and that in every iteration the programme over all predictors seen is
    solved, whose multipliers are queried too: the paper's constant step needs far more iterations.

    ``seen`` are predictors on the same rows that the mixture may use. ``progress`` is called with
    (iterations done, iterations), at the end with (iterations, iterations).

    Notes
    -----
    Two best responses an iteration: to λ_t and to the multipliers of the programme. With responses
    that are not exact the lower bound is taken over the predictors seen, and nothing is guaranteed.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression. ICML 2019, algorithms 1 and 2, theorem 4.
    A. Agarwal, A. Beygelzimer, M. Dudík, J. Langford, H. Wallach. A reductions approach to fair
    classification. ICML 2018, theorem 1.
    """
    play = _Play(problem, list(seen))
    size = problem.bound.size
    share = min(START / problem.radius, 0.5)
    theta = np.full(size, log(share / (1.0 - share) / size))
    rate, converged, done = 0.0, False, 0
    while done < problem.iterations:
        multiplier = _cancel(problem, problem.radius * _softmax(theta))
        gain = play.respond(multiplier).constraint - problem.bound
        if not done:
            rate = sqrt(log(size / share)) / max(float(np.max(np.abs(gain))), 1e-6)
        done += 1
        mixture = play.mix()
        second = mixture.multiplier
        if not problem.exact:
            second = _cancel(problem, (second + multiplier) / 2.0)
        play.respond(second)
        # What a heuristic oracle could not improve may still break the bounds.
        excess = 0.0 if problem.exact else mixture.value - mixture.loss
        converged = max(mixture.value - play.lower, excess) <= problem.tolerance
        if converged:
            break
        if progress:
            progress(done, problem.iterations)
        theta = theta + gain * (rate / sqrt(done))
    if progress:
        progress(problem.iterations, problem.iterations)
    return _conclude(play, done, converged)


def _conclude(play: _Play, iterations: int, converged: bool) -> SaddleResult:
    mixture = play.mix()
    drawn = np.flatnonzero(mixture.weight)
    upper = max(mixture.value, play.lower)
    return SaddleResult(
        columns=tuple(play.columns[i] for i in drawn),
        weight=mixture.weight[drawn],
        multiplier=play.multiplier,
        loss=mixture.loss,
        constraint=mixture.weight @ play.constraints,
        upper=upper,
        lower=play.lower,
        gap=upper - play.lower,
        iterations=iterations,
        calls=len(play.queried),
        converged=converged,
        seen=tuple(play.columns),
    )


def _cancel(problem: SaddleProblem, multiplier: np.ndarray) -> np.ndarray:
    """Subtract from both multipliers of a pair their common part, which cancels out in λᵀg."""
    if not problem.paired:
        return multiplier
    pairs = multiplier.reshape(2, -1)
    difference: np.ndarray = (pairs - pairs.min(axis=0)).reshape(-1)
    return difference


def _softmax(theta: np.ndarray) -> np.ndarray:
    """Return exp(θ) / (1 + Σ exp(θ))."""
    top = max(0.0, float(theta.max()))
    raised = np.exp(theta - top)
    share: np.ndarray = raised / (np.exp(-top) + raised.sum())
    return share
