"""Near-optimal debiasing: randomised ramps by group, exact for both criteria from one sort.

    min_{0≤h≤1} (γ/2) E h² − E[h (f − c)]   s.t.  low ≤ E[z h | k] ≤ high for every group k

for scores f ∈ [−1, 1], an estimate of 2η − 1 with η = P(Y=1|x), and c the score from which on
decision 1 pays. Each group is a separate problem, solved by

    h = clip((f − c − m z)/γ, 0, 1),

a ramp of each cell, in which z is one number. The criterion says what z is:

- parity: 1, so that the threshold is c + m; the paper's problem (6);
- covariance, with two cells a group: 1_S − ρ_k, ρ_k = E[1_S | k], between −ε and ε (the paper has
  ε here, not ε/2): thresholds of members and of others move apart (15).

The mean of z h falls as m grows, so m is 0 where that meets the bounds, and else the root nearest
to 0 of the mean = the nearest bound. Between two breakpoints the mean is a straight line whose
coefficients are differences of running sums over the sorted scores, and Newton's steps end at the
root, up to rounding. At γ = 0 h is a threshold with a coin at it, the limit of γ → 0.

References
----------
I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning models.
NeurIPS 2021, equations 1, 4, 6 and 15, theorem 3 for γ → 0. Exact solutions in place of the paper's
SGD: ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fairfrontier.models.thresholds.rule import ThresholdRule, conjugate
from fairfrontier.models.thresholds.threshold import TOLERANCE, Segment, ThresholdProblem

Criterion = Literal["parity", "covariance"]

# The search for a root ends at this accuracy of the mean, or at neighbouring numbers.
FINEST = 1e-14
MOST_STEPS = 400
BISECTIONS = 60
# On a steeper ramp there are so few rows that they are added one by one.
STEEP = 1e4
# Violations below this count as met, and so do gaps below this share of 1 + the largest multiplier.
ACCURACY = 1e-9


@dataclass(frozen=True, eq=False)
class Solution:
    """The optimum under a criterion, with its certificate.

    Attributes
    ----------
    width : float
        γ.
    rule : ThresholdRule
        By code of the problem; under covariance codes are 2 · subgroup + member.
    rate : ndarray of float64, shape (n_cells,)
        E[h | cell] on the problem's rows; NaN in a cell without rows.
    multiplier : ndarray of float64, shape (n_groups,)
        m.
    reached : ndarray of float64, shape (n_groups,)
        The bounded quantity on the problem's rows; NaN where a group has none.
    violation : ndarray of float64, shape (n_groups,)
        Distance of ``reached`` from its bounds; 0 up to rounding.
    binding : ndarray of bool, shape (n_groups,)
        Whether the unconstrained optimum violates parity.
    objective : float
        Σ w [(γ/2) h² − h (f − c)] / Σ w.
    dual_value : float
        The Lagrangian dual at ``multiplier``, −Σ w [ξ_γ(f − c − m z) + m τ + |m| ε/2] / Σ w for
        bounds τ ± ε/2: no feasible rule has a smaller objective.
    converged : bool
        Whether every group meets its bounds and the gap is closed, both up to rounding.
    """

    width: float
    rule: ThresholdRule
    rate: np.ndarray
    multiplier: np.ndarray
    reached: np.ndarray
    violation: np.ndarray
    binding: np.ndarray
    objective: float
    dual_value: float
    converged: bool

    @property
    def gap(self) -> float:
        """Duality gap: 0 up to rounding."""
        return self.objective - self.dual_value


class Lines(NamedTuple):
    """The ramps h = clip(slope (f − threshold), 0, 1) of one cell for G candidates.

    All are float64 of shape (G,). An infinite slope makes a threshold with a ``coin`` at it.
    """

    threshold: np.ndarray
    coin: np.ndarray
    slope: np.ndarray
    multiplier: np.ndarray


@dataclass(frozen=True, eq=False)
class _Unit:
    """One group: its cells, which are positions in the problem, and their share and z.

    ``total`` is the group's weight.
    """

    cells: tuple[int, ...]
    segments: tuple[Segment, ...]
    part: np.ndarray
    z: np.ndarray
    total: float


def solve(
    problem: ThresholdProblem,
    criterion: Criterion,
    width: float,
    rate: float | None = None,
    budget: float = 0.0,
    cut: float = 0.0,
    *,
    lines: Sequence[Lines] | None = None,
) -> Solution:
    """Solve one problem.

    Parameters
    ----------
    problem : ThresholdProblem
        Scores by group; for covariance by code 2 · subgroup + member. Groups without weight keep
        the threshold c under parity; covariance needs weight in every group.
    criterion : {"parity", "covariance"}
        What is equal over the groups.
    width : float
        γ ≥ 0. Well below 1e-6 leaves double precision no room for the ramp: use 0.
    rate : float or None
        τ ∈ [0, 1] of those decided 1; None under covariance.
    budget : float
        ε ≥ 0: bounds are τ ± ε/2, or ±ε under covariance.
    cut : float
        c.
    lines : sequence of Lines, optional
        What `draw_lines` gave for this one candidate.

    Notes
    -----
    O(K log n) for some ten steps; O(n) for the certificate.
    """
    target = 0.0 if rate is None else float(rate)
    if lines is None:
        lines = draw_lines(problem, criterion, np.array([width]), np.array([target]), budget, cut)
    return _conclude(problem, criterion, lines, width, target, budget, cut)


def solve_exact(
    problem: ThresholdProblem, width: float, rate: float, budget: float = 0.0
) -> Solution:
    """Solve (6), under parity, for one width and rate."""
    return solve(problem, "parity", width, rate, budget)


def draw_lines(
    problem: ThresholdProblem,
    criterion: Criterion,
    width: np.ndarray,
    rate: np.ndarray,
    budget: float,
    cut: float = 0.0,
) -> list[Lines]:
    """Return the optimal ramps of each cell for candidates of widths and rates, both (G,)."""
    width, rate = (np.asarray(each, dtype=np.float64) for each in (width, rate))
    half = budget if criterion == "covariance" else budget / 2
    lines: dict[int, Lines] = {}
    for unit in _list_units(problem, criterion):
        solved = _solve_unit(unit, width, rate - half, rate + half, cut)
        lines |= dict(zip(unit.cells, solved, strict=True))
    return [lines[cell] for cell in range(len(problem.segments))]


def _list_units(problem: ThresholdProblem, criterion: Criterion) -> list[_Unit]:
    """Return the groups of a problem."""
    units, per_group = [], 2 if criterion == "covariance" else 1
    for start in range(0, len(problem.segments), per_group):
        cells = tuple(range(start, start + per_group))
        segments = tuple(problem.segments[cell].share for cell in cells)
        totals = np.array([problem.segments[cell].total for cell in cells])
        total = float(totals.sum())
        part = totals / (total or 1.0)
        z = np.array([-part[1], part[0]]) if criterion == "covariance" else np.ones(1)
        units.append(_Unit(cells, segments, part, z, total))
    return units


def _solve_unit(
    unit: _Unit, width: np.ndarray, low: np.ndarray, high: np.ndarray, cut: float
) -> list[Lines]:
    """Return the ramps of the cells of a group."""
    ramp = width > 0
    w, gamma = np.zeros_like(width), np.where(ramp, width, 1.0)

    def mean(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = np.zeros_like(w), np.zeros_like(w)
        for segment, share, z in zip(unit.segments, unit.part, unit.z, strict=True):
            chosen, mass = integrate(segment, -(w * z + cut) / gamma, 1.0 / gamma)
            value += share * (z * chosen)
            slope -= share * (z * z * mass) / gamma
        return value, slope

    if unit.total > 0 and ramp.any():
        # Widths of 0 have no ramp to search: NaN bounds are met.
        w = find_roots(mean, *(np.where(ramp, end, np.nan) for end in (low, high)))
    lines = [Lines(cut + w * z, np.zeros_like(w), 1.0 / gamma, w) for z in unit.z]
    for i in np.flatnonzero(~ramp).tolist():
        root, steps = 0.0, [(cut, 0.0)] * len(lines)
        if unit.total > 0:
            root, steps = _find_steps(unit, float(low[i]), float(high[i]), cut)
        for line, (threshold, coin) in zip(lines, steps, strict=True):
            line.threshold[i], line.coin[i], line.slope[i] = threshold, coin, np.inf
            line.multiplier[i] = root
    return lines


def _find_steps(
    unit: _Unit, low: float, high: float, cut: float
) -> tuple[float, list[tuple[float, float]]]:
    """Return w at width 0, and the threshold and the coin of each cell.

    As w passes the ratio (f − c)/z of a row, h falls from 1 to 0 where z > 0, and rises from 0 to 1
    where z < 0; in the limit of γ → 0 all falls come before all rises. Where the mean at 0 is below
    its bounds, z and w change their signs.
    """
    sums, ratios, starts = [], [], []
    for segment, share, z in zip(unit.segments, unit.part, unit.z, strict=True):
        ratios.append((segment.score - cut) / z if z else np.full(segment.score.shape, -np.inf))
        sums.append(share * (z * segment.mass))
        starts.append(int(np.searchsorted(segment.score, cut, side="right")))

    def weigh(places: Sequence[int]) -> float:
        pairs = zip(sums, places, strict=True)
        return sign * sum(float(each[-1] - each[place]) for each, place in pairs)

    sign = 1.0
    mean = weigh(starts)
    over, under = mean > high + TOLERANCE, mean < low - TOLERANCE
    if not (over or under):
        return 0.0, [(cut, 0.0)] * len(starts)
    if under:
        sign, ratios = -1.0, [-ratio for ratio in ratios]
    target = sign * (low if under else high)
    # Where rows fall ratios ascend with the score, else they descend.
    falls = [sign * float(each[-1]) >= 0 for each in sums]

    def place(w: float, *, after: bool) -> list[int]:
        """Return the first row of each cell that is chosen just before or after w."""
        side: Literal["left", "right"] = "right" if after else "left"
        return [
            int(
                np.searchsorted(ratio, w, side)
                if fall
                else ratio.size - np.searchsorted(ratio[::-1], w, side)
            )
            for ratio, fall in zip(ratios, falls, strict=True)
        ]

    breaks = np.sort(np.concatenate([r[(r >= 0) & np.isfinite(r)] for r in ratios]), kind="stable")
    if not breaks.size:
        return 0.0, [(cut, 0.0)] * len(starts)
    first, last = 0, breaks.size - 1
    while first < last:
        middle = (first + last) // 2
        met = weigh(place(float(breaks[middle]), after=True)) <= target + TOLERANCE
        first, last = (first, middle) if met else (middle + 1, last)
    w = float(breaks[first])
    before, after = place(w, after=False), place(w, after=True)
    between = weigh([b if fall else a for a, b, fall in zip(before, after, falls, strict=True)])
    gain, loss = weigh(before) - between, between - weigh(after)
    left = target - between
    coins = (min(1.0, left / gain) if left > TOLERANCE and gain > 0 else 0.0,
             min(1.0, -left / loss) if left < -TOLERANCE and loss > 0 else 0.0)  # fmt: skip
    steps = []
    for k, segment in enumerate(unit.segments):
        score, start = segment.score, min(before[k], after[k])
        if before[k] != after[k]:
            steps.append((float(score[start]), coins[0 if falls[k] else 1]))
            continue
        # Rounding must not move a row across the threshold.
        t = cut + sign * w * float(unit.z[k])
        floor = float(score[start - 1]) if start else -2.0
        ceiling = float(score[start]) if start < score.size else 2.0
        steps.append((t if floor <= t < ceiling else floor, 0.0))
    return sign * w, steps


def _conclude(
    problem: ThresholdProblem,
    criterion: Criterion,
    lines: Sequence[Lines],
    width: float,
    target: float,
    budget: float,
    cut: float,
) -> Solution:
    """Return the solution with the quantities measured on all rows."""
    units, half = _list_units(problem, criterion), budget / (1 + (criterion != "covariance"))
    rate, reached = np.full(len(lines), np.nan), np.full(len(units), np.nan)
    multiplier, violation, binding = np.zeros((3, len(units)))
    objective = dual = 0.0
    for k, unit in enumerate(units):
        m = multiplier[k] = float(lines[unit.cells[0]].multiplier[0])
        if unit.total == 0:
            continue
        share, pull, free = unit.total / problem.total, 0.0, 0.0
        dual -= share * (m * target + abs(m) * half)
        for cell, segment, part, z in zip(
            unit.cells, unit.segments, unit.part, unit.z, strict=True
        ):
            if part == 0:
                continue
            f, weight = segment.score, np.diff(segment.mass)
            threshold, coin, slope, _ = (float(each[0]) for each in lines[cell])
            h = _decide(f, threshold, coin, slope)
            chosen = weight * h
            rate[cell], gain = chosen.sum(), f - cut
            pull += part * (z * rate[cell])
            objective += share * part * float(chosen @ (width / 2.0 * h - gain))
            dual -= share * part * float(weight @ conjugate(gain - m * z, width))
            own = np.clip(gain / width, 0.0, 1.0) if width > 0 else gain > 0
            free += part * float(weight @ own)
        reached[k] = pull
        violation[k] = max(0.0, abs(pull - target) - half)
        binding[k] = criterion == "parity" and abs(free - target) > half + TOLERANCE
    table = [np.array([float(line[i][0]) for line in lines]) for i in range(2)]
    closed = abs(objective - dual) <= ACCURACY * (1.0 + np.abs(multiplier).max())
    return Solution(
        width=float(width),
        rule=ThresholdRule(float(width), *table),
        rate=rate,
        multiplier=multiplier,
        reached=reached,
        violation=violation,
        binding=binding.astype(bool),
        objective=objective,
        dual_value=dual,
        converged=bool(closed and violation.max() <= ACCURACY),
    )


def _decide(f: np.ndarray, threshold: float, coin: float, slope: float) -> np.ndarray:
    """Return h of one ramp or step."""
    if math.isinf(slope):
        return np.where(f == threshold, coin, f > threshold)
    return np.clip(slope * (f - threshold), 0.0, 1.0)


def integrate(
    segment: Segment, level: np.ndarray, slope: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ w h of h = clip(level + slope f, 0, 1), and Σ w where 0 < h < 1, both (G,).

    Slopes are above 0, and the segment is one of NumPy; O(log n) for each.
    """
    first, last = (segment.score.searchsorted((end - level) / slope) for end in (0.0, 1.0))
    mass = segment.mass[last] - segment.mass[first]
    moment = segment.moment[last] - segment.moment[first]
    return segment.mass[-1] - segment.mass[last] + level * mass + slope * moment, mass


