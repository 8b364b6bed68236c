"""Near-optimal debiasing by stochastic descent: the paper's algorithm and its authors' schedule.

    min_{λ,μ≥0} F = E[(ε/2)(λ_s + μ_s) + ρ (λ_s − μ_s) + ξ_γ(f − (λ_s − μ_s))]             (4)

s is the group of a row with score f ∈ [−1, 1], and ξ_γ'(w) = clip(w/γ, 0, 1). With
h = clip((f − (λ_s − μ_s))/γ, 0, 1), the row's gradient is ε/2 + ρ − h in λ_s, ε/2 − ρ + h in μ_s
and 0 in the multipliers of other groups (2). `threshold.solve_exact` finds the same minimum from
one sort: these are for comparison with what was published.

References
----------
I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning models.
NeurIPS 2021, equations 2 to 4, algorithm 1, proposition 1; their code (google-research,
ml_debiaser/randomized_threshold.py) for the schedule.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace, segment_sum, to_numpy
from fairfrontier.train.postprocess.rule import ThresholdRule
from fairfrontier.train.postprocess.threshold import ThresholdProblem, build_problem

Array = Any

# As many passes as the paper's figure 2b shows, within bounds that keep a descent short.
PASSES = 25
FEWEST_STEPS, MOST_STEPS = 100_000, 1_000_000
# Rows drawn at a time.
BLOCK = 1 << 16
# Up to this ε/2 the authors drop μ and let λ take either sign.
SMALLEST_HALF_BUDGET = 1e-3


@dataclass(frozen=True, eq=False)
class DescentResult:
    """Where a descent ended.

    Attributes
    ----------
    upper, lower : ndarray of float64, shape (n_groups,)
        λ and μ, the multipliers of E[h | k] ≤ ρ + ε/2 and of E[h | k] ≥ ρ − ε/2, averaged over
        the steps.
    rule : ThresholdRule
        With thresholds λ − μ.
    objective : float
        F of (4) at λ and μ over the rows given; its minimum is −``dual_value`` of the exact
        solution.
    steps : int
        Steps made, of all phases.
    trace_steps : ndarray of int64, shape (n_points,)
        Steps after which the average was recorded, evenly spread; the last is ``steps``.
    trace : ndarray of float64, shape (n_points, n_groups)
        The average of λ − μ over the steps until then.
    """

    upper: np.ndarray
    lower: np.ndarray
    rule: ThresholdRule
    objective: float
    steps: int
    trace_steps: np.ndarray
    trace: np.ndarray


def evaluate_dual(
    score: Array,
    code: Array,
    upper: np.ndarray,
    lower: np.ndarray,
    *,
    width: float,
    rate: float,
    budget: float,
    weight: Array | None = None,
) -> float:
    """Return F of (4) at multipliers λ (``upper``) and μ (``lower``) of shape (n_groups,); O(n)."""
    xp = array_namespace(score)
    n_groups = len(upper)
    score = xp.astype(score, xp.float64)
    mass = xp.ones_like(score) if weight is None else xp.astype(weight, xp.float64)
    threshold = xp.asarray(np.asarray(upper) - np.asarray(lower), device=device(score))
    excess = score - xp.take(threshold, code)
    ramp = xp.clip(excess, 0.0, width)
    # ξ_γ(w) = ∫ clip(v/γ, 0, 1) dv up to w: a parabola on the ramp, a line above it (3).
    xi = ramp * ramp / (2.0 * width) + xp.maximum(excess - width, xp.zeros_like(excess))
    total = float(xp.sum(mass))
    share = to_numpy(segment_sum(mass, code, n_groups)) / total
    linear = share @ (budget / 2 * (upper + lower) + rate * (upper - lower))
    return float(linear) + float(xp.sum(mass * xi)) / total


def solve_sgd(
    score: Array,
    code: Array,
    n_groups: int,
    *,
    width: float,
    rate: float,
    budget: float,
    weight: Array | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    batch_size: int = 1,
    random_state: int = 0,
    trace: int = 0,
) -> DescentResult:
    """Minimise (4) by the paper's projected SGD, from λ = μ = 0, averaging over all steps.

        λ_s ← max(0, λ_s − α (ε/2 + ρ − h)),   μ_s ← max(0, μ_s − α (ε/2 − ρ + h))            (2)

    Parameters
    ----------
    score : array of float, shape (n_samples,)
        f ∈ [−1, 1].
    code : array of integers, shape (n_samples,)
        Group codes in 0, …, n_groups − 1.
    n_groups : int
        K.
    width, rate, budget : float
        γ > 0, ρ in [0, 1] and ε ≥ 0.
    weight : array of float, shape (n_samples,), optional
        Rows are drawn in proportion to it.
    steps : int, optional
        T. None makes 25 passes over the rows, but 100,000 steps at least and 1,000,000 at most.
    learning_rate : float, optional
        α; None for the paper's 0.1 √(K/T).
    batch_size : int
        Rows whose mean gradient makes a step; 1 is algorithm 1.
    random_state : int
        Seed of the draws (with replacement).
    trace : int
        Points at which the average of λ − μ is recorded.

    Returns
    -------
    DescentResult

    Raises
    ------
    ValueError
        When γ is not above 0, or there is no row to draw.

    Notes
    -----
    Within 1/2 (1 + ρ + ε)² α + (‖λ*‖² + ‖μ*‖²)/(2 T α) of the minimum in expectation (proposition
    1), so O(√(K/T)): T counts rows of all groups, and a group with few of them moves little.

    A step changes the multipliers of one group only, so the steps between two records are walked
    group by group over plain numbers on the host, whatever the backend of the scores: the same
    iterates as row by row. 0.2 s for a million steps; memory O(n) for the copy on the host.
    """
    _check(width, score, weight)
    scores, codes = to_numpy(score).astype(np.float64), to_numpy(code)
    if steps is None:
        passes = math.ceil(PASSES * scores.size / batch_size)
        steps = min(max(passes, FEWEST_STEPS), MOST_STEPS)
    alpha = 0.1 * math.sqrt(n_groups / steps) if learning_rate is None else learning_rate
    walk = _Walk(n_groups, width, rate, budget, alpha)
    draws = _Draws(None if weight is None else to_numpy(weight), scores.size, random_state)
    marks = {round(steps * (point + 1) / trace) for point in range(trace)} - {0}
    recorded = []
    for start, stop in _cut(steps, max(1, BLOCK // batch_size), marks):
        rows_drawn = draws.take((stop - start) * batch_size)
        if batch_size == 1:
            walk.follow(scores[rows_drawn], codes[rows_drawn])
        else:
            shape = (stop - start, batch_size)
            walk.follow_batches(scores[rows_drawn].reshape(shape), codes[rows_drawn].reshape(shape))
        if stop in marks:
            recorded.append(walk.upper_sum / stop - walk.lower_sum / stop)
    return _conclude(
        score, code, weight, walk.upper_sum / steps, walk.lower_sum / steps, steps,
        width=width, rate=rate, budget=budget, trace_steps=sorted(marks), trace=recorded,
    )  # fmt: skip


class _Walk:
    """λ and μ on their way, and the sums of their values after each step."""

    def __init__(
        self, n_groups: int, width: float, rate: float, budget: float, alpha: float
    ) -> None:
        self.upper, self.lower = np.zeros(n_groups), np.zeros(n_groups)
        self.upper_sum, self.lower_sum = np.zeros(n_groups), np.zeros(n_groups)
        self.width, self.alpha = width, alpha
        self.rise, self.fall = budget / 2 + rate, budget / 2 - rate

    def follow(self, score: np.ndarray, code: np.ndarray) -> None:
        """Take one step for each row."""
        for group in range(self.upper.size):
            places = np.flatnonzero(code == group)
            uppers, lowers = self._walk_group(group, score[places].tolist())
            # A value stays until the group's next row.
            lasts = np.diff(np.concatenate([[0], places, [score.size]]))
            self.upper_sum[group] += lasts @ uppers
            self.lower_sum[group] += lasts @ lowers
            self.upper[group], self.lower[group] = uppers[-1], lowers[-1]

    def _walk_group(self, group: int, scores: list[float]) -> tuple[np.ndarray, np.ndarray]:
        """Return λ and μ of a group before its rows and after each of them."""
        upper, lower = float(self.upper[group]), float(self.lower[group])
        alpha, slope, rise, fall = self.alpha, 1.0 / self.width, self.rise, self.fall
        uppers, lowers = [upper], [lower]
        for f in scores:
            h = (f - upper + lower) * slope
            h = 0.0 if h < 0.0 else min(h, 1.0)
            upper -= alpha * (rise - h)
            lower -= alpha * (fall + h)
            if upper < 0.0:
                upper = 0.0
            if lower < 0.0:
                lower = 0.0
            uppers.append(upper)
            lowers.append(lower)
        return np.asarray(uppers), np.asarray(lowers)

    def follow_batches(self, score: np.ndarray, code: np.ndarray) -> None:
        """Take one step for each row of the matrices, along the mean gradient of its entries."""
        n_groups, size = self.upper.size, score.shape[1]
        for f, s in zip(score, code, strict=True):
            h = np.clip((f - (self.upper - self.lower)[s]) / self.width, 0.0, 1.0)
            share = np.bincount(s, minlength=n_groups) / size
            chosen = np.bincount(s, h, n_groups) / size
            upper = self.upper - self.alpha * (share * self.rise - chosen)
            lower = self.lower - self.alpha * (share * self.fall + chosen)
            self.upper, self.lower = np.maximum(upper, 0.0), np.maximum(lower, 0.0)
            self.upper_sum += self.upper
            self.lower_sum += self.lower


class _Draws:
    """Rows drawn with replacement in proportion to their weights."""

    def __init__(self, weight: np.ndarray | None, n_samples: int, random_state: int) -> None:
        self._n_samples = n_samples
        self._edges = None if weight is None else np.cumsum(weight, dtype=np.float64)
        self._generator = np.random.default_rng(random_state)

    def take(self, size: int) -> np.ndarray:
        """Return positions of rows; how draws are split over calls does not matter."""
        uniform = self._generator.random(size)
        if self._edges is None:
            return (uniform * self._n_samples).astype(np.int64)
        drawn = np.searchsorted(self._edges, uniform * self._edges[-1], side="right")
        return np.asarray(drawn)


def _cut(steps: int, block: int, marks: set[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of steps that end at every mark, and after ``block`` steps at most."""
    yield from itertools.pairwise(sorted({*range(0, steps, block), *marks, steps}))


