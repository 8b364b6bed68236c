"""The inner maximisation of BuDRO's dual: the best target of every column at a price of cost.

The rule for points that are equally good for a column: its own point, else the first.

Trees give many rows one loss, and categorical rows lie at equal distances, so that points often tie
in exact arithmetic. Rounding must not choose among them, since it depends on the order of rows and
on which columns are multiplied together.

The one-dimensional dual of a transport problem with a budget.

    M(η) = ηε + Σ_j m_j max_i (R_ij − η C_ij),   η ≥ 0                         (B.14)

is convex and piecewise affine: maximising over i at one η gives one of its affine pieces.

What a round's passes at several prices imply for the prices between them.

For column j, max_i (R_ij − η C_ij) is a maximum of lines in η, hence convex: a point that is best
at two prices is best at all between; so is one that ties with the best, by a tolerance concave in
η. So each further pass moves only columns whose targets differ at the nearest known prices, and the
lines that are best somewhere in an interval are found from its ends inwards, by what is best where
two neighbours cross.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace

from fairfrontier.models.individual.budro.geometry import TILE, Bounds, Geometry, round_off
from fairfrontier.runtime.arrays import count_free_bytes, to_numpy

Array = Any

# Values tie if they differ by less than this share of the scale in `Search.tolerance`: 4,500 units
# in the last place, above the rounding of sums of some thousand products and of an embedding.
TIE = 1e-12


def choose_first(owner: Array, point: Array, value: Array, own: Array, slack: Array) -> Array:
    """Return for each of m columns the first point whose value is within ``slack`` of the best.

    ``owner``, ``point`` and ``value`` list pairs of a column (0, …, m − 1, rising, all present), a
    candidate point and its value. A column's own point comes before all others, which come in
    rising order. Shapes: (n_pairs,), and (m,) of ``own``, ``slack`` and the result.
    """
    xp = array_namespace(owner)
    column = xp.arange(own.shape[0], device=device(owner))
    start = xp.searchsorted(owner, column)
    rank = xp.where(point == xp.take(own, owner), -1, point)
    if is_numpy_namespace(xp):
        enough = np.maximum.reduceat(value, start) - slack
        rank[value < enough[owner]] = np.iinfo(np.int64).max
        first = np.minimum.reduceat(rank, start)
    else:
        last = xp.searchsorted(owner, column, side="right") - 1
        enough = xp.take(value, xp.take(_sort(owner, value), last)) - slack
        rank = xp.where(value >= xp.take(enough, owner), rank, xp.max(point) + 1)
        first = xp.take(rank, xp.take(_sort(owner, rank), start))
    return xp.where(first < 0, own, first)


def _sort(owner: Array, values: Array) -> Array:
    """Return the order of pairs by owner, then by value."""
    xp = array_namespace(owner)
    rising = xp.argsort(values)
    return xp.take(rising, xp.argsort(xp.take(owner, rising), stable=True))


@dataclass(frozen=True, eq=False)
class Piece:
    """An affine piece of M, found at ``eta``, and the map Π that gives it.

    ``gain`` and ``cost`` are ⟨R, Π⟩ and ⟨C, Π⟩, ``budget`` is ε, and ``target`` is the map in the
    caller's own form. M(η) may exceed ``dual`` by ``slack``, since points that tie count as equal.
    """

    eta: float
    gain: float
    cost: float
    budget: float
    target: Array
    slack: float = 0.0

    @property
    def slope(self) -> float:
        """Subgradient ε − ⟨C, Π⟩ of M at η."""
        return self.budget - self.cost

    @property
    def dual(self) -> float:
        """M(η), up to ``slack``."""
        return self.gain + self.eta * self.slope

    @property
    def bound(self) -> float:
        """Upper bound of M(η)."""
        return self.dual + self.slack


@dataclass(frozen=True, eq=False)
class Minimum:
    """The minimum of M, as one or two maps with their shares of all mass.

    ``eta`` is the last η, ``dual`` the lowest M found and ``dual`` + ``slack`` an upper bound of
    the optimum; ``iterations`` counts pieces.
    """

    maps: tuple[tuple[float, Piece], ...]
    eta: float
    dual: float
    iterations: int
    converged: bool
    slack: float = 0.0

    @property
    def objective(self) -> float:
        """⟨R, Π⟩ of the mixture."""
        return sum(share * piece.gain for share, piece in self.maps)

    @property
    def cost(self) -> float:
        """⟨C, Π⟩ of the mixture."""
        return sum(share * piece.cost for share, piece in self.maps)


def minimise_dual(
    explore: Callable[[float, Array], Piece],
    zero: Piece,
    stay: Piece,
    *,
    start: tuple[float, Array] | None = None,
    tolerance: float = 1e-3,
    floor: float = 0.0,
    max_iterations: int = 100,
) -> Minimum:
    """Minimise M by its affine pieces, to a computed duality gap.

    The next η is where the pieces known on both sides of the minimum cross, and the maps of those
    two, mixed so that the cost is ε exactly, have that crossing's value as their objective: the
    gap is the distance from it to the lowest M(η) found.

    ``explore`` takes η and the last map, and returns the piece at η. ``zero`` is the piece at η = 0
    with the cheapest of the best maps, optimal if it is within the budget; ``stay`` that of the map
    that moves nothing. The search begins at ``start``, (η, map), or at the slope of the line from
    ``zero`` to ``stay``, and stops when the gap is at most ``tolerance`` times M − ``floor``, or
    without convergence after ``max_iterations`` pieces.
    """
    budget = zero.budget
    if budget == 0:
        return Minimum(((1.0, stay),), float("inf"), stay.gain, 0, converged=True)
    if zero.slope >= 0:
        return Minimum(((1.0, zero),), 0.0, zero.dual, 0, True, zero.slack)
    if start is not None:
        (eta, target), least, most = start, 1.02, 4.0
        # At the end of a search two maps usually tie; beside it, rounding does not decide.
        eta *= 1 + 1e-6
    else:
        eta, target = (zero.gain - stay.gain) / zero.cost, stay.target
        least = most = 4.0
    low: Piece = zero
    high: Piece | None = None
    # Until there is an upper end, only moving nothing is sure to be within the budget.
    maps: tuple[tuple[float, Piece], ...] = ((1.0, stay),)
    best, dual, converged, iteration = zero, zero.dual, False, 0
    while iteration < max_iterations and not converged:
        iteration += 1
        piece = explore(eta, target)
        target = piece.target
        if piece.dual < dual:
            best, dual = piece, piece.dual
        if piece.slope < 0:
            low = piece
        else:
            high = piece
        # On real rows costs fall about as 1/η⁴, so that this step likely brackets the minimum.
        ratio = max(piece.cost / budget, 1e-300)
        step = min(max(ratio ** (0.25 if piece is low else -0.25), least), most)
        if high is None:
            eta, least, most = eta * step, _speed_up(least), _speed_up(most)
            continue
        share = high.slope / (high.slope - low.slope)
        maps = ((share, low), (1 - share, high))
        gap = dual - share * low.gain - (1 - share) * high.gain
        converged = gap <= max(tolerance * abs(dual - floor), 1e-15 * abs(dual))
        if low is zero and least < 100:
            eta, least, most = eta / step, _speed_up(least), _speed_up(most)
        else:
            eta = _crossing(low, high)
    return Minimum(maps, piece.eta, dual, iteration, converged, best.slack)


def _speed_up(step: float) -> float:
    """Return the factor of the next step while no end is in sight; floats end at 1e308."""
    return min(step * step, 1e75)


def _crossing(low: Piece, high: Piece) -> float:
    """Return the η where two pieces cross, or the midpoint where rounding prevents it."""
    eta = (low.gain - high.gain) / (high.slope - low.slope)
    return eta if low.eta < eta < high.eta else (low.eta + high.eta) / 2


BLOCK = 64
# From so many pairs of points and columns, of a geometry or of chosen columns, bounds pay.
MANY_PAIRS = 1 << 22
# Entries of a product on a device, which is idle while it waits for the next.
DEVICE_TILE = 1 << 28
# Bytes of a device's free memory for each entry. It takes 5, or 28 where nearly all points tie, and
# other processes may use the device, too.
ROOM = 256
# Larger products are made in double precision: a hundredth of the largest single number.
SINGLE = 3e36
# Pairs that are compared in double precision at a time.
PAIRS = 1 << 14


@dataclass(frozen=True, eq=False)
class Candidates:
    """Points in falling order of one label's loss: only a prefix can beat what a column has."""

    level: Array  # (n_points,)
    order: Array  # (n_points,)
    descent: Array  # (n_points,) minus the sorted levels, ascending
    square: Array  # (n_points,) ‖z‖² in that order
    left: Array  # (n_points, k + 2) = [2z, −‖z‖² (1 − 2 unit), level] in that order
    unit: float  # relative error of a product
    size: float  # largest of the levels in ``left``


