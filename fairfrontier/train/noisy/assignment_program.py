"""The worst soft assignment for several rates at once, as a linear programme."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import block_diag, csr_array, eye_array, kron, vstack

from fairfrontier.runtime.arrays import Backend, as_backend, to_numpy
from fairfrontier.runtime.errors import DataError
from fairfrontier.train.noisy.rate import N_CELLS

Array = Any


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
