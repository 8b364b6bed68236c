"""Costs on a grid of predictions, and how far groups differ on it, as sums over arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairfrontier.runtime.arrays import array_namespace, segment_sum
from fairfrontier.train.regression.loss import Loss

Array = Any

# What a prediction may lack to the grid point that it means, in cells: j/N is not exact.
ROUNDING = 1e-9
# Values that differ by less are equal: sums of equal numbers in another order.
TIE = 1e-12


@dataclass(frozen=True, eq=False)
class LabelGrid:
    """Labels put into cells of half a grid step; the paper's Ỹ.

    Attributes
    ----------
    value : array of float, shape (n_labels,)
        Mean label of each cell that holds any, ascending; within α/2 of every label of its cell.
    code : array of int64, shape (n_samples,)
        Cell of each row.

    Notes
    -----
    At most 2N cells. Means rather than smallest elements: their costs add up to those of the
    labels where the loss is linear in y plus a function of y (the square loss), and Eq. (6),
    |ℓ − ℓ_α| ≤ α, holds for any point within α/2.
    """

    value: Array
    code: Array


def level_values(n_grid: int, like: Array) -> Array:
    """Return the point at which the loss of each level is taken, min{(k + ½)/N, 1}, k = 0, …, N."""
    xp = array_namespace(like)
    points = (xp.arange(n_grid + 1, dtype=xp.float64) + 0.5) / n_grid
    return xp.where(points > 1.0, xp.ones_like(points), points)


def round_down(score: Array, n_grid: int) -> Array:
    """Return the level ⌊N u⌋ of each prediction, clipped to 0, …, N, as int64.

    Parameters
    ----------
    score : array of float, any shape
        Predictions; those outside [0, 1] count as its ends.
    n_grid : int
        N.
    """
    xp = array_namespace(score)
    level = xp.floor(score * n_grid + ROUNDING)
    return xp.astype(xp.clip(level, 0.0, float(n_grid)), xp.int64)


def bin_labels(y: Array, n_grid: int) -> Array:
    """Return the half-step cell min{⌊2N y⌋, 2N − 1} of each label in [0, 1], int64."""
    xp = array_namespace(y)
    cell = xp.floor(y * (2 * n_grid) + ROUNDING)
    return xp.astype(xp.clip(cell, 0.0, float(2 * n_grid - 1)), xp.int64)


def sum_labels(y: Array, weight: Array, n_grid: int) -> Array:
    """Return each cell's weight and sum of labels, shape (2N, 2), which add over partitions."""
    xp = array_namespace(y, weight)
    return segment_sum(xp.stack([weight, weight * y], axis=1), bin_labels(y, n_grid), 2 * n_grid)


def grid_labels(y: Array, weight: Array, n_grid: int) -> LabelGrid:
    """Put labels in [0, 1] into at most 2N cells, each with its mean; rows of weight 0 count too.

    Notes
    -----
    O(n) and a table of 2N.
    """
    xp = array_namespace(y, weight)
    sums = sum_labels(y, weight, n_grid)
    plain = sum_labels(y, xp.ones_like(weight), n_grid)
    held = plain[:, 0] > 0
    sums = xp.take(xp.where(sums[:, :1] > 0, sums, plain), xp.nonzero(held)[0], axis=0)
    number = xp.cumulative_sum(xp.astype(held, xp.int64)) - 1
    value = sums[:, 1] / sums[:, 0]
    return LabelGrid(value, xp.take(number, bin_labels(y, n_grid)))


def tabulate_loss(loss: Loss, label: Array, n_grid: int) -> Array:
    """Return ℓ(ỹ, v_k), shape (n_labels, N + 1): the discretised loss ℓ_α of Eq. (5)."""
    return loss.value(label[:, None], level_values(n_grid, label)[None, :])


def penalise(multiplier: Array, share: Array) -> Array:
    """Return what each multiplier adds to the reduced cost over N, λ_{a,z} / p_a − Σ_a' λ_{a',z}.

    Parameters
    ----------
    multiplier : array of float, shape (n_groups, N)
        λ⁺ − λ⁻.
    share : array of float, shape (n_groups,)
        p, each above 0.
    """
    xp = array_namespace(multiplier, share)
    return multiplier / share[:, None] - xp.sum(multiplier, axis=0, keepdims=True)


def reduce_costs(table: Array, multiplier: Array, share: Array) -> Array:
    """Return c_λ(ỹ, a, z) of Eq. (12).

    c_λ = c(ỹ, z) + N λ_{a,z} / p_a − N Σ_a' λ_{a',z},   c(ỹ, z) = N (ℓ(ỹ, z + α/2) − ℓ(ỹ, z − α/2))

    Parameters
    ----------
    table : array of float, shape (n_labels, N + 1)
        See ``tabulate_loss``.
    multiplier, share
        See ``penalise``.

    Returns
    -------
    array of float, shape (n_groups, n_labels, N)
    """
    n_grid = multiplier.shape[1]
    cost = table[:, 1:] - table[:, :-1]
    return n_grid * (cost[None, :, :] + penalise(multiplier, share)[:, None, :])


