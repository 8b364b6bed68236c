"""What a round's passes at several prices imply for the prices between them.

For column j, max_i (R_ij − η C_ij) is a maximum of lines in η, hence convex: a point that is best
at two prices is best at all between; so is one that ties with the best, by a tolerance concave in
η. So each further pass moves only columns whose targets differ at the nearest known prices, and the
lines that are best somewhere in an interval are found from its ends inwards, by what is best where
two neighbours cross.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfrontier.train.individual.budro.dual import Piece
from fairfrontier.train.individual.budro.search import Search

Array = Any
# Column, target, gain and cost of some lines.
Found = tuple[np.ndarray, ...]


class Envelope:
    """Passes over all columns at one price after another, each less work than the one before.

    ``zero`` is the piece at η = 0 and ``stay`` that of the map that moves nothing, best as η → ∞.
    """

    def __init__(self, search: Search, zero: Piece, stay: Piece) -> None:
        self.search, self.budget = search, zero.budget
        self.etas = [0.0, float("inf")]
        self.targets = [zero.target, stay.target]

    def explore(self, eta: float, start: Array) -> Piece:
        """Return the piece at η, starting from the map ``start``."""
        search = self.search
        if search.bounds is None:
            return search.move_all(eta, self.budget, start)
        index = int(np.searchsorted(self.etas, eta))
        below, above = self.targets[index - 1], self.targets[index]
        # At η = 0 the cheapest of the points that tie is best, which need not be the first.
        unsettled = np.flatnonzero((below != above) | (index == 1))
        # A pass over all columns lets the bounds be renewed.
        chosen = None if 2 * unsettled.size > below.size else unsettled
        # What is best at η = 0 is hardly ever best at a higher price.
        near = start if index == 1 else below
        if chosen is None:
            target = search.move_columns(None, self._choose(eta, near, above), eta)
        else:
            begin = self._choose(eta, near[chosen], above[chosen], chosen)
            target = below.copy()
            target[chosen] = search.move_columns(chosen, begin, eta)
        self.etas.insert(index, eta)
        self.targets.insert(index, target)
        return search.piece(eta, self.budget, target)

    def _choose(
        self, eta: float, one: np.ndarray, other: np.ndarray, chosen: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the better of two maps, column by column."""
        apart = np.flatnonzero(one != other)
        columns = apart if chosen is None else chosen[apart]
        values = []
        for target in (one, other):
            gain, cost = self.search.weigh(target[apart], columns)
            values.append(gain - eta * cost)
        best = one.copy()
        best[apart] = np.where(values[0] >= values[1], one[apart], other[apart])
        return best


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines that are best for some columns somewhere in their intervals of η.

    ``low`` and ``high`` (n_columns,) are the intervals and ``own`` the columns' points. ``target``,
    ``gain`` and ``cost`` (n_columns, n_lines) are points, R_ij and C_ij, padded with −∞ gains, in
    the order in which ties are settled. ``tolerance`` is that of `Search`.
    """

    low: np.ndarray
    high: np.ndarray
    target: np.ndarray
    gain: np.ndarray
    cost: np.ndarray
    own: np.ndarray
    tolerance: Callable[[float, np.ndarray], np.ndarray]

    def choose(self, rows: np.ndarray, eta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the targets of some of the columns at η and their costs."""
        value = self.gain[rows] - eta * self.cost[rows]
        enough = np.max(value, axis=1) - self.tolerance(eta, self.own[rows])
        best = np.argmax(value >= enough[:, None], axis=1)
        return self.target[rows, best], self.cost[rows, best]


def trace_lines(
    search: Search, chosen: np.ndarray, start: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Lines:
    """Find the lines that are best for some columns between two prices 0 < low < high of each.

    ``chosen`` are column numbers, rising, possibly repeated, and ``start`` points to start from.
    Each line costs one search at the price where it was lines and at most two where it crosses its
    neighbours.
    """
    own = search.geometry.column_point[chosen]
    left = search.move_columns(chosen, start, low)
    right = left.copy()
    moved = np.flatnonzero(left != own)
    right[moved] = search.move_columns(chosen[moved], left[moved], high[moved])
    column = np.arange(chosen.size)
    lines: list[Found] = [(column, left, *search.weigh(left, chosen))]
    apart = np.flatnonzero(left != right)
    lines.append((apart, right[apart], *search.weigh(right[apart], chosen[apart])))
    lower: Found = tuple(values[apart] for values in lines[0])
    upper: Found = lines[1]
    n_points = search.geometry.point.shape[0]
    seen = np.concatenate([line[0] * n_points + line[1] for line in lines])
    while lower[0].size:
        pending = lower[0]
        eta = _cross(lower, upper, low[pending], high[pending])
        target = search.move_columns(chosen[pending], lower[1], eta)
        new: Found = (pending, target, *search.weigh(target, chosen[pending]))
        above = (
            new[2] - eta * new[3] - np.maximum(lower[2] - eta * lower[3], upper[2] - eta * upper[3])
        )
        code = pending * n_points + target
        # Only rounding lets a line come twice, which might never end.
        fresh = ~np.isin(code, seen)
        seen = np.concatenate([seen, code[fresh]])
        # A line that only ties where others cross is best there if it comes first, nowhere else.
        lines.append(tuple(values[fresh] for values in new))
        keep = np.flatnonzero(fresh & (above > search.tolerance(eta, own[pending])))
        new, lower, upper = (tuple(x[keep] for x in line) for line in (new, lower, upper))
        order = np.argsort(np.concatenate([new[0], new[0]]), kind="stable")
        lower, upper = (
            tuple(np.concatenate(pair)[order] for pair in zip(first, second, strict=True))
            for first, second in ((lower, new), (new, upper))
        )
    return _gather(search, chosen, lines, low, high)


def _cross(lower: Found, upper: Found, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return where lines cross; anywhere in the interval where they are parallel."""
    run = lower[3] - upper[3]
    rise = lower[2] - upper[2]
    eta = np.divide(rise, run, out=low.copy(), where=run > 0)
    crossing: np.ndarray = np.clip(eta, low, high)
    return crossing


def _gather(
    search: Search, chosen: np.ndarray, lines: list[Found], low: np.ndarray, high: np.ndarray
) -> Lines:
    """Put each column's lines into a row."""
    column, target, gain, cost = (np.concatenate(parts) for parts in zip(*lines, strict=True))
    own = search.geometry.column_point[chosen]
    order = np.lexsort((np.where(target == own[column], -1, target), column))
    column, target, gain, cost = (values[order] for values in (column, target, gain, cost))
    count = np.bincount(column, minlength=chosen.size)
    position = np.arange(column.size) - np.repeat(np.cumsum(count) - count, count)
    shape = (chosen.size, int(count.max(initial=1)))
    rows = Lines(
        low,
        high,
        np.zeros(shape, dtype=np.int64),
        np.full(shape, -np.inf),
        np.zeros(shape),
        own,
        search.tolerance,
    )
    for table, values in ((rows.target, target), (rows.gain, gain), (rows.cost, cost)):
        table[column, position] = values
    return rows
