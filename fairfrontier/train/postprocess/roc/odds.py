"""The best cuts of groups whose true and false positive rates lie within windows.

    max Σ_k α P_k y_k − β N_k x_k   s.t.  (x_k, y_k) under the upper ROC hull of group k,
    max_k x_k − min_k x_k ≤ d,   max_k y_k − min_k y_k ≤ e,

with d, e ≤ δ, or d + e ≤ 2 δ for the mean gap. With draws this is a linear programme whose columns
are the vertices of the hulls. Some vertices of each group are enough: the multipliers ν, κ of the
windows price all others, the best one and its neighbours enter, and

    D(ν, κ) = Σ_k max_j (gain_kj − ν_k x_kj − κ_k y_kj) + price of the windows

bounds every draw from above. It ends where that bound is reached. Points under the upper hull but
above its lower counterpart are draws too, and are never better.

With one cut per group, the lower ends of two windows are rates of cuts, and all such windows are
tried where these are not too many. For the mean gap so is the upper end of one window, and the
other has what it leaves of 2 δ; some such divisions are tried first, and all where they are few. A
choice of cuts is worth at most D less what each of them has below the max in D, so that cuts with
more than D less the best so far take no part.

References
----------
M. Hardt, E. Price, N. Srebro. Equality of opportunity in supervised learning. NIPS 2016, equation
4.3. A. F. Cruz, M. Hardt. Unprocessing seven years of algorithmic fairness. ICLR 2024, for the
relaxed programme. The column generation: ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from scipy.optimize import linprog

from fairfrontier.train.postprocess.roc.curve import Curve, Gain
from fairfrontier.train.postprocess.roc.rate import (
    Draw,
    Optimum,
    find_base,
    find_largest,
    find_range,
)
from fairfrontier.train.postprocess.threshold import TOLERANCE, merge_runs

# Vertices of each hull in the first programme, and programmes at most.
COLUMNS = 24
ROUNDS = 100
# The gap that counts as closed, of gains scaled to 1.
ACCURACY = 1e-10
# One cut per group: up to so many windows are all tried. Of more, some first, and then, by steps
# that are so many times smaller, those around the best of them.
ALL, SOME, FINER = 1 << 17, 1 << 13, 8
# Starts at which windows are counted.
COUNTED = 512
# Of more cuts, some are tried first, then those around the best of them, and no others.
CUTS, FEWER = 1 << 17, 1 << 14
# Windows are tried again after a better choice has left at most this share of the cuts.
ANEW = 0.97
# Shares of the mean gap that are spent on the false positive rate where not all can be tried.
SPLITS = np.linspace(0.0, 1.0, 33)


@dataclass(frozen=True, eq=False)
class _Group:
    """One group: rates and scaled gains of its cuts, all or those kept, and the least tpr."""

    curve: Curve
    fpr: np.ndarray
    tpr: np.ndarray
    gain: np.ndarray
    base: int
    floor: float
    cuts: np.ndarray

    def keep(self, some: np.ndarray) -> Self:
        """Keep some of its cuts."""
        fpr, tpr, gain, cuts = (x[some] for x in (self.fpr, self.tpr, self.gain, self.cuts))
        return replace(self, fpr=fpr, tpr=tpr, gain=gain, cuts=cuts)

    @property
    def bounded(self) -> tuple[bool, bool]:
        """Whether the false and the true positive rate are defined."""
        return bool(self.curve.negative[-1] > 0), bool(self.curve.positive[-1] > 0)


def solve_odds(
    curves: Sequence[Curve],
    gain: Gain,
    bound: float,
    *,
    mean: bool = False,
    base: Sequence[int] | None = None,
    randomized: bool = True,
) -> Optimum:
    """Solve for both error rates; ``base`` are cuts from which no true positive rate may fall.

    A rate that is 0/0 is not bounded. With draws it takes a few linear programmes of some hundred
    columns. Without, all windows of the cuts that can be better than the best so far are tried
    where these are at most `ALL`; else the best of those tried need not be the best of all, and is
    not ``proven``.
    """
    positive = sum(float(curve.positive[-1]) for curve in curves)
    negative = sum(float(curve.negative[-1]) for curve in curves)
    scale = gain.positive * positive + gain.negative * negative or 1.0
    scaled = Gain(gain.positive / scale, gain.negative / scale, 0.0)
    alone = find_base(curves, scaled)
    groups = []
    for k, curve in enumerate(curves):
        fpr, tpr = (mass / (mass[-1] or 1.0) for mass in (curve.negative, curve.positive))
        floor = 0.0 if base is None else float(tpr[base[k]])
        own = scaled.of(curve, slice(None))
        groups.append(_Group(curve, fpr, tpr, own, alone[k], floor, np.arange(own.size)))
    draws, value, dual, prices = _generate_columns(groups, bound, mean=mean)
    proven = bool(dual - value <= 10 * ACCURACY)
    if not randomized:
        draws, value, proven = _find_cuts(groups, prices, dual, bound, mean=mean)
    found, bound_above = (float(gain.constant + scale * each) for each in (value, dual))
    return Optimum(draws, found, bound_above, proven)


def _generate_columns(
    groups: Sequence[_Group], bound: float, *, mean: bool
) -> tuple[list[Draw], float, float, np.ndarray]:
    """Return the draws, their scaled value, the least upper bound found, and its prices."""
    columns = []
    for group in groups:
        hull = group.curve.hull
        spread = np.linspace(0, hull.size - 1, min(COLUMNS, hull.size)).astype(np.int64)
        columns.append(np.unique(np.append(spread, np.searchsorted(hull, group.base))))
    least, cheapest = np.inf, np.zeros((3, len(groups)))
    for _ in range(ROUNDS):
        cuts = [group.curve.hull[each] for group, each in zip(groups, columns, strict=True)]
        shares, value, prices = _solve_programme(groups, cuts, bound, mean=mean)
        prices = _balance(groups, prices)
        dual, entering = _price(groups, prices, bound, mean=mean)
        if dual < least:
            least, cheapest = dual, prices
        larger = [np.union1d(*pair) for pair in zip(columns, entering, strict=True)]
        grown = any(one.size > two.size for one, two in zip(larger, columns, strict=True))
        if least - value <= ACCURACY or not grown:
            break
        columns = larger
    draws = []
    for each, share in zip(cuts, shares, strict=True):
        used = share > TOLERANCE
        draws.append(Draw(each[used], share[used] / share[used].sum()))
    return draws, value, least, cheapest


def _solve_programme(
    groups: Sequence[_Group], cuts: Sequence[np.ndarray], bound: float, *, mean: bool
) -> tuple[list[np.ndarray], float, np.ndarray]:
    """Return the shares of the cuts of each group, their value, and prices of shape (3, n_groups).

    The prices are ν and κ, which multiply the rates, and those of the least true positive rates.
    """
    stops = np.cumsum([each.size for each in cuts])
    size, n_groups = int(stops[-1]), len(groups)
    spans = [slice(*span) for span in zip([0, *stops[:-1].tolist()], stops.tolist(), strict=True)]
    whole = np.zeros((n_groups, size + 4))
    rows: list[np.ndarray] = []
    limits: list[float] = []
    owners: list[tuple[int, int, float]] = []
    cost = np.zeros(size + 4)
    for k, (group, each, span) in enumerate(zip(groups, cuts, spans, strict=True)):
        cost[span] = -group.gain[each]
        whole[k, span] = 1.0
        for j, (rates, defined) in enumerate(
            zip((group.fpr, group.tpr), group.bounded, strict=True)
        ):
            # rate − start − length ≤ 0 and start − rate ≤ 0
            for sign in (1.0, -1.0) if defined else ():
                row = np.zeros(size + 4)
                row[span], row[size + j] = sign * rates[each], -sign
                row[size + 2 + j] = -1.0 if sign > 0 else 0.0
                rows, limits = [*rows, row], [*limits, 0.0]
                owners.append((j, k, sign))
        if group.floor > 0:
            row = np.zeros(size + 4)
            row[span] = -group.tpr[each]
            rows, limits = [*rows, row], [*limits, -group.floor]
            owners.append((2, k, 1.0))
    if mean:
        row = np.zeros(size + 4)
        row[size + 2 :] = 1.0
        rows, limits = [*rows, row], [*limits, 2.0 * bound]
    length = (0.0, 2.0 * bound if mean else bound)
    found = linprog(
        cost, np.array(rows), np.array(limits), whole, np.ones(n_groups),
        bounds=[(0.0, None)] * size + [(None, None)] * 2 + [length] * 2,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    if found.x is None:
        raise ArithmeticError(f"the programme of the odds has no solution: {found.message}")
    prices = np.zeros((3, n_groups))
    for (j, k, sign), marginal in zip(owners, found.ineqlin.marginals, strict=False):
        prices[j, k] -= sign * marginal
    return [np.maximum(found.x[span], 0.0) for span in spans], -float(found.fun), prices


def _balance(groups: Sequence[_Group], prices: np.ndarray) -> np.ndarray:
    """Return prices for which D is a bound: ν and κ add up to 0, and the others are not below 0."""
    balanced: np.ndarray = np.maximum(prices, 0.0)
    for j in range(2):
        defined = np.array([group.bounded[j] for group in groups])
        # Rounding must not leave a remainder.
        surplus = prices[j, defined].sum() / max(1, defined.sum())
        balanced[j] = np.where(defined, prices[j] - surplus, 0.0)
    return balanced


def _price(
    groups: Sequence[_Group], prices: np.ndarray, bound: float, *, mean: bool
) -> tuple[float, list[np.ndarray]]:
    """Return D at the prices, and each group's best vertex with its neighbours."""
    halves = np.abs(prices[:2]).sum(axis=1) / 2.0
    dual = bound * float(2.0 * halves.max() if mean else halves.sum())
    entering = []
    for group, price in zip(groups, prices.T, strict=True):
        worth = _weigh(group, price, group.curve.hull)
        best = int(worth.argmax())
        dual += float(worth[best]) - price[2] * group.floor
        entering.append(np.arange(max(0, best - 1), min(worth.size, best + 2)))
    return dual, entering


