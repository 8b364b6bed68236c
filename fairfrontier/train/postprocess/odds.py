"""Equalised odds from scores alone, and which rates to hold equal.

    min_{0≤h≤1} (γ/2) E h² − E[h f]
    s.t.  |E[η h | k]/E[η | k] − TPR| ≤ ε/2,   |E[(1−η) h | k]/E[1−η | k] − FPR| ≤ ε/2,   all k

with η = (1 + f)/2: the true and the false positive rate as the scores estimate them, since y is
unknown where the rule is applied. Ours, after the paper's Appendix E. Both rates are linear in h,
and so is the gain: E[h f | k] = E[η | k] · tpr − E[1−η | k] · fpr.

The rates that a group can reach lie between its ROC curve, whose points are thresholds with a
coin, and the curve mirrored at (½, ½). Inside, h = clip((f − a η − b (1 − η))/γ, 0, 1).

References
----------
M. Hardt, E. Price, N. Srebro. Equality of opportunity in supervised learning. NIPS 2016,
definition 2.1 and section 4. I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing
trained machine learning models. NeurIPS 2021, appendix E, for the form of the rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from fairfrontier.train.postprocess.criterion import Line, Solution, conclude, read_rows
from fairfrontier.train.postprocess.threshold import TOLERANCE, Segment, build_problem

Array = Any

# The search for a root ends at this accuracy of the mean, or at neighbouring numbers.
FINEST = 1e-15
MOST_STEPS = 400


class Moments(NamedTuple):
    """Sums over the rows of a group under h = clip(level + slope f, 0, 1).

    ``chosen`` and ``pull`` are Σ w h and Σ w f h; ``mass``, ``moment`` and ``square`` are Σ w,
    Σ w f and Σ w f² over the rows with 0 < h < 1.
    """

    chosen: float
    pull: float
    mass: float
    moment: float
    square: float


def integrate(segment: Segment, level: float, slope: float) -> Moments:
    """Return the moments of h = clip(level + slope f, 0, 1), from NumPy segments; O(log n)."""
    n = segment.score.size
    if slope == 0:
        first, last, ones = (0, n if 0 < level < 1 else 0, (0, n if level >= 1 else 0))
    else:
        ends = sorted([-level / slope, (1.0 - level) / slope])
        first, last = np.searchsorted(segment.score, ends).tolist()
        ones = (last, n) if slope > 0 else (0, first)

    def add(sums: np.ndarray, start: int, stop: int) -> float:
        return float(sums[stop] - sums[start])

    sums = (segment.mass, segment.moment, segment.square)
    mass, moment, square = (add(total, first, last) for total in sums)
    return Moments(
        add(segment.mass, *ones) + level * mass + slope * moment,
        add(segment.moment, *ones) + level * moment + slope * square,
        mass,
        moment,
        square,
    )


def host_share(segment: Segment) -> Segment:
    """Return a segment as NumPy arrays, its weights divided by their total."""
    host = segment.on_host()
    total = host.mass[-1]
    return Segment(host.score, host.mass / total, host.moment / total, host.square / total)


def solve_odds(
    score: Array,
    code: Array,
    n_groups: int,
    *,
    width: float,
    rates: tuple[float, float],
    budget: float,
    weight: Array | None = None,
) -> Solution:
    """Hold the true and the false positive rates of all groups, as scores estimate them, near two.

    ``rates`` are (TPR, FPR), each in [0, 1]; see `propose_rates`. The width is above 0; with ε = 0
    the constraints fix the gain, and the rule is the same for every width: that with the least
    E h², a line in f clipped to [0, 1]. A group that cannot come within ε/2 of both rates gets the
    point of its curve where the larger of the two distances is least, ``violation`` is that
    distance less ε/2, and ``converged`` is False. In a group whose scores are all −1 (or all 1) the
    true (false) positive rate is 0/0, NaN, and not bounded.

    O(n log n + K s² log n) for s = 10 to 30 steps of a search for b, each with a search for a, over
    running sums of the sorted scores on the host. On the curve itself the rule is a threshold with
    a coin, drawn as the line through the neighbouring scores (and no flatter than the unconstrained
    ramp), whose multipliers grow as those scores get closer. ValueError as from `read_rows`.
    """
    if not width > 0:
        raise ValueError(f"equalised odds need a width above 0, not {width}")
    settings = [("rate", rate) for rate in rates]
    rows = read_rows(score, code, n_groups, weight, *settings, ("budget", budget))
    problem = build_problem(rows.score, rows.code, n_groups, rows.weight)
    groups = [_Group(host_share(segment), width) for segment in problem.segments]
    lines = [group.solve(*rates, budget / 2) for group in groups]
    eta = (1.0 + rows.score) / 2.0
    return conclude(
        rows, lines, rows.code, [eta, 1.0 - eta],
        np.array([(group.p, group.q) for group in groups]),
        np.array([line.multiplier for line in lines]),
        width=width, targets=rates, half=budget / 2,
        iterations=sum(group.iterations for group in groups),
    )  # fmt: skip


class _Group:
    """One group's problem. p = E[η], q = E[1 − η], and the vertices of the ROC curve.

    ``tpr`` and ``fpr``, shapes (n + 1,), are the rates of choosing all scores from the i-th on:
    they fall from 1 to 0.
    """

    def __init__(self, segment: Segment, width: float) -> None:
        self.segment, self.width, self.iterations = segment, width, 0
        positive = (segment.mass + segment.moment) / 2.0
        negative = (segment.mass - segment.moment) / 2.0
        self.p, self.q = float(positive[-1]), float(negative[-1])
        self.tpr = 1.0 - positive / (self.p or 1.0)
        self.fpr = 1.0 - negative / (self.q or 1.0)
        # Rounding must not leave a remainder.
        self.tpr[-1] = self.fpr[-1] = 0.0

    def solve(self, tpr: float, fpr: float, half: float) -> Line:
        """Return the optimal line."""
        if self.p == 0 or self.q == 0:
            return self._solve_one_sided(*((fpr, -1.0) if self.p == 0 else (tpr, 1.0)), half)
        # The corner of the box that is nearest to the curve moves along tpr + fpr = constant as
        # the box grows, and so meets the curve where the curve meets that line.
        for sign, total, start in ((1.0, tpr + fpr, fpr), (-1.0, 2.0 - tpr - fpr, 1.0 - fpr)):
            centre, coin, reached = self._cross_curve(total)
            if reached - start >= half - TOLERANCE:
                relaxed = max(0.0, reached - start - half)
                return self._draw_curve(centre, coin, sign, relaxed)
        b = _find_root(lambda b: self._respond(b, tpr, half), fpr - half, fpr + half)
        a = self._best_a(b, tpr, half)
        level, slope = self._line(a, b)
        return Line(0.0, level, slope, (a, b))

    def _solve_one_sided(self, rate: float, f: float, half: float) -> Line:
        """Solve a group whose scores are all f = ±1: one rate only, and h is one number."""
        free = min(1.0, max(0.0, f / self.width))
        h = min(max(free, rate - half), rate + half)
        shift = 0.0 if h == free else f - self.width * h
        a, b = (shift, 0.0) if f > 0 else (0.0, shift)
        level, slope = self._line(a, b)
        return Line(0.0, level, slope, (a, b))

    def _line(self, a: float, b: float) -> tuple[float, float]:
        """Return level and slope at f = 0 of (f − a (1+f)/2 − b (1−f)/2)/γ."""
        return -(a + b) / (2.0 * self.width), (1.0 - (a - b) / 2.0) / self.width

    def _cross_curve(self, total: float) -> tuple[int, float, float]:
        """Return where tpr + fpr = total on the ROC curve: a row, the coin at its score, fpr."""
        both = self.tpr + self.fpr
        n = self.segment.score.size
        # The sums fall: the last row from which on they reach the total.
        row = min(n - 1, max(0, int(np.searchsorted(-both, -total, side="right")) - 1))
        first, last = self._ties(row)
        step = float(both[first] - both[last])
        coin = min(1.0, max(0.0, (total - float(both[last])) / step))
        return row, coin, float(self.fpr[last] + coin * (self.fpr[first] - self.fpr[last]))

    def _ties(self, row: int) -> tuple[int, int]:
        """Return the range of rows with the score of ``row``."""
        score = self.segment.score
        first = int(np.searchsorted(score, score[row], side="left"))
        return first, int(np.searchsorted(score, score[row], side="right"))

    def _draw_curve(self, row: int, coin: float, sign: float, relaxed: float) -> Line:
        """Return a line that chooses all scores above that of ``row`` (below, where sign is −1).

        It is steep enough to choose no others, and to have multipliers with the signs that belong
        to the corner of the box that it reaches.
        """
        score, width = self.segment.score, self.width
        first, last = self._ties(row)
        t, level = float(score[row]), coin if sign > 0 else 1.0 - coin
        slopes = [0.0]
        if last < score.size:
            slopes.append((1.0 - coin) / (float(score[last]) - t))
        if first > 0:
            slopes.append(coin / (t - float(score[first - 1])))
        if t < 1:
            slopes.append(sign * (1.0 / width - level) / (1.0 - t))
        if t > -1:
            slopes.append(sign * (1.0 / width + level) / (1.0 + t))
        slope = sign * max(slopes)
        a = 1.0 - width * (level + slope * (1.0 - t))
        b = -1.0 - width * (level - slope * (1.0 + t))
        return Line(t, level, slope, (a, b), relaxed)

    def _evaluate(self, a: float, b: float) -> tuple[float, float, float, float, float]:
        """Return tpr and fpr, and −∂tpr/∂a, −∂fpr/∂b and −∂tpr/∂b · p."""
        self.iterations += 1
        level, slope = self._line(a, b)
        seen = integrate(self.segment, level, slope)
        tpr = (seen.chosen + seen.pull) / 2.0 / self.p
        fpr = (seen.chosen - seen.pull) / 2.0 / self.q
        four = 4.0 * self.width
        steep_a = (seen.mass + 2.0 * seen.moment + seen.square) / four / self.p
        steep_b = (seen.mass - 2.0 * seen.moment + seen.square) / four / self.q
        return tpr, fpr, steep_a, steep_b, (seen.mass - seen.square) / four

    def _best_a(self, b: float, tpr: float, half: float) -> float:
        """Return the a nearest to 0 with tpr within its bounds, for this b."""

        def rate(a: float) -> tuple[float, float]:
            reached, _, steep, _, _ = self._evaluate(a, b)
            return reached, -steep

        return _find_root(rate, tpr - half, tpr + half)

    def _respond(self, b: float, tpr: float, half: float) -> tuple[float, float]:
        """Return fpr and its slope in b, when a follows b."""
        a = self._best_a(b, tpr, half)
        _, fpr, steep_a, steep_b, mixed = self._evaluate(a, b)
        follow = mixed**2 / (self.p * self.q * steep_a) if a != 0 and steep_a > 0 else 0.0
        return fpr, min(0.0, follow - steep_b)


def _find_root(mean: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Return the w nearest to 0 at which a falling, piecewise linear mean is within its bounds.

    ``mean`` returns value and slope. Newton's steps, exact on the root's own piece, are kept
    between the known points on both sides, and every third one is a bisection.
    """
    value, slope = mean(0.0)
    if low - TOLERANCE <= value <= high + TOLERANCE:
        return 0.0
    sign, target = (1.0, high) if value > high else (-1.0, low)
    left, right, point = 0.0, math.inf, 0.0
    for step in range(MOST_STEPS):
        surplus = sign * (value - target)
        if abs(surplus) <= FINEST:
            break
        left, right = (point, right) if surplus > 0 else (left, point)
        newton = point - surplus / slope if slope < 0 else math.inf
        if right == math.inf:
            point = min(newton, 8.0 * max(left, 1.0))
        elif left < newton < right and step % 3:
            point = newton
        else:
            point = (left + right) / 2.0
        if not left < point < right:
            break
        value, slope = mean(sign * point)
    return sign * point


