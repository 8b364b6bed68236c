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

from tasks.train.individual.budro.partition import split_points

# Points of a block at most, where the table of bounds stays below ENTRIES.
LARGEST = 128
ENTRIES = 1 << 26
# Entries of a product of points and columns: 4 MiB of float32.
TILE = 1 << 20


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
        self,
        point: np.ndarray,
        column_point: np.ndarray,
        columns: tuple[tuple[int, int], ...],
    ) -> None:
        self.columns = columns
        largest = max(LARGEST, -(-point.shape[0] * column_point.size // ENTRIES))
        self.order, self.start = split_points(point, largest)
        self.stop = np.append(self.start[1:], point.shape[0])
        # Products lose least near the origin.
        centred = point - point.mean(axis=0)
        self.square = np.sum(centred * centred, axis=1)
        self.column_square = self.square[column_point]
        self._point, self._centred, self._column_point = point, centred, column_point
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
            point = self._centred[self.order]
            left = np.zeros((point.shape[0], point.shape[1] + 1 + n_labels), dtype=dtype)
            left[:, : -1 - n_labels] = 2.0 * point
            left[:, -1 - n_labels] = -self.square[self.order]
            own = self._centred[self._column_point]
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

    def improve(
        self,
        level: np.ndarray,
        chosen: np.ndarray | None,
        value: np.ndarray,
        eta: float | np.ndarray,
        dtype: str,
    ) -> np.ndarray:
        """Return the best point of columns, where it beats what they have.

        Parameters
        ----------
        level : float64 array of shape (n_points, n_labels)
            Largest loss of the rows at a point.
        chosen : int64 array of shape (m,), optional
            Columns in ascending order; all of them by default.
        value : float64 array of shape (m,)
            R − ηC of what they have.
        eta : float or float64 array of shape (m,)
            Price of the cost, above 0.
        dtype : {"float32", "float64"}
            Of the products.

        Returns
        -------
        int64 array of shape (m,)
            Points, or −1 where no point is better.

        Notes
        -----
        Rounding is on the safe side: a block is skipped only where the error of a product in
        single precision cannot hide a better point.
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
        best = ((value - shift) * price + square).astype(dtype)
        rise = [self._drift(weight, price, cuts, k) for k in range(n_labels)]
        return self._sweep(left, right, best, rise, cuts, chosen, weight, price)

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
        best: np.ndarray,
        rise: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]],
        cuts: list[tuple[int, int]],
        chosen: np.ndarray | None,
        weight: np.ndarray,
        price: np.ndarray,
    ) -> np.ndarray:
        """Go through the blocks and multiply those that can offer something."""
        n = best.size
        found = np.full(n, -1, dtype=np.int64)
        rough = best.astype(np.float32)
        limit, open_ = np.empty(n, dtype=np.float32), np.empty(n, dtype=bool)
        whole = chosen is None and price.size == 1
        for g, (first, stop) in enumerate(zip(self.start, self.stop, strict=True)):
            offer = self.table[g] if chosen is None else self.table[g][chosen]
            for (begin, end), (base, slope, place) in zip(cuts, rise, strict=True):
                if place is None:
                    np.subtract(rough[begin:end], np.float32(base[g]), out=limit[begin:end])
                else:
                    np.multiply(place, np.float32(-slope[g]), out=limit[begin:end])
                    limit[begin:end] += rough[begin:end] - np.float32(base[g])
            np.greater(offer, limit, out=open_)
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
                better = np.flatnonzero(largest > best[part])
                if better.size:
                    where = better + begin if renew else rows[begin:][better]
                    found[where] = first + product[:, better].argmax(axis=0)
                    best[where] = largest[better]
                    rough[where] = largest[better]
            if renew:
                self.weight[first:stop] = price[0] * weight[first:stop]
                self.spent[g] = 0.0
        return np.where(found < 0, found, self.order[found])

    def _error(self, length: int, g: int, part: slice | np.ndarray, scale: float) -> np.ndarray:
        """Return a bound of the rounding error of inner products in single precision."""
        unit = np.finfo(np.float32).eps / 2 * (length + 2)
        size = 2 * self.block_square[g] + scale + self.column_square[part]
        error: np.ndarray = (unit * size).astype(np.float32)
        return error


class Shelf:
    """Keeps the bounds of one geometry's columns; empty after a journey between processes."""

    def __init__(self) -> None:
        self.bounds: Bounds | None = None
        self._samples: dict[float, Shelf] = {}

    def require(
        self,
        point: np.ndarray,
        column_point: np.ndarray,
        columns: tuple[tuple[int, int], ...],
    ) -> Bounds:
        """Return the bounds of these columns, made where there are none or those of others."""
        kept = self.bounds
        if kept is None or not kept.belong_to(column_point, columns):
            kept = self.bounds = Bounds(point, column_point, columns)
        return kept

    def sample(self, share: float) -> Shelf:
        """Return the shelf of the sample of a share of these columns."""
        return self._samples.setdefault(share, Shelf())

    def __reduce__(self) -> tuple[type[Shelf], tuple[()]]:
        return Shelf, ()
