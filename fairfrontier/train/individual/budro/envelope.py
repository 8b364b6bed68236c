"""What a round's passes at several prices say about the prices between them.

Of column j, max_i (R_ij − η C_ij) is a maximum of lines in η, hence convex: a point that is best at
two prices is best at all between; so is one that ties with the best, by a tolerance concave in η.
So every further pass looks only at columns whose targets differ at the nearest prices seen, and the
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

    Parameters
    ----------
    search : Search
        Of one round's losses.
    zero, stay : Piece
        At η = 0, and of the map that moves nothing, which is the best one as η → ∞.
    """

    def __init__(self, search: Search, zero: Piece, stay: Piece) -> None:
        self.search, self.budget = search, zero.budget
        self.etas = [0.0, float("inf")]
        self.targets = [zero.target, stay.target]

    def explore(self, eta: float, held: Array) -> Piece:
        """Return the piece at η; ``held`` is a map to start from."""
        search = self.search
        if search.bounds is None:
            return search.move_all(eta, self.budget, held)
        place = int(np.searchsorted(self.etas, eta))
        below, above = self.targets[place - 1], self.targets[place]
        # Of points that tie without a price the cheapest is best, which need not be the first.
        unsettled = np.flatnonzero((below != above) | (place == 1))
        # All at once lets the bounds be renewed.
        chosen = None if 2 * unsettled.size > below.size else unsettled
        # What is best without a price is hardly ever so with one.
        near = held if place == 1 else below
        if chosen is None:
            target = search.move_columns(None, self._choose(eta, near, above), eta)
        else:
            begin = self._choose(eta, near[chosen], above[chosen], chosen)
            target = below.copy()
            target[chosen] = search.move_columns(chosen, begin, eta)
        self.etas.insert(place, eta)
        self.targets.insert(place, target)
        return search.piece(eta, self.budget, target)

    def _choose(
        self, eta: float, one: np.ndarray, other: np.ndarray, chosen: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the better of two maps, column by column."""
        apart = np.flatnonzero(one != other)
        columns = apart if chosen is None else chosen[apart]
        values = []
        for each in (one, other):
            gain, cost = self.search.weigh(each[apart], columns)
            values.append(gain - eta * cost)
        best = one.copy()
        best[apart] = np.where(values[0] >= values[1], one[apart], other[apart])
        return best


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines that are best for some columns somewhere in an interval of η.

    Attributes
    ----------
    low, high : float64 arrays of shape (n_columns,)
        The interval of each column.
    target : int64 array of shape (n_columns, n_lines)
        Points, in the order in which the column takes them where they tie; padded.
    gain, cost : float64 arrays of shape (n_columns, n_lines)
        R_ij and C_ij; padded by −∞ and 0.
    own : int64 array of shape (n_columns,)
        The columns' points.
    tolerance : callable
        (η, points of columns) -> by how much less than the best value ties with it.
    """

    low: np.ndarray
    high: np.ndarray
    target: np.ndarray
    gain: np.ndarray
    cost: np.ndarray
    own: np.ndarray
    tolerance: Callable[[float, np.ndarray], np.ndarray]

    def choose(self, places: np.ndarray, eta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the targets of some of the columns at η and what they pay."""
        value = self.gain[places] - eta * self.cost[places]
        enough = np.max(value, axis=1) - self.tolerance(eta, self.own[places])
        best = np.argmax(value >= enough[:, None], axis=1)
        return self.target[places, best], self.cost[places, best]


def trace_lines(
    search: Search, chosen: np.ndarray, held: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Lines:
    """Find the lines that are best for some columns between two prices of each.

    Parameters
    ----------
    search : Search
        Of one round's losses, on NumPy.
    chosen, held : int64 arrays of shape (m,)
        Columns, rising, also repeatedly, and points that they hold so far.
    low, high : float64 arrays of shape (m,)
        The intervals, 0 < low < high.

    Returns
    -------
    Lines

    Notes
    -----
    Each line costs one search at the price where it was found and at most two where it crosses its
    neighbours.
    """
    own = search.geometry.column_point[chosen]
    left = search.move_columns(chosen, held, low)
    right = left.copy()
    moved = np.flatnonzero(left != own)
    right[moved] = search.move_columns(chosen[moved], left[moved], high[moved])
    column = np.arange(chosen.size)
    found: list[Found] = [(column, left, *search.weigh(left, chosen))]
    apart = np.flatnonzero(left != right)
    found.append((apart, right[apart], *search.weigh(right[apart], chosen[apart])))
    lower: Found = tuple(each[apart] for each in found[0])
    upper: Found = found[1]
    n_points = search.geometry.point.shape[0]
    seen = np.concatenate([each[0] * n_points + each[1] for each in found])
    while lower[0].size:
        who = lower[0]
        eta = _cross(lower, upper, low[who], high[who])
        target = search.move_columns(chosen[who], lower[1], eta)
        new: Found = (who, target, *search.weigh(target, chosen[who]))
        above = (
            new[2] - eta * new[3] - np.maximum(lower[2] - eta * lower[3], upper[2] - eta * upper[3])
        )
        code = who * n_points + target
        # A line comes twice only where rounding says so, which could then go on for ever.
        fresh = ~np.isin(code, seen)
        seen = np.concatenate([seen, code[fresh]])
        # One that only ties where others cross is best there if it comes first, and nowhere else.
        found.append(tuple(each[fresh] for each in new))
        keep = np.flatnonzero(fresh & (above > search.tolerance(eta, own[who])))
        new, lower, upper = (tuple(x[keep] for x in each) for each in (new, lower, upper))
        order = np.argsort(np.concatenate([new[0], new[0]]), kind="stable")
        lower, upper = (
            tuple(np.concatenate(pair)[order] for pair in zip(first, second, strict=True))
            for first, second in ((lower, new), (new, upper))
        )
    return _gather(search, chosen, found, low, high)


def _cross(lower: Found, upper: Found, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return where lines cross; anywhere in the interval where they are parallel."""
    run = lower[3] - upper[3]
    rise = lower[2] - upper[2]
    eta = np.divide(rise, run, out=low.copy(), where=run > 0)
    crossing: np.ndarray = np.clip(eta, low, high)
    return crossing


def _gather(
    search: Search, chosen: np.ndarray, found: list[Found], low: np.ndarray, high: np.ndarray
) -> Lines:
    """Put each column's lines into a row."""
    column, target, gain, cost = (np.concatenate(each) for each in zip(*found, strict=True))
    own = search.geometry.column_point[chosen]
    order = np.lexsort((np.where(target == own[column], -1, target), column))
    column, target, gain, cost = (each[order] for each in (column, target, gain, cost))
    count = np.bincount(column, minlength=chosen.size)
    place = np.arange(column.size) - np.repeat(np.cumsum(count) - count, count)
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
    for whole, each in ((rows.target, target), (rows.gain, gain), (rows.cost, cost)):
        whole[column, place] = each
    return rows
