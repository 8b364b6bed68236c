"""Costs on a grid of predictions, and how far groups differ on it, as sums over arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from fairfrontier.models.regression.loss import Loss
from fairfrontier.runtime.arrays import array_namespace, segment_sum

Array = Any

# How far below a grid point a prediction still counts as reaching it, in cells: j/N is not exact.
ROUNDING = 1e-9
# Values that differ by less are ties: equal numbers may be summed in different orders.
TIE = 1e-12


@dataclass(frozen=True, eq=False)
class LabelGrid:
    """Labels put into at most 2N cells of half a grid step; the paper's Ỹ.

    ``value``, shape (n_labels,), is the mean label of each non-empty cell, ascending and within α/2
    of every label of its cell; ``code``, shape (n_samples,), is the cell of each row. Means rather
    than smallest elements: their costs add up to those of the labels where the loss is linear in y
    plus a function of y (the square loss), and Eq. (6), |ℓ − ℓ_α| ≤ α, holds for any point within
    α/2.
    """

    value: Array
    code: Array


def level_values(n_grid: int, like: Array) -> Array:
    """Return the point at which the loss of each level is taken, min{(k + ½)/N, 1}, k = 0, …, N."""
    xp = array_namespace(like)
    points = (xp.arange(n_grid + 1, dtype=xp.float64, device=device(like)) + 0.5) / n_grid
    return xp.where(points > 1.0, xp.ones_like(points), points)


def round_down(score: Array, n_grid: int) -> Array:
    """Return the level ⌊N u⌋ of each prediction, clipped to 0, …, N, as int64."""
    xp = array_namespace(score)
    level = xp.floor(score * n_grid + ROUNDING)
    return xp.astype(xp.clip(level, 0.0, float(n_grid)), xp.int64)


def bin_labels(y: Array, n_grid: int) -> Array:
    """Return the half-step cell min{⌊2N y⌋, 2N − 1} of each label in [0, 1], int64."""
    xp = array_namespace(y)
    cell = xp.floor(y * (2 * n_grid) + ROUNDING)
    return xp.astype(xp.clip(cell, 0.0, float(2 * n_grid - 1)), xp.int64)


def sum_labels(y: Array, weight: Array, n_grid: int) -> Array:
    """Return each cell's weight and sum of labels, shape (2N, 2)."""
    xp = array_namespace(y, weight)
    return segment_sum(xp.stack([weight, weight * y], axis=1), bin_labels(y, n_grid), 2 * n_grid)


def grid_labels(y: Array, weight: Array, n_grid: int) -> LabelGrid:
    """Put labels in [0, 1] into at most 2N cells; rows of weight 0 count too. O(n)."""
    xp = array_namespace(y, weight)
    sums = sum_labels(y, weight, n_grid)
    plain = sum_labels(y, xp.ones_like(weight), n_grid)
    filled = plain[:, 0] > 0
    sums = xp.take(xp.where(sums[:, :1] > 0, sums, plain), xp.nonzero(filled)[0], axis=0)
    number = xp.cumulative_sum(xp.astype(filled, xp.int64)) - 1
    value = sums[:, 1] / sums[:, 0]
    return LabelGrid(value, xp.take(number, bin_labels(y, n_grid)))


def tabulate_loss(loss: Loss, label: Array, n_grid: int) -> Array:
    """Return ℓ(ỹ, v_k), shape (n_labels, N + 1): the discretised loss ℓ_α of Eq. (5)."""
    return loss.value(label[:, None], level_values(n_grid, label)[None, :])


def accumulate_costs(table: Array, multiplier: Array, share: Array) -> Array:
    """Return g_λ(ỹ, a, ·) at the N + 1 levels, shape (n_groups, n_labels, N + 1), 0 at level 0.

    g_λ(ỹ, a, k) = Σ_{z ≤ k/N} c_λ(ỹ, a, z) / N (appendix F.2), where by Eq. (12)
    c_λ = N (ℓ(ỹ, z + α/2) − ℓ(ỹ, z − α/2)) + N λ_{a,z} / p_a − N Σ_a' λ_{a',z}, ``multiplier`` is
    λ⁺ − λ⁻, shape (n_groups, N), and ``share`` is p > 0, shape (n_groups,). Σ_i w_i g(ỹ_i, a_i,
    level_i) is the loss plus Σ λ γ̂, less a constant.
    """
    xp = array_namespace(table, multiplier, share)
    penalty = multiplier / share[:, None] - xp.sum(multiplier, axis=0, keepdims=True)
    running = xp.cumulative_sum(penalty, axis=1, include_initial=True)
    return (table - table[:, :1])[None, :, :] + running[:, None, :]


def choose_targets(total: Array) -> Array:
    """Return U in [0, 1], the middle of the interval where g_λ is least, shape (...).

    Level k < N is the interval [k/N, (k + 1)/N) and level N the point 1, so the levels first, …,
    last are an interval from first/N to min{(last + 1)/N, 1}. Values of ``total``, shape (..., N +
    1), within 1e-12 of the least, relative to the largest, are ties; the first run of them is
    taken.
    """
    xp = array_namespace(total)
    n_grid = total.shape[-1] - 1
    least = xp.min(total, axis=-1, keepdims=True)
    near = TIE * xp.max(xp.abs(total), axis=-1, keepdims=True)
    tied = total <= least + near
    first = xp.argmax(xp.astype(tied, xp.int64), axis=-1)
    level = xp.arange(n_grid + 1, dtype=xp.int64, device=device(total))
    after = (level > first[..., None]) & ~tied
    beyond = xp.argmax(xp.astype(after, xp.int64), axis=-1)
    last = xp.where(xp.any(after, axis=-1), beyond - 1, xp.full_like(beyond, n_grid))
    end = xp.astype(xp.where(last < n_grid, last + 1, last), xp.float64)
    return (xp.astype(first, xp.float64) + end) / (2 * n_grid)


def count_levels(level: Array, group: Array, weight: Array, n_groups: int, n_grid: int) -> Array:
    """Return the weight of each level in each group, shape (n_groups, N + 1)."""
    xp = array_namespace(level, group, weight)
    counts = segment_sum(weight, group * (n_grid + 1) + level, n_groups * (n_grid + 1))
    return xp.reshape(counts, (n_groups, n_grid + 1))


def measure_parity(counts: Array) -> Array:
    """Return γ̂_{a,z} = P[f ≥ z | A = a] − P[f ≥ z] for z = 1/N, …, 1, shape (n_groups, N).

    ``counts`` are those of ``count_levels``; every group has weight.
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
    O(m log m + m n_groups) for m values; exact for predictions off the grid, too.
    """
    xp = array_namespace(score, group, weight)
    if score.ndim == 2:
        group = xp.reshape(xp.broadcast_to(group[:, None], score.shape), (-1,))
        score, weight = xp.reshape(score, (-1,)), xp.reshape(weight, (-1,))
    order = xp.argsort(score)
    score, group, weight = (xp.take(array, order) for array in (score, group, weight))
    # Rounding must not separate rows of equal predictions.
    tolerance = TIE * (1.0 + xp.abs(score[1:]))
    last = xp.concat([score[1:] - score[:-1] > tolerance, xp.ones_like(score[:1]) > 0])
    overall = xp.cumulative_sum(weight)
    gaps = []
    for a in range(n_groups):
        mine = xp.cumulative_sum(xp.where(group == a, weight, xp.zeros_like(weight)))
        gap = xp.abs(mine / mine[-1] - overall / overall[-1])
        gaps.append(xp.max(xp.where(last, gap, xp.zeros_like(gap))))
    return xp.stack(gaps)