def propose_rates(
    score: Array,
    code: Array,
    n_groups: int,
    *,
    criterion: Literal["equal_opportunity", "equalized_odds"],
    weight: Array | None = None,
    count: int = 5,
) -> np.ndarray:
    """Propose rates that every group can reach, to choose from by accuracy on validation rows.

    Returns float64 of shape (count + 1,), true positive rates, or (count + 1, 2), (tpr, fpr). The
    first has the highest expected accuracy among all rules without a width, if the scores are
    calibrated. The others are spread evenly between the lowest and the highest rate of the groups
    under 1{f ≥ 0}: of true positives, or of false positives with the highest true positive rate
    that all groups reach beside it.

    The best common rates lie on the lowest of the groups' ROC curves. Between neighbouring vertices
    all curves are straight, so accuracy is best at a vertex, or where two of them cross next to the
    best vertex. Groups whose scores are all 1 or all −1 impose no bound. O(n K log n). ValueError
    for another criterion, or as from `read_rows`.
    """
    if criterion not in ("equal_opportunity", "equalized_odds"):
        raise ValueError(f"no rates are proposed for {criterion!r}")
    rows = read_rows(score, code, n_groups, weight)
    problem = build_problem(rows.score, rows.code, n_groups, rows.weight)
    groups = [_Group(host_share(segment), 1.0) for segment in problem.segments]
    share = np.array([segment.total for segment in problem.segments]) / problem.total
    share = share[[group.p > 0 and group.q > 0 for group in groups]]
    groups = [group for group in groups if group.p > 0 and group.q > 0]
    if not groups:
        return np.full((count + 1,) if criterion == "equal_opportunity" else (count + 1, 2), 0.5)
    curves = [(group.fpr[::-1], group.tpr[::-1]) for group in groups]
    own = [np.searchsorted(group.segment.score, 0.0) for group in groups]
    p, q = share * [group.p for group in groups], share * [group.q for group in groups]
    if criterion == "equal_opportunity":
        reached = [group.tpr[row] for group, row in zip(groups, own, strict=True)]
        spread = np.linspace(min(reached), max(reached), count)
        vertices = np.unique(np.concatenate([tpr for _, tpr in curves]))
        price = np.zeros_like(vertices)
        for mass, (fpr, tpr) in zip(q, curves, strict=True):
            # Of several points with one tpr the one with the least fpr comes first.
            rising, first = np.unique(tpr, return_index=True)
            price += mass * np.interp(vertices, rising, fpr[first])
        best = vertices[np.argmax(p.sum() * vertices - price)]
        return np.concatenate([[best], spread])

    def lowest(fpr: np.ndarray) -> np.ndarray:
        return np.asarray(np.min([np.interp(fpr, *curve) for curve in curves], axis=0))

    def accuracy(fpr: np.ndarray) -> np.ndarray:
        return np.asarray(p.sum() * lowest(fpr) - q.sum() * fpr)

    vertices = np.unique(np.concatenate([fpr for fpr, _ in curves]))
    top = int(np.argmax(accuracy(vertices)))
    candidates = np.append(vertices[top], _crossings(curves, vertices[max(top - 1, 0) : top + 2]))
    best = candidates[np.argmax(accuracy(candidates))]
    reached = [group.fpr[row] for group, row in zip(groups, own, strict=True)]
    fpr = np.concatenate([[best], np.linspace(min(reached), max(reached), count)])
    return np.stack([lowest(fpr), fpr], axis=1)


def _crossings(curves: list[tuple[np.ndarray, np.ndarray]], ends: np.ndarray) -> np.ndarray:
    """Return where two of the curves cross strictly between neighbouring ends."""
    points = []
    for left, right in pairwise(ends):
        # At the left end a curve may be vertical: two inner points give its line.
        inner = left + (right - left) * np.array([0.25, 0.75])
        values = [np.interp(inner, *curve) for curve in curves]
        for one, two in combinations(values, 2):
            gap = one - two
            if gap[0] != gap[1]:
                point = inner[0] + (inner[1] - inner[0]) * gap[0] / (gap[0] - gap[1])
                points += [point] if left < point < right else []
    return np.asarray(points)
