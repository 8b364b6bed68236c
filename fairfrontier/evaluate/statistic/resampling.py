"""Right and wrong rows counted by cell, shares of them, and bootstrap draws of their sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Sums over the rows of each cell, of which there may be several axes.

    A row of weight w that is right with probability r counts w(1 − r) as wrong and wr as right.
    ``count`` has shape (n_cells,), ``mass`` (n_cells, 2) the sums of what is wrong and right, and
    ``square`` (n_cells, 2, 2) the sums of their products.
    """

    count: np.ndarray
    mass: np.ndarray
    square: np.ndarray


def count_outcomes(
    cell: np.ndarray, right: np.ndarray, weight: np.ndarray, n_cells: int
) -> Outcomes:
    """Count the rows of each cell, 0 to n_cells − 1; ``right`` is the probability of being so."""
    choice = right.astype(np.intp)
    if (choice == right).all() and (weight == 1).all():
        rows = np.bincount(2 * cell + choice, minlength=2 * n_cells).reshape(n_cells, 2)
        square = rows[..., None] * np.eye(2)
        return Outcomes(rows.sum(axis=-1), rows.astype(np.float64), square)
    halves = (weight * (1 - right), weight * right)
    mass = np.stack([np.bincount(cell, half, n_cells) for half in halves], axis=-1)
    square = np.stack(
        [np.stack([np.bincount(cell, a * b, n_cells) for b in halves], axis=-1) for a in halves],
        axis=-1,
    )
    return Outcomes(np.bincount(cell, minlength=n_cells), mass, square)


def divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return quotients; NaN where the denominator is not positive."""
    out = np.full(below.shape, np.nan)
    np.divide(above, below, out=out, where=below > 0)
    return out


def divide_right(mass: np.ndarray) -> np.ndarray:
    """Return the share that is right of sums of shape (..., 2); NaN where there is nothing."""
    return divide(mass[..., 1], mass.sum(axis=-1))


def average_known(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean of what is not NaN along an axis; NaN where nothing is."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def resample_sums(
    mass: np.ndarray, square: np.ndarray, replicates: int, rng: np.random.Generator
) -> np.ndarray:
    """Return bootstrap draws of sums over rows with weights or fractional decisions.

    A row bootstrap with Poisson(1) repetitions gives the sums Σ_i m_i a_i of a group of rows the
    mean Σ a_i (``mass``, shape (..., 2)) and the covariance Σ a_i a_iᵀ (``square``, (..., 2, 2)).
    These are normal draws with the same two moments, independent between groups, clipped at 0, of
    shape (replicates, ..., 2).

    References
    ----------
    Chamandy, Muralidharan, Najmi and Naidu, "Estimating uncertainty for massive data streams",
    2012 (the Poisson bootstrap).
    """
    normals = rng.standard_normal((replicates, *mass.shape))
    # The Cholesky factor of each 2 × 2 matrix by hand: it may be singular.
    first = np.sqrt(square[..., 0, 0])
    below = np.divide(square[..., 0, 1], first, out=np.zeros_like(first), where=first > 0)
    second = np.sqrt(np.maximum(square[..., 1, 1] - below**2, 0.0))
    draws = np.empty_like(normals)
    draws[..., 0] = mass[..., 0] + first * normals[..., 0]
    draws[..., 1] = mass[..., 1] + below * normals[..., 0] + second * normals[..., 1]
    return np.maximum(draws, 0.0)
