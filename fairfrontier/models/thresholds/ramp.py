"""Near-optimal debiasing: randomised ramps by group with equal rates, exact from one sort.

    min_{0≤h≤1} (γ/2) E h² − E[h (f − c)]   s.t.  |E[h | k] − ρ| ≤ ε/2 for every group k        (6)

for scores f ∈ [−1, 1], an estimate of 2η − 1 with η = P(Y=1|x), and c the score from which on
decision 1 pays. Each group is a separate problem, solved by

    h = clip((f − c − m)/γ, 0, 1).

The rate falls as m grows, so m is 0 where that meets the bounds, and else the root nearest to 0 of
the rate = the nearest bound. Between two breakpoints the rate is a straight line whose coefficients
are differences of running sums over the sorted scores, and Newton's steps end at the root, up to
rounding. At γ = 0 h is a threshold with a coin at it, the limit of γ → 0.

References
----------
I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning models.
NeurIPS 2021, equations 1, 4 and 6, theorem 3 for γ → 0. Exact solutions in place of the paper's
SGD: ours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fairfrontier.models.thresholds.rule import ThresholdRule, conjugate
from fairfrontier.models.thresholds.threshold import TOLERANCE, Segment, ThresholdProblem

Side = Literal["left", "right"]

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
    """The optimum of (6), with its certificate.

    Attributes
    ----------
    rule : ThresholdRule
        By code of the problem.
    rate : ndarray of float64, shape (n_groups,)
        E[h | group] on the problem's rows; NaN of a group without rows.
    multiplier : ndarray of float64, shape (n_groups,)
        m.
    binding : ndarray of bool, shape (n_groups,)
        Whether the unconstrained optimum violates the bounds.
    objective : float
        Σ w [(γ/2) h² − h (f − c)] / Σ w.
    dual_value : float
        The Lagrangian dual at ``multiplier``, −Σ w [ξ_γ(f − c − m) + m ρ + |m| ε/2] / Σ w: no
        feasible rule has a smaller objective.
    converged : bool
        Whether every group meets its bounds and the gap is closed, both up to rounding.
    """

    rule: ThresholdRule
    rate: np.ndarray
    multiplier: np.ndarray
    binding: np.ndarray
    objective: float
    dual_value: float
    converged: bool

    @property
    def gap(self) -> float:
        """Duality gap: 0 up to rounding."""
        return self.objective - self.dual_value


class Lines(NamedTuple):
    """The ramps h = clip(slope (f − threshold), 0, 1) of one group for G candidates.

    All are float64 of shape (G,). An infinite slope makes a threshold with a ``coin`` at it.
    """

    threshold: np.ndarray
    coin: np.ndarray
    slope: np.ndarray
    multiplier: np.ndarray


def solve_exact(
    problem: ThresholdProblem,
    width: float,
    rate: float,
    budget: float = 0.0,
    cut: float = 0.0,
    *,
    lines: Sequence[Lines] | None = None,
) -> Solution:
    """Solve (6) for one width and rate.

    Parameters
    ----------
    problem : ThresholdProblem
        Scores by group. Groups without weight keep the threshold c.
    width : float
        γ ≥ 0. Well below 1e-6 leaves double precision no room for the ramp: use 0.
    rate, budget : float
        ρ ∈ [0, 1] and ε ≥ 0.
    cut : float
        c.
    lines : sequence of Lines, optional
        What `draw_lines` gave for this one candidate.

    Notes
    -----
    O(K log n) for some ten steps; O(n) for the certificate.
    """
    if lines is None:
        lines = draw_lines(problem, np.array([width]), np.array([rate]), budget, cut)
    size, half = len(lines), budget / 2
    reached, multiplier, binding = np.full(size, np.nan), np.zeros(size), np.zeros(size, dtype=bool)
    violation, objective, dual = 0.0, 0.0, 0.0
    for k, (segment, line) in enumerate(zip(problem.segments, lines, strict=True)):
        threshold, coin, slope, m = (float(each[0]) for each in line)
        multiplier[k] = m
        if segment.total == 0:
            continue
        share, (f, mass) = segment.total / problem.total, (segment.share.score, segment.share.mass)
        weight, gain = np.diff(mass), f - cut
        h = _decide(f, threshold, coin, slope)
        chosen = weight * h
        reached[k] = chosen.sum()
        objective += share * float(chosen @ (width / 2.0 * h - gain))
        dual -= share * (m * rate + abs(m) * half)
        dual -= share * float(weight @ conjugate(gain - m, width))
        free = weight @ (np.clip(gain / width, 0.0, 1.0) if width > 0 else gain > 0)
        violation = max(violation, abs(reached[k] - rate) - half)
        binding[k] = abs(free - rate) > half + TOLERANCE
    ends = [np.array([float(line[i][0]) for line in lines]) for i in range(2)]
    closed = abs(objective - dual) <= ACCURACY * (1.0 + np.abs(multiplier).max())
    return Solution(
        rule=ThresholdRule(float(width), *ends),
        rate=reached,
        multiplier=multiplier,
        binding=binding,
        objective=objective,
        dual_value=dual,
        converged=bool(closed and violation <= ACCURACY),
    )


def draw_lines(
    problem: ThresholdProblem, width: np.ndarray, rate: np.ndarray, budget: float, cut: float = 0.0
) -> list[Lines]:
    """Return the optimal ramps of each group for candidates of widths and rates, both (G,)."""
    width, rate = (np.asarray(each, dtype=np.float64) for each in (width, rate))
    low, high = rate - budget / 2, rate + budget / 2
    return [_draw_line(segment, width, low, high, cut) for segment in problem.segments]


def _draw_line(
    segment: Segment, width: np.ndarray, low: np.ndarray, high: np.ndarray, cut: float
) -> Lines:
    """Return the ramps of a group whose rates lie between bounds."""
    ramp, share = width > 0, segment.share
    m, gamma = np.zeros_like(width), np.where(ramp, width, 1.0)

    def mean(m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen, mass = integrate(share, -(m + cut) / gamma, 1.0 / gamma)
        return chosen, -mass / gamma

    if segment.total > 0 and ramp.any():
        # Widths of 0 have no ramp to search: NaN bounds are met.
        m = find_roots(mean, *(np.where(ramp, end, np.nan) for end in (low, high)))
    line = Lines(cut + m, np.zeros_like(m), np.where(ramp, 1.0 / gamma, np.inf), m)
    for i in np.flatnonzero(~ramp).tolist():
        if segment.total > 0:
            step = _find_step(share, float(low[i]), float(high[i]), cut)
            line.threshold[i], line.coin[i] = step
            m[i] = step[0] - cut
    return line


def _find_step(share: Segment, low: float, high: float, cut: float) -> tuple[float, float]:
    """Return the threshold nearest to the cut at which the rate is within bounds, and its coin."""
    score, start = share.score, int(np.searchsorted(share.score, cut, side="right"))

    def count(at: float, side: Side) -> int:
        return int(np.searchsorted(score, at, side))

    def above(place: int) -> float:
        """Return the share of the rows from the one at a place on."""
        return float(share.mass[-1] - share.mass[place])

    def search(places: range, side: Side, met: Callable[[float], bool]) -> float:
        """Return the first score, from the cut outwards, beyond which the rate is within bounds."""
        found = bisect_left(
            places, True, hi=len(places) - 1, key=lambda i: met(above(count(score[i], side)))
        )
        return float(score[count(score[places[found]], "left")])

    if above(start) > high + TOLERANCE:
        places, target = range(count(cut, "left"), score.size), high
        threshold = search(places, "right", lambda rate: rate <= high + TOLERANCE)
    elif above(start) < low - TOLERANCE and start > 0:
        target = low
        threshold = search(range(start - 1, -1, -1), "left", lambda rate: rate >= low - TOLERANCE)
    else:
        return cut, 0.0
    below, rest = above(count(threshold, "left")), above(count(threshold, "right"))
    left = target - rest
    return threshold, min(1.0, left / (below - rest)) if left > TOLERANCE and below > rest else 0.0


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
    """Return expected accuracy, and max − min of E[h | group], of G candidates, shapes (G,).

    They are E[y h + (1 − y)(1 − h)], in which a row with label y counts ``gain[y]`` times, and the
    range of the rates of groups that have rows, exact on ``labelled``, which is built from codes
    2 k + y; ``lines`` are those of its groups k.
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
