"""Rows arranged for full-batch training: equal ones merged, sorted by label and group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfrontier.runtime.arrays import array_namespace

Array = Any

# Merged rows that are converted at a time.
BLOCK_ROWS = 1 << 12


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """A table whose rows of one label and group are adjacent.

    ``weight`` ω > 0 sums to 1, ``total`` before it was normalised; ``weighted`` is ω x, shape (n,
    d), so that gradients are one product. Rows ``borders[y m + k]`` to ``borders[y m + k + 1]``
    have label y and group k.
    """

    x: Array
    weight: Array
    weighted: Array
    borders: tuple[int, ...]
    n_groups: int
    total: float

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.borders[-1]

    def cell(self, label: int, group: int) -> slice:
        """Return the rows of a label and a group."""
        index = label * self.n_groups + group
        return slice(self.borders[index], self.borders[index + 1])

    def event(self, label: int) -> slice:
        """Return the rows of a label."""
        m = self.n_groups
        return slice(self.borders[label * m], self.borders[(label + 1) * m])


def arrange_rows(
    X: np.ndarray,
    y: np.ndarray,
    codes: np.ndarray,
    n_groups: int,
    weight: np.ndarray,
    dtype: str = "float32",
) -> GroupedRows:
    """Sort rows by label (0, 1) and group (0, …, n_groups − 1), and merge those that are equal.

    Rows of weight 0 are dropped. The result is the same for any order of the rows, and for weights
    or as many repetitions.

    Notes
    -----
    O(n d + n log n). Rows are sorted by two 64-bit hashes of their bytes and merged where the bytes
    agree; of binned tables about half the rows remain (Adult: 16,300 of 29,305). Holds two copies
    of the table in float64 beside what it returns.
    """
    kept = weight > 0
    if not kept.all():
        X, y, codes, weight = X[kept], y[kept], codes[kept], weight[kept]
    # Adding 0 turns −0 into 0.
    table = np.ascontiguousarray(X, dtype=np.float64) + 0.0
    words = table.view(np.uint64)
    factor = np.random.default_rng(0).integers(1, 2**63, (2, words.shape[1]), dtype=np.uint64) * 2
    with np.errstate(over="ignore"):
        first, second = (_mix(words, odd + np.uint64(1)) for odd in factor)
    order = np.lexsort((second, first, codes, y))
    table, y, codes, weight = table[order], y[order], codes[order], weight[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(y) != 0) | (np.diff(codes) != 0) | (table[1:] != table[:-1]).any(axis=1)
    starts = np.flatnonzero(new)
    # Sorted within a run, so that the order of the rows does not affect the last bit.
    weight = weight[np.lexsort((weight, np.cumsum(new)))]
    merged = np.add.reduceat(weight, starts)
    counts = np.bincount(y[starts] * n_groups + codes[starts], minlength=2 * n_groups)
    total = float(weight.sum())
    share = merged / total
    x = np.empty((len(starts), table.shape[1]), dtype=dtype)
    weighted = np.empty_like(x)
    for begin in range(0, len(starts), BLOCK_ROWS):
        block = slice(begin, begin + BLOCK_ROWS)
        chosen = table[starts[block]]
        x[block] = chosen
        weighted[block] = chosen * share[block, None]
    return GroupedRows(
        x,
        share.astype(dtype),
        weighted,
        tuple(int(odd) for odd in np.concatenate([[0], np.cumsum(counts)])),
        n_groups,
        total,
    )


def _mix(words: np.ndarray, factor: np.ndarray) -> np.ndarray:
    mixed = np.zeros(len(words), dtype=np.uint64)
    for column, odd in zip(words.T, factor, strict=True):
        mixed = (mixed ^ column) * odd
        mixed ^= mixed >> np.uint64(29)
    return mixed


@dataclass(frozen=True, eq=False)
class Sums:
    """Σ ω (1 + φ)₊, Σ ω (1 − φ)₊ and Σ ω over the rows of groups and cells 2ŷ + y, (M, m, 4)."""

    up: Array
    down: Array
    count: Array


def sum_scores(rows: GroupedRows, score: Array) -> Sums:
    """Sum the scores φ (M, n) over groups and cells.

    Five passes over the scores and as many products with the weights, one label and group at a
    time. Sums by decision are differences: on the side where a hinge is linear, Σ ω φ determines
    it.
    """
    xp = array_namespace(score)
    ups: list[Array] = []
    downs: list[Array] = []
    counts: list[Array] = []
    for group in range(rows.n_groups):
        halves = []
        for label in (0, 1):
            cell = rows.cell(label, group)
            phi, weight = score[:, cell], rows.weight[cell]
            total = xp.sum(weight)
            above = xp.astype(phi >= 0, phi.dtype) @ weight
            high = xp.maximum(phi, 0.0) @ weight
            # Rounding must not make the number of rows negative.
            above = xp.minimum(above, total)
            below, low = total - above, phi @ weight - high
            up = total + xp.maximum(phi, -1.0) @ weight
            down = total - xp.minimum(phi, 1.0) @ weight
            halves.append(
                (
                    (up - above - high, above + high),
                    (below - low, down - below + low),
                    (below, above),
                )
            )
        for kind, tables in enumerate((ups, downs, counts)):
            cells = [halves[label][kind][decision] for decision in (0, 1) for label in (0, 1)]
            tables.append(xp.stack(cells, axis=-1))
    up, down, count = (
        xp.astype(xp.stack(tables, axis=1), xp.float64) for tables in (ups, downs, counts)
    )
    return Sums(up, down, count)


def fill_slopes(
    rows: GroupedRows, score: Array, rise: Array, fall: Array, *, by_decision: bool
) -> Array:
    """Return U 1{φ > −1} − D 1{φ < 1}, the slopes of U (1 + φ)₊ + D (1 − φ)₊, shape (M, n).

    ``rise`` and ``fall``, shape (M, m, 4), are U and D of each group and cell. ``by_decision`` says
    whether they depend on the decision, which takes a further pass.
    """
    xp = array_namespace(score)
    slope = xp.empty_like(score)
    rise, fall = xp.astype(rise, score.dtype), xp.astype(fall, score.dtype)
    for label in (0, 1):
        for group in range(rows.n_groups):
            cell = rows.cell(label, group)
            phi = score[:, cell]
            below, above = label, 2 + label
            part = xp.astype(phi > -1, phi.dtype) * rise[:, group, below : below + 1]
            part += xp.astype(phi >= 1, phi.dtype) * fall[:, group, above : above + 1]
            part -= fall[:, group, below : below + 1]
            if by_decision:
                jump = (rise[:, group, above] - rise[:, group, below]) - (
                    fall[:, group, above] - fall[:, group, below]
                )
                part += xp.astype(phi >= 0, phi.dtype) * jump[:, None]
            slope[:, cell] = part
    return slope
