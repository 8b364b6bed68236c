"""The inner maximisation of BuDRO's dual: the best target of every column at a price of cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace, device

from tasks.runtime.arrays import to_numpy
from tasks.train.individual.budro.dual import Piece
from tasks.train.individual.budro.geometry import Geometry

Array = Any

BLOCK = 64


@dataclass(frozen=True, eq=False)
class Candidates:
    """Points in falling order of one label's loss: only a prefix can beat what a column has."""

    level: Array  # (n_points,) float64, largest loss of the rows at a point
    order: Array  # (n_points,)
    descent: Array  # (n_points,) minus the sorted levels, ascending
    left: Array  # (n_points, k + 2) = [2z, −‖z‖², level] in that order


class Search:
    """The inner maximisation max_i (R_ij − η C_ij) for given losses, in blocks of columns."""

    def __init__(self, geometry: Geometry, loss: Array, dtype: str) -> None:
        xp = array_namespace(geometry.point)
        self.xp, self.geometry, self.loss = xp, geometry, loss
        self.dtype = getattr(xp, dtype)
        self.square = xp.sum(geometry.point * geometry.point, axis=1)
        self.candidates = [self._sort(k) for k in range(geometry.n_labels)]

    def _sort(self, label: int) -> Candidates:
        xp, geometry = self.xp, self.geometry
        grouped = xp.take(self.loss[:, label], geometry.row_order)
        owner = xp.take(geometry.row_point, geometry.row_order)
        rising = xp.argsort(grouped)
        by_point = xp.take(rising, xp.argsort(xp.take(owner, rising), stable=True))
        level = xp.take(grouped, xp.take(by_point, geometry.point_stop - 1))
        order = xp.argsort(level, descending=True)
        sorted_level = xp.take(level, order)
        left = xp.concat(
            [
                2.0 * xp.take(geometry.point, order, axis=0),
                -xp.take(self.square, order)[:, None],
                sorted_level[:, None],
            ],
            axis=1,
        )
        return Candidates(level, order, -sorted_level, xp.astype(left, self.dtype))

    def value(self, label: int, column: Array, target: Array) -> tuple[Array, Array]:
        """Return (loss reached, cost paid) in float64 when columns move to target points."""
        xp, geometry = self.xp, self.geometry
        step = xp.take(geometry.point, target, axis=0) - xp.take(geometry.point, column, axis=0)
        return xp.take(self.candidates[label].level, target), xp.sum(step * step, axis=1)

    def move(self, label: int, column: Array, held: Array, eta: float) -> Array:
        """Return the best target point of columns at η, no worse than the one they hold.

        Parameters
        ----------
        label : int
            Label of the columns.
        column, held : int64 arrays of shape (m,)
            Points of the columns, and points that they hold so far.
        eta : float
            Price of the cost.

        Notes
        -----
        A point whose loss is below what a column has already cannot win, since costs are not
        negative: columns are sorted by that bound and each block multiplies a prefix only.
        """
        xp = self.xp
        if column.shape[0] == 0:
            return held
        listed = self.candidates[label]
        gain, cost = self.value(label, column, held)
        bound = gain - eta * cost
        order = xp.argsort(bound, descending=True)
        column, held, bound = (xp.take(each, order) for each in (column, held, bound))
        right = xp.concat(
            [
                eta * xp.take(self.geometry.point, column, axis=0),
                xp.full((column.shape[0], 1), eta, dtype=bound.dtype, device=device(bound)),
                xp.ones((column.shape[0], 1), dtype=bound.dtype, device=device(bound)),
            ],
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
        better = xp.where(gain - eta * cost > bound, new, held)
        return xp.take(better, xp.argsort(order))

    def nearest_worst(self, label: int, column: Array) -> Array:
        """Return, for columns, the cheapest among the points of the largest loss (η = 0)."""
        xp, listed = self.xp, self.candidates[label]
        tied = int(xp.searchsorted(listed.descent, listed.descent[:1], side="right")[0])
        left = listed.left[:tied, :-1].T
        point = xp.astype(xp.take(self.geometry.point, column, axis=0), self.dtype)
        right = xp.concat([point, xp.ones((point.shape[0], 1), dtype=self.dtype)], axis=1)
        found = [
            xp.argmax(right[first:stop, :] @ left, axis=1) for first, stop in blocks(point.shape[0])
        ]
        target = xp.take(listed.order, xp.concat(found))
        # A point that is itself among the worst stays where it is, whatever rounding says.
        own = xp.take(listed.level, column) == xp.max(listed.level)
        return xp.where(own, column, target)

    def piece(self, eta: float, budget: float, target: Array) -> Piece:
        """Return the affine piece of M that belongs to a map."""
        xp, geometry = self.xp, self.geometry
        gains, costs = [], []
        for label, (first, last) in enumerate(geometry.columns):
            gain, cost = self.value(label, geometry.column_point[first:last], target[first:last])
            gains.append(gain)
            costs.append(cost)
        sums = [xp.sum(geometry.column_mass * xp.concat(each)) for each in (gains, costs)]
        total = geometry.add_up(xp.stack(sums))
        return Piece(eta, float(total[0]), float(total[1]), budget, target)

    def move_all(self, eta: float, budget: float, held: Array) -> Piece:
        """Move every column to its best point at η: a full pass."""
        geometry, targets = self.geometry, []
        for label, (first, last) in enumerate(geometry.columns):
            column = geometry.column_point[first:last]
            targets.append(self.move(label, column, held[first:last], eta))
        return self.piece(eta, budget, self.xp.concat(targets))

    def move_freely(self, budget: float) -> Piece:
        """Move every column to its cheapest worst point: the piece at η = 0."""
        geometry, targets = self.geometry, []
        for label, (first, last) in enumerate(geometry.columns):
            column = geometry.column_point[first:last]
            targets.append(self.nearest_worst(label, column) if last > first else column)
        return self.piece(0.0, budget, self.xp.concat(targets))


def blocks(n: int, size: int = BLOCK) -> list[tuple[int, int]]:
    """Return the (first, stop) of blocks of at most ``size`` that cover 0, …, n − 1."""
    return [(first, min(first + size, n)) for first in range(0, n, size)]