def accumulate_costs(table: Array, multiplier: Array, share: Array) -> Array:
    """Return g_λ(ỹ, a, ·) at the N + 1 levels, Σ_{z ≤ k/N} c_λ(ỹ, a, z) / N (appendix F.2).

    Returns
    -------
    array of float, shape (n_groups, n_labels, N + 1)
        Zero at level 0. Σ_i w_i g(ỹ_i, a_i, level_i) is the loss plus Σ λ γ̂, less a constant.

    Notes
    -----
    O(n_groups · n_labels · N) time and memory.
    """
    xp = array_namespace(table, multiplier, share)
    running = xp.cumulative_sum(penalise(multiplier, share), axis=1, include_initial=True)
    return (table - table[:, :1])[None, :, :] + running[:, None, :]


def choose_targets(total: Array) -> tuple[Array, Array, Array]:
    """Return where g_λ is least: the first such run of levels, and the middle of its interval.

    Level k < N is the interval [k/N, (k + 1)/N) and level N the point 1, so levels first, …, last
    are an interval from first/N to min{(last + 1)/N, 1}.

    Parameters
    ----------
    total : array of float, shape (..., N + 1)
        g_λ.

    Returns
    -------
    first, last : array of int64, shape (...)
        Ends of the run.
    middle : array of float, shape (...)
        U, in [0, 1].

    Notes
    -----
    Values within 1e-12 of the least, relative to the largest, are ties: the run is the first one.
    """
    xp = array_namespace(total)
    n_grid = total.shape[-1] - 1
    least = xp.min(total, axis=-1, keepdims=True)
    near = TIE * xp.max(xp.abs(total), axis=-1, keepdims=True)
    tied = total <= least + near
    first = xp.argmax(xp.astype(tied, xp.int64), axis=-1)
    places = xp.arange(n_grid + 1, dtype=xp.int64)
    after = (places > first[..., None]) & ~tied
    beyond = xp.argmax(xp.astype(after, xp.int64), axis=-1)
    last = xp.where(xp.any(after, axis=-1), beyond - 1, xp.full_like(beyond, n_grid))
    end = xp.astype(xp.where(last < n_grid, last + 1, last), xp.float64)
    return first, last, (xp.astype(first, xp.float64) + end) / (2 * n_grid)


def count_levels(level: Array, group: Array, weight: Array, n_groups: int, n_grid: int) -> Array:
    """Return the weight of each level in each group, shape (n_groups, N + 1): one bincount.

    Such tables of partitions add up.
    """
    xp = array_namespace(level, group, weight)
    counts = segment_sum(weight, group * (n_grid + 1) + level, n_groups * (n_grid + 1))
    return xp.reshape(counts, (n_groups, n_grid + 1))


def measure_parity(counts: Array) -> Array:
    """Return γ̂_{a,z} = P[f ≥ z | A = a] − P[f ≥ z] for z = 1/N, …, 1, shape (n_groups, N).

    Parameters
    ----------
    counts : array of float, shape (n_groups, N + 1)
        See ``count_levels``; every group has weight.
    """
    xp = array_namespace(counts)
    reached = xp.flip(xp.cumulative_sum(xp.flip(counts, axis=1), axis=1), axis=1)
    overall = xp.sum(reached, axis=0)
    return reached[:, 1:] / reached[:, :1] - (overall[1:] / overall[0])[None, :]


def measure_disparity(score: Array, group: Array, weight: Array, n_groups: int) -> Array:
    """Return sup_z |P[f ≥ z | A = a] − P[f ≥ z]| over all real z, shape (n_groups,).

    Parameters
    ----------
    score : array of float, shape (n_samples,) or (n_samples, n_values)
        Predictions; of a randomised predictor every value that it may take.
    group : array of int64, shape (n_samples,)
        Every group has weight.
    weight : array of float, of the shape of ``score``
        Weight of the row, times the probability of the value.

    Notes
    -----
    O(m log m + m n_groups) for m values: exact, for predictions on no grid.
    """
    xp = array_namespace(score, group, weight)
    if score.ndim == 2:
        group = xp.reshape(xp.broadcast_to(group[:, None], score.shape), (-1,))
        score, weight = xp.reshape(score, (-1,)), xp.reshape(weight, (-1,))
    order = xp.argsort(score)
    score, group, weight = (xp.take(each, order) for each in (score, group, weight))
    # Rounding must not tell the rows of a constant prediction apart.
    apart = TIE * (1.0 + xp.abs(score[1:]))
    last = xp.concat([score[1:] - score[:-1] > apart, xp.ones_like(score[:1]) > 0])
    overall = xp.cumulative_sum(weight)
    gaps = []
    for a in range(n_groups):
        mine = xp.cumulative_sum(xp.where(group == a, weight, xp.zeros_like(weight)))
        gap = xp.abs(mine / mine[-1] - overall / overall[-1])
        gaps.append(xp.max(xp.where(last, gap, xp.zeros_like(gap))))
    return xp.stack(gaps)
