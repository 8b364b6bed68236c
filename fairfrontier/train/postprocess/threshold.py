"""Near-optimal debiasing, solved exactly: group-wise thresholds from one sort.

    min_{0≤h≤1} (γ/2) E h² − E[h f]   s.t.  |E[h | group k] − ρ| ≤ ε/2 for every k       (6)

Each group is a separate problem in one number t = λ − μ: h = clip((f − t)/γ, 0, 1), and the mean
of h falls as t grows. Where t = 0 meets the constraint it is the solution; else t is the root of
mean h = the nearest end of [ρ − ε/2, ρ + ε/2], and where that root is an interval, its end nearest
to 0. Between two neighbouring breakpoints (the scores f, and f − γ) the mean of h is a straight
line whose coefficients are differences of running sums over the sorted scores.

Scores may also be counted in bins of width δ = 2/bins over [−1, 1], by group: one pass, in bounded
memory, mergeable. The exact solver then runs on the bins' centres. −1 and 1 have separate bins, so
that saturated scores are not moved, and no score moves by more than δ/2. Hence, with m the mean of
h on the scores and m̃ on the centres, m(t + δ/2) ≤ m̃(t) ≤ m(t − δ/2), from which follow, for a
width γ > 0,

    |t̃ − t| ≤ δ/2    where the root t is unique,    and    |m̃(t̃) − m(t̃)| ≤ δ/(2γ).

References
----------
I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning models.
NeurIPS 2021, equations 1, 4 and 6, theorem 3 for γ → 0. Exact solution in place of its SGD: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace, segment_sum, to_numpy
from fairfrontier.train.postprocess.rule import ThresholdRule

Array = Any

# Rates that differ by less are equal: running sums of 10⁷ scores carry about as much rounding.
TOLERANCE = 1e-12
BINS = 1 << 16


@dataclass(frozen=True, eq=False)
class Segment:
    """The scores of one group in ascending order, float64, shape (n,), with their running sums.

    ``mass``, ``moment`` and ``square`` are the sums of w, w f and w f² over the lowest 0, …, n
    scores, float64, shape (n + 1,).
    """

    score: Array
    mass: Array
    moment: Array
    square: Array

    @property
    def total(self) -> float:
        """Weight of the group."""
        return float(self.mass[-1])

    def on_host(self) -> Segment:
        """Return the segment as NumPy arrays."""
        return Segment(*map(to_numpy, (self.score, self.mass, self.moment, self.square)))

    @cached_property
    def share(self) -> Segment:
        """The segment as NumPy arrays, its weights divided by their total."""
        host = self.on_host()
        total = host.mass[-1] or 1.0
        return Segment(host.score, host.mass / total, host.moment / total, host.square / total)

    @cached_property
    def roc(self) -> tuple[np.ndarray, np.ndarray]:
        """The true and the false positive rate of choosing all scores from the i-th on, (n + 1,).

        They are estimated with P(Y=1) = (1 + f)/2, on the host, and fall from 1 to 0.
        """
        share = self.share
        rates = share.mass + share.moment, share.mass - share.moment
        for rate in rates:
            rate /= -(rate[-1] or 1.0)
            rate += 1.0
            # Rounding must not leave a remainder.
            rate[-1] = 0.0
        return rates


@dataclass(frozen=True, eq=False)
class ThresholdProblem:
    """Scores by group code, sorted once for every width and rate."""

    segments: tuple[Segment, ...]

    @property
    def total(self) -> float:
        """Weight of all rows."""
        return sum(segment.total for segment in self.segments)

    def weigh(self, gain: tuple[float, float]) -> float:
        """Return the weight of rows by codes 2 k + y, where label y counts ``gain[y]`` times."""
        return sum(gain[code % 2] * segment.total for code, segment in enumerate(self.segments))


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The solution of one problem (6), with its certificate.

    The rule's thresholds are the multipliers λ_k − μ_k. ``rate`` is E[h | group k] on the rows of
    the problem, NaN for a group without weight; ``binding`` says for which groups the unconstrained
    optimum, h at t = 0, violates the constraint. ``objective`` is Σ w [(γ/2) h² − h f] / Σ w, and
    ``dual_value`` is −Σ w [(ε/2)|t| + ρ t + ξ_γ(f − t)] / Σ w, a lower bound on the objective of
    every feasible rule.
    """

    rule: ThresholdRule
    rate: np.ndarray
    binding: np.ndarray
    objective: float
    dual_value: float

    @property
    def gap(self) -> float:
        """Duality gap: 0 up to rounding."""
        return self.objective - self.dual_value

    def describe(self) -> dict[str, Any]:
        """Return the plain facts that a fitted estimator keeps."""
        return {
            "objective": self.objective,
            "duality_gap": self.gap,
            "binding": self.binding.tolist(),
            "converged": True,
        }


