"""Rates of groups: as shares of cells, and as constraints with indicators or with hinges.

Every constraint says that the bad share of group j exceeds that of all rows by at most α:

    g_j = A_j[1{bad}] − E[1{bad}] − α,   bad  ⟺  φ ≥ 0 where s = +1,  φ < 0 where s = −1,

over the rows of an event, with s = 0 outside of it. For true positive rates the event is y = 1 and
bad is the decision 0, so that g_j = TPR − TPR_j − α. With (1 + sφ)₊ ≥ 1{bad} and
1 − (1 − sφ)₊ ≤ 1{bad} the hinge form is

    A_j[(1 + sφ)₊] + E[(1 − sφ)₊] − 1 − α − β.

A_j is the mean over the rows of the event under row masses a_j: those of hard groups, of a
distribution p̃_j, or of soft assignments w(j | ŷ, y, k).

Projections onto simplices.

Rows arranged for full-batch training: equal ones merged, sorted by label and group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from fairfrontier.runtime.arrays import array_namespace, segment_sum
from fairfrontier.runtime.errors import ConfigError, nearest

Array = Any


def project_simplex(point: Array, total: Array | float = 1.0) -> Array:
    """Return argmin ‖p − x‖² s.t. p ≥ 0, Σ p = z, for finite x, shape (..., n), and z ≥ 0.

    p_i = (x_i − τ)₊ with the τ that makes the sum z, in O(n log n), by a sort. J. Duchi,
    S. Shalev-Shwartz, Y. Singer, T. Chandra. Efficient projections onto the l1-ball for learning in
    high dimensions. ICML 2008, figure 1.
    """
    xp = array_namespace(point)
    # Entries that matter are within z of the largest: relative to it, rounding scales with z.
    below = point - xp.max(point, axis=-1, keepdims=True)
    ordered = xp.sort(below, axis=-1, descending=True)
    device = array_api_compat.device(point)
    count = xp.arange(1, point.shape[-1] + 1, dtype=point.dtype, device=device)
    # The s that the first 1, 2, … entries alone would need; it falls while an entry is below 0.
    depth = (_spread(point, total) - xp.cumulative_sum(ordered, axis=-1)) / count
    return xp.maximum(below + xp.min(depth, axis=-1, keepdims=True), 0.0)


def project_capped_simplex(point: Array, radius: Array | float) -> Array:
    """Project onto {λ ≥ 0, Σ λ ≤ R}: the positive part where its sum allows, else Σ λ = R."""
    xp = array_namespace(point)
    cap = _spread(point, radius)
    positive = xp.maximum(point, 0.0)
    within = xp.sum(positive, axis=-1, keepdims=True) <= cap
    return xp.where(within, positive, project_simplex(point, radius))


def _spread(point: Array, value: Array | float) -> Array:
    """Return the value with one entry for each row of the point, shape (..., 1)."""
    xp = array_namespace(point)
    device = array_api_compat.device(point)
    value = xp.asarray(value, dtype=point.dtype, device=device)[..., None]
    return xp.broadcast_to(value, (*point.shape[:-1], 1))


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


# A cell is 2ŷ + y: (ŷ, y) = (0, 0), (0, 1), (1, 0), (1, 1).
N_CELLS = 4


@dataclass(frozen=True)
class RateCells:
    """A rate as a share of cells: the rows of ``good`` among those of ``good`` and ``bad``."""

    name: str
    good: tuple[int, ...]
    bad: tuple[int, ...]

    @property
    def among(self) -> tuple[int, ...]:
        """The cells of the denominator."""
        return self.good + self.bad


RATE_CELLS = {
    rate.name: rate
    for rate in (
        RateCells("tpr", good=(3,), bad=(1,)),
        RateCells("fpr", good=(2,), bad=(0,)),
        RateCells("selection_rate", good=(2, 3), bad=(0, 1)),
        RateCells("accuracy", good=(0, 3), bad=(1, 2)),
    )
}


def find_rate(name: str) -> RateCells:
    """Return the cells of a rate; ConfigError for an unknown one."""
    if name not in RATE_CELLS:
        raise ConfigError(f"There is no rate {name!r}.", nearest(name, RATE_CELLS))
    return RATE_CELLS[name]


def count_cells(
    decision: Array, y: Array, codes: Array, n_groups: int, weight: Array | None = None
) -> Array:
    """Return the share of the rows in each noisy group and cell, P(Ĝ=k, Ŷ=ŷ, Y=y), in O(M n).

    Parameters
    ----------
    decision : float array, shape (n,) or (M, n)
        Probability that the decision is 1; a row counts in both of its cells by expectation.
    y : integer array, shape (n,)
        Labels 0 and 1.
    codes : integer array, shape (n,) or (M, n)
        Noisy groups 0, …, m̂ − 1.
    n_groups : int
        m̂.
    weight : float array, shape (n,), optional
        Case weights ≥ 0.

    Returns
    -------
    float array, shape (m̂, 4) or (M, m̂, 4)
        Sums to 1 over the last two axes.
    """
    xp = array_namespace(decision)
    lead = decision.shape[:-1]
    n = int(decision.shape[-1])
    device = array_api_compat.device(decision)
    share = xp.ones((n,), dtype=decision.dtype, device=device) if weight is None else weight
    share = share / xp.sum(share)
    index = codes * 2 + xp.astype(y, codes.dtype)
    flat = xp.reshape(decision, (-1, n))
    models = int(flat.shape[0])
    shift = xp.arange(models, dtype=codes.dtype, device=device) * (2 * n_groups)
    index = xp.reshape(xp.broadcast_to(index, (models, n)) + shift[:, None], (-1,))
    halves = xp.stack(
        [xp.reshape(share * (1.0 - flat), (-1,)), xp.reshape(share * flat, (-1,))], axis=1
    )
    sums = segment_sum(halves, index, models * n_groups * 2)
    # (model, group, label, decision) → (…, group, decision, label)
    table = xp.permute_dims(xp.reshape(sums, (models, n_groups, 2, 2)), (0, 1, 3, 2))
    return xp.reshape(table, (*lead, n_groups, N_CELLS))


def sum_cells(cells: Array, chosen: tuple[int, ...]) -> Array:
    """Return the sum over some cells, shape (...) from (..., 4)."""
    total = cells[..., chosen[0]]
    for cell in chosen[1:]:
        total = total + cells[..., cell]
    return total


@dataclass(frozen=True)
class Rate:
    """A rate whose bad share is bounded.

    ``sign`` is s for the labels 0 and 1: +1 where the decision 1 is bad, −1 where 0 is, 0 outside
    of the event. ``cells`` names the same rate in ``RATE_CELLS``. With ``floor`` its smallest value
    over groups is bounded, else its largest.
    """

    name: str
    sign: tuple[int, int]
    cells: str
    floor: bool


RATES = {
    rate.name: rate
    for rate in (
        Rate("tpr", (0, -1), "tpr", floor=True),
        Rate("fpr", (1, 0), "fpr", floor=False),
        Rate("selection_floor", (-1, -1), "selection_rate", floor=True),
        Rate("selection_cap", (1, 1), "selection_rate", floor=False),
        Rate("accuracy", (1, -1), "accuracy", floor=True),
    )
}
CRITERIA = {
    "demographic_parity": ("selection_floor", "selection_cap"),
    "equal_opportunity": ("tpr",),
    "equalized_odds": ("tpr", "fpr"),
    "accuracy": ("accuracy",),
}


def find_rates(criterion: str) -> tuple[Rate, ...]:
    """Return the rates that a criterion bounds; ConfigError for an unknown criterion."""
    if criterion not in CRITERIA:
        raise ConfigError(f"There is no criterion {criterion!r}.", nearest(criterion, CRITERIA))
    return tuple(RATES[name] for name in CRITERIA[criterion])