def solve_authors(
    score: Array,
    code: Array,
    n_groups: int,
    *,
    width: float,
    rate: float,
    budget: float,
    weight: Array | None = None,
    batch_size: int = 256,
    steps: int = 10_000,
    refine: int = 1_000,
    random_state: int = 0,
) -> DescentResult:
    """Minimise (4) by the schedule of the authors' code.

    Each group by itself: ``steps`` steps at rate γ √(batch/steps) along the mean gradient of a
    batch of its rows, averaged from the first step on; then ``refine`` steps of rate γ/2 from that
    average, along the gradient over all of its rows. Where ε/2 ≤ 0.001 there is no μ, and λ may
    take either sign.

    Parameters
    ----------
    score, code, n_groups, width, rate, budget, weight, random_state
        As in `solve_sgd`.
    batch_size, steps, refine : int
        Rows of a batch, its steps, and the full-gradient steps.

    Returns
    -------
    DescentResult
        Without a trace.

    Raises
    ------
    ValueError
        When γ is not above 0, or a group has no row to draw.

    Notes
    -----
    For 0 < ε ≤ 0.002 this does not solve (4): without μ it steers every group to ρ + ε/2. Neither
    does ``refine`` bound how far the end is from the minimum; compare ``objective``.

    The groups' steps are made side by side, and the full gradients come from one sort and running
    sums, which changes rounding only: O(n log n + steps · K · batch + refine · K · log n).
    """
    _check(width, score, weight)
    problem = build_problem(score, code, n_groups, weight)
    if empty := [k for k, segment in enumerate(problem.segments) if not segment.total > 0]:
        raise ValueError(f"no row to draw in the groups {empty}")
    half = budget / 2
    signed = half <= SMALLEST_HALF_BUDGET
    floor = -math.inf if signed else 0.0
    mass = [to_numpy(segment.mass) for segment in problem.segments]
    scores = [to_numpy(segment.score) for segment in problem.segments]
    generator = np.random.default_rng(random_state)
    upper, lower = np.zeros(n_groups), np.zeros(n_groups)
    upper_sum, lower_sum = np.zeros(n_groups), np.zeros(n_groups)

    def step(upper: np.ndarray, lower: np.ndarray, h: np.ndarray, alpha: float) -> Any:
        moved = np.maximum(upper - alpha * (half + rate - h), floor)
        return moved, lower if signed else np.maximum(lower - alpha * (half - rate + h), 0.0)

    alpha = width * math.sqrt(batch_size / max(steps, 1))
    block = max(1, BLOCK // (batch_size * n_groups))
    for start, stop in _cut(steps, block, set()):
        uniform = generator.random((n_groups, stop - start, batch_size))
        drawn = [
            f[np.searchsorted(edges, u * edges[-1], side="right") - 1]
            for f, edges, u in zip(scores, mass, uniform, strict=True)
        ]
        for f in np.stack(drawn, axis=1):
            t = (upper - lower)[:, None]
            h = (np.clip(f, t, t + width) - t).mean(axis=1) / width
            upper, lower = step(upper, lower, h, alpha)
            upper_sum += upper
            lower_sum += lower
    upper, lower = upper_sum / max(steps, 1), lower_sum / max(steps, 1)
    mean = _Mean(problem, width)
    for _ in range(refine):
        upper, lower = step(upper, lower, mean.of(upper - lower), width / 2)
    return _conclude(
        score, code, weight, upper, lower, steps + refine,
        width=width, rate=rate, budget=budget, trace_steps=[], trace=[],
    )  # fmt: skip


class _Mean:
    """E[clip((f − t_k)/γ, 0, 1) | k] over all rows, from running sums over the sorted scores."""

    def __init__(self, problem: ThresholdProblem, width: float) -> None:
        self._width = width
        self._sorted = [
            (to_numpy(each.score), to_numpy(each.mass), to_numpy(each.moment))
            for each in problem.segments
        ]

    def of(self, threshold: np.ndarray) -> np.ndarray:
        mean = np.empty(threshold.size)
        for group, (score, mass, moment) in enumerate(self._sorted):
            t = threshold[group]
            lower, upper = np.searchsorted(score, [t, t + self._width])
            ramp = moment[upper] - moment[lower] - t * (mass[upper] - mass[lower])
            mean[group] = (ramp / self._width + mass[-1] - mass[upper]) / mass[-1]
        return mean


def _check(width: float, score: Array, weight: Array | None) -> None:
    if not width > 0:
        raise ValueError(f"descent needs a width above 0, not {width}")
    xp = array_namespace(score)
    if not score.shape[0] or (weight is not None and not float(xp.sum(weight)) > 0):
        raise ValueError("no row to draw")


def _conclude(
    score: Array,
    code: Array,
    weight: Array | None,
    upper: np.ndarray,
    lower: np.ndarray,
    steps: int,
    *,
    width: float,
    rate: float,
    budget: float,
    trace_steps: list[int],
    trace: list[np.ndarray],
) -> DescentResult:
    objective = evaluate_dual(
        score, code, upper, lower, width=width, rate=rate, budget=budget, weight=weight
    )
    return DescentResult(
        upper=upper,
        lower=lower,
        rule=ThresholdRule(width, upper - lower, np.zeros(upper.size)),
        objective=objective,
        steps=steps,
        trace_steps=np.asarray(trace_steps, dtype=np.int64),
        trace=np.asarray(trace, dtype=np.float64).reshape(-1, upper.size),
    )