@dataclass(frozen=True, eq=False)
class ThresholdGrid:
    """Solutions of (6) for every pair of a width γ and a rate ρ; fields as in `Thresholds`.

    ``threshold``, ``coin``, ``rate`` and ``binding`` have shape (n_widths, n_rates, n_groups),
    ``objective`` and ``dual_value`` (n_widths, n_rates).
    """

    widths: np.ndarray
    rates: np.ndarray
    threshold: np.ndarray
    coin: np.ndarray
    rate: np.ndarray
    binding: np.ndarray
    objective: np.ndarray
    dual_value: np.ndarray

    def pick(self, width: int, rate: int) -> Thresholds:
        """Return the solution at positions in ``widths`` and ``rates``."""
        pair = (width, rate)
        return Thresholds(
            rule=ThresholdRule(float(self.widths[width]), self.threshold[pair], self.coin[pair]),
            rate=self.rate[pair],
            binding=self.binding[pair],
            objective=float(self.objective[pair]),
            dual_value=float(self.dual_value[pair]),
        )


def merge_runs(runs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the distinct numbers of K ascending arrays, ascending; O(n log K).

    A stable sort finds the runs and merges them; np.unique would sort all anew.
    """
    merged = np.sort(np.concatenate(runs), kind="stable")
    distinct = np.append(True, merged[1:] != merged[:-1])
    return np.asarray(merged[distinct[: merged.size]])


def build_problem(
    score: Array, code: Array, n_groups: int, weight: Array | None = None
) -> ThresholdProblem:
    """Sort the scores of every group, on the backend of ``score``.

    ``score`` is f ∈ [−1, 1] without NaN (float32 is sorted as such and summed as float64), ``code``
    the group 0, …, n_groups − 1, ``weight`` ≥ 0; different lengths and other codes are a
    ValueError. O(n log n) time, at most 9 numbers a row. Without weights, or with equal ones, only
    scores are sorted, about five times as fast as finding an order.
    """
    xp = array_namespace(score)
    n_samples = int(score.shape[0])
    if code.shape != (n_samples,) or (weight is not None and weight.shape != (n_samples,)):
        raise ValueError("scores, codes and weights differ in length")
    if n_samples and (int(xp.min(code)) < 0 or int(xp.max(code)) >= n_groups):
        raise ValueError(f"codes lie outside 0, …, {n_groups - 1}")
    unit = 1.0
    if weight is not None and n_samples and float(xp.min(weight)) == float(xp.max(weight)):
        unit, weight = float(weight[0]), None
    stops = [n_samples]
    if n_groups > 1:
        # NumPy sorts codes of one or two bytes by radix, in O(n).
        small = xp.uint8 if n_groups <= 2**8 else xp.uint16 if n_groups <= 2**16 else xp.int64
        code = xp.astype(code, small)
        order = xp.argsort(code, stable=True)
        score = xp.take(score, order)
        weight = None if weight is None else xp.take(weight, order)
        sizes = [int(xp.count_nonzero(code == group)) for group in range(n_groups)]
        stops = np.cumsum(sizes).tolist()
    segments = []
    for start, stop in zip([0, *stops[:-1]], stops, strict=True):
        scores = score[start:stop]
        if weight is None:
            segments.append(build_segment(xp.sort(scores, stable=False), None, unit))
        else:
            rising = xp.argsort(scores, stable=False)
            weights = xp.take(weight[start:stop], rising)
            segments.append(build_segment(xp.take(scores, rising), weights))
    return ThresholdProblem(tuple(segments))


def build_segment(score: Array, weight: Array | None = None, unit: float = 1.0) -> Segment:
    """Return the running sums of ascending scores, each of the given weight or of ``unit``."""
    xp = array_namespace(score)
    score = xp.astype(score, xp.float64)
    zero = xp.zeros((1,), dtype=xp.float64, device=device(score))

    def accumulate(values: Array) -> Array:
        return xp.concat([zero, xp.cumulative_sum(values)])

    if weight is None:
        count = xp.arange(score.shape[0] + 1, dtype=xp.float64, device=device(score))
        mass, moment = count * unit, accumulate(score) * unit
        return Segment(score, mass, moment, accumulate(score * score) * unit)
    weight = xp.astype(weight, xp.float64)
    moment = weight * score
    return Segment(score, accumulate(weight), accumulate(moment), accumulate(moment * score))


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Weight of each group in each bin of the scores.

    ``bins`` have equal width over (−1, 1); two more hold −1 and 1. ``rows`` is the number of rows
    added. ``mass`` is their weight and ``positive`` the weight of those with y = 1, float64 of
    shape (n_groups, bins + 2); None without rows, and without labels.

    16 bytes per group and bin: 1 MiB a group at 65,536 bins with labels. Whole-number weights are
    summed exactly, so that batches and their order change nothing; other weights are summed in the
    order of the batches.
    """

    n_groups: int
    bins: int
    rows: int = 0
    mass: Array | None = None
    positive: Array | None = None

    @classmethod
    def empty(cls, n_groups: int, bins: int = BINS) -> ScoreHistogram:
        """Return a histogram without rows."""
        if n_groups < 1 or bins < 1:
            raise ValueError(f"a histogram of {n_groups} groups and {bins} bins")
        return cls(n_groups, bins)

    def add(
        self, signed: Array, code: Array, weight: Array | None = None, y: Array | None = None
    ) -> ScoreHistogram:
        """Return this histogram with a batch of rows added; O(n + K bins).

        Scores f ∈ [−1, 1], codes, weights ≥ 0 and labels have shape (n,). ValueError is raised for
        codes out of range, and for labels in some batches only.
        """
        xp = array_namespace(signed)
        n = int(signed.shape[0])
        if n == 0:
            return self
        if int(xp.min(code)) < 0 or int(xp.max(code)) >= self.n_groups:
            raise ValueError(f"codes lie outside 0, …, {self.n_groups - 1}")
        score = xp.astype(signed, xp.float64)
        inner = xp.astype(xp.floor((score + 1.0) * (self.bins / 2)), xp.int64)
        column = xp.clip(inner, 0, self.bins - 1) + 1
        column = xp.where(score <= -1.0, 0, xp.where(score >= 1.0, self.bins + 1, column))
        cell = xp.astype(code, xp.int64) * (self.bins + 2) + column
        weights = xp.ones_like(score) if weight is None else xp.astype(weight, xp.float64)
        batch = replace(self, rows=n, mass=self._count(weights, cell), positive=None)
        if y is not None:
            labelled = xp.where(y > 0, weights, xp.zeros_like(weights))
            batch = replace(batch, positive=self._count(labelled, cell))
        return self.merge(batch)

    def merge(self, other: ScoreHistogram) -> ScoreHistogram:
        """Return the histogram of the rows of both; ValueError where they do not match."""
        if (self.n_groups, self.bins) != (other.n_groups, other.bins):
            raise ValueError("histograms of other groups or bins cannot be merged")
        if self.mass is None or other.mass is None:
            return other if self.mass is None else self
        if (self.positive is None) != (other.positive is None):
            raise ValueError("labels come with every batch or with none")
        return replace(
            self,
            rows=self.rows + other.rows,
            mass=self.mass + other.mass,
            positive=None if self.positive is None else self.positive + other.positive,
        )

    def regroup(self, codes: np.ndarray, n_groups: int | None = None) -> ScoreHistogram:
        """Return the histogram with the new code of each group; groups with one code are merged."""
        size = int(codes.max()) + 1 if n_groups is None else n_groups
        if size == self.n_groups and np.array_equal(codes, np.arange(size)):
            return self

        def move(table: np.ndarray | None) -> np.ndarray | None:
            if table is None:
                return None
            moved = np.zeros((size, table.shape[1]))
            for old, new in enumerate(codes.tolist()):
                moved[new] += table[old]
            return moved

        return replace(self, n_groups=size, mass=move(self.mass), positive=move(self.positive))

    def problem(self, merged: np.ndarray | None = None) -> ThresholdProblem:
        """Return the solver's problem on the centres of the bins.

        ``merged`` has the new code of each group; ValueError is raised without rows.
        """
        if merged is not None:
            return self.regroup(merged).problem()
        if self.mass is None:
            raise ValueError("the histogram has no rows")
        return self._build([self.mass])

    def labelled(self) -> ThresholdProblem:
        """Return the problem by codes 2 k + y for `expect_accuracy`; ValueError without labels."""
        if self.mass is None or self.positive is None:
            raise ValueError("no labels were added")
        return self._build([self.mass - self.positive, self.positive])

    def _count(self, weights: Array, cell: Array) -> Array:
        xp = array_namespace(weights)
        shape = (self.n_groups, self.bins + 2)
        return xp.reshape(segment_sum(weights, cell, shape[0] * shape[1]), shape)

    def _build(self, tables: list[Array]) -> ThresholdProblem:
        xp = array_namespace(tables[0])
        centres = (np.arange(self.bins) + 0.5) * (2.0 / self.bins) - 1.0
        score = xp.asarray(np.concatenate([[-1.0], centres, [1.0]]), device=device(tables[0]))
        return ThresholdProblem(
            tuple(
                build_segment(score, table[group, :])
                for group in range(self.n_groups)
                for table in tables
            )
        )


def solve_exact(
    problem: ThresholdProblem, width: float, rate: float, budget: float = 0.0
) -> Thresholds:
    """Solve (6) for one width and rate; see `solve_grid`."""
    return solve_grid(problem, [width], [rate], budget).pick(0, 0)


def solve_grid(
    problem: ThresholdProblem,
    widths: Sequence[float],
    rates: Sequence[float],
    budget: float = 0.0,
    cut: float = 0.0,
) -> ThresholdGrid:
    """Solve (6) for every pair of a width γ ≥ 0 and a rate ρ ∈ [0, 1], from the one sort.

    At width 0 the rule is a threshold with a coin at it, the limit of γ → 0. A positive width well
    below 1e-6 leaves double precision no room for the ramp: use 0. A bound ρ − ε/2 ≤ 0 or
    ρ + ε/2 ≥ 1 does not bind. Groups without weight keep t = 0. All pairs are solved at once by
    bisection over the breakpoints, O(K G log² n) for G pairs; the grid is on the host.

    Where decision 1 gains f − ``cut`` in place of f, t is nearest to the cut instead of to 0, and
    t − cut is the multiplier.
    """
    xp = array_namespace(problem.segments[0].score)
    where = device(problem.segments[0].score)
    width, rate = (axis.reshape(-1) for axis in np.meshgrid(widths, rates, indexing="ij"))
    gamma = xp.asarray(width, dtype=xp.float64, device=where)
    rho = xp.asarray(rate, dtype=xp.float64, device=where)
    solved = [_solve_segment(segment, gamma, rho, budget, cut) for segment in problem.segments]
    shape = (len(widths), len(rates))

    def gather(name: str) -> np.ndarray:
        return np.stack([to_numpy(group[name]) for group in solved], axis=-1).reshape(*shape, -1)

    share = np.array([segment.total for segment in problem.segments]) / problem.total
    return ThresholdGrid(
        widths=np.asarray(widths, dtype=np.float64),
        rates=np.asarray(rates, dtype=np.float64),
        **{name: gather(name) for name in ("threshold", "coin", "rate", "binding")},
        objective=gather("objective") @ share,
        dual_value=gather("dual_value") @ share,
    )


def weigh_rule(problem: ThresholdProblem, rule: ThresholdRule) -> np.ndarray:
    """Return Σ w h of any rule over the rows of each group, float64, shape (n_groups,); exact."""
    xp = array_namespace(problem.segments[0].score)

    def move(values: Any) -> Array:
        return xp.asarray(values, dtype=xp.float64, device=device(problem.segments[0].score))

    settings = zip(problem.segments, rule.threshold, rule.coin, strict=True)
    return np.array(
        [
            float(_measure(segment, move([rule.width]), move([threshold]), move([coin]))[0][0])
            for segment, threshold, coin in settings
        ]
    )


def expect_accuracy(
    labelled: ThresholdProblem, grid: ThresholdGrid, gain: tuple[float, float] = (1.0, 1.0)
) -> tuple[np.ndarray, np.ndarray]:
    """Return expected accuracy and bias of every rule of a grid, both (n_widths, n_rates).

    They are E[y h + (1 − y)(1 − h)], and max_k E[h | k] − min_k E[h | k] over the groups that have
    rows, exact on ``labelled``, which is built from codes 2 k + y for groups k and labels y. In
    the first a row with label y counts ``gain[y]`` times.
    """
    xp = array_namespace(labelled.segments[0].score)
    where = device(labelled.segments[0].score)

    def move(values: np.ndarray) -> Array:
        return xp.asarray(np.ascontiguousarray(values).reshape(-1), device=where)

    width = move(np.broadcast_to(grid.widths[:, None], grid.objective.shape))
    right = np.zeros(grid.objective.shape)
    rates = []
    for group in range(grid.threshold.shape[2]):
        rule = (width, move(grid.threshold[..., group]), move(grid.coin[..., group]))
        pair = labelled.segments[2 * group : 2 * group + 2]
        chosen = [
            to_numpy(_measure(segment, *rule)[0]).reshape(grid.objective.shape) for segment in pair
        ]
        totals = [segment.total for segment in pair]
        right += gain[1] * chosen[1] + gain[0] * totals[0] - gain[0] * chosen[0]
        if sum(totals) > 0:
            rates.append((chosen[0] + chosen[1]) / sum(totals))
    return right / labelled.weigh(gain), np.ptp(np.stack(rates), axis=0)


def _solve_segment(
    segment: Segment, width: Array, rate: Array, budget: float, cut: float
) -> dict[str, Array]:
    """Solve one group for pairs of width and rate, arrays of shape (G,)."""
    xp = array_namespace(width)
    total = segment.total
    zero = xp.zeros_like(width)
    if total == 0.0:
        missing = zero + xp.nan
        return {"threshold": zero, "coin": zero, "rate": missing, "binding": zero > 0.0,
                "objective": zero, "dual_value": zero}  # fmt: skip
    low, high = (rate - budget / 2) * total, (rate + budget / 2) * total
    free = zero + cut
    ramp, bent = _find_ramp(segment, xp.where(width > 0, width, 1.0), low, high, free)
    step, coin, forced = _find_coin(segment, low, high, free)
    threshold = xp.where(width > 0, ramp, step)
    coin = xp.where(width > 0, zero, coin)
    mass, objective = _measure(segment, width, threshold, coin)
    multiplier = threshold - cut
    penalty = budget / 2 * xp.abs(multiplier) + rate * multiplier
    return {
        "threshold": threshold,
        "coin": coin,
        "rate": mass / total,
        "binding": xp.where(width > 0, bent, forced),
        "objective": (objective + cut * mass) / total,
        "dual_value": -penalty - _conjugate(segment, width, threshold) / total,
    }


def _find_ramp(
    segment: Segment, width: Array, low: Array, high: Array, free: Array
) -> tuple[Array, Array]:
    """Return t for widths > 0 and masses low ≤ Σ w h ≤ high, and whether t = free misses them."""
    xp = array_namespace(width)
    score, mass, moment = segment.score, segment.mass, segment.moment
    n, slack = int(score.shape[0]), TOLERANCE * segment.total
    start = _measure(segment, width, free, None)[0]
    above, below = start > high + slack, start < low - slack
    target = xp.where(above, high, low)
    limit = xp.where(above, target + slack, target - slack)

    # The first breakpoints, among the scores f_j and among f_i − γ, where the mass is within the
    # limit: the root lies between them and the ones before.
    shift, wide = xp.concat([xp.zeros_like(width), width]), xp.concat([width, width])
    limits = xp.concat([limit, limit])
    first = xp.zeros(limits.shape, dtype=xp.int64, device=device(score))
    last = first + n
    for _ in range(n.bit_length()):
        middle = (first + last) // 2
        point = xp.take(score, xp.clip(middle, max=n - 1)) - shift
        within = _measure(segment, wide, point, None)[0] <= limits
        unsettled = first < last
        last = xp.where(unsettled & within, middle, last)
        first = xp.where(unsettled & ~within, middle + 1, first)
    size = int(width.shape[0])
    lower, upper = first[:size], xp.maximum(first[:size], first[size:])

    # Between the two the rows lower, …, upper − 1 are on the ramp and those after them above it.
    fence = xp.asarray([xp.inf], dtype=xp.float64, device=device(score))
    fenced = xp.concat([-fence, score, fence])
    left = xp.maximum(xp.take(fenced, lower), xp.take(fenced, upper) - width)
    right = xp.minimum(xp.take(fenced, lower + 1), xp.take(fenced, upper + 1) - width)
    inner = xp.take(mass, upper) - xp.take(mass, lower)
    top = mass[-1] - xp.take(mass, upper)
    pull = xp.take(moment, upper) - xp.take(moment, lower) + width * (top - target)
    root = xp.where(inner > 0, pull / xp.where(inner > 0, inner, 1.0), target)
    root = xp.minimum(xp.maximum(root, left), right)
    root = xp.where(above, xp.maximum(root, free), xp.minimum(root, free))
    return xp.where(above | below, root, free), above | below


def _find_coin(
    segment: Segment, low: Array, high: Array, free: Array
) -> tuple[Array, Array, Array]:
    """Return t and the coin at it for width 0, and whether t = free without one misses the mass."""
    xp = array_namespace(low)
    score, mass = segment.score, segment.mass
    total, slack = mass[-1], TOLERANCE * segment.total
    n = int(score.shape[0])
    zero = xp.zeros_like(low)

    def at(threshold: Array) -> tuple[Array, Array]:
        """Return the mass above a threshold, and at it."""
        before = xp.take(mass, xp.searchsorted(score, threshold))
        through = xp.take(mass, xp.searchsorted(score, threshold, side="right"))
        return total - through, through - before

    over, level = at(free)
    above, below = over > high + slack, over + level < low - slack
    # Rising, t stops at the first score with at most `high` above it; falling, at the last one
    # with at least `low` at or above it.
    rise = xp.searchsorted(mass, total - high - slack) - 1
    fall = xp.searchsorted(mass, total - low + slack, side="right") - 1
    position = xp.clip(xp.where(above, rise, fall), 0, n - 1)
    threshold = xp.where(above | below, xp.take(score, position), free)
    over, level = at(threshold)
    wanted = xp.where(above, high, low) - over
    coin = xp.where(level > 0, wanted / xp.where(level > 0, level, 1.0), zero)
    # A remainder within rounding is no coin.
    coin = xp.where(xp.abs(wanted) <= slack, zero, xp.clip(coin, 0.0, 1.0))
    return threshold, coin, above | (over < low - slack) | below


def _measure(
    segment: Segment, width: Array, threshold: Array, coin: Array | None
) -> tuple[Array, Array]:
    """Return Σ w h and Σ w [(γ/2) h² − h f] of rules, arrays of shape (G,), in closed form."""
    xp = array_namespace(width)
    lower, (inner, pull, spread), (top, above) = _split(segment, width, threshold)
    safe = xp.where(width > 0, width, 1.0)
    chosen = (pull - threshold * inner) / safe + top
    # On the ramp (γ/2) h² − h f = (t² − f²)/(2γ).
    objective = (threshold * threshold * inner - spread) / (2.0 * safe) + width / 2.0 * top - above
    if coin is not None:
        mass, moment = segment.mass, segment.moment
        before = xp.searchsorted(segment.score, threshold)
        chosen = chosen + coin * (xp.take(mass, lower) - xp.take(mass, before))
        objective = objective - coin * (xp.take(moment, lower) - xp.take(moment, before))
    return chosen, objective


def _conjugate(segment: Segment, width: Array, threshold: Array) -> Array:
    """Return Σ w ξ_γ(f − t): (f − t)²/(2γ) on the ramp, f − t − γ/2 above it (equation 3)."""
    xp = array_namespace(width)
    _, (inner, pull, spread), (top, above) = _split(segment, width, threshold)
    squares = spread - 2.0 * threshold * pull + threshold * threshold * inner
    ramp = squares / (2.0 * xp.where(width > 0, width, 1.0))
    return ramp + above - (threshold + width / 2.0) * top


def _split(segment: Segment, width: Array, threshold: Array) -> tuple[Array, Any, Any]:
    """Return the first score above t, Σ w, Σ w f, Σ w f² on (t, t + γ), and Σ w, Σ w f above."""
    xp = array_namespace(width)
    lower = xp.searchsorted(segment.score, threshold, side="right")
    upper = xp.maximum(lower, xp.searchsorted(segment.score, threshold + width))
    sums = (segment.mass, segment.moment, segment.square)
    ramp = [xp.take(total, upper) - xp.take(total, lower) for total in sums]
    return lower, ramp, [total[-1] - xp.take(total, upper) for total in sums[:2]]
