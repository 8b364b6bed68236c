"""Equalised odds from scores alone, and which rates to hold equal.

    min_{0≤h≤1} (γ/2) E h² − E[h f]
    s.t.  |E[η h | k]/E[η | k] − TPR| ≤ ε/2,   |E[(1−η) h | k]/E[1−η | k] − FPR| ≤ ε/2,   all k

with η = (1 + f)/2: the true and the false positive rate as the scores estimate them, since y is
unknown where the rule is applied. Ours, after the paper's Appendix E. Both rates are linear in h,
and so is the gain: E[h f | k] = E[η | k] · tpr − E[1−η | k] · fpr. With a cut c it is E[h (f − c)],
in which these two terms count 1 − c and 1 + c times.

The rates that a group can reach lie between its ROC curve, whose points are thresholds with a
coin, and the curve mirrored at (½, ½). Inside, h = clip((f − c − a η − b (1 − η))/γ, 0, 1).

References
----------
M. Hardt, E. Price, N. Srebro. Equality of opportunity in supervised learning. NIPS 2016,
definition 2.1 and section 4. I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing
trained machine learning models. NeurIPS 2021, appendix E, for the form of the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np

from fairfrontier.train.postprocess.conditional import mean_eta
from fairfrontier.train.postprocess.criterion import Solution, conclude, read_rows
from fairfrontier.train.postprocess.line import Line, Lines, Stack, find_roots, integrate
from fairfrontier.train.postprocess.threshold import (
    TOLERANCE,
    Segment,
    ThresholdProblem,
    build_problem,
    merge_runs,
)

Array = Any


def solve_odds(
    score: Array,
    code: Array,
    n_groups: int,
    *,
    width: float,
    rates: tuple[float, float],
    budget: float,
    cut: float = 0.0,
    weight: Array | None = None,
    problem: ThresholdProblem | None = None,
    lines: Sequence[Line] | None = None,
) -> Solution:
    """Hold the true and the false positive rates of all groups, as scores estimate them, near two.

    ``rates`` are (TPR, FPR), each in [0, 1]; see `propose_rates`. The width is above 0; with ε = 0
    the constraints fix the gain, and the rule is the same for every width: that with the least
    E h², a line in f clipped to [0, 1]. A group that cannot come within ε/2 of both rates gets the
    point of its curve where the larger of the two distances is least, ``violation`` is that
    distance less ε/2, and ``converged`` is False. In a group whose scores are all −1 (or all 1) the
    true (false) positive rate is 0/0, NaN, and not bounded.

    O(n log n + K s² log n) for s = 5 to 15 steps of a search for b, each with a search for a, over
    running sums of the sorted scores on the host, of all groups at once; `draw_odds` takes them for
    many candidates at once. On the curve itself the rule is a threshold with a coin, drawn as the
    line through the neighbouring scores (and no flatter than the unconstrained ramp), whose
    multipliers grow as those scores get closer. ``problem`` has the sorted scores, and ``lines``
    what `draw_odds` gave for this width and these rates, where they are there. ValueError as from
    `read_rows`.
    """
    if not width > 0:
        raise ValueError(f"equalised odds need a width above 0, not {width}")
    settings = [("rate", rate) for rate in rates]
    rows = read_rows(score, code, n_groups, weight, *settings, ("budget", budget))
    problem = problem or build_problem(rows.score, rows.code, n_groups, rows.weight)
    if lines is None:
        drawn = draw_odds(problem, np.array([width]), np.array([rates]), budget, cut)
        lines = [each.pick(0) for each in drawn]
    eta, mean = (1.0 + rows.score) / 2.0, mean_eta(problem)
    return conclude(
        rows, lines, rows.code, [eta, 1.0 - eta], np.column_stack([mean, 1.0 - mean]),
        np.array([line.multiplier for line in lines]),
        width=width, targets=rates, half=budget / 2, cut=cut,
    )  # fmt: skip


def draw_odds(
    problem: ThresholdProblem, width: np.ndarray, rates: np.ndarray, budget: float, cut: float = 0.0
) -> list[Lines]:
    """Return the optimal lines of each group for candidates (G,) of widths > 0, (G, 2) of rates."""
    curves = [_Curve(segment) for segment in problem.segments]
    tpr, fpr = rates.T
    inner = [curve for curve in curves if curve.p > 0 and curve.q > 0]
    mixed = _solve_mixed(inner, width, tpr, fpr, budget / 2, cut)
    lines = []
    for curve in curves:
        if curve.p > 0 and curve.q > 0:
            lines.append(next(mixed))
        else:
            side = (fpr, -1.0) if curve.p == 0 else (tpr, 1.0)
            lines.append(_solve_one_sided(width, *side, budget / 2, cut))
    return lines


class _Curve:
    """One group: p = E[η], q = E[1 − η], and the vertices of its ROC curve, (n + 1,)."""

    def __init__(self, segment: Segment) -> None:
        self.segment, (self.tpr, self.fpr) = segment.share, segment.roc
        mean = float(self.segment.moment[-1])
        self.p, self.q = (1.0 + mean) / 2.0, (1.0 - mean) / 2.0


def _solve_mixed(
    curves: Sequence[_Curve],
    width: np.ndarray,
    tpr: np.ndarray,
    fpr: np.ndarray,
    half: float,
    cut: float,
) -> Iterator[Lines]:
    """Yield the optimal lines of groups whose scores are not all −1, nor all 1."""
    inside = np.ones((len(curves), *width.shape), dtype=bool)
    drawn = []
    for curve, within in zip(curves, inside, strict=True):
        # The corner of the box that is nearest to the curve moves along tpr + fpr = constant as
        # the box grows, and so meets the curve where the curve meets that line.
        crossed = _cross_curve(curve, np.stack([tpr + fpr, 2.0 - tpr - fpr]))
        for sign, start, row, coin, reached in zip(
            (1.0, -1.0), (fpr, 1.0 - fpr), *crossed, strict=True
        ):
            beyond = within & (reached - start >= half - TOLERANCE)
            relaxed = np.maximum(0.0, reached - start - half)
            score = curve.segment.score
            drawn.append((beyond, _draw_curve(score, width, row, coin, sign, relaxed, cut)))
            within &= ~beyond
    # Without bounds there is nothing to search for.
    tpr, fpr = (np.where(inside, rate, np.nan) for rate in (tpr, fpr))
    for k, multipliers in enumerate(
        zip(*_solve_inside(curves, width, tpr, fpr, half, cut), strict=True)
    ):
        lines = _draw_line(width, *multipliers, cut)
        for beyond, others in drawn[2 * k : 2 * k + 2]:
            for values, chosen in zip(lines, others, strict=True):
                values[beyond] = chosen[beyond]
        yield lines


def _draw_line(width: np.ndarray, a: np.ndarray, b: np.ndarray, cut: float) -> Lines:
    """Return the lines (f − cut − a (1+f)/2 − b (1−f)/2)/γ, given at f = 0."""
    level, slope = _find_line(width, a, b, cut)
    zeros = np.zeros((2, width.size))
    return Lines(zeros[0], level, slope, np.stack([a, b], axis=1), zeros[1])


def _find_line(
    width: np.ndarray, a: np.ndarray, b: np.ndarray, cut: float
) -> tuple[np.ndarray, np.ndarray]:
    return -(a + b + 2.0 * cut) / (2.0 * width), (1.0 - (a - b) / 2.0) / width


def _solve_one_sided(
    width: np.ndarray, rate: np.ndarray, f: float, half: float, cut: float
) -> Lines:
    """Solve a group whose scores are all f = ±1: one rate only, and h is one number."""
    free = np.clip((f - cut) / width, 0.0, 1.0)
    h = np.clip(free, rate - half, rate + half)
    shift = np.where(h == free, 0.0, f - cut - width * h)
    zero = np.zeros_like(width)
    return _draw_line(width, *((shift, zero) if f > 0 else (zero, shift)), cut)


def _solve_inside(
    curves: Sequence[_Curve],
    width: np.ndarray,
    tpr: np.ndarray,
    fpr: np.ndarray,
    half: float,
    cut: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return a and b, (K, G), of points inside of the curves: a search for b with one for a.

    All groups are searched at once, which takes as many steps as the slowest of them.
    """
    stack = Stack([curve.segment for curve in curves])
    p, q = (np.array([[getattr(curve, side)] for curve in curves]) for side in "pq")

    def evaluate(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return tpr and fpr, and −∂tpr/∂a, −∂fpr/∂b and −∂tpr/∂b · p."""
        seen = integrate(stack, *_find_line(width, a, b, cut))
        four = 4.0 * width
        return (
            (seen.chosen + seen.pull) / 2.0 / p,
            (seen.chosen - seen.pull) / 2.0 / q,
            (seen.mass + 2.0 * seen.moment + seen.square) / four / p,
            (seen.mass - 2.0 * seen.moment + seen.square) / four / q,
            (seen.mass - seen.square) / four,
        )

    last = np.zeros_like(tpr)

    def best_a(b: np.ndarray) -> np.ndarray:
        """Return the a nearest to 0 with tpr within its bounds; it is near that of the last b."""
        nonlocal last

        def rate(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            reached, _, steep, _, _ = evaluate(a, b)
            return reached, -steep

        last = find_roots(rate, tpr - half, tpr + half, last, exact=False)
        return last

    def respond(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return fpr and its slope in b, when a follows b."""
        a = best_a(b)
        _, reached, steep_a, steep_b, mixed = evaluate(a, b)
        moves = (a != 0) & (steep_a > 0)
        scale = np.where(moves, p * q * steep_a, 1.0)
        follow = np.where(moves, mixed**2 / scale, 0.0)
        return reached, np.minimum(0.0, follow - steep_b)

    b = find_roots(respond, fpr - half, fpr + half, exact=False)
    return best_a(b), b


def _cross_curve(curve: _Curve, total: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where tpr + fpr = total on the ROC curve: a row, the coin at its score, fpr."""
    both, score = curve.tpr + curve.fpr, curve.segment.score
    # The sums fall: the last row from which on they reach the total.
    row = np.clip(np.searchsorted(-both, -total, side="right") - 1, 0, score.size - 1)
    first = np.searchsorted(score, score[row], side="left")
    last = np.searchsorted(score, score[row], side="right")
    coin = np.clip((total - both[last]) / (both[first] - both[last]), 0.0, 1.0)
    fpr = curve.fpr
    return row, coin, fpr[last] + coin * (fpr[first] - fpr[last])


def _draw_curve(
    score: np.ndarray,
    width: np.ndarray,
    row: np.ndarray,
    coin: np.ndarray,
    sign: float,
    relaxed: np.ndarray,
    cut: float,
) -> Lines:
    """Return lines that choose all scores above that of ``row`` (below, where sign is −1).

    They are steep enough to choose no others, and to have multipliers with the signs that belong
    to the corner of the box that they reach.
    """
    t, level = score[row], coin if sign > 0 else 1.0 - coin
    first = np.searchsorted(score, t, side="left")
    last = np.searchsorted(score, t, side="right")
    infinite = np.array([np.inf])
    above = np.concatenate([score, infinite])[last] - t
    below = t - np.concatenate([-infinite, score])[first]
    up, down = np.where(t < 1, 1.0 - t, np.inf), np.where(t > -1, 1.0 + t, np.inf)
    steepest = np.max([
        np.zeros_like(t), (1.0 - coin) / above, coin / below,
        sign * ((1.0 - cut) / width - level) / up, sign * ((1.0 + cut) / width + level) / down,
    ], axis=0)  # fmt: skip
    slope = sign * steepest
    a = 1.0 - cut - width * (level + slope * (1.0 - t))
    b = -1.0 - cut - width * (level - slope * (1.0 + t))
    return Lines(t, level, slope, np.stack([a, b], axis=1), relaxed)


def propose_rates(
    score: Array,
    code: Array,
    n_groups: int,
    *,
    criterion: Literal["equal_opportunity", "equalized_odds"],
    weight: Array | None = None,
    count: int = 5,
    cut: float = 0.0,
) -> np.ndarray:
    """Propose rates that every group can reach, to choose from by accuracy on validation rows.

    Returns float64 of shape (count + 1,), true positive rates, or (count + 1, 2), (tpr, fpr). The
    first has the highest E[h (f − cut)] among all rules without a width: at the cut 0, if the
    scores are calibrated, the highest expected accuracy. The others are spread evenly between the
    lowest and the highest rate of the groups under 1{f ≥ cut}: of true positives, or of false
    positives with the highest true positive rate that all groups reach beside it.

    The best common rates lie on the lowest of the groups' ROC curves. Between neighbouring vertices
    all curves are straight, so the gain is best at a vertex, or where two of them cross next to the
    best vertex. Groups whose scores are all 1 or all −1 impose no bound. O(n K log n). ValueError
    for another criterion, or as from `read_rows`.
    """
    if criterion not in ("equal_opportunity", "equalized_odds"):
        raise ValueError(f"no rates are proposed for {criterion!r}")
    rows = read_rows(score, code, n_groups, weight)
    return propose_for(
        build_problem(rows.score, rows.code, n_groups, rows.weight), criterion, count, cut
    )


def propose_for(
    problem: ThresholdProblem,
    criterion: Literal["equal_opportunity", "equalized_odds"],
    count: int = 5,
    cut: float = 0.0,
) -> np.ndarray:
    """Propose rates for scores that are sorted already; see `propose_rates`."""
    groups = [_Curve(segment) for segment in problem.segments]
    share = np.array([segment.total for segment in problem.segments]) / problem.total
    share = share[[group.p > 0 and group.q > 0 for group in groups]]
    groups = [group for group in groups if group.p > 0 and group.q > 0]
    if not groups:
        return np.full((count + 1,) if criterion == "equal_opportunity" else (count + 1, 2), 0.5)
    curves = [(group.fpr[::-1].copy(), group.tpr[::-1].copy()) for group in groups]
    own = [np.searchsorted(group.segment.score, cut) for group in groups]
    p = (1.0 - cut) * share * [group.p for group in groups]
    q = (1.0 + cut) * share * [group.q for group in groups]
    if criterion == "equal_opportunity":
        reached = [group.tpr[row] for group, row in zip(groups, own, strict=True)]
        spread = np.linspace(min(reached), max(reached), count)
        # Of several points with one tpr the one with the least fpr comes first.
        first = [np.append(True, tpr[1:] != tpr[:-1]) for _, tpr in curves]
        curves = [(fpr[one], tpr[one]) for (fpr, tpr), one in zip(curves, first, strict=True)]

        def gain(tpr: np.ndarray) -> np.ndarray:
            price = [np.interp(tpr, *curve[::-1]) for curve in curves]
            return np.asarray(p.sum() * tpr - q @ np.array(price))

        vertices = merge_runs([tpr for _, tpr in curves])
        return np.concatenate([[vertices[_find_top(gain, vertices)]], spread])

    def lowest(fpr: np.ndarray) -> np.ndarray:
        return np.asarray(np.min([np.interp(fpr, *curve) for curve in curves], axis=0))

    def gain_along(fpr: np.ndarray) -> np.ndarray:
        return np.asarray(p.sum() * lowest(fpr) - q.sum() * fpr)

    vertices = merge_runs([fpr for fpr, _ in curves])
    top = _find_top(gain_along, vertices)
    candidates = np.append(vertices[top], _crossings(curves, vertices[max(top - 1, 0) : top + 2]))
    best = candidates[np.argmax(gain_along(candidates))]
    reached = [group.fpr[row] for group, row in zip(groups, own, strict=True)]
    fpr = np.concatenate([[best], np.linspace(min(reached), max(reached), count)])
    return np.stack([lowest(fpr), fpr], axis=1)


def _find_top(value: Callable[[np.ndarray], np.ndarray], points: np.ndarray) -> int:
    """Return the first of ascending points at which a concave function is largest."""
    left, right = 0, points.size - 1
    while left < right:
        middle = (left + right) // 2
        here, after = value(points[middle : middle + 2])
        left, right = (left, middle) if after <= here else (middle + 1, right)
    return left


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
