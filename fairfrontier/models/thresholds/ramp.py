"""Near-optimal debiasing: randomised ramps by group, exact for every criterion from one sort.

    min_{0≤h≤1} (γ/2) E h² − E[h (f − c)]   s.t.  low ≤ E[z_j h | k]/E_j ≤ high for every group k

for scores f ∈ [−1, 1], an estimate of 2η − 1 with η = P(Y=1|x), and c the score from which on
decision 1 pays. Each group is a separate problem, solved by

    h = clip((f − c − Σ_j m_j z_j)/γ, 0, 1),

a line of f wherever z_j is one. The criterion says what z_j is:

- parity: 1, so that the threshold is c + m; the paper's problem (6);
- covariance, with two cells a group: 1_S − ρ_k, ρ_k = E[1_S | k], between −ε and ε (the paper has
  ε here, not ε/2): thresholds of members and of others move apart (15);
- equal opportunity, ours: η, for the true positive rate as the scores estimate it, since y is
  unknown where the rule is applied;
- equalised odds, ours: η and 1 − η.

With one z the mean of z h falls as m grows, so m is 0 where that meets the bounds, and else the
root nearest to 0 of the mean = the nearest bound. Between two breakpoints the mean is a straight
line whose coefficients are differences of running sums over the sorted scores, and Newton's steps
end at the root, up to rounding. At γ = 0 h is a threshold with a coin at it, the limit of γ → 0.

Of equalised odds the rates that a group can reach lie between its ROC curve, whose points are
thresholds with a coin, and the curve mirrored at (½, ½). Inside, both m_j are found by a search for
one with a search for the other; on the curve the rule is a threshold with a coin, drawn as the line
through the neighbouring scores (and no flatter than the unconstrained ramp), whose multipliers grow
as those scores get closer. A group that cannot come within its bounds gets the point of its curve
where the larger of the two distances is least. The width is above 0.

References
----------
I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning models.
NeurIPS 2021, equations 1, 4, 6 and 15, theorem 3 for γ → 0. M. Hardt, E. Price, N. Srebro. Equality
of opportunity in supervised learning. NIPS 2016, definitions 2.1 and 2.2. Exact solutions in place
of the paper's SGD: ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from fairfrontier.models.thresholds.rule import RampRule, ThresholdRule, conjugate
from fairfrontier.models.thresholds.threshold import (
    TOLERANCE,
    Segment,
    ThresholdProblem,
    merge_runs,
)

Criterion = Literal["parity", "covariance", "equal_opportunity", "equalized_odds"]
Rate = float | tuple[float, float] | None

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
    rule : ThresholdRule or RampRule
        By code of the problem; under covariance codes are 2 · subgroup + member.
    rate : ndarray of float64, shape (n_cells,)
        E[h | cell] on the problem's rows; NaN in a cell without rows.
    multiplier : ndarray of float64, shape (n_groups,) or (n_groups, 2)
        m; two under equalised odds.
    reached : ndarray of float64, as ``multiplier``
        The bounded quantity on the problem's rows; NaN where a group has none.
    violation : ndarray of float64, shape (n_groups,)
        Largest distance of ``reached`` from its bounds; 0 up to rounding where they can be met.
    binding : ndarray of bool, shape (n_groups,)
        Whether the unconstrained optimum violates the bounds.
    objective : float
        Σ w [(γ/2) h² − h (f − c)] / Σ w.
    dual_value : float
        The Lagrangian dual at ``multiplier``, −Σ w [ξ_γ(f − c − Σ m_j z_j) + Σ E_j (m_j τ_j +
        |m_j| ε/2)] / Σ w for bounds τ_j ± ε/2, relaxed for groups that cannot meet them: no
        feasible rule has a smaller objective.
    converged : bool
        Whether every group meets its bounds and the gap is closed, both up to rounding.
    """

    width: float
    # A ThresholdRule under parity, else a RampRule.
    rule: Any
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

    def describe(self) -> dict[str, Any]:
        """Return the plain facts that a fitted estimator keeps."""
        facts = {"objective": self.objective, "duality_gap": self.gap, "converged": self.converged}
        if isinstance(self.rule, ThresholdRule):
            return {**facts, "binding": self.binding.tolist()}
        return {
            "rates": self.rate.tolist(),
            **facts,
            "reached": self.reached.tolist(),
            "violation": self.violation.tolist(),
        }


