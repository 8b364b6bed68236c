"""Soft assignments w(j | ŷ, y, k) of rows to true groups: the worst ones, and projections.

With v_kc = P(Ĝ=k, cell c) and b_kj = P(G=j | Ĝ=k), the masses u_jkc = w(j | c, k) v_kc of an
assignment are a transport plan for every noisy group k: u ≥ 0, Σ_j u_jkc = v_kc and Σ_c u_jkc =
b_kj Σ_c v_kc. The set W(θ) of these has extremes that are found by filling cells in order.

Throughout, ``cells``, shape (..., m̂, 4), is v (see ``count_cells``), ``posterior``, shape (m̂, m)
or (..., m̂, m), is b with rows that sum to 1, and w has shape (..., m, m̂, 4), cells c = 2ŷ + y.
"""

from __future__ import annotations

from typing import Any

from fairfrontier.models.noisy.rate import RateCells, sum_cells
from fairfrontier.runtime.arrays import array_namespace

Array = Any


def maximise_by_group(gain: Array, cells: Array, posterior: Array) -> Array:
    """Return for each true group the w that maximises Σ_kc gain_kc w(j | c, k), shape (M, m, m̂, 4).

    As ``maximise_assignment`` for gains that differ by noisy group, as sums of hinges do: in each
    noisy group the mass of j takes the cells in the order of their gain by mass. ``gain``,
    (M, m̂, 4), is what the whole cell would add. Each slice j is a maximum by itself.
    """
    xp = array_namespace(gain)
    relative = gain / xp.where(cells > 0, cells, 1.0)
    mass = fill_best(relative, cells, posterior)
    # Where a cell has no row, P(G=j | Ĝ=k).
    available, plain = cells[..., None, :, :], xp.matrix_transpose(posterior)[..., None]
    ratio = xp.clip(mass / xp.where(available > 0, available, 1.0), 0.0, 1.0)
    return xp.where(available > 0, ratio, plain)


def bound_rates(
    cells: Array, posterior: Array, rate: RateCells, limits: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """Return the smallest and largest rate of every true group over W(θ).

    min and max over w of  Σ_k Σ_{c good} w(j | c, k) v_kc / Σ_k Σ_{c among} w(j | c, k) v_kc

    The smallest needs as many bad and as few good rows as possible, and one assignment gives both:
    in each noisy group the mass of j fills the bad cells, then those outside the denominator, then
    the good ones. The largest starts with the good ones.

    Parameters
    ----------
    cells : float array, shape (..., m̂, 4)
        Randomised decisions count by expectation: the rows of true group j may then be any that
        the draws put into a cell.
    posterior : float array, shape (m̂, m) or (..., m̂, m)
    rate : RateCells
    limits : pair of float arrays, shape of ``posterior``, optional
        P(G=j | Ĝ=k) is only known to lie between these: bounds over all of them. The cost is the
        same, for each noisy group has a worst value that does not depend on the others.

    Returns
    -------
    low, high : float array, shape (..., m)
        NaN where group j cannot have a row of the denominator.

    Notes
    -----
    O(M m m̂). For two true groups the smallest rate of one and the largest of the other are reached
    together: one prefers good cells and the other bad ones; if both need more they share the cells
    outside, which suffice, as both are at most the whole noisy group. So the difference r_i − r_j
    ranges over exactly [low_i − high_j, high_i − low_j].

    References
    ----------
    Kallus, Mao and Zhou, 2022, proposition 8. Wang et al., NeurIPS 2020, equations 11 to 15.
    """
    xp = array_namespace(cells)
    smallest, largest = (posterior, posterior) if limits is None else limits
    size = xp.sum(cells, axis=-1)[..., None]
    low_mass, high_mass = smallest * size, largest * size
    good = sum_cells(cells, rate.good)[..., None]
    bad = sum_cells(cells, rate.bad)[..., None]
    least = _fill(good, bad, size, low_mass, high_mass)
    most = _fill(bad, good, size, low_mass, high_mass)
    some_good = xp.sum(xp.minimum(good, high_mass), axis=-2) > 0
    some_bad = xp.sum(xp.minimum(bad, high_mass), axis=-2) > 0
    # Without a denominator at the extreme, only one kind of row is possible.
    return _divide(*least, some_good), 1.0 - _divide(*most, some_bad)


def fill_best(gain: Array, cells: Array, posterior: Array) -> Array:
    """Return the masses (..., m, m̂, 4) that take the cells in the order of their gain by mass."""
    xp = array_namespace(cells)
    order = xp.argsort(gain, axis=-1, descending=True)
    available = xp.take_along_axis(cells, order, axis=-1)[..., None, :, :]
    before = xp.cumulative_sum(available, axis=-1) - available
    size = xp.sum(cells, axis=-1)[..., None]
    budget = xp.matrix_transpose(posterior * size)[..., None]
    taken = xp.minimum(xp.maximum(budget - before, 0.0), available)
    back = xp.broadcast_to(xp.argsort(order, axis=-1)[..., None, :, :], taken.shape)
    return xp.take_along_axis(taken, back, axis=-1)


def _fill(
    last: Array, first: Array, size: Array, low_mass: Array, high_mass: Array
) -> tuple[Array, Array]:
    """Fill first cells, then the others, then last ones; return the masses in last and among.

    The mass may lie between two limits: the best amount fills the first cells and stops there.
    """
    xp = array_namespace(last)
    mass = xp.maximum(xp.minimum(first, high_mass), low_mass)
    in_first = xp.sum(xp.minimum(mass, first), axis=-2)
    in_last = xp.sum(xp.maximum(mass - (size - last), 0.0), axis=-2)
    return in_last, in_first + in_last


def _divide(above: Array, below: Array, possible: Array) -> Array:
    """Return above / below; where both are 0, 1 if ``possible``, else NaN."""
    xp = array_namespace(above)
    otherwise = xp.where(possible, xp.ones_like(above), xp.nan)
    return xp.where(below > 0, above / xp.where(below > 0, below, 1.0), otherwise)
