"""The best thresholds by group: a linear programme on the upper hulls of the groups' ROC curves.

    max Σ_k α TP_k − β FP_k   s.t.  max_k r_jk − min_k r_jk ≤ δ,   low_jk ≤ r_jk ≤ high_jk

for one or two rates j (selected, true positive, false positive), or, for the mean gap, with
differences that add up to at most 2 δ. What draws among the thresholds of a group reach is the
convex hull of its ROC curve's points; rates and gains are linear there. See `hull` for the linear
programme and its dual value D.

With one cut per group, the lower ends of the windows are rates of cuts, and for the mean gap so is
the upper end of one window, while the other has what it leaves of 2 δ. A choice of cuts is worth at
most D less what each of them has below the max in D, so that cuts with more than D less the best so
far take no part, and a branch and bound tries the windows of the others.

References
----------
M. Hardt, E. Price, N. Srebro. Equality of opportunity in supervised learning. NIPS 2016, section 4.
R. Xian, L. Yin, H. Zhao. Fair and optimal classification via post-processing. ICML 2023.
A. F. Cruz, M. Hardt. Unprocessing seven years of algorithmic fairness. ICLR 2024, for the relaxed
programme. The branch and bound: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, NamedTuple, Self

import numpy as np

from fairfrontier.models.thresholds.curve import (
    BOUNDED,
    Criterion,
    Curve,
    Gain,
    Objective,
    weigh_objective,
)
from fairfrontier.models.thresholds.hull import Draw, Hulls, Rows, RowWriter
from fairfrontier.models.thresholds.rule import MixtureRule
from fairfrontier.models.thresholds.threshold import TOLERANCE, merge_runs

# What the rate of all who are chosen, the true and the false positive rate count of TP and FP.
SIDES = ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0))
# The gap that counts as closed, of gains scaled to 1.
ACCURACY = 1e-10
# Boxes of windows up to which all are halved, and those of the best values of more.
ALL, SOME = 1 << 14, 1 << 8
# Of more than some cuts, some come first, and then those within so many steps of the best of them.
# For two rates more than `CUTS` are not all tried.
FEWER, FINER, CUTS = 1 << 13, 8, 1 << 16
# Dinkelbach's steps converge superlinearly, in about five.
MOST_STEPS = 50
ROUNDING = 1e-13


@dataclass(frozen=True, eq=False)
class Problem:
    """One cut, or a draw among cuts, for each curve.

    Attributes
    ----------
    curves : sequence of Curve
        Of each group.
    gain : Gain
        What is maximised.
    rates : tuple of int
        Which rates are bounded, one or two: 0 for that of all who are chosen, 1 for the true and 2
        for the false positive rate. One that is 0/0 in a group is not bounded there.
    bound : float
        δ ≥ 0.
    mean : bool
        Whether the mean of two differences is bounded, not the larger of them.
    low, high : ndarray of float64, shape (n_rates, n_groups), or None
        Limits of every group's rates.
    randomized : bool
        Whether cuts may be drawn from.
    """

    curves: Sequence[Curve]
    gain: Gain
    rates: tuple[int, ...]
    bound: float
    mean: bool = False
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    randomized: bool = True


class Optimum(NamedTuple):
    """One draw for each group; their gain and an upper bound on that of any draws.

    ``proven`` says whether no allowed choice is better: where draws are excluded, the bound
    includes what they would add.
    """

    draws: list[Draw]
    value: float
    dual_value: float
    proven: bool


@dataclass(frozen=True, eq=False)
class _Cell:
    """One group: its cuts, all or those kept, with their rates, (n_rates, n), and scaled gains.

    There are zeros in place of a rate that is not ``defined``.
    """

    cuts: np.ndarray
    rates: np.ndarray
    gain: np.ndarray
    hull: np.ndarray
    best: int
    defined: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def keep(self, some: np.ndarray) -> Self:
        """Keep some of its cuts."""
        cuts, rates, gain = self.cuts[some], self.rates[:, some], self.gain[some]
        return replace(self, cuts=cuts, rates=rates, gain=gain)


def solve(problem: Problem) -> Optimum:
    """Solve a problem.

    With draws it takes a few linear programmes of some hundred columns. With one cut a group it is
    the best of all where there were never more than `ALL` boxes of windows, else not ``proven``.
    """
    gain, hulls = problem.gain, Hulls(problem.curves, problem.gain)
    scaled = Gain(gain.positive / hulls.scale, gain.negative / hulls.scale, 0.0)
    cells = [_make_cell(problem, scaled, k) for k in range(len(problem.curves))]
    found = hulls.solve(_write_windows(problem, cells, hulls.totals))
    if found is None:
        raise ArithmeticError("the programme of the thresholds has no solution")
    draws, value, dual = found.draws, found.value, found.dual
    proven = dual - value <= 10 * ACCURACY
    if not problem.randomized:
        charges = zip(problem.curves, hulls.worth - found.charge, strict=True)
        worths = [each.positive * a + each.negative * b for each, (a, b) in charges]
        value, cuts, proven = _find_cuts(problem, cells, worths, dual)
        draws = [Draw(np.array([cut]), np.ones(1)) for cut in cuts]
    value, dual = (gain.constant + hulls.scale * each for each in (value, dual))
    return Optimum(draws, value, dual, proven)


def _make_cell(problem: Problem, gain: Gain, k: int) -> _Cell:
    curve = problem.curves[k]
    rates = np.array([curve.rate(column) for column in problem.rates])
    defined = ~np.isnan(rates[:, 0])
    low, high = (
        np.full(defined.size, end) if given is None else given[:, k]
        for given, end in ((problem.low, 0.0), (problem.high, 1.0))
    )
    worth = gain.of(curve, slice(None))
    best = int(worth[curve.hull].argmax())
    rates = np.where(defined[:, None], rates, 0.0)
    return _Cell(np.arange(worth.size), rates, worth, curve.hull, best, defined, low, high)


def _write_windows(problem: Problem, cells: Sequence[_Cell], totals: np.ndarray) -> Rows:
    """Return that rates lie within windows, whose starts are ends of the programme, and limits.

    The windows of the mean gap have lengths, too, that add up to at most 2 δ.
    """
    writer, n_rates = RowWriter(totals), len(problem.rates)
    writer.n_ends = n_rates * (1 + problem.mean)
    for j, column in enumerate(problem.rates):
        top = {j: -1.0} | ({n_rates + j: -1.0} if problem.mean else {})
        most = 0.0 if problem.mean else problem.bound
        for k, cell in enumerate(cells):
            if not cell.defined[j]:
                continue
            mass = totals[k].sum() if column == 0 else totals[k, column - 1]
            rate = np.array([*SIDES[column], 0.0, 0.0]) / mass
            mask = (np.arange(len(cells)) == k).astype(np.float64)
            writer.add((rate, mask), most=most, ends=top)
            writer.add((-rate, mask), ends={j: 1.0})
            if cell.low[j] > 0:
                writer.add((-rate, mask), most=-cell.low[j])
            if cell.high[j] < 1:
                writer.add((rate, mask), most=cell.high[j])
    if problem.mean:
        lengths = {n_rates + j: 1.0 for j in range(n_rates)}
        writer.add((np.zeros(4), np.zeros(len(cells))), most=n_rates * problem.bound, ends=lengths)
    return writer.gather()


class _Found(NamedTuple):
    """The value of one cut per group, the cuts, and whether no other allowed choice is better."""

    value: float
    cuts: list[int]
    proven: bool


def _find_cuts(
    problem: Problem, cells: Sequence[_Cell], worths: Sequence[np.ndarray], dual: float
) -> _Found:
    """Return the best cuts, one for each group; ``worths`` are gains less what the rates cost.

    Of many cuts some come first, and those around the best of them: what is found rules out more of
    the others.
    """
    able, below = [], []
    for cell, worth in zip(cells, worths, strict=True):
        rates = cell.rates.T
        within = (rates >= cell.low - TOLERANCE) & (rates <= cell.high + TOLERANCE)
        allowed = (within | ~cell.defined).all(axis=1)
        able.append(cell.keep(allowed))
        below.append((worth.max() - worth)[allowed])
    # All of everybody is always allowed, or else nobody.
    highest = all(some.cuts[-1] == cell.cuts[-1] for some, cell in zip(able, cells, strict=True))
    cuts = [int(cell.cuts[-1 if highest else 0]) for cell in cells]
    value = sum(float(cell.gain[cut]) for cell, cut in zip(cells, cuts, strict=True))
    found = _Found(value, cuts, proven=False)

    def search(every: int = 1, around: float = np.inf, most: int = SOME) -> _Found:
        """Try cuts of each group that can be better than the best, all or some ``around`` it."""
        kept, losses = [], []
        for cell, loss, cut in zip(able, below, found.cuts, strict=True):
            some = np.flatnonzero(loss <= dual - found.value + ACCURACY)[::every]
            some = some[np.abs(cell.cuts[some] - cut) <= around]
            kept.append(cell.keep(some))
            losses.append(loss[some])
        if len(problem.rates) == 1:
            return _sweep(problem, cells, kept, found)
        if most > SOME and sum(cell.cuts.size for cell in kept) > CUTS:
            return found._replace(proven=False)
        return _branch(problem, kept, losses, dual, found, most)

    step = 2 * (sum(cell.cuts.size for cell in able) // FEWER)
    while step > 1 and found.value <= value:
        step //= 2
        found = search(every=step)
    while step > 1 and found.value > value:
        value = found.value
        found = search(around=FINER * step)
    return search(most=ALL)


def _sweep(
    problem: Problem, cells: Sequence[_Cell], kept: Sequence[_Cell], found: _Found
) -> _Found:
    """Return the best choice of the cuts that are kept, for one rate, or what was found before.

    With draws the worth of a window is known: the largest gain of the hulls within it. Windows are
    left out where that is no more than the best value so far.
    """
    starts = merge_runs([cell.rates[0] for cell in kept if cell.defined[0]] or [np.zeros(1)])
    above = np.zeros(starts.size)
    for cell in cells:
        rate, first = np.unique(cell.rates[0, cell.hull], return_index=True)
        gain = np.maximum.reduceat(cell.gain[cell.hull], first)
        best = rate[gain.argmax()].clip(starts, starts + problem.bound)
        above += np.interp(best, rate, gain)
    starts = starts[above > found.value + ROUNDING]
    windows, place = _Windows(problem, kept, [starts]), np.arange(starts.size)[:, None]
    values = windows.judge([cell.gain for cell in kept], place, place)
    if values.size and values.max() > found.value + ROUNDING:
        best = int(values.argmax())
        found = _Found(float(values[best]), windows.choose(place[[best]]), proven=False)
    return found._replace(proven=True)


def _branch(
    problem: Problem,
    cells: Sequence[_Cell],
    below: Sequence[np.ndarray],
    dual: float,
    found: _Found,
    most: int,
) -> _Found:
    """Return the best choice of some cuts, for two rates, or what was found before.

    Boxes of windows are halved along each side, and left out where D, with cuts within the box's
    widest window alone, is no more than the best value so far.
    """
    gains, losses = [cell.gain for cell in cells], [-each for each in below]
    starts = [
        merge_runs([cell.rates[j] for cell in cells if cell.defined[j]] or [np.zeros(1)])
        for j in range(len(problem.rates))
    ]
    windows = _Windows(problem, cells, [*starts, starts[0]] if problem.mean else starts)
    n_sides, proven = len(windows.starts), True
    first = np.zeros((1, n_sides), dtype=np.int64)
    last = first + [each.size - 1 for each in windows.starts]
    while first.size:
        middle = (first + last) // 2
        halves = [
            (np.where(upper, middle + 1, first), np.where(upper, last, middle))
            for upper in product((False, True), repeat=n_sides)
        ]
        first, last = (np.concatenate(each) for each in zip(*halves, strict=True))
        some = (first <= last).all(axis=1)
        first, last = first[some], last[some]
        above = dual + windows.judge(losses, first, last)
        some = above > found.value + ROUNDING
        first, last, above = first[some], last[some], above[some]
        middle = (first + last) // 2
        values = windows.judge(gains, middle, middle)
        if values.size and values.max() > found.value + ROUNDING:
            best = int(values.argmax())
            found = _Found(float(values[best]), windows.choose(middle[[best]]), proven=False)
        some = (above > found.value + ROUNDING) & (first < last).any(axis=1)
        if some.sum() > most:
            proven = False
            order = np.argsort(np.where(some, -values, np.inf), kind="stable")[:SOME]
            first, last = first[order], last[order]
        else:
            first, last = first[some], last[some]
    return found._replace(proven=proven)


@dataclass(frozen=True, eq=False)
class _Windows:
    """Windows that start at one of ``starts`` for each rate.

    For the mean gap a third side is where the first window ends, and the second has what that
    leaves of the length. Boxes of windows are pairs of first and last positions, (n, n_sides).
    """

    problem: Problem
    cells: Sequence[_Cell]
    starts: Sequence[np.ndarray]

    def judge(
        self, values: Sequence[np.ndarray], first: np.ndarray, last: np.ndarray
    ) -> np.ndarray:
        """Return by box the sum of the groups' largest values in the widest window; −∞ for none."""
        total = np.zeros(len(first))
        for each, (left, right) in zip(values, self._span(first, last), strict=True):
            some = (left < right) & (total > -np.inf)
            total[~some] = -np.inf
            if some.any():
                total[some] += find_largest(each, left[some], right[some])
        return total

    def choose(self, place: np.ndarray) -> list[int]:
        """Return the best cut of each group in a window."""
        spans = zip(self.cells, self._span(place, place), strict=True)
        return [
            int(cell.cuts[left[0] + cell.gain[left[0] : right[0]].argmax()])
            for cell, (left, right) in spans
        ]

    def _span(self, first: np.ndarray, last: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield for each group first and one past the last of its cuts in the widest windows."""
        low = [each[first[:, j]] for j, each in enumerate(self.starts)]
        high = [each[last[:, j]] for j, each in enumerate(self.starts)]
        n_rates, bound = len(self.problem.rates), self.problem.bound
        ends = [start + bound for start in high[:n_rates]]
        if self.problem.mean:
            left = n_rates * bound - np.maximum(low[2] - high[0], 0.0)
            ends = [high[2], np.where(left >= -TOLERANCE, high[1] + left, -np.inf)]
        for cell in self.cells:
            begin, stop = np.zeros(len(first), np.int64), np.full(len(first), cell.cuts.size)
            for j in np.flatnonzero(cell.defined).tolist():
                begin = np.maximum(begin, np.searchsorted(cell.rates[j], low[j] - TOLERANCE))
                stop = np.minimum(
                    stop, np.searchsorted(cell.rates[j], ends[j] + TOLERANCE, side="right")
                )
            yield begin, stop


def find_largest(values: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return max values[first:last] for many ranges that are not empty.

    By a table of the maxima over 1, 2, 4, … neighbours: O(n log n) for n values between the least
    ``first`` and the largest ``last``, and O(1) for a range.
    """
    start = int(first.min())
    table = values[start : int(last.max())]
    level = np.log2(last - first).astype(np.int8)
    order, stops = np.argsort(level, kind="stable"), np.cumsum(np.bincount(level))
    largest = np.empty(first.size)
    for j, (left, right) in enumerate(pairwise([0, *stops.tolist()])):
        if j:
            half = 1 << (j - 1)
            table = np.maximum(table[:-half], table[half:])
        here = order[left:right]
        i, end = first[here] - start, last[here] - start - (1 << j)
        largest[here] = np.maximum(table[i], table[end])
    return largest


@dataclass(frozen=True, eq=False)
class GroupSolution:
    """The optimum, with its certificate.

    Attributes
    ----------
    rule : MixtureRule
        By group, on the scale of the scores; thresholds are infinite where all or none are chosen.
    value : float
        The objective on the fitted rows, in expectation.
    dual_value : float
        Upper bound on the objective of every randomised rule within the bound.
    rates : ndarray of float64, shape (n_groups, 3)
        Selection rate, true and false positive rate; NaN where they are 0/0.
    gap : float
        Largest difference of the bounded rates between groups, or the mean of two such differences.
    converged : bool
        Whether no rule of the kind asked for is better, up to rounding.
    """

    rule: MixtureRule
    value: float
    dual_value: float
    rates: np.ndarray
    gap: float
    converged: bool

    @property
    def duality_gap(self) -> float:
        """0 up to rounding with draws; without, at most what they would add."""
        return self.dual_value - self.value


def solve_curves(
    curves: Sequence[Curve],
    *,
    objective: Objective = "accuracy",
    criterion: Criterion = "parity",
    bound: float = 0.0,
    randomized: bool = True,
    no_harm: bool = False,
    flip: bool = False,
) -> GroupSolution:
    """Solve on ROC curves, which serve any number of bounds, criteria and objectives.

        max objective   s.t.  max_k rate_k − min_k rate_k ≤ bound

    over all draws among the thresholds of each group, or one threshold each.

    Parameters
    ----------
    objective : {"accuracy", "balanced_accuracy", "f1"} or {"costs": {...}}
        Costs are ``false_positive`` and ``false_negative`` ≥ 0, per row, and counted with a minus.
        F1 = 2 TP/(TP + FP + P) is maximised by Dinkelbach's steps: each is the linear objective
        2 TP − θ (TP + FP + P) with θ the F1 of the step before.
    criterion : {"parity", "equal_opportunity", "predictive_equality", "equalized_odds",
        "average_odds"}
        What differs by at most the bound: E[h], E[h | y=1], E[h | y=0], both of the latter, or the
        mean of their two differences.
    bound : float
        ≥ 0; with 0 rates are equal, from 1 on nothing is bounded.
    randomized : bool
        Whether two thresholds may be drawn from (up to three for odds).
    no_harm : bool
        No group's rate gets worse than under the best thresholds without a bound: its selection
        rate, or its true positive rate for opportunity and odds, does not
        fall; its false positive rate for ``predictive_equality`` does not rise.
    flip : bool
        Whether draws may be among cuts that choose the lowest scores, too.

    References
    ----------
    W. Dinkelbach. On nonlinear fractional programming. Management Science 13, 1967.
    """
    positive, negative = (
        sum(float(getattr(curve, side)[-1]) for curve in curves)
        for side in ("positive", "negative")
    )
    if positive + negative == 0:
        raise ValueError("no row has weight")
    if flip:
        curves = [curve.turn() for curve in curves]
    # The false positive rate first.
    rates = BOUNDED[criterion][::-1]
    setting: dict[str, Any] = {"mean": criterion == "average_odds", "randomized": randomized}

    def choose(gain: Gain) -> Optimum:
        return solve(Problem(curves, gain, rates, bound, **setting))

    def choose_freely(gain: Gain) -> Optimum:
        best = [int(curve.hull[gain.of(curve, curve.hull).argmax()]) for curve in curves]
        return Optimum([Draw(np.array([cut]), np.ones(1)) for cut in best], 0.0, 0.0, proven=True)

    def optimise(step: Callable[[Gain], Optimum]) -> Optimum:
        if objective != "f1":
            return step(weigh_objective(objective, positive, negative))
        theta = 0.0
        for _ in range(MOST_STEPS):
            found = step(weigh_objective(objective, positive, negative, theta))
            true, false = _measure(curves, found.draws).sum(axis=0)
            f1 = 2.0 * true / (true + false + positive) if positive > 0 else 0.0
            if f1 - theta <= ROUNDING:
                break
            theta = f1
        # 2 TP − θ (TP + FP + P) ≤ D for all rules, so that F1 ≤ θ + D/P.
        excess = max(found.dual_value, 0.0) / positive if positive > 0 else 0.0
        return Optimum(found.draws, f1, theta + excess, found.proven)

    if no_harm:
        before = find_rates(curves, _measure(curves, optimise(choose_freely).draws))
        before = np.nan_to_num(before[:, rates].T)
        falls = np.array(rates) == 2
        if falls.all():
            setting["high"] = before
        else:
            setting["low"] = np.where(falls[:, None], 0.0, before)
    optimum = optimise(choose)
    reached = find_rates(curves, _measure(curves, optimum.draws))
    return GroupSolution(
        rule=draw_rule(curves, optimum.draws),
        value=optimum.value,
        dual_value=optimum.dual_value,
        rates=reached,
        gap=measure_gap(reached, criterion),
        converged=optimum.proven,
    )


def pool_groups(
    whole: Curve,
    solution: GroupSolution,
    objective: Objective,
    criterion: Criterion,
    *,
    randomized: bool = True,
) -> MixtureRule:
    """Return the rule with one more row, for groups that were not seen.

    It is best for all rows together, whose curve is ``whole``, among those with a rate (under odds
    a true positive rate) from the lowest to the highest of the groups.
    """
    column = BOUNDED[criterion][0]
    reached = solution.rates[:, column]
    low, high = float(reached.min()), float(reached.max())
    totals = (float(whole.positive[-1]), float(whole.negative[-1]))
    gain = weigh_objective(objective, *totals, theta=solution.value)
    if randomized:
        least, most = np.array([[low]]), np.array([[high]])
        (draw,) = solve(Problem([whole], gain, (column,), 1.0, low=least, high=most)).draws
    else:
        # The best of the cuts that are nearest to that range.
        rate, worth = whole.rate(column), gain.of(whole, slice(None))
        apart = np.maximum(np.maximum(low - rate, rate - high), 0.0)
        near = np.flatnonzero(apart <= apart.min() + TOLERANCE)
        draw = Draw(near[[worth[near].argmax()]], np.ones(1))
    return draw_rule([whole], [draw], solution.rule)


def apply_rule(curves: Sequence[Curve], rule: MixtureRule) -> np.ndarray:
    """Return the positives and negatives of each group that a rule chooses, (n_groups, 2)."""
    cuts = [curve.find_cuts(own) for curve, own in zip(curves, rule.threshold, strict=True)]
    return _measure(curves, [Draw(*pair) for pair in zip(cuts, rule.share, strict=True)])


def find_rates(curves: Sequence[Curve], chosen: np.ndarray) -> np.ndarray:
    """Return selection rate, true and false positive rate by group, (n_groups, 3), NaN for 0/0.

    ``chosen`` has the chosen positives and negatives, (n_groups, 2).
    """
    totals = np.array([(curve.positive[-1], curve.negative[-1]) for curve in curves])
    part, mass = (np.column_stack([each.sum(axis=1), each]) for each in (chosen, totals))
    rates: np.ndarray = np.divide(part, mass, out=np.full_like(mass, np.nan), where=mass > 0)
    return rates


def measure_gap(rates: np.ndarray, criterion: Criterion) -> float:
    """Return the difference of ``rates``, (n_groups, 3), that a criterion bounds; not of NaN."""
    columns = (rates[~np.isnan(rates[:, j]), j] for j in BOUNDED[criterion])
    gaps = [np.ptp(rate) if rate.size else 0.0 for rate in columns]
    return float(np.mean(gaps) if criterion == "average_odds" else np.max(gaps))


def _measure(curves: Sequence[Curve], draws: Sequence[Draw]) -> np.ndarray:
    """Return the chosen positives and negatives of each group, (n_groups, 2)."""
    return np.array(
        [
            (draw.shares @ curve.positive[draw.cuts], draw.shares @ curve.negative[draw.cuts])
            for curve, draw in zip(curves, draws, strict=True)
        ]
    )


def draw_rule(
    curves: Sequence[Curve], draws: Sequence[Draw], before: MixtureRule | None = None
) -> MixtureRule:
    """Return draws as thresholds and shares, below the rows of a rule; unused ones have share 0.

    1{score ≤ t} is 1 less 1{score > t}: a share of all, and one below 0 of a threshold.
    """
    rows = [] if before is None else list(zip(before.threshold, before.share, strict=True))
    for curve, draw in zip(curves, draws, strict=True):
        threshold = np.array([curve.threshold(int(cut)) for cut in draw.cuts])
        lowest, share = draw.cuts < curve.turned, draw.shares
        if lowest.any():
            threshold = np.append(threshold, -np.inf)
            share = np.append(np.where(lowest, -share, share), share[lowest].sum())
        rows.append((threshold, share))
    size = max(share.size for _, share in rows)
    threshold = np.array([np.pad(each, (0, size - each.size), "edge") for each, _ in rows])
    return MixtureRule(
        threshold, np.array([np.pad(each, (0, size - each.size)) for _, each in rows])
    )
