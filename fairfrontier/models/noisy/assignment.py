"""Soft assignments w(j | ŷ, y, k) of rows to true groups: the worst ones, and projections.

With v_kc = P(Ĝ=k, cell c) and b_kj = P(G=j | Ĝ=k), the masses u_jkc = w(j | c, k) v_kc of an
assignment are a transport plan for every noisy group k: u ≥ 0, Σ_j u_jkc = v_kc and Σ_c u_jkc =
b_kj Σ_c v_kc. The set W(θ) of these has extremes that are found by filling cells in order.

Throughout, ``cells``, shape (..., m̂, 4), is v (see ``count_cells``), ``posterior``, shape (m̂, m)
or (..., m̂, m), is b with rows that sum to 1, and w has shape (..., m, m̂, 4), cells c = 2ŷ + y.

The worst soft assignment for several rates at once, as a linear programme.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import block_diag, csr_array, eye_array, kron, vstack

from fairfrontier.models.noisy.rate import N_CELLS, RateCells, project_leading_simplex, sum_cells
from fairfrontier.runtime.arrays import Backend, array_namespace, as_backend, to_numpy
from fairfrontier.runtime.errors import DataError

Array = Any
Variant = Literal["paper", "authors"]


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


def project_assignment(
    weight: Array, cells: Array, posterior: Array, *, rounds: int = 20, variant: Variant = "paper"
) -> Array:
    """Project onto W(θ) by alternating projections.

    argmin ‖w − x‖² s.t. Σ_c w(j | c, k) P(c | k) = P(G=j | Ĝ=k), Σ_j w(j | c, k) = 1, w ≥ 0

    The variant ``paper`` is Dykstra's algorithm between the total probabilities and the simplices,
    whose limit is the nearest point of W(θ). ``authors`` projects onto w ≥ 0 and Σ_j w = 1
    separately and without Dykstra's correction, as their code sets negative entries to 0
    afterwards: a point near W(θ), not the nearest. After finitely many rounds the total
    probabilities hold approximately; the sums over j are exact in the variant ``paper`` only.
    O(rounds × M m m̂).

    References
    ----------
    J. P. Boyle, R. L. Dykstra. A method for finding projections onto the intersection of convex
    sets in Hilbert spaces. Lecture Notes in Statistics 37, 1986.
    """
    xp = array_namespace(weight)
    groups, seen = int(weight.shape[-3]), int(weight.shape[-2])
    lead = weight.shape[:-3]
    # True groups and cells first, so that a pass over all models and noisy groups is one operation.
    point = xp.permute_dims(xp.reshape(weight, (-1, groups, seen, N_CELLS)), (1, 3, 0, 2)) + 0.0
    masses = xp.reshape(xp.broadcast_to(cells, (*lead, seen, N_CELLS)), (-1, seen, N_CELLS))
    targets = xp.reshape(xp.broadcast_to(posterior, (*lead, seen, groups)), (-1, seen, groups))
    target = xp.permute_dims(targets, (2, 0, 1)) + 0.0
    size = xp.sum(masses, axis=-1, keepdims=True)
    share = xp.permute_dims(masses / xp.where(size > 0, size, 1.0), (2, 0, 1)) + 0.0
    square = _add([share[cell, ...] * share[cell, ...] for cell in range(N_CELLS)])
    # A noisy group without rows imposes nothing: its shares are 0.
    pull = xp.where(square > 0, share / xp.where(square > 0, square, 1.0), 0.0)
    correction = xp.zeros_like(point)
    for _ in range(rounds):
        product = point * share
        deficit = target - _add([product[:, cell, ...] for cell in range(N_CELLS)])
        point += deficit[:, None, ...] * pull
        if variant == "paper":
            point += correction
            correction = point
            point = project_leading_simplex(point)
            correction = correction - point
        else:
            point -= (_add([point[j, ...] for j in range(groups)]) - 1.0) / groups
            point = xp.maximum(point, 0.0)
    back = xp.permute_dims(point, (2, 0, 3, 1)) + 0.0
    return xp.reshape(back, (*lead, groups, seen, N_CELLS))


def _add(parts: list[Array]) -> Array:
    """Return the sum of a few arrays."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


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