def _weigh(group: _Group, price: np.ndarray, cuts: np.ndarray | slice) -> np.ndarray:
    """Return the gains of some cuts less what their rates cost."""
    nu, kappa, floor = price
    worth: np.ndarray = group.gain[cuts] - nu * group.fpr[cuts] + (floor - kappa) * group.tpr[cuts]
    return worth


class _Found(NamedTuple):
    """The value of one cut per group, the cuts, and whether all windows were tried."""

    value: float
    cuts: list[int]
    complete: bool

    def exceeds(self, other: _Found) -> bool:
        """Return whether its value is larger, by more than rounding."""
        return self.value > other.value + ACCURACY


def _find_cuts(
    groups: Sequence[_Group], prices: np.ndarray, dual: float, bound: float, *, mean: bool
) -> tuple[list[Draw], float, bool]:
    """Return the best cuts found, one for each group, their value, and whether none is better."""
    lengths = np.array([[bound, bound]])
    if mean and bound > 0:
        lengths = 2.0 * bound * np.column_stack([SPLITS, 1.0 - SPLITS])
    able, below = [], []
    for group, price in zip(groups, prices.T, strict=True):
        worth = _weigh(group, price, slice(None))
        allowed = group.tpr >= group.floor - TOLERANCE
        able.append(group.keep(allowed))
        below.append((worth.max() - worth)[allowed])
    # All of everybody is always allowed.
    most = [group.cuts.size - 1 for group in groups]
    value = sum(float(group.gain[-1]) for group in groups)
    best, complete = _try_some(able, lengths, _Found(value, most, complete=False)), False
    former = np.inf

    def keep_better() -> list[_Group]:
        """Return the groups with the cuts that a choice better than the best may have."""
        most = dual - best.value + ACCURACY
        return [group.keep(each <= most) for group, each in zip(able, below, strict=True)]

    while not complete:
        kept = keep_better()
        n_cuts = sum(group.cuts.size for group in kept)
        if n_cuts > min(CUTS, ANEW * former):
            break
        found = _try_windows(kept, lengths)
        complete = found.complete
        if not found.exceeds(best):
            break
        best, former = found, n_cuts
    if len(lengths) > 1:
        windows = _Windows.between(keep_better(), 2.0 * bound)
        complete = windows is not None and windows.count() <= ALL
        if windows is not None and complete:
            found = _search(windows)
            best = found if found.exceeds(best) else best
    draws = [Draw(np.array([cut]), np.ones(1)) for cut in best.cuts]
    return draws, best.value, complete