class Search:
    """The inner maximisation max_i (R_ij − η C_ij) for losses R_ij = loss[i, label of j].

    Of points whose values tie, see `tie`, a column takes its own or else the first. So its target
    depends on its point, its label and η alone: not on the order of rows, on its earlier target, or
    on the other columns of a call. Products are made in ``dtype``; points that these leave open,
    within their rounding error, are compared in float64.

    ``level`` has the largest loss of the rows at each point, per label. ``bounds`` is used with
    NumPy when pairs are many, and skips most pairs; otherwise a prefix of the points in falling
    order of loss is multiplied. Both find the same maxima.
    """

    def __init__(self, geometry: Geometry, loss: Array, dtype: str) -> None:
        xp = array_namespace(geometry.point)
        self.xp, self.geometry, self.loss = xp, geometry, loss
        self.dtype = getattr(xp, dtype)
        self.level = [geometry.find_largest(loss[:, k]) for k in range(geometry.n_labels)]
        self._listed: dict[tuple[int, Any], Candidates] = {}
        pairs = geometry.point.shape[0] * geometry.column_point.shape[0]
        self.bounds: Bounds | None = None
        if is_numpy_namespace(xp) and pairs >= MANY_PAIRS:
            self.bounds = geometry.bounds.require(
                geometry.point, geometry.column_point, geometry.columns
            )
            self._levels = np.stack(self.level, axis=1)
            self._centred, self._square = self.bounds.centred, self.bounds.square
            self._norm = self.bounds.norm
        else:
            # Products round least near the origin.
            self._centred = geometry.point - xp.mean(geometry.point, axis=0)
            self._square = xp.sum(self._centred * self._centred, axis=1)
            self._norm = xp.sqrt(xp.sum(geometry.point * geometry.point, axis=1))
        self._reach = 4.0 * max(1.0, float(xp.max(self._square)))
        self.size = max(float(xp.max(xp.abs(level))) for level in self.level)

    def tolerance(self, eta: float | Array, column: Array) -> Array:
        """Return by how much less than the best value ties with it at η, for columns at points.

        The last digits of z change C_ij = ‖z_i − z_j‖² in proportion to ‖z_i − z_j‖ ‖z_j‖, besides
        C_ij itself, and a point that beats a column's own has η C_ij ≤ 2 max |R|. So outliers, even
        pairs of them, do not widen the tolerance of the others. It is concave in η.
        """
        root = math.sqrt if isinstance(eta, float | int) else self.xp.sqrt
        return TIE * (self.size + root(eta * self.size) * self.xp.take(self._norm, column))

    def _tie_costs(self, cost: Array, column: Array) -> Array:
        """Return by how much more than the least cost ties with it, for columns at points."""
        return TIE * (cost + self.xp.sqrt(cost) * self.xp.take(self._norm, column))

    def _list(self, label: int, dtype: Any) -> Candidates:
        key = label, dtype
        if key not in self._listed:
            level = self.level[label]
            order = self.xp.argsort(level, descending=True)
            self._listed[key] = self._line_up(level, order, dtype)
        return self._listed[key]

    def _line_up(self, level: Array, order: Array, dtype: Any) -> Candidates:
        xp = self.xp
        sorted_level, square = xp.take(level, order), xp.take(self._square, order)
        # Centred at 0, since rounding errors of products are proportional to its size.
        centred = sorted_level - (xp.max(sorted_level) + xp.min(sorted_level)) / 2
        unit = round_off(float(xp.finfo(dtype).eps), self._centred.shape[1] + 2)
        least = (2 * unit - 1) * square
        sides = [2.0 * xp.take(self._centred, order, axis=0), least[:, None], centred[:, None]]
        left = xp.astype(xp.concat(sides, axis=1), dtype)
        size = float(xp.max(xp.abs(centred)))
        return Candidates(level, order, -sorted_level, square, left, unit, size)

    def value(self, label: int, column: Array, target: Array) -> tuple[Array, Array]:
        """Return (loss reached, cost paid) in float64 when columns move to target points."""
        xp, geometry = self.xp, self.geometry
        step = xp.take(geometry.point, target, axis=0) - xp.take(geometry.point, column, axis=0)
        return xp.take(self.level[label], target), xp.sum(step * step, axis=1)

    def weigh(self, target: Array, chosen: Array | None = None) -> tuple[Array, Array]:
        """Return (loss reached, cost paid) of columns of any label at target points (m,).

        ``chosen`` are column numbers, rising; all by default.
        """
        if chosen is None and self.bounds is not None:
            return self._levels[target, self.bounds.label], self.bounds.pay(target)
        return self._weigh(target, chosen)

    def _weigh(self, target: Array, chosen: Array | None) -> tuple[Array, Array]:
        column, cuts = self.cut_by_label(chosen)
        weighed = [self.value(k, column[a:b], target[a:b]) for k, (a, b) in enumerate(cuts)]
        gain, cost = (self.xp.concat(parts) for parts in zip(*weighed, strict=True))
        return gain, cost

    def cut_by_label(self, chosen: Array | None) -> tuple[Array, tuple[tuple[int, int], ...]]:
        """Return the points of columns and, per label, their range."""
        xp, geometry = self.xp, self.geometry
        if chosen is None:
            return geometry.column_point, geometry.columns
        column = xp.take(geometry.column_point, chosen)
        ends = [0, *(last for _, last in geometry.columns)]
        starts = xp.searchsorted(chosen, xp.asarray(ends, device=device(chosen)))
        stops = [int(start) for start in to_numpy(starts)]
        return column, tuple(itertools.pairwise(stops))

    def move_columns(self, chosen: Array | None, start: Array, eta: float | Array) -> Array:
        """Return the best target points of columns of any label, at one price or a price of each.

        ``chosen`` are column numbers, rising, possibly repeated; all by default. ``start`` are any
        points (m,): better ones save work.
        """
        if start.shape[0] == 0:
            return start
        pairs = start.shape[0] * self.geometry.point.shape[0]
        if self.bounds is not None and pairs >= MANY_PAIRS and np.min(eta) > 0:
            return self._prune(self.bounds, chosen, start, eta)
        return self._move(chosen, start, eta, self.dtype)

    def _move(self, chosen: Array | None, start: Array, eta: float | Array, dtype: Any) -> Array:
        column, cuts = self.cut_by_label(chosen)
        price = [eta if isinstance(eta, float | int) else eta[a:b] for a, b in cuts]
        return self.xp.concat(
            [
                self.move(k, column[a:b], start[a:b], price[k], dtype)
                for k, (a, b) in enumerate(cuts)
            ]
        )

    def _prune(
        self, bounds: Bounds, chosen: np.ndarray | None, start: np.ndarray, eta: float | np.ndarray
    ) -> np.ndarray:
        gain, cost = self.weigh(start, chosen)
        dtype = np.dtype(self.dtype).name
        column, cuts = self.cut_by_label(chosen)
        slack = self.tolerance(eta, column)
        value = gain - eta * cost
        pairs = bounds.propose(self._levels, chosen, cuts, value, slack, eta, dtype)
        if pairs is None:
            moved: np.ndarray = self._move(chosen, start, eta, self.xp.float64)
            return moved
        owner, point = pairs
        target: np.ndarray = start.copy()
        target[owner] = point
        # Most columns are offered one point only.
        several = np.bincount(owner, minlength=start.size)[owner] > 1
        owner, point = owner[several], point[several]
        order = np.argsort(owner, kind="stable")
        owner, point = owner[order], point[order]
        for k, (a, b) in enumerate(cuts):
            first, stop = np.searchsorted(owner, (a, b))
            if first < stop:
                columns, index = np.unique(owner[first:stop], return_inverse=True)
                price = np.broadcast_to(eta, start.shape)[columns]
                target[columns] = self._settle(
                    self.level[k], column[columns], price, slack[columns], index, point[first:stop]
                )
        return target

    def _settle(
        self, level: Array, column: Array, price: Array, slack: Array, owner: Array, point: Array
    ) -> Array:
        """Return the first of the best points of columns, among those of each ``owner``."""
        xp, values = self.xp, []
        for first, stop in blocks(owner.shape[0], PAIRS):
            columns, points = owner[first:stop], point[first:stop]
            step = xp.take(self.geometry.point, points, axis=0)
            step = step - xp.take(self.geometry.point, xp.take(column, columns), axis=0)
            cost = xp.sum(step * step, axis=1)
            values.append(xp.take(level, points) - xp.take(price, columns) * cost)
        return choose_first(owner, point, xp.concat(values), column, slack)

    def move(
        self, label: int, column: Array, start: Array, eta: float | Array, dtype: Any = None
    ) -> Array:
        """Return the best target points of columns of a label at η; of points that tie, the first.

        ``column`` are the columns' points and ``start`` any points, (m,), as in `move_columns`. At
        one price of 0 for all, the cheapest of the points that tie is best.

        Since costs are not negative, a point whose loss is below what a column has already cannot
        win: columns are sorted by that bound and values block multiplies a prefix only.
        """
        xp = self.xp
        if column.shape[0] == 0:
            return start
        if isinstance(eta, float | int):
            if eta == 0:
                return self.nearest_worst(label, column)
            eta = xp.full(column.shape, eta, dtype=xp.float64, device=device(column))
        dtype = self.dtype if dtype is None else dtype
        # Factors and sums must stay below the largest number of single precision.
        if float(xp.max(eta)) * self._reach > SINGLE:
            dtype = xp.float64
        listed = self._list(label, dtype)
        gain, cost = self.value(label, column, start)
        bound = gain - eta * cost - self.tolerance(eta, column)
        order = xp.argsort(bound, descending=True)
        column, bound, price = (xp.take(values, order) for values in (column, bound, eta))
        tiles = blocks(column.shape[0], self._width(listed.order.shape[0]))
        ends = xp.asarray([stop - 1 for _, stop in tiles], device=device(bound))
        prefix = xp.searchsorted(listed.descent, -xp.take(bound, ends), side="right")
        tasks = zip(tiles, to_numpy(prefix), strict=True)
        target = self._compare(listed, column, price, self.tolerance(price, column), tasks)
        return xp.take(target, xp.argsort(order))

    def _width(self, n_points: int) -> int:
        """Return how many columns to compare at once; more outside NumPy, to synchronise less."""
        if is_numpy_namespace(self.xp):
            return BLOCK
        room = count_free_bytes(self.geometry.point) / ROOM
        return max(BLOCK, int(min(DEVICE_TILE, room)) // n_points)

    def _compare(
        self,
        listed: Candidates,
        column: Array,
        price: Array,
        slack: Array | None,
        tasks: Iterable[tuple[tuple[int, int], int]],
    ) -> Array:
        """Return the best points of columns, whose blocks compare prefixes of the points.

        A product exceeds the value but for the error of its column, and by less than four units of
        η × the point's squared norm. Without a ``slack`` only costs are compared.
        """
        xp = self.xp
        right = xp.concat(
            [price[:, None] * xp.take(self._centred, column, axis=0), price[:, None]], axis=1
        )
        right = xp.concat([right, xp.ones_like(price)[:, None]], axis=1)
        right = xp.astype(right, listed.left.dtype)
        error = listed.unit * (price * xp.take(self._square, column) + listed.size)
        targets = []
        for (first, stop), length in tasks:
            product = right[first:stop, :] @ listed.left[: max(1, int(length)), :].T
            best = xp.argmax(product, axis=1)
            top = xp.take_along_axis(product, best[:, None], axis=1)[:, 0]
            top = xp.astype(top, xp.float64)
            top = top - 4 * listed.unit * price[first:stop] * xp.take(listed.square, best)
            target = xp.take(listed.order, best)
            points = column[first:stop]
            if slack is None:
                cost = xp.take(self._square, points) - top + error[first:stop]
                near = self._tie_costs(xp.where(cost > 0, cost, 0.0), points)
            else:
                near = slack[first:stop]
            enough = xp.astype(top - near - 2 * error[first:stop], product.dtype)
            flat = xp.nonzero(xp.reshape(product >= enough[:, None], (-1,)))[0]
            owner, position = flat // product.shape[1], flat % product.shape[1]
            point = xp.take(listed.order, position)
            if owner.shape[0] > target.shape[0]:
                several = _count_each(owner, target.shape[0]) > 1
                unsettled = xp.nonzero(several)[0]
                pairs = xp.nonzero(xp.take(several, owner))[0]
                tied = unsettled + first
                near = xp.take(near, unsettled)
                if slack is None:
                    own = xp.take(column, tied)
                    cost = self.value(0, own, xp.take(target, unsettled))[1]
                    near = self._tie_costs(cost, own)
                settled = self._settle(
                    listed.level,
                    xp.take(column, tied),
                    xp.take(price, tied),
                    near,
                    xp.searchsorted(unsettled, xp.take(owner, pairs)),
                    xp.take(point, pairs),
                )
                target = _spread(several, settled, target)
            targets.append(target)
        return xp.concat(targets)

    def nearest_worst(self, label: int, column: Array) -> Array:
        """Return, for columns, the cheapest among the points of the largest loss (η = 0).

        A column whose point is among them stays; of those that tie, the first is taken.
        """
        xp, level = self.xp, self.level[label]
        worst = level >= xp.max(level) - TIE * self.size
        own = xp.take(worst, column)
        others = xp.take(column, xp.nonzero(~own)[0])
        if others.shape[0] == 0:
            return column
        listed = self._line_up(xp.zeros_like(level), xp.nonzero(worst)[0], self.dtype)
        price = xp.ones(others.shape, dtype=xp.float64, device=device(level))
        length = listed.order.shape[0]
        tiles = blocks(others.shape[0], max(self._width(length), TILE // length))
        tasks = zip(tiles, itertools.repeat(length))
        target = self._compare(listed, others, price, None, tasks)
        return _spread(~own, target, column)

    def piece(self, eta: float, budget: float, target: Array) -> Piece:
        """Return the affine piece of M that belongs to a map."""
        return self._add_up(eta, budget, target, self.weigh(target))

    def _add_up(
        self, eta: float, budget: float, target: Array, weighed: tuple[Array, Array]
    ) -> Piece:
        xp, geometry = self.xp, self.geometry
        slack = self.tolerance(eta, geometry.column_point)
        total = geometry.add_up(
            xp.stack([xp.sum(geometry.column_mass * terms) for terms in (*weighed, slack)])
        )
        gain, cost, slack = map(float, total)
        return Piece(eta, gain, cost, budget, target, slack)

    def move_all(self, eta: float, budget: float, start: Array) -> Piece:
        """Move every column to its best point at η: a full pass."""
        return self.piece(eta, budget, self.move_columns(None, start, eta))

    def move_freely(self, budget: float) -> Piece:
        """Move every column to its cheapest worst point: the piece at η = 0."""
        geometry, targets = self.geometry, []
        for label, (first, last) in enumerate(geometry.columns):
            column = geometry.column_point[first:last]
            targets.append(self.nearest_worst(label, column) if last > first else column)
        target = self.xp.concat(targets)
        # Most columns go far here, and few keep their target: not worth caching.
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


def _count_each(owner: Array, n: int) -> Array:
    """Return how often each of 0, …, n − 1 occurs in rising numbers."""
    xp = array_namespace(owner)
    numbers = xp.arange(n, device=device(owner))
    return xp.searchsorted(owner, numbers, side="right") - xp.searchsorted(owner, numbers)


def _spread(mask: Array, values: Array, others: Array) -> Array:
    """Return ``others`` with ``values``, in order, at the places where ``mask`` is True."""
    xp = array_namespace(mask)
    position = xp.cumulative_sum(xp.astype(mask, xp.int64)) - 1
    return xp.where(mask, xp.take(values, xp.where(mask, position, 0)), others)


def count_operations(z: Array) -> float:
    """Return about how many operations a pass takes on NumPy, where bounds leave a hundredth."""
    return 0.01 * float(z.shape[0]) ** 2 * float(z.shape[1])


def has_many_pairs(geometry: Geometry) -> bool:
    """Return whether the pairs of points and columns, over all processes, are many."""
    columns = geometry.columns if geometry.portion is None else geometry.portion.columns
    return int(geometry.point.shape[0]) * columns[-1][1] >= MANY_PAIRS


def blocks(n: int, size: int = BLOCK) -> list[tuple[int, int]]:
    """Return the (first, stop) of blocks of at most ``size`` that cover 0, …, n − 1."""
    return [(first, min(first + size, n)) for first in range(0, n, size)]


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