def assign_jointly(gain: Array, cells: Array, posterior: Array) -> Array:
    """Return the w that maximises the sum of all gains, on the backend of ``cells``.

    ``gain``, (M, m, m̂, 4), is what a whole cell would add to Σ λ g, by true and noisy group;
    ``cells`` (M, m̂, 4), ``posterior`` (M, m̂, m) and w (M, m, m̂, 4) are as in `solve_program`, in
    which every noisy group becomes a problem of its own.
    """
    backend: Backend = "numpy" if isinstance(cells, np.ndarray) else "cupy"
    gain, cells, posterior = (to_numpy(array) for array in (gain, cells, posterior))
    models, m, seen, _ = gain.shape
    relative = gain / np.where(cells > 0, cells, 1.0)[:, None]
    weight = solve_program(
        np.moveaxis(relative, 2, 1).reshape(models * seen, m, 4),
        cells.reshape(models * seen, 1, 4),
        posterior.reshape(models * seen, 1, m),
    )
    weight = np.moveaxis(weight.reshape(models, seen, m, 4), 1, 2)
    return as_backend(np.ascontiguousarray(weight), backend)


def solve_program(gain: np.ndarray, cells: np.ndarray, posterior: np.ndarray) -> np.ndarray:
    """Return argmax_{w ∈ W(θ)} Σ_jkc gain_jc w(j | c, k) P(Ĝ=k, c) by HiGHS, in one call.

    Parameters
    ----------
    gain : ndarray of float64, shape (m, 4) or (M, m, 4)
        What a mass of group j in cell c adds, λ_j h_c / P(G=j) for one rate.
    cells : ndarray of float64, shape (m̂, 4) or (M, m̂, 4)
        P(Ĝ=k, Ŷ=ŷ, Y=y), see ``count_cells``.
    posterior : ndarray of float64, shape (m̂, m) or (M, m̂, m)
        P(G=j | Ĝ=k), rows summing to 1; else DataError, as W(θ) is empty.

    Returns
    -------
    ndarray of float64, shape (m, m̂, 4) or (M, m, m̂, 4)

    Notes
    -----
    The programme separates into one transport problem of m × 4 masses for each model and noisy
    group. Masses are relative to their noisy group, so that a tolerance means the same in a small
    one. Wang et al., NeurIPS 2020, equation 5 and algorithm 4, line 2.
    """
    lead = cells.shape[:-2]
    n_noisy, m = cells.shape[-2], gain.shape[-2]
    if not np.allclose(posterior.sum(axis=-1), 1.0, atol=1e-9):
        raise DataError(
            "The probabilities P(G=j | Ĝ=k) of a noisy group do not sum to 1.",
            "Check the noise model: no assignment agrees with it.",
        )
    mass = cells.reshape(-1, N_CELLS)
    size = mass.sum(axis=-1, keepdims=True)
    # A noisy group without rows takes any shares: its gains are 0.
    share = np.where(size > 0, mass / np.where(size > 0, size, 1.0), 1.0 / N_CELLS)
    target = np.broadcast_to(posterior, (*lead, n_noisy, m)).reshape(-1, m)
    gains = np.broadcast_to(gain[..., None, :, :], (*lead, n_noisy, m, N_CELLS))
    gains = gains.reshape(-1, m, N_CELLS) * size[..., None]
    # Masses (group, cell): sums over cells, and over groups for all cells but one, which follows.
    rows = kron(eye_array(m), np.ones((1, N_CELLS)))
    columns = kron(np.ones((1, m)), eye_array(N_CELLS))
    block = csr_array(vstack([rows, csr_array(columns)[:-1]]))
    solution = linprog(
        -gains.reshape(-1),
        A_eq=block_diag([block] * len(mass), format="csr"),
        b_eq=np.hstack([target, share[:, :-1]]).reshape(-1),
        bounds=(0, None),
        method="highs",
    )
    assigned = solution.x.reshape(*lead, n_noisy, m, N_CELLS)
    part = share.reshape(*lead, n_noisy, 1, N_CELLS)
    plain = target.reshape(*lead, n_noisy, m, 1)
    ratio = np.clip(assigned / np.where(part > 0, part, 1.0), 0, 1)
    return np.moveaxis(np.where(part > 0, ratio, plain), -2, -3)