def _try_some(groups: Sequence[_Group], lengths: np.ndarray, best: _Found) -> _Found:
    """Of more than `CUTS` cuts, try some, and then those around the best, where these are better.

    What is found first rules out more of the others.
    """
    step = 2 * (sum(group.cuts.size for group in groups) // FEWER)
    if step <= 2 * CUTS // FEWER:
        return best
    found = best
    while step > 1 and not found.exceeds(best):
        step //= 2
        ends = [np.append(np.arange(0, g.cuts.size, step), g.cuts.size - 1) for g in groups]
        some = [group.keep(each) for group, each in zip(groups, ends, strict=True)]
        found = _try_windows(some, lengths)
    while found.exceeds(best):
        best = found
        around = [
            group.keep(np.abs(group.cuts - cut) <= FINER * step)
            for group, cut in zip(groups, best.cuts, strict=True)
        ]
        found = _try_windows(around, lengths)
    return best


def _try_windows(groups: Sequence[_Group], lengths: np.ndarray) -> _Found:
    """Return the best cuts of some windows, of all where these are few; −∞ for none."""
    return _search(_Windows.of(groups, lengths))


def _search(windows: _Windows) -> _Found:
    """Return the same of windows that are listed."""
    n_starts, count = windows.starts[0].size, windows.count()
    step = 1 if count <= ALL else int(np.ceil(np.sqrt(count / SOME)))
    best, place = windows.judge(*windows.pick(np.arange(0, n_starts, step), step))
    complete = step == 1
    while step > 1 and best > -np.inf:
        reach, step = 2 * step, max(1, step // FINER)
        right, above = place[1:]
        around = np.arange(max(0, right - reach), min(n_starts, right + reach + 1), step)
        found, there = windows.judge(*windows.pick(around, step, (above - reach, above + reach)))
        if found > best:
            best, place = found, there
    return _Found(best, windows.choose(place) if best > -np.inf else [], complete)


@dataclass(frozen=True, eq=False)
class _Windows:
    """Windows by their lengths, (L, 2), and starts, which are rates of the groups' cuts.

    ``owner``, (L,), is the start of fpr that each length goes with; None where all go with all.
    """

    groups: Sequence[_Group]
    lengths: np.ndarray
    starts: tuple[np.ndarray, np.ndarray]
    owner: np.ndarray | None = None

    @classmethod
    def of(cls, groups: Sequence[_Group], lengths: np.ndarray) -> Self:
        """Return all windows that start at a rate of each kind."""
        fpr, tpr = (
            merge_runs([np.zeros(1), *(rates for rates, known in each if known)])
            for each in (
                [(group.fpr, group.bounded[0]) for group in groups],
                [(group.tpr, group.bounded[1]) for group in groups],
            )
        )
        return cls(groups, lengths, (fpr, tpr))

    @classmethod
    def between(cls, groups: Sequence[_Group], total: float) -> Self | None:
        """Return the windows from rate to rate whose lengths add up to a total; None for too many.

        Every choice whose gaps add up to at most that lies in one of them.
        """
        if sum(group.cuts.size for group in groups) > ALL:
            return None
        windows = cls.of(groups, np.zeros((0, 2)))
        fpr = windows.starts[0]
        count = find_range(fpr, fpr, total)[1] - np.arange(fpr.size)
        if count.sum() > ALL:
            return None
        owner = np.repeat(np.arange(fpr.size), count)
        end = owner + np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
        length = np.minimum(fpr[end] - fpr[owner], total)
        lengths = np.column_stack([length, total - length])
        return replace(windows, lengths=lengths, owner=owner)

    def count(self) -> float:
        """Return how many windows may have a choice, by some of their starts."""
        n_starts = self.starts[0].size
        counted = np.arange(0, n_starts, max(1, n_starts // COUNTED))
        first, last = self.span(*self.cross(counted))
        return float((last - first).clip(0).sum() * n_starts / max(counted.size, 1))

    def cross(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of a length and a start of fpr, as positions."""
        if self.owner is not None:
            pair = np.flatnonzero(np.isin(self.owner, right))
            return pair, self.owner[pair]
        pairs = np.meshgrid(np.arange(len(self.lengths)), right, indexing="ij")
        return pairs[0].reshape(-1), pairs[1].reshape(-1)

    def span(self, length: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return first and one past the last start of tpr of windows that may have a choice."""
        ends = np.zeros((2, right.size), dtype=np.int64)
        place = np.arange(right.size)
        least, lowest, highest = (np.full(right.size, end) for end in (-np.inf, np.inf, np.inf))
        for group in self.groups:
            first, last = self._find_range_of(0, group, length, right)
            some = first < last
            first, last, place, length, right, least, lowest, highest = (
                each[some] for each in (first, last, place, length, right, least, lowest, highest)
            )
            if group.bounded[1]:
                low, high = group.tpr[first], group.tpr[last - 1]
                least, lowest = np.maximum(least, low), np.minimum(lowest, low)
                highest = np.minimum(highest, high)
        # The least tpr of a choice is one that some group has there, and no other is far above.
        low = np.maximum(least - self.lengths[length, 1], np.where(lowest < np.inf, lowest, 0.0))
        ends[0, place] = np.searchsorted(self.starts[1], low - TOLERANCE)
        ends[1, place] = np.searchsorted(self.starts[1], highest + TOLERANCE, side="right")
        return ends[0], ends[1]

    def pick(
        self, right: np.ndarray, step: int = 1, within: tuple[int, int] = (0, 1 << 62)
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return length and starts of windows at some starts of fpr and each step-th of tpr.

        Those of tpr are at positions ``within`` a range.
        """
        length, right = self.cross(right)
        first, last = self.span(length, right)
        first, last = np.maximum(first, within[0]), np.minimum(last, within[1] + 1)
        count = np.where(first < last, (last - 1) // step - first // step + 1, 0)
        owner = np.repeat(np.arange(right.size), count)
        number = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
        # Multiples of the step, so that few starts belong to many windows.
        above = np.maximum(first[owner], (first[owner] // step + number) * step)
        return length[owner], right[owner], above

    def judge(
        self, length: np.ndarray, right: np.ndarray, above: np.ndarray
    ) -> tuple[float, tuple[int, int, int]]:
        """Return the largest value of one cut per group in windows, −∞ for none, and its window."""
        gains, kept = np.zeros(length.size), np.arange(length.size)
        for some, group, first, last in self._find_ranges(length, right, above):
            if not some.any():
                return -np.inf, (0, 0, 0)
            gains, kept = gains[some] + find_largest(group.gain, first, last), kept[some]
        best = kept[gains.argmax()]
        return float(gains.max()), (int(length[best]), int(right[best]), int(above[best]))

    def choose(self, place: tuple[int, int, int]) -> list[int]:
        """Return the best cut of each group in a window."""
        ranges = self._find_ranges(*(np.array([each]) for each in place))
        return [
            int(group.cuts[first[0] + group.gain[first[0] : last[0]].argmax()])
            for _, group, first, last in ranges
        ]

    def _find_ranges(
        self, length: np.ndarray, right: np.ndarray, above: np.ndarray
    ) -> Iterator[tuple[np.ndarray, _Group, np.ndarray, np.ndarray]]:
        """Yield for each group which of the windows left have a cut, and their ranges of cuts.

        Many windows have a length and a start in common, whose range is found once.
        """
        shared = [
            np.unique(len(self.lengths) * start + length, return_inverse=True)
            for start in (right, above)
        ]
        pairs = [np.divmod(key, len(self.lengths))[::-1] for key, _ in shared]
        owners = [owner for _, owner in shared]
        for group in self.groups:
            (first, last), (low, high) = (
                [end[owner] for end in self._find_range_of(j, group, *pair)]
                for j, (pair, owner) in enumerate(zip(pairs, owners, strict=True))
            )
            first, last = np.maximum(first, low), np.minimum(last, high)
            some = first < last
            owners = [owner[some] for owner in owners]
            yield some, group, first[some], last[some]

    def _find_range_of(
        self, j: int, group: _Group, length: np.ndarray, start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the same for one rate alone."""
        if not group.bounded[j]:
            return np.zeros_like(start), np.full_like(start, group.gain.size)
        rates = (group.fpr, group.tpr)[j]
        return find_range(rates, self.starts[j][start], self.lengths[length, j])
