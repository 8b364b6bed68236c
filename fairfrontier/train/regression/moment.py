"""Weighted sums of rows by group, from which linear least squares is solved repeatedly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Directions whose variance is below this share of the largest are left out: one-hot columns that
# add up to 1 leave one such direction.
COLLINEAR = 1e-10


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over the rows of each group; those of partitions add up.

    Σ w, shape (n_groups,), Σ w x, shape (n_groups, d), and Σ w x xᵀ, shape (n_groups, d, d).
    """

    total: np.ndarray
    features: np.ndarray
    gram: np.ndarray

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows."""
        return Moments(
            self.total + other.total, self.features + other.features, self.gram + other.gram
        )

    def combine(self, factor: np.ndarray) -> Moments:
        """Return the moments of all rows as one group, group a weighted by ``factor[a]``."""
        return Moments(
            np.atleast_1d(factor @ self.total),
            (factor @ self.features)[None, :],
            np.tensordot(factor, self.gram, axes=1)[None],
        )


def sum_moments(X: np.ndarray, weight: np.ndarray, group: np.ndarray, n_groups: int) -> Moments:
    """Return the moments of each group; O(n d²), and no copy of more than one group's rows."""
    total = np.bincount(group, weights=weight, minlength=n_groups)
    features = np.zeros((n_groups, X.shape[1]))
    gram = np.zeros((n_groups, X.shape[1], X.shape[1]))
    for a in range(n_groups):
        mine = X[group == a]
        raised = mine * weight[group == a, None]
        features[a] = raised.sum(axis=0)
        gram[a] = raised.T @ mine
    return Moments(total, features, gram)


def sum_by_cell(X: np.ndarray, weight: np.ndarray, cell: np.ndarray, n_cells: int) -> np.ndarray:
    """Return Σ w x over the rows of each cell, shape (n_features + 1, n_cells); Σ w comes last.

    For targets u that are equal within a cell, Xᵀ W u is this table times the cells' targets. Such
    tables of partitions add up.
    """
    sums = np.empty((X.shape[1] + 1, n_cells))
    for column in range(X.shape[1]):
        sums[column] = np.bincount(cell, weights=weight * X[:, column], minlength=n_cells)
    sums[-1] = np.bincount(cell, weights=weight, minlength=n_cells)
    return sums


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The factor of min_{β,b} Σ w (u − xᵀβ − b)², for any targets u.

    The pseudo-inverse of the features' centred Gram matrix, shape (n_features, n_features), their
    weighted mean, and Σ w.
    """

    inverse: np.ndarray
    mean: np.ndarray
    total: float

    def solve(self, cross: np.ndarray, target: float) -> tuple[np.ndarray, float]:
        """Return (β, b) from Σ w x u and Σ w u; of several solutions that of least ‖β‖."""
        coefficient: np.ndarray = self.inverse @ (cross - self.mean * target)
        return coefficient, target / self.total - float(self.mean @ coefficient)


def factorise(moments: Moments) -> LeastSquares:
    """Return the factor for moments of one group; O(d³)."""
    total, mean = float(moments.total[0]), moments.features[0] / moments.total[0]
    centred = moments.gram[0] - total * np.outer(mean, mean)
    value, vector = np.linalg.eigh(centred)
    kept = value > COLLINEAR * max(float(value[-1]), float(np.finfo(np.float64).tiny))
    basis = vector[:, kept]
    return LeastSquares((basis / value[kept]) @ basis.T, mean, total)
