"""BuDRO's rows as points of the fair metric, which stay the same over the rounds.

Upper bounds of what a block of points offers to a column, kept over passes, prices and rounds.

In units of cost, a column of label k at price η takes the point of the largest

    a_ik − C_ij,   a_ik = R_ik / η.

Let W_gj be the largest of a block g at other weights a⁰. The present one is at most

    W_gj + max_{i∈g} (a_ik − a⁰_ik),

so that a block is skipped if its bound is below what a column has already. What a round of boosting
or another price adds to all weights alike cancels, and points of a block are near each other and
drift alike. Elkan and Hamerly skip distances of k-means by such bounds.

References
----------
C. Elkan. Using the triangle inequality to accelerate k-means. ICML 2003.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import DataError

# Largest number of points of a block, while the table of bounds stays below ENTRIES.
LARGEST = 256
ENTRIES = 1 << 26
# Entries of a product of points and columns: 4 MiB of float32.
TILE = 1 << 20
# Largest number of pairs that are kept, besides some for each column.
MANY = 1 << 20
# Rows, about, by which the coordinates of more of them are judged.
SPREAD = 1 << 20


class Bounds:
    """The table W, the weights a⁰ it was made at, and the products that keep both up to date.

    ``point`` (n_points, k) are distinct, ``column_point`` (n_columns,) is the point of each column,
    and ``columns`` the range of each label's columns. The table has 4 bytes per column and block,
    at most 2 ENTRIES of them. It is valid for any losses: earlier use changes only the amount of
    work. Not to be shared by threads.
    """

    def __init__(
        self, point: np.ndarray, column_point: np.ndarray, columns: tuple[tuple[int, int], ...]
    ) -> None:
        self.columns = columns
        largest = max(LARGEST, -(-point.shape[0] * column_point.size // ENTRIES))
        self.order, self.start = split_points(point, largest)
        self.stop = np.append(self.start[1:], point.shape[0])
        # Products round least near the origin.
        centred = point - point.mean(axis=0)
        self.square = np.sum(centred * centred, axis=1)
        self.norm = np.sqrt(np.sum(point * point, axis=1))
        self.column_square = self.square[column_point]
        self._point, self.centred, self._column_point = point, centred, column_point
        self.label = np.repeat(np.arange(len(columns)), [last - first for first, last in columns])
        self._target, self._paid = column_point.copy(), np.zeros(column_point.size)
        self._sides: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        n_blocks, n_labels = self.start.size, len(columns)
        self.table = np.zeros((n_blocks, column_point.size), dtype=np.float32)
        self.weight = np.full((point.shape[0], n_labels), -np.inf)
        # Columns of a block that were multiplied since its bounds were made.
        self.spent = np.zeros(n_blocks)
        self.block_square = np.maximum.reduceat(self.square[self.order], self.start)

    @property
    def blank(self) -> bool:
        """Whether no bounds have been made yet."""
        return bool(np.isinf(self.weight[0, 0]))

    def belong_to(self, column_point: np.ndarray, columns: tuple[tuple[int, int], ...]) -> bool:
        """Return whether these are the bounds of such columns of the same points."""
        return columns == self.columns and np.array_equal(column_point, self._column_point)

    def _factors(self, dtype: str) -> tuple[np.ndarray, np.ndarray]:
        """Return [2z, −‖z‖², levels] of points by block and [z, 1, 1/η of the label] of columns."""
        if dtype not in self._sides:
            n_labels = len(self.columns)
            point = self.centred[self.order]
            left = np.zeros((point.shape[0], point.shape[1] + 1 + n_labels), dtype=dtype)
            left[:, : -1 - n_labels] = 2.0 * point
            left[:, -1 - n_labels] = -self.square[self.order]
            own = self.centred[self._column_point]
            right = np.zeros((own.shape[0], left.shape[1]), dtype=dtype)
            right[:, : -1 - n_labels] = own
            right[:, -1 - n_labels] = 1.0
            self._sides = {dtype: (left, right)}
        return self._sides[dtype]

    def pay(self, target: np.ndarray) -> np.ndarray:
        """Return the costs of all columns at their targets, recomputed where those are new."""
        new = np.flatnonzero(target != self._target)
        step = self._point[target[new]] - self._point[self._column_point[new]]
        self._paid[new] = np.sum(step * step, axis=1)
        self._target[new] = target[new]
        return self._paid.copy()

    def propose(
        self,
        level: np.ndarray,
        chosen: np.ndarray | None,
        cuts: Sequence[tuple[int, int]],
        value: np.ndarray,
        slack: float | np.ndarray,
        eta: float | np.ndarray,
        dtype: str,
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return all pairs of a column and a point that may be within ``slack`` of its best value.

        ``level`` is the largest loss at each point, (n_points, n_labels); ``chosen`` are column
        numbers, ascending, or None for all, and ``cuts`` each label's range among them; ``value``,
        ``slack`` and ``eta`` > 0 belong to them, (m,) or one for all. Points below ``value`` =
        R − ηC of a known point are not looked for.

        The pairs are two arrays: places among the chosen columns, in any order, and points. None if
        there are more than MANY, as when the price is too low for products in ``dtype``. A point is
        skipped only if rounding in that precision cannot hide as good a point.
        """
        left, right = self._factors(dtype)
        n_labels = len(self.columns)
        centre = (level.max(axis=0) + level.min(axis=0)) / 2
        weight = level[self.order] - centre
        left[:, -n_labels:] = weight
        # One price for all columns, or one for each.
        price = 1.0 / np.atleast_1d(np.asarray(eta, dtype=np.float64))
        if chosen is not None:
            right = right[chosen]
        for k, (first, last) in enumerate(cuts):
            inverse = price if price.size == 1 else price[first:last]
            right[first:last, -n_labels:] = 0.0
            right[first:last, k - n_labels] = inverse
        square = self.column_square if chosen is None else self.column_square[chosen]
        shift = np.repeat(centre, [last - first for first, last in cuts])
        unit = round_off(float(np.finfo(dtype).eps), left.shape[1])
        error = unit * (square + price * np.abs(weight).max())
        offer = _Offer(
            low=((value - slack - shift) * price + square - error).astype(dtype),
            error=error.astype(dtype),
            drop=(2 * error + slack * price).astype(dtype),
            block_error=2 * unit * self.block_square,
        )
        rise = [self._drift(weight, price, cuts, k) for k in range(n_labels)]
        if not self._sweep(left, right, offer, rise, cuts, chosen, weight, price):
            return None
        column, index = offer.collect()
        return column, self.order[index]

    def _drift(
        self, weight: np.ndarray, price: np.ndarray, cuts: Sequence[tuple[int, int]], k: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return max_{i∈g} (a_ik − a⁰_ik) at the lowest 1/η, its rise to the highest, and places.

        It is convex in 1/η, hence below its chord; the last array places each column's 1/η on it.
        """
        first, last = cuts[k]
        prices = price if price.size == 1 else price[first:last]
        low, high = (prices.min(), prices.max()) if prices.size else (0.0, 0.0)
        ends = [
            np.maximum.reduceat(end * weight[:, k] - self.weight[:, k], self.start)
            for end in ((low,) if low == high else (low, high))
        ]
        # Single precision in both weights, in what columns have, and in the difference.
        old = np.abs(self.weight[:, k]).max(where=np.isfinite(self.weight[:, k]), initial=0.0)
        size = high * np.abs(weight[:, k]).max() + old + self.block_square.max()
        slack = 4 * np.finfo(np.float32).eps * size
        if low == high:
            return ends[0] + slack, np.zeros_like(ends[0]), None
        known = np.isfinite(ends[0])
        slope = np.where(known, ends[1], 0.0) - np.where(known, ends[0], 0.0)
        return ends[0] + slack, slope, ((prices - low) / (high - low)).astype(np.float32)

    def _sweep(
        self,
        left: np.ndarray,
        right: np.ndarray,
        offer: _Offer,
        rise: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]],
        cuts: Sequence[tuple[int, int]],
        chosen: np.ndarray | None,
        weight: np.ndarray,
        price: np.ndarray,
    ) -> bool:
        """Multiply the blocks that may offer something; return False once pairs are too many."""
        n = offer.low.size
        limit, is_open = np.empty(n, dtype=np.float32), np.empty(n, dtype=bool)
        complete = chosen is None and price.size == 1
        for g, (first, stop) in enumerate(zip(self.start, self.stop, strict=True)):
            most = self.table[g] if chosen is None else self.table[g][chosen]
            for (begin, end), (base, slope, position) in zip(cuts, rise, strict=True):
                if position is None:
                    np.subtract(offer.rough[begin:end], np.float32(base[g]), out=limit[begin:end])
                else:
                    np.multiply(position, np.float32(-slope[g]), out=limit[begin:end])
                    limit[begin:end] += offer.rough[begin:end] - np.float32(base[g])
            np.greater(most, limit, out=is_open)
            rows = np.flatnonzero(is_open)
            self.spent[g] += rows.size
            # By now this costs as much as renewing the bounds.
            renew = complete and (self.spent[g] >= n or 4 * rows.size >= n)
            width = max(1, TILE // int(stop - first))
            scale = price[0] * np.abs(weight[first:stop]).max()
            for begin in range(0, n if renew else rows.size, width):
                part: slice | np.ndarray = slice(begin, min(begin + width, n))
                if not renew:
                    part = rows[begin : begin + width]
                product = left[first:stop] @ right[part].T
                largest = product.max(axis=0)
                if renew:
                    self.table[g, part] = largest + self._error(right.shape[1], g, part, scale)
                offer.take(product, largest, g, int(first), part)
            if renew:
                self.weight[first:stop] = price[0] * weight[first:stop]
                self.spent[g] = 0.0
            if offer.n_pairs > MANY + 16 * n:
                return False
        return True

    def _error(self, length: int, g: int, part: slice | np.ndarray, scale: float) -> np.ndarray:
        """Return a bound of the rounding error of inner products in single precision."""
        unit = round_off(float(np.finfo(np.float32).eps), length)
        size = 2 * self.block_square[g] + scale + self.column_square[part]
        error: np.ndarray = (unit * size).astype(np.float32)
        return error


class _Offer:
    """What columns have been offered: points whose product is near the largest one so far.

    A product is off by at most ``block_error`` of its block plus ``error`` of its column. ``low``
    is the largest value that a column is sure of, less slack and error.
    """

    def __init__(
        self, low: np.ndarray, error: np.ndarray, drop: np.ndarray, block_error: np.ndarray
    ) -> None:
        self.low, self.error, self.drop, self.block_error = low, error, drop, block_error
        # What a block must offer to be multiplied.
        self.rough = (low + error).astype(np.float32)
        self.n_pairs = 0
        self._pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def take(
        self, product: np.ndarray, largest: np.ndarray, g: int, first: int, part: slice | np.ndarray
    ) -> None:
        """Keep the candidates among the products of a block, from ``first``, and some columns."""
        slack = self.low.dtype.type(self.block_error[g])
        near = np.flatnonzero(largest >= self.low[part] - slack)
        if not near.size:
            return
        begin = part.start if isinstance(part, slice) else 0
        column = near + begin if isinstance(part, slice) else part[near]
        low = np.maximum(self.low[column], largest[near] - slack - self.drop[column])
        self.low[column] = low
        self.rough[column] = low + self.error[column]
        if 4 * near.size < largest.size:
            product, enough = product.take(near, axis=1), low - slack
        else:
            # Comparing the others too costs less than removing them.
            enough = np.full_like(largest, np.inf)
            enough[near] = low - slack
            column = np.arange(begin, begin + largest.size) if isinstance(part, slice) else part
        index, at = np.divmod(np.flatnonzero(product >= enough), enough.size)
        self._pairs.append((column[at], index + first, product[index, at] + slack))
        self.n_pairs += at.size

    def collect(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns and places of all pairs that may still be best."""
        column, index, most = (np.concatenate(parts) for parts in zip(*self._pairs, strict=True))
        keep = most >= self.low[column]
        return column[keep], index[keep]


def round_off(eps: float, length: int) -> float:
    """Return the relative error of inner products of a length, with rounded factors."""
    return eps / 2 * (length + 4)


class BoundsCache:
    """Keeps the bounds of one geometry's columns, and its layouts; empty after pickling."""

    def __init__(self) -> None:
        self.bounds: Bounds | None = None
        # By number of sources, for `restricted`.
        self.layouts: dict[int, Any] = {}
        self._samples: dict[float, BoundsCache] = {}

    def require(
        self, point: np.ndarray, column_point: np.ndarray, columns: tuple[tuple[int, int], ...]
    ) -> Bounds:
        """Return the bounds of these columns, made if there are none of these yet."""
        bounds = self.bounds
        if bounds is None or not bounds.belong_to(column_point, columns):
            bounds = self.bounds = Bounds(point, column_point, columns)
        return bounds

    def sample(self, share: float) -> BoundsCache:
        """Return the cache of the sample of a share of these columns."""
        return self._samples.setdefault(share, BoundsCache())

    def __reduce__(self) -> tuple[type[BoundsCache], tuple[()]]:
        return BoundsCache, ()


def split_points(
    point: np.ndarray, largest: int, number: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Cut points (n, k) in two across the coordinate of largest variance, and so on.

    Returns the points block by block, or those of the rows ``number``, and where each block of at
    most ``largest`` points begins in that order. Costs O(n k log n) operations, and memory of O(n)
    and ``SPREAD`` points. A cut does not separate points of equal coordinate if a cut nearby does
    not, so that a category stays together.
    """
    order = np.arange(point.shape[0]) if number is None else number.copy()
    ranges, start = [(0, order.size)], []
    while ranges:
        first, stop = ranges.pop()
        if stop - first <= largest:
            start.append(first)
            continue
        members = order[first:stop]
        axis = int(np.argmax(point[members[:: 1 + members.size // SPREAD]].var(axis=0)))
        value = point[members, axis]
        rising = np.argsort(value, kind="stable")
        order[first:stop] = members[rising]
        cut = first + _find_gap(value[rising])
        ranges += [(first, cut), (cut, stop)]
    return order, np.sort(np.asarray(start, dtype=np.int64))


def _find_gap(sorted_values: np.ndarray) -> int:
    """Return the index nearest to the middle where the value changes, or the middle."""
    half = sorted_values.size // 2
    left, right = (
        int(np.searchsorted(sorted_values, sorted_values[half], side=side))
        for side in ("left", "right")
    )
    near, far = (left, right) if half - left <= right - half else (right, left)
    for cut in (near, far):
        if 0 < cut < sorted_values.size:
            return cut
    return half


Array = Any

# Coordinates closer than this are equal: projecting coincident rows leaves different last digits,
# which also depend on the other rows.
SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Portion:
    """The columns that one of several processes moves; each has all points.

    ``number`` are their indices among all columns, rising, and ``columns`` the range of each label
    in all columns. ``add_up`` returns the sum of a float64 ndarray over the processes, to the same
    bits on each of them.
    """

    number: np.ndarray
    columns: tuple[tuple[int, int], ...]
    add_up: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Geometry:
    """What stays the same over the rounds: distinct points, and columns merged by (point, label).

    ``point`` (n_points, k) are the distinct embedded rows. ``row_point`` and ``row_column``
    (n_samples,) give the point and the merged column of each row, or -1 for a column of another
    process. ``row_order`` are rows sorted by point, and ``point_stop`` (n_points,) the end of each
    point in that order. Columns are sorted by label: ``columns`` has their range per label,
    ``column_point`` and ``column_mass`` (n_columns,) their point and the sum of merged masses m_j;
    ``row_mass`` are the m_j of rows. ``portion`` says which of all columns these are, if not all,
    and ``bounds`` keeps what speeds up the next pass of `search`.
    """

    point: Array
    row_point: Array
    row_column: Array
    row_order: Array
    point_stop: Array
    columns: tuple[tuple[int, int], ...]
    column_point: Array
    column_mass: Array
    row_mass: Array
    portion: Portion | None = None
    bounds: BoundsCache = field(repr=False, default_factory=BoundsCache)

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.columns)

    def find_largest(self, values: Array) -> Array:
        """Return the largest of the rows' values at each point."""
        xp = array_namespace(self.point)
        grouped = xp.take(values, self.row_order)
        if is_numpy_namespace(xp):
            return np.maximum.reduceat(grouped, np.append(0, self.point_stop[:-1]))
        owner = xp.take(self.row_point, self.row_order)
        rising = xp.argsort(grouped)
        by_point = xp.take(rising, xp.argsort(xp.take(owner, rising), stable=True))
        return xp.take(grouped, xp.take(by_point, self.point_stop - 1))

    def add_up(self, values: Array) -> Array:
        """Return sums over these columns as sums over all of them."""
        if self.portion is None:
            return values
        total = self.portion.add_up(np.asarray(to_numpy(values), dtype=np.float64))
        return array_namespace(self.point).asarray(total, device=device(self.point))


def build_geometry(
    z: Array, label: Array, *, n_labels: int | None = None, mass: Array | None = None
) -> Geometry:
    """Merge coincident rows and columns, once for all rounds, on the backend of ``z``.

    ``z`` (n_samples, k) are embedded rows with fair distance ‖z_i − z_j‖²; rows whose coordinates
    agree, to SAME, are one point. ``label`` are codes 0..n_labels-1, and ``mass`` the column masses
    m_j > 0, 1/n by default. Costs one lexicographic sort on the host, O(n k log n), and O(n k)
    memory.

    Raises
    ------
    DataError
        When a coordinate is not finite.
    """
    xp = array_namespace(z)
    rows, codes = to_numpy(z), to_numpy(label).astype(np.int64)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise DataError(
            f"The embedding of row {int(np.argmin(finite))} is not finite.",
            "Give rows, and a metric, of finite numbers.",
        )
    n_samples = rows.shape[0]
    masses = np.full(n_samples, 1.0 / n_samples) if mass is None else to_numpy(mass)
    point, row_point = np.unique(snap_coordinates(rows), axis=0, return_inverse=True)
    row_point = row_point.reshape(-1)
    pair, row_column = np.unique(codes * point.shape[0] + row_point, return_inverse=True)
    row_column = row_column.reshape(-1)
    total = max(2, int(codes.max()) + 1) if n_labels is None else n_labels
    bounds = np.searchsorted(pair, np.arange(total + 1) * point.shape[0])
    stop = np.cumsum(np.bincount(row_point, minlength=point.shape[0]))

    def move(values: np.ndarray, kind: str) -> Array:
        return xp.asarray(values.astype(kind), device=device(z))

    return Geometry(
        point=move(point, "float64"),
        row_point=move(row_point, "int64"),
        row_column=move(row_column, "int64"),
        row_order=move(np.argsort(row_point, kind="stable"), "int64"),
        point_stop=move(stop, "int64"),
        columns=tuple((int(a), int(b)) for a, b in itertools.pairwise(bounds)),
        column_point=move(pair % point.shape[0], "int64"),
        column_mass=move(np.bincount(row_column, weights=masses), "float64"),
        row_mass=move(masses, "float64"),
    )


def snap_coordinates(rows: np.ndarray) -> np.ndarray:
    """Replace each coordinate by the lowest of those it agrees with, directly or in a chain.

    Coordinates that differ in their last digits become equal. Unlike rounding to decimals, the
    result does not depend on these digits.
    """
    snapped = np.empty_like(rows)
    for axis in range(rows.shape[1]):
        rising = np.sort(rows[:, axis])
        lowest = rising[np.append(True, np.diff(rising) > SAME)]
        snapped[:, axis] = lowest[np.searchsorted(lowest, rows[:, axis], side="right") - 1]
    # Turns negative zeros into zeros.
    return snapped + 0.0


def keep_columns(
    geometry: Geometry, number: np.ndarray, add_up: Callable[[np.ndarray], np.ndarray]
) -> Geometry:
    """Keep the columns of one process, whose numbers rise; all rows and points stay.

    With ``add_up`` as in `Portion`, the solvers run in step on all
    processes and return the weights, costs and certificates of all columns; ``destination`` is that
    of the kept columns.
    """
    xp = array_namespace(geometry.point)

    def move(values: np.ndarray) -> Array:
        return xp.asarray(values.astype(np.int64), device=device(geometry.point))

    ends = [0, *(last for _, last in geometry.columns)]
    new_number = np.full(ends[-1], -1)
    new_number[number] = np.arange(number.size)
    chosen = move(number)
    return replace(
        geometry,
        row_column=move(new_number[to_numpy(geometry.row_column)]),
        columns=tuple(
            (int(a), int(b)) for a, b in itertools.pairwise(np.searchsorted(number, ends))
        ),
        column_point=xp.take(geometry.column_point, chosen),
        column_mass=xp.take(geometry.column_mass, chosen),
        portion=Portion(number, geometry.columns, add_up),
        bounds=BoundsCache(),
    )


def sample_columns(geometry: Geometry, share: float) -> Geometry:
    """Keep a share in (0, 1] of the columns of every label, evenly spaced, with the mass of all.

    At least one column of each label is kept. Only for choosing η: ``row_column`` is no longer
    valid.
    """
    xp, portion = array_namespace(geometry.point), geometry.portion
    chosen, columns, total = [], [], 0
    for first, last in geometry.columns if portion is None else portion.columns:
        size = min(last - first, max(1, round(share * (last - first))))
        numbers = first + ((np.arange(size) + 0.5) * (last - first) / max(size, 1)).astype(np.int64)
        if portion is not None:
            numbers = np.flatnonzero(np.isin(portion.number, numbers))
        chosen.append(xp.asarray(numbers, device=device(geometry.point)))
        columns.append((total, total + numbers.size))
        total += numbers.size
    masses = [xp.take(geometry.column_mass, numbers) for numbers in chosen]
    total_mass = [xp.sum(geometry.column_mass[first:last]) for first, last in geometry.columns]
    sums = geometry.add_up(xp.stack([*total_mass, *(xp.sum(mass) for mass in masses)]))
    n = geometry.n_labels
    masses = [
        mass * (sums[k] / sums[n + k]) if mass.shape[0] else mass for k, mass in enumerate(masses)
    ]
    return replace(
        geometry,
        columns=tuple(columns),
        column_point=xp.take(geometry.column_point, xp.concat(chosen)),
        column_mass=xp.concat(masses),
        bounds=geometry.bounds.sample(share),
    )