class Lines(NamedTuple):
    """The lines h = clip(level + slope (f − centre), 0, 1) of one cell for G candidates.

    All are float64 of shape (G,), but the multipliers (G, J). An infinite slope makes a threshold
    with the coin ``level`` at it. ``relaxed`` is the amount by which the bounds were widened so
    that the group can meet them.
    """

    centre: np.ndarray
    level: np.ndarray
    slope: np.ndarray
    multiplier: np.ndarray
    relaxed: np.ndarray


@dataclass(frozen=True, eq=False)
class _Unit:
    """One group: its cells, and z_j = ``constant`` + ``factor`` f in each of them.

    ``cells`` are positions in the problem; ``part`` is the share of each, and ``constant`` and
    ``factor`` have shape (n_cells, J). ``scale``, (J,), are the divisors of E[z_j h]; 0 where that
    is not defined. ``total`` is the group's weight.
    """

    cells: tuple[int, ...]
    segments: tuple[Segment, ...]
    part: np.ndarray
    constant: np.ndarray
    factor: np.ndarray
    scale: np.ndarray
    total: float


def solve(
    problem: ThresholdProblem,
    criterion: Criterion,
    width: float,
    rate: Rate = None,
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
        the threshold c under parity; other criteria need weight in every group.
    criterion : str
        What is equal over the groups.
    width : float
        γ ≥ 0; above 0 under equalised odds. Well below 1e-6 leaves double precision no room for
        the ramp: use 0.
    rate : float, pair of float, or None
        τ ∈ [0, 1]: of those decided 1, of true positives, of true and false positives, or None
        under covariance.
    budget : float
        ε ≥ 0: bounds are τ ± ε/2, or ±ε under covariance.
    cut : float
        c.
    lines : sequence of Lines, optional
        What `draw_lines` gave for this one candidate.

    Notes
    -----
    O(K log n) for some ten steps, or s² with s = 5 to 15 under equalised odds; O(n) for the
    certificate.
    """
    targets = np.array([0.0 if rate is None else rate], dtype=np.float64).reshape(1, -1)
    if lines is None:
        lines = draw_lines(problem, criterion, np.array([width]), targets, budget, cut)
    return _conclude(problem, criterion, lines, width, targets[0], budget, cut)


def solve_exact(
    problem: ThresholdProblem, width: float, rate: float, budget: float = 0.0
) -> Solution:
    """Solve (6), under parity, for one width and rate."""
    return solve(problem, "parity", width, rate, budget)


def draw_lines(
    problem: ThresholdProblem,
    criterion: Criterion,
    width: np.ndarray,
    rates: np.ndarray,
    budget: float,
    cut: float = 0.0,
) -> list[Lines]:
    """Return the optimal lines of each cell for candidates of widths, (G,), and rates, (G, J)."""
    width, rates = (np.asarray(each, dtype=np.float64) for each in (width, rates))
    half = budget if criterion == "covariance" else budget / 2
    units = _list_units(problem, criterion)
    lines: dict[int, Lines] = {}
    if criterion == "equalized_odds":
        odds = _Odds(width, rates[:, 0], rates[:, 1], half, cut)
        return list(_solve_odds([unit.segments[0] for unit in units], odds))
    low, high = rates[:, 0] - half, rates[:, 0] + half
    for unit in units:
        lines |= dict(zip(unit.cells, _solve_unit(unit, width, low, high, cut), strict=True))
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
        constant, factor, scale = np.ones((1, 1)), np.zeros((1, 1)), np.ones(1)
        if criterion == "covariance":
            constant, factor = np.array([[-part[1]], [part[0]]]), np.zeros((2, 1))
        elif criterion != "parity":
            mean = float(segments[0].moment[-1])
            signs = np.array([1.0, -1.0])[: 1 + (criterion == "equalized_odds")]
            constant, factor = np.full((1, signs.size), 0.5), signs[None, :] / 2.0
            scale = (1.0 + signs * mean) / 2.0
        units.append(_Unit(cells, segments, part, constant, factor, scale, total))
    return units


def _solve_unit(
    unit: _Unit, width: np.ndarray, low: np.ndarray, high: np.ndarray, cut: float
) -> list[Lines]:
    """Return the lines of the cells of a group with one z."""
    constant, factor, ramp = unit.constant[:, 0], unit.factor[:, 0], width > 0
    w, zeros, gamma = np.zeros_like(width), np.zeros_like(width), np.where(ramp, width, 1.0)
    scale = float(unit.scale[0]) if unit.total > 0 else 0.0

    def mean(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = np.zeros_like(w), np.zeros_like(w)
        for segment, share, a, b in zip(unit.segments, unit.part, constant, factor, strict=True):
            seen = integrate(segment, -(w * a + cut) / gamma, (1.0 - w * b) / gamma)
            value += share * (a * seen.chosen + b * seen.pull)
            steep = a * a * seen.mass + 2.0 * a * b * seen.moment + b * b * seen.square
            slope -= share * steep / gamma
        return value / scale, slope / scale

    if scale > 0 and ramp.any():
        # Widths of 0 have no ramp to search: NaN bounds are met.
        ends = (np.where(ramp, end, np.nan) for end in (low, high))
        w = find_roots(mean, *ends)
    lines = [
        Lines((cut + w * a) / (1.0 - w * b), zeros.copy(), (1.0 - w * b) / gamma, w[:, None], zeros)
        for a, b in zip(constant, factor, strict=True)
    ]
    for i in np.flatnonzero(~ramp).tolist():
        if scale > 0:
            root, steps = _find_steps(unit, float(low[i]), float(high[i]), cut)
        else:
            root, steps = 0.0, [(cut, 0.0)] * len(lines)
        for line, (centre, coin) in zip(lines, steps, strict=True):
            line.centre[i], line.level[i], line.slope[i] = centre, coin, np.inf
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
    for segment, share, a, b in zip(
        unit.segments, unit.part, unit.constant[:, 0], unit.factor[:, 0], strict=True
    ):
        z = a + b * segment.score
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios.append(np.where(z == 0, -np.inf, (segment.score - cut) / z))
        sums.append(share * (a * segment.mass + b * segment.moment) / unit.scale[0])
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
        a, b = float(unit.constant[k, 0]), float(unit.factor[k, 0])
        if before[k] != after[k]:
            steps.append((float(score[start]), coins[0 if falls[k] else 1]))
            continue
        # Rounding must not move a row across the threshold.
        t = (cut + sign * w * a) / (1.0 - sign * w * b)
        floor = float(score[start - 1]) if start else -2.0
        ceiling = float(score[start]) if start < score.size else 2.0
        steps.append((t if floor <= t < ceiling else floor, 0.0))
    return sign * w, steps


def _conclude(
    problem: ThresholdProblem,
    criterion: Criterion,
    lines: Sequence[Lines],
    width: float,
    targets: np.ndarray,
    budget: float,
    cut: float,
) -> Solution:
    """Return the solution with the quantities measured on all rows."""
    units, half = _list_units(problem, criterion), budget / (1 + (criterion != "covariance"))
    shape = (len(units), targets.size)
    rate, reached = np.full(len(lines), np.nan), np.full(shape, np.nan)
    multiplier, violation, binding = np.zeros(shape), np.zeros(len(units)), np.zeros(len(units))
    objective = dual = 0.0
    for k, unit in enumerate(units):
        m = multiplier[k] = lines[unit.cells[0]].multiplier[0]
        if unit.total == 0:
            continue
        share, pulls, free = unit.total / problem.total, np.zeros(targets.size), 0.0
        bound = half + float(lines[unit.cells[0]].relaxed[0])
        dual -= share * float(unit.scale @ (m * targets + np.abs(m) * bound))
        for i, cell in enumerate(unit.cells):
            f, weight = unit.segments[i].score, np.diff(unit.segments[i].mass)
            a, b, part = unit.constant[i], unit.factor[i], unit.part[i]
            if part == 0:
                continue
            h = _decide(f, *(float(each[0]) for each in lines[cell][:3]))
            chosen = weight * h
            rate[cell], gain = chosen.sum(), f - cut
            pulls += part * (a * rate[cell] + b * (chosen @ f))
            objective += share * part * float(chosen @ (width / 2.0 * h - gain))
            excess = gain - (m @ a) - (m @ b) * f
            dual -= share * part * float(weight @ conjugate(excess, width))
            own = np.clip(gain / width, 0.0, 1.0) if width > 0 else gain > 0
            free += part * float(weight @ own)
        np.divide(pulls, unit.scale, out=reached[k], where=unit.scale > 0)
        distance = np.nan_to_num(np.abs(reached[k] - targets))
        violation[k] = max(0.0, float(distance.max()) - half)
        binding[k] = criterion == "parity" and abs(free - targets[0]) > half + TOLERANCE
    table = [np.array([float(line[i][0]) for line in lines]) for i in range(3)]
    rule: ThresholdRule | RampRule = RampRule(*table)
    if criterion == "parity":
        coin = table[1] if width == 0 else np.zeros(len(lines))
        rule = ThresholdRule(float(width), table[0], coin)
    closed = abs(objective - dual) <= ACCURACY * (1.0 + np.abs(multiplier).max())
    single = targets.size == 1
    return Solution(
        width=float(width),
        rule=rule,
        rate=rate,
        multiplier=multiplier[:, 0] if single else multiplier,
        reached=reached[:, 0] if single else reached,
        violation=violation,
        binding=binding.astype(bool),
        objective=objective,
        dual_value=dual,
        converged=bool(closed and violation.max() <= ACCURACY),
    )


def _decide(f: np.ndarray, centre: float, level: float, slope: float) -> np.ndarray:
    """Return h of one line."""
    if math.isinf(slope):
        return np.where(f == centre, level, f > centre)
    return np.clip(level + slope * (f - centre), 0.0, 1.0)


def _trace_roc(share: Segment) -> tuple[np.ndarray, np.ndarray]:
    """Return the true and the false positive rate of choosing all scores from the i-th on.

    They have shape (n + 1,), are estimated with P(Y=1) = (1 + f)/2, and fall from 1 to 0.
    """
    rates = share.mass + share.moment, share.mass - share.moment
    for rate in rates:
        rate /= -(rate[-1] or 1.0)
        rate += 1.0
        # Rounding must not leave a remainder.
        rate[-1] = 0.0
    return rates


class _Curve:
    """One group: p = E[η], q = E[1 − η], and the vertices of its ROC curve, (n + 1,)."""

    def __init__(self, segment: Segment) -> None:
        self.segment, (self.tpr, self.fpr) = segment, _trace_roc(segment)
        mean = float(self.segment.moment[-1])
        self.p, self.q = (1.0 + mean) / 2.0, (1.0 - mean) / 2.0


class _Odds(NamedTuple):
    """Candidates under equalised odds: widths, both rates, (G,), the half of ε, and the cut."""

    width: np.ndarray
    tpr: np.ndarray
    fpr: np.ndarray
    half: float
    cut: float


def _solve_odds(segments: Sequence[Segment], odds: _Odds) -> Iterator[Lines]:
    """Yield the optimal lines of each group under equalised odds."""
    curves = [_Curve(segment) for segment in segments]
    inner = [curve for curve in curves if curve.p > 0 and curve.q > 0]
    mixed = _solve_mixed(inner, odds)
    for curve in curves:
        if curve.p > 0 and curve.q > 0:
            yield next(mixed)
        else:
            side = (odds.fpr, -1.0) if curve.p == 0 else (odds.tpr, 1.0)
            yield _solve_one_sided(odds.width, *side, odds.half, odds.cut)


def _solve_mixed(curves: Sequence[_Curve], odds: _Odds) -> Iterator[Lines]:
    """Yield the optimal lines of groups whose scores are not all −1, nor all 1."""
    width, tpr, fpr, half, cut = odds
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
    found = _solve_inside(curves, odds._replace(tpr=tpr, fpr=fpr))
    for k, multipliers in enumerate(zip(*found, strict=True)):
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


def _solve_inside(curves: Sequence[_Curve], odds: _Odds) -> tuple[np.ndarray, np.ndarray]:
    """Return a and b, (K, G), of points inside of the curves: a search for b with one for a.

    All groups are searched at once, which takes as many steps as the slowest of them.
    """
    width, tpr, fpr, half, cut = odds
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
    problem: ThresholdProblem, criterion: Criterion, count: int = 5, cut: float = 0.0
) -> np.ndarray:
    """Propose rates that every group can reach, to choose from by accuracy on validation rows.

    Returns float64 of shape (count + 1,), true positive rates, or (count + 1, 2), (tpr, fpr). The
    first has the highest E[h (f − cut)] among all rules without a width: at the cut 0, if the
    scores are calibrated, the highest expected accuracy. The others are spread evenly between the
    lowest and the highest rate of the groups under 1{f ≥ cut}: of true positives, or of false
    positives with the highest true positive rate that all groups reach beside it.

    The best common rates lie on the lowest of the groups' ROC curves. Between neighbouring vertices
    all curves are straight, so the gain is best at a vertex, or where two of them cross next to the
    best vertex. Groups whose scores are all 1 or all −1 impose no bound. O(n K log n).
    """
    groups = [_Curve(segment.share) for segment in problem.segments]
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


class Moments(NamedTuple):
    """Sums over the rows of a group under h = clip(level + slope f, 0, 1), shape (G,).

    ``chosen`` and ``pull`` are Σ w h and Σ w f h; ``mass``, ``moment`` and ``square`` are Σ w,
    Σ w f and Σ w f² over the rows with 0 < h < 1.
    """

    chosen: np.ndarray
    pull: np.ndarray
    mass: np.ndarray
    moment: np.ndarray
    square: np.ndarray


class Stack:
    """NumPy segments of K groups, for lines of shape (K, G)."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.whole = np.stack([_sum_all(segment) for segment in segments], axis=1)
        self._ends = self._sums = np.zeros(0)

    def sum_below(self, ends: np.ndarray) -> np.ndarray:
        """Return Σ w, Σ w f and Σ w f² of the scores below ends (K, 2, G), (3, K, 2, G).

        Most lines of a search for roots are settled: only ends that moved are looked up again.
        """
        if self._ends.size != ends.size:
            self._ends, self._sums = np.full(ends.size, np.nan), np.empty((3, ends.size))
        before, self._ends = self._ends, ends.reshape(-1)
        moved = np.flatnonzero(self._ends != before)
        size = ends.size // len(self.segments)
        stops = np.searchsorted(moved, size * np.arange(len(self.segments) + 1)).tolist()
        for segment, span in zip(self.segments, pairwise(stops), strict=True):
            places = moved[slice(*span)]
            if places.size:
                self._sums[:, places] = _sum_below(segment, self._ends[places])
        return self._sums.reshape(3, *ends.shape)


def _sum_below(segment: Segment, ends: np.ndarray) -> np.ndarray:
    """Return Σ w, Σ w f and Σ w f² of a group's scores below some ends, with an axis in front."""
    found = segment.score.searchsorted(ends)
    return np.array([segment.mass[found], segment.moment[found], segment.square[found]])


def _sum_all(segment: Segment) -> np.ndarray:
    """Return the same sums of all its scores, (3,)."""
    return np.array([segment.mass[-1], segment.moment[-1], segment.square[-1]])


def integrate(segment: Segment | Stack, level: np.ndarray, slope: np.ndarray) -> Moments:
    """Return the moments of lines, (G,) or (K, G), from NumPy segments; O(log n) for each."""
    flat = slope == 0
    steep = np.where(flat, 1.0, slope)
    zero, one = -level / steep, (1.0 - level) / steep
    ends = np.stack([np.minimum(zero, one), np.maximum(zero, one)], axis=-2)
    if isinstance(segment, Stack):
        sums, whole = segment.sum_below(ends), segment.whole
    else:
        sums, whole = _sum_below(segment, ends), _sum_all(segment)
    first, last, whole = sums[..., 0, :], sums[..., 1, :], whole[..., None]
    on, above = last - first, np.where(slope > 0, whole - last, first)
    if flat.any():
        on = np.where(flat, whole * ((level > 0) & (level < 1)), on)
        above = np.where(flat, whole * (level >= 1), above)
    (mass, moment, square), (chosen, pull, _) = on, above
    return Moments(
        chosen + level * mass + slope * moment,
        pull + level * moment + slope * square,
        mass,
        moment,
        square,
    )


def find_roots(
    mean: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    low: np.ndarray,
    high: np.ndarray,
    guess: np.ndarray | None = None,
    *,
    exact: bool = True,
) -> np.ndarray:
    """Return the w nearest to 0 at which falling, piecewise linear means are within their bounds.

    ``mean`` takes numbers of the shape of ``low`` and ``high``, and returns values and slopes. A
    NaN is within its bounds. Newton's steps, exact on the root's own piece, are kept between the
    known points on both sides; one that does not halve the distance of the mean from its bound is
    followed by a bisection. A ``guess`` is tried first. Where the mean is flat at its root, the end
    of that piece is found by bisection, if ``exact``.
    """
    point = np.zeros_like(low)
    value, slope = mean(point)
    over, under = value > high + TOLERANCE, value < low - TOLERANCE
    sign, target = np.where(under, -1.0, 1.0), np.where(under, low, high)
    left, right, active = point, np.full_like(point, math.inf), over | under
    before = np.full_like(point, math.inf)
    for step in range(MOST_STEPS):
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
        if step == 0 and guess is not None:
            trial = np.where(sign * guess > 0, sign * guess, trial)
        active = active & (left < trial) & (trial < right)
        point = np.where(active, trial, point)
        value, slope = mean(sign * point)
    flat = (over | under) & (slope == 0) & exact
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
    right, rates = np.zeros(lines[0].centre.size), []
    for k, line in enumerate(lines):
        zero, one = (segment.on_host() for segment in labelled.segments[2 * k : 2 * k + 2])
        chosen = [_choose(segment, line) for segment in (zero, one)]
        right += gain[1] * chosen[1] + gain[0] * zero.total - gain[0] * chosen[0]
        if total := zero.total + one.total:
            rates.append((chosen[0] + chosen[1]) / total)
    return right / labelled.weigh(gain), np.ptp(rates, axis=0)


def as_lines(rule: ThresholdRule) -> list[Lines]:
    """Return a rule as lines of one candidate."""
    slope, zero = np.array([1.0 / rule.width if rule.width > 0 else np.inf]), np.zeros(1)
    pairs = zip(rule.threshold[:, None], rule.coin[:, None], strict=True)
    return [Lines(t, coin, slope, zero[:, None], zero) for t, coin in pairs]


def weigh_rule(problem: ThresholdProblem, rule: ThresholdRule) -> np.ndarray:
    """Return Σ w h of any rule over the rows of each group, float64, shape (n_groups,); exact."""
    pairs = zip(problem.segments, as_lines(rule), strict=True)
    return np.array([_choose(segment.on_host(), line)[0] for segment, line in pairs])


def _choose(segment: Segment, line: Lines) -> np.ndarray:
    """Return Σ w h of G lines."""
    steep = np.abs(line.slope) > STEEP
    slope = np.where(steep, 0.0, line.slope)
    chosen = integrate(segment, line.level - slope * line.centre, slope).chosen
    for i in np.flatnonzero(steep).tolist():
        centre, level, slope = line.centre[i], line.level[i], line.slope[i]
        first, last = np.sort([centre - level / slope, centre + (1.0 - level) / slope])
        # One more at both ends: where a ramp ends is known up to rounding.
        begin = max(0, int(np.searchsorted(segment.score, first)) - 1)
        end = min(segment.score.size, int(np.searchsorted(segment.score, last, side="right")) + 1)
        h = _decide(segment.score[begin:end], centre, level, slope)
        above = segment.mass[-1] - segment.mass[end] if slope > 0 else segment.mass[begin]
        chosen[i] = above + h @ np.diff(segment.mass[begin : end + 1])
    return chosen
