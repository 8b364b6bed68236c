"""What a block of points can offer to a column at most: kept over passes, prices and rounds.

In units of cost, a column of label k at price η takes the point of the largest

    a_ik − C_ij,   a_ik = R_ik / η.

Let W_gj be the largest of a block g at other weights a⁰. Today's is at most

    W_gj + max_{i∈g} (a_ik − a⁰_ik),

so that a block whose bound is below what a column has need not be looked at. What a round of
boosting or another price adds to all weights alike cancels, and points of a block are near each
other and drift alike. Elkan and Hamerly skip distances of k-means by such bounds.

References
----------
C. Elkan. Using the triangle inequality to accelerate k-means. ICML 2003.
"""

from __future__ import annotations

import numpy as np

from fairfrontier.train.individual.budro.partition import split_points

# Points of a block at most, where the table of bounds stays below ENTRIES.
LARGEST = 256
ENTRIES = 1 << 26
# Entries of a product of points and columns: 4 MiB of float32.
TILE = 1 << 20
# Pairs that may be best, besides some for each column, which are kept at most.
MANY = 1 << 20


class Bounds:
    """The table W, the weights a⁰ it was made at, and the products that keep both up to date.

    Parameters
    ----------
    point : float64 array of shape (n_points, k)
        Distinct points.
    column_point : int64 array of shape (n_columns,)
        Point of each column.
    columns : tuple of (first, last)
        Per label, the range of its columns.

    Notes
    -----
    The table has 4 bytes for each column and block, at most 2 ENTRIES of them. It holds for any
    losses, so whoever asks first only changes how much work the next one has; but one at a time.
    """

    def __init__(
        self, point: np.ndarray, column_point: np.ndarray, columns: tuple[tuple[int, int], ...]
    ) -> None:
        self.columns = columns
        largest = max(LARGEST, -(-point.shape[0] * column_point.size // ENTRIES))
        self.order, self.start = split_points(point, largest)
        self.stop = np.append(self.start[1:], point.shape[0])
        # Products lose least near the origin.
        centred = point - point.mean(axis=0)
        self.square = np.sum(centred * centred, axis=1)
        self.norm = np.sqrt(np.sum(point * point, axis=1))
        self.column_square = self.square[column_point]
        self._point, self.centred, self._column_point = point, centred, column_point
        self.label = np.repeat(np.arange(len(columns)), [last - first for first, last in columns])
        self._held, self._paid = column_point.copy(), np.zeros(column_point.size)
        self._sides: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        n_blocks, n_labels = self.start.size, len(columns)
        self.table = np.zeros((n_blocks, column_point.size), dtype=np.float32)
        self.weight = np.full((point.shape[0], n_labels), -np.inf)
        # Columns of a block that were looked at since its bounds were made.
        self.spent = np.zeros(n_blocks)
        self.block_square = np.maximum.reduceat(self.square[self.order], self.start)

    @property
    def blank(self) -> bool:
        """Whether no bounds have been made yet."""
        return bool(np.isinf(self.weight[0, 0]))

    def belong_to(self, column_point: np.ndarray, columns: tuple[tuple[int, int], ...]) -> bool:
        """Tell whether these are the bounds of such columns of the same points."""
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
        """Return what all columns pay at their targets, computed where those are new."""
        new = np.flatnonzero(target != self._held)
        step = self._point[target[new]] - self._point[self._column_point[new]]
        self._paid[new] = np.sum(step * step, axis=1)
        self._held[new] = target[new]
        return self._paid.copy()

    def propose(
        self,
        level: np.ndarray,
        chosen: np.ndarray | None,
        value: np.ndarray,
        slack: float | np.ndarray,
        eta: float | np.ndarray,
        dtype: str,
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return, for every column, all points that may be within ``slack`` of its best one.

        Parameters
        ----------
        level : float64 array of shape (n_points, n_labels)
            Largest loss of the rows at a point.
        chosen : int64 array of shape (m,), optional
            Columns in ascending order; all of them by default.
        value : float64 array of shape (m,)
            R − ηC of some point, below which nothing is looked for.
        slack : float or float64 array of shape (m,)
            By how much less than the best is as good, in units of the loss.
        eta : float or float64 array of shape (m,)
            Price of the cost, above 0.
        dtype : {"float32", "float64"}
            Of the products.

        Returns
        -------
        column, point : int64 arrays of shape (n_pairs,), optional
            Places among the chosen columns, in any order, and points. None where there are more
            than MANY of them, as when the price is too low for products of that precision.

        Notes
        -----
        Rounding is on the safe side: a block or a point is skipped only where the error of a
        product in that precision cannot hide as good a point.
        """
        left, right = self._factors(dtype)
        n_labels = len(self.columns)
        centre = (level.max(axis=0) + level.min(axis=0)) / 2
        weight = level[self.order] - centre
        left[:, -n_labels:] = weight
        # One for all columns, or one for each.
        price = 1.0 / np.atleast_1d(np.asarray(eta, dtype=np.float64))
        if chosen is not None:
            right = right[chosen]
        cuts = self._cut(chosen)
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
        column, place = offer.collect()
        return column, self.order[place]

    def _cut(self, chosen: np.ndarray | None) -> list[tuple[int, int]]:
        """Return the ranges of each label's columns among the chosen ones."""
        if chosen is None:
            return list(self.columns)
        return [
            (int(np.searchsorted(chosen, first)), int(np.searchsorted(chosen, last)))
            for first, last in self.columns
        ]

    def _drift(
        self, weight: np.ndarray, price: np.ndarray, cuts: list[tuple[int, int]], k: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return max_{i∈g} (a_ik − a⁰_ik) at the lowest 1/η, its rise to the highest, and where.

        It is convex in 1/η, hence below its chord.
        """
        first, last = cuts[k]
        prices = price if price.size == 1 else price[first:last]
        low, high = (prices.min(), prices.max()) if prices.size else (0.0, 0.0)
        ends = [
            np.maximum.reduceat(each * weight[:, k] - self.weight[:, k], self.start)
            for each in ((low,) if low == high else (low, high))
        ]
        # Single precision in the weights then and now, in what columns have, and in the difference.
        then = np.abs(self.weight[:, k]).max(where=np.isfinite(self.weight[:, k]), initial=0.0)
        size = high * np.abs(weight[:, k]).max() + then + self.block_square.max()
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
        cuts: list[tuple[int, int]],
        chosen: np.ndarray | None,
        weight: np.ndarray,
        price: np.ndarray,
    ) -> bool:
        """Go through the blocks and multiply those that can offer something, unless it is much."""
        n = offer.low.size
        limit, open_ = np.empty(n, dtype=np.float32), np.empty(n, dtype=bool)
        whole = chosen is None and price.size == 1
        for g, (first, stop) in enumerate(zip(self.start, self.stop, strict=True)):
            most = self.table[g] if chosen is None else self.table[g][chosen]
            for (begin, end), (base, slope, place) in zip(cuts, rise, strict=True):
                if place is None:
                    np.subtract(offer.rough[begin:end], np.float32(base[g]), out=limit[begin:end])
                else:
                    np.multiply(place, np.float32(-slope[g]), out=limit[begin:end])
                    limit[begin:end] += offer.rough[begin:end] - np.float32(base[g])
            np.greater(most, limit, out=open_)
            rows = np.flatnonzero(open_)
            self.spent[g] += rows.size
            # As dear as making the bounds anew: then they are made anew.
            renew = whole and (self.spent[g] >= n or 4 * rows.size >= n)
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

    A product differs from what it stands for by ``block_error`` of its block and ``error`` of its
    column at most. ``low`` is the largest value that a column is sure of, less slack and error.
    """

    def __init__(
        self, low: np.ndarray, error: np.ndarray, drop: np.ndarray, block_error: np.ndarray
    ) -> None:
        self.low, self.error, self.drop, self.block_error = low, error, drop, block_error
        # What a block must offer to be looked at.
        self.rough = (low + error).astype(np.float32)
        self.n_pairs = 0
        self._found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def take(
        self, product: np.ndarray, largest: np.ndarray, g: int, first: int, part: slice | np.ndarray
    ) -> None:
        """Keep what may be best of the products of a block, from ``first``, and some columns."""
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
            # Comparing the others too costs less than leaving them out.
            enough = np.full_like(largest, np.inf)
            enough[near] = low - slack
            column = np.arange(begin, begin + largest.size) if isinstance(part, slice) else part
        place, at = np.divmod(np.flatnonzero(product >= enough), enough.size)
        self._found.append((column[at], place + first, product[place, at] + slack))
        self.n_pairs += at.size

    def collect(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns and places of all pairs that may still be best."""
        column, place, most = (np.concatenate(each) for each in zip(*self._found, strict=True))
        keep = most >= self.low[column]
        return column[keep], place[keep]


def round_off(eps: float, length: int) -> float:
    """Return the relative error of inner products of a length, whose factors are rounded too."""
    return eps / 2 * (length + 4)


class BoundsCache:
    """Keeps the bounds of one geometry's columns; empty after a journey between processes."""

    def __init__(self) -> None:
        self.bounds: Bounds | None = None
        self._samples: dict[float, BoundsCache] = {}

    def require(
        self, point: np.ndarray, column_point: np.ndarray, columns: tuple[tuple[int, int], ...]
    ) -> Bounds:
        """Return the bounds of these columns, made where there are none or those of others."""
        kept = self.bounds
        if kept is None or not kept.belong_to(column_point, columns):
            kept = self.bounds = Bounds(point, column_point, columns)
        return kept

    def sample(self, share: float) -> BoundsCache:
        """Return the bounds of the sample of a share of these columns."""
        return self._samples.setdefault(share, BoundsCache())

    def __reduce__(self) -> tuple[type[BoundsCache], tuple[()]]:
        return BoundsCache, ()