def find_roots(
    mean: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Return the w nearest to 0 at which falling, piecewise linear means are within their bounds.

    ``mean`` takes numbers of the shape of ``low`` and ``high``, and returns values and slopes. A
    NaN is within its bounds. Newton's steps, exact on the root's own piece, are kept between the
    known points on both sides; one that does not halve the distance of the mean from its bound is
    followed by a bisection. Where the mean is flat at its root, the end of that piece is found by
    bisection.
    """
    point = np.zeros_like(low)
    value, slope = mean(point)
    over, under = value > high + TOLERANCE, value < low - TOLERANCE
    sign, target = np.where(under, -1.0, 1.0), np.where(under, low, high)
    left, right, active = point, np.full_like(point, math.inf), over | under
    before = np.full_like(point, math.inf)
    for _ in range(MOST_STEPS):
        surplus = np.where(active, sign * (value - target), 0.0)
        active = active & (np.abs(surplus) > FINEST)
        if not active.any():
            break
        left, right = np.where(surplus > 0, point, left), np.where(surplus < 0, point, right)
        with np.errstate(over="ignore"):
            newton = point - surplus / np.where(slope < 0, slope, -1.0)
        newton = np.where(slope < 0, newton, math.inf)
        inside = (left < newton) & (newton < right) & (np.abs(surplus) <= before / 2.0)
        # After a bisection the next step is Newton's again, however far it led.
        before = np.where(inside, np.abs(surplus), math.inf)
        closed = np.where(inside, newton, (left + right) / 2.0)
        opened = np.minimum(newton, 8.0 * np.maximum(left, 1.0))
        trial = np.where(np.isinf(right), opened, closed)
        active = active & (left < trial) & (trial < right)
        point = np.where(active, trial, point)
        value, slope = mean(sign * point)
    flat = (over | under) & (slope == 0)
    for _ in range(BISECTIONS if flat.any() else 0):
        middle = np.where(flat, (left + point) / 2.0, point)
        short = sign * (mean(sign * middle)[0] - target) > FINEST
        left, point = np.where(short, middle, left), np.where(short, point, middle)
    return np.asarray(sign * point)


def judge_lines(
    labelled: ThresholdProblem, lines: Sequence[Lines], gain: tuple[float, float] = (1.0, 1.0)
) -> tuple[np.ndarray, np.ndarray]:
    """Return expected accuracy, and max − min of E[h | cell], of G candidates, shapes (G,).

    They are E[y h + (1 − y)(1 − h)], in which a row with label y counts ``gain[y]`` times, and the
    range of the rates of cells that have rows, exact on ``labelled``, which is built from codes
    2 k + y; ``lines`` are those of its cells k.
    """
    right, rates = np.zeros(lines[0].threshold.size), []
    for k, line in enumerate(lines):
        zero, one = (segment.on_host() for segment in labelled.segments[2 * k : 2 * k + 2])
        chosen = [_choose(segment, line) for segment in (zero, one)]
        right += gain[1] * chosen[1] + gain[0] * zero.total - gain[0] * chosen[0]
        if total := zero.total + one.total:
            rates.append((chosen[0] + chosen[1]) / total)
    return right / labelled.weigh(gain), np.ptp(rates, axis=0)


def as_lines(rule: ThresholdRule) -> list[Lines]:
    """Return a rule as ramps of one candidate."""
    slope, zero = np.array([1.0 / rule.width if rule.width > 0 else np.inf]), np.zeros(1)
    pairs = zip(rule.threshold[:, None], rule.coin[:, None], strict=True)
    return [Lines(t, coin, slope, zero) for t, coin in pairs]


def weigh_rule(problem: ThresholdProblem, rule: ThresholdRule) -> np.ndarray:
    """Return Σ w h of any rule over the rows of each group, float64, shape (n_groups,); exact."""
    pairs = zip(problem.segments, as_lines(rule), strict=True)
    return np.array([_choose(segment.on_host(), line)[0] for segment, line in pairs])


def _choose(segment: Segment, line: Lines) -> np.ndarray:
    """Return Σ w h of G ramps."""
    steep = line.slope > STEEP
    slope = np.where(steep, 1.0, line.slope)
    chosen, _ = integrate(segment, -slope * line.threshold, slope)
    for i in np.flatnonzero(steep).tolist():
        threshold, coin, slope = line.threshold[i], line.coin[i], line.slope[i]
        # One more at both ends: where a ramp ends is known up to rounding.
        begin = max(0, int(np.searchsorted(segment.score, threshold)) - 1)
        end = int(np.searchsorted(segment.score, threshold + 1.0 / slope, side="right")) + 1
        end = min(segment.score.size, end)
        h = _decide(segment.score[begin:end], threshold, coin, slope)
        above = segment.mass[-1] - segment.mass[end]
        chosen[i] = above + h @ np.diff(segment.mass[begin : end + 1])
    return chosen
