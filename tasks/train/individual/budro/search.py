"""The inner maximisation of BuDRO's dual: the best target of every column at a price of cost."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace

from tasks.runtime.arrays import to_numpy
from tasks.train.individual.budro.bound import Bounds
from tasks.train.individual.budro.dual import Piece
from tasks.train.individual.budro.geometry import Geometry

Array = Any

BLOCK = 64
# Pairs of points and columns from which bounds pay, of a geometry and of columns chosen from it.
MANY_PAIRS = 1 << 22


@dataclass(frozen=True, eq=False)
class Candidates:
    """Points in falling order of one label's loss: only a prefix can beat what a column has."""

    order: Array  # (n_points,)
    descent: Array  # (n_points,) minus the sorted levels, ascending
    left: Array  # (n_points, k + 2) = [2z, −‖z‖², level] in that order


class Search:
    """The inner maximisation max_i (R_ij − η C_ij) for given losses.

    Parameters
    ----------
    geometry : Geometry
        Points and columns.
    loss : float64 array of shape (n_samples, n_labels)
        R_ij = loss[i, label of j].
    dtype : {"float32", "float64"}
        Of the products that propose moves; what they gain and cost is float64.

    Attributes
    ----------
    level : list of float64 arrays of shape (n_points,)
        Per label, the largest loss of the rows at a point.
    bounds : Bounds or None
        What blocks of points can offer, by which most pairs are skipped: with NumPy, where pairs
        are many. Elsewhere, where a product is cheap, and for few pairs all of a prefix of the
        points in falling order of loss are multiplied. Both find the same maxima.
    """

    def __init__(self, geometry: Geometry, loss: Array, dtype: str) -> None:
        xp = array_namespace(geometry.point)
        self.xp, self.geometry, self.loss = xp, geometry, loss
        self.dtype = getattr(xp, dtype)
        self.level = [self._find_level(k) for k in range(geometry.n_labels)]
        self._listed: dict[int, Candidates] = {}
        pairs = geometry.point.shape[0] * geometry.column_point.shape[0]
        self.bounds: Bounds | None = None
        if is_numpy_namespace(xp) and pairs >= MANY_PAIRS:
            self.bounds = geometry.shelf.require(
                geometry.point, geometry.column_point, geometry.columns
            )
            self._levels = np.stack(self.level, axis=1)

    def _find_level(self, label: int) -> Array:
        xp, geometry = self.xp, self.geometry
        grouped = xp.take(self.loss[:, label], geometry.row_order)
        if is_numpy_namespace(xp):
            return np.maximum.reduceat(grouped, np.append(0, geometry.point_stop[:-1]))
        owner = xp.take(geometry.row_point, geometry.row_order)
        rising = xp.argsort(grouped)
        by_point = xp.take(rising, xp.argsort(xp.take(owner, rising), stable=True))
        return xp.take(grouped, xp.take(by_point, geometry.point_stop - 1))

    def _list(self, label: int) -> Candidates:
        if label not in self._listed:
            xp, point = self.xp, self.geometry.point
            order = xp.argsort(self.level[label], descending=True)
            sorted_level = xp.take(self.level[label], order)
            square = xp.take(xp.sum(point * point, axis=1), order)
            sides = [2.0 * xp.take(point, order, axis=0), -square[:, None], sorted_level[:, None]]
            left = xp.astype(xp.concat(sides, axis=1), self.dtype)
            self._listed[label] = Candidates(order, -sorted_level, left)
        return self._listed[label]

    def value(self, label: int, column: Array, target: Array) -> tuple[Array, Array]:
        """Return (loss reached, cost paid) in float64 when columns move to target points."""
        xp, geometry = self.xp, self.geometry
        step = xp.take(geometry.point, target, axis=0) - xp.take(geometry.point, column, axis=0)
        return xp.take(self.level[label], target), xp.sum(step * step, axis=1)

    def weigh(self, target: Array, chosen: Array | None = None) -> tuple[Array, Array]:
        """Return (loss reached, cost paid) of columns of any label.

        Parameters
        ----------
        target : int64 array of shape (m,)
            Points that columns move to.
        chosen : int64 array of shape (m,), optional
            The columns, rising; all by default.
        """
        if chosen is None and self.bounds is not None:
            return self._levels[target, self.bounds.label], self.bounds.pay(target)
        return self._weigh(target, chosen)

    def _weigh(self, target: Array, chosen: Array | None) -> tuple[Array, Array]:
        column, cuts = self._cut(chosen)
        found = [self.value(k, column[a:b], target[a:b]) for k, (a, b) in enumerate(cuts)]
        gain, cost = (self.xp.concat(each) for each in zip(*found, strict=True))
        return gain, cost

    def _cut(self, chosen: Array | None) -> tuple[Array, tuple[tuple[int, int], ...]]:
        """Return the points of columns and, per label, their range."""
        xp, geometry = self.xp, self.geometry
        if chosen is None:
            return geometry.column_point, geometry.columns
        column = xp.take(geometry.column_point, chosen)
        ends = [0, *(last for _, last in geometry.columns)]
        places = xp.searchsorted(chosen, xp.asarray(ends, device=device(chosen)))
        stops = [int(each) for each in to_numpy(places)]
        return column, tuple(itertools.pairwise(stops))

    def move_columns(self, chosen: Array | None, held: Array, eta: float | Array) -> Array:
        """Return the best target points of columns of any label, no worse than those they hold.

        Parameters
        ----------
        chosen : int64 array of shape (m,), optional
            The columns, rising, also repeatedly; all by default.
        held : int64 array of shape (m,)
            Points that they hold so far.
        eta : float or float64 array of shape (m,)
            Price of the cost, of each column where it is an array.
        """
        if held.shape[0] == 0:
            return held
        pairs = held.shape[0] * self.geometry.point.shape[0]
        if self.bounds is not None and pairs >= MANY_PAIRS and np.min(eta) > 0:
            return self._prune(self.bounds, chosen, held, eta)
        column, cuts = self._cut(chosen)
        price = [eta if isinstance(eta, float | int) else eta[a:b] for a, b in cuts]
        found = [self.move(k, column[a:b], held[a:b], price[k]) for k, (a, b) in enumerate(cuts)]
        return self.xp.concat(found)

    def _prune(
        self,
        bounds: Bounds,
        chosen: np.ndarray | None,
        held: np.ndarray,
        eta: float | np.ndarray,
    ) -> np.ndarray:
        gain, cost = self.weigh(held, chosen)
        value = gain - eta * cost
        dtype = np.dtype(self.dtype).name
        found = bounds.improve(self._levels, chosen, value, eta, dtype)
        moved = np.flatnonzero(found >= 0)
        gain, cost = self.weigh(found[moved], moved if chosen is None else chosen[moved])
        price = eta if isinstance(eta, float | int) else eta[moved]
        moved = moved[gain - price * cost > value[moved]]
        target = held.copy()
        target[moved] = found[moved]
        return target

    def move(self, label: int, column: Array, held: Array, eta: float | Array) -> Array:
        """Return the best target point of columns at η, no worse than the one they hold.

        Parameters
        ----------
        label : int
            Label of the columns.
        column, held : int64 arrays of shape (m,)
            Points of the columns, and points that they hold so far.
        eta : float or float64 array of shape (m,)
            Price of the cost, of each column where it is an array.

        Notes
        -----
        A point whose loss is below what a column has already cannot win, since costs are not
        negative: columns are sorted by that bound and each block multiplies a prefix only.
        """
        xp = self.xp
        if column.shape[0] == 0:
            return held
        listed = self._list(label)
        gain, cost = self.value(label, column, held)
        bound = gain - eta * cost
        order = xp.argsort(bound, descending=True)
        column, held, bound = (xp.take(each, order) for each in (column, held, bound))
        if isinstance(eta, float | int):
            price = xp.full((column.shape[0], 1), eta, dtype=bound.dtype, device=device(bound))
        else:
            price = xp.take(eta, order)[:, None]
        right = xp.concat(
            [price * xp.take(self.geometry.point, column, axis=0), price, xp.ones_like(price)],
            axis=1,
        )
        right = xp.astype(right, self.dtype)
        tiles = blocks(column.shape[0])
        ends = xp.asarray([stop - 1 for _, stop in tiles], device=device(bound))
        prefix = to_numpy(xp.searchsorted(listed.descent, -xp.take(bound, ends)))
        found = []
        for (first, stop), length in zip(tiles, prefix, strict=True):
            product = right[first:stop, :] @ listed.left[: max(1, int(length)), :].T
            found.append(xp.argmax(product, axis=1))
        new = xp.take(listed.order, xp.concat(found))
        gain, cost = self.value(label, column, new)
        better = xp.where(gain - price[:, 0] * cost > bound, new, held)
        return xp.take(better, xp.argsort(order))

    def nearest_worst(self, label: int, column: Array) -> Array:
        """Return, for columns, the cheapest among the points of the largest loss (η = 0)."""
        xp, point, level = self.xp, self.geometry.point, self.level[label]
        worst = xp.max(level)
        # A point that is itself among the worst stays where it is, whatever rounding says.
        own = xp.take(level, column) == worst
        others = xp.take(column, xp.nonzero(~own)[0])
        if others.shape[0] == 0:
            return column
        tied = xp.nonzero(level == worst)[0]
        there = xp.take(point, tied, axis=0)
        square = xp.sum(there * there, axis=1)[:, None]
        left = xp.astype(xp.concat([2.0 * there, -square], axis=1), self.dtype).T
        here = xp.astype(xp.take(point, others, axis=0), self.dtype)
        right = xp.concat([here, xp.ones((here.shape[0], 1), dtype=self.dtype)], axis=1)
        found = [
            xp.argmax(right[first:stop, :] @ left, axis=1) for first, stop in blocks(here.shape[0])
        ]
        target = xp.take(tied, xp.concat(found))
        place = xp.cumulative_sum(xp.astype(~own, xp.int64)) - 1
        return xp.where(own, column, xp.take(target, xp.where(own, 0, place)))

    def piece(self, eta: float, budget: float, target: Array) -> Piece:
        """Return the affine piece of M that belongs to a map."""
        return self._add_up(eta, budget, target, self.weigh(target))

    def _add_up(
        self, eta: float, budget: float, target: Array, weighed: tuple[Array, Array]
    ) -> Piece:
        xp, geometry = self.xp, self.geometry
        total = geometry.add_up(xp.stack([xp.sum(geometry.column_mass * each) for each in weighed]))
        return Piece(eta, float(total[0]), float(total[1]), budget, target)

    def move_all(self, eta: float, budget: float, held: Array) -> Piece:
        """Move every column to its best point at η: a full pass."""
        return self.piece(eta, budget, self.move_columns(None, held, eta))

    def move_freely(self, budget: float) -> Piece:
        """Move every column to its cheapest worst point: the piece at η = 0."""
        geometry, targets = self.geometry, []
        for label, (first, last) in enumerate(geometry.columns):
            column = geometry.column_point[first:last]
            targets.append(self.nearest_worst(label, column) if last > first else column)
        target = self.xp.concat(targets)
        # Nearly all columns go far, and hardly any of them stays there: not worth keeping.
        return self._add_up(0.0, budget, target, self._weigh(target, None))

    def stay(self, budget: float) -> Piece:
        """Return the piece of the map that moves nothing, at η = 0."""
        xp, column = self.xp, self.geometry.column_point
        gain = xp.concat(
            [
                xp.take(self.level[k], column[first:last])
                for k, (first, last) in enumerate(self.geometry.columns)
            ]
        )
        return self._add_up(0.0, budget, column, (gain, xp.zeros_like(gain)))


def has_many_pairs(geometry: Geometry) -> bool:
    """Tell whether pairs of points and columns, those of all processes, are many."""
    every = geometry.columns if geometry.portion is None else geometry.portion.columns
    return int(geometry.point.shape[0]) * every[-1][1] >= MANY_PAIRS


def blocks(n: int, size: int = BLOCK) -> list[tuple[int, int]]:
    """Return the (first, stop) of blocks of at most ``size`` that cover 0, …, n − 1."""
    return [(first, min(first + size, n)) for first in range(0, n, size)]
