"""Right and wrong rows counted by cell, and bootstrap draws of what is computed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairfrontier.evaluate.statistic.interval import resample_counts, resample_sums
from fairfrontier.evaluate.statistic.rate import BLOCK


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Sums over the rows of each cell.

    A row of weight w that is right with probability r counts w(1 − r) as wrong and wr as right.

    Attributes
    ----------
    count : ndarray of int64, shape (n_cells,)
        Rows.
    mass : ndarray of float64, shape (n_cells, 2)
        Sums of what is wrong and right.
    square : ndarray of float64, shape (n_cells, 2, 2)
        Sums of products of the two.
    whole : bool
        Whether the masses are counts.
    """

    count: np.ndarray
    mass: np.ndarray
    square: np.ndarray
    whole: bool

    def resample(self, replicates: int, compute: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return ``compute`` of bootstrap draws of the masses, shape (replicates,).

        ``compute`` maps (draws, n_cells, 2) to (draws,). The generator is seeded with 0, so that
        the same cells give the same draws.
        """
        rng = np.random.default_rng(0)
        step = max(1, BLOCK // max(self.mass.size, 1))
        found = [np.empty(0)]
        for start in range(0, replicates, step):
            size = min(step, replicates - start)
            if self.whole:
                mass = resample_counts(self.mass, size, rng)
            else:
                mass = resample_sums(self.mass, self.square, size, rng)
            found.append(compute(mass))
        return np.concatenate(found)


def count_outcomes(
    cell: np.ndarray, right: np.ndarray, weight: np.ndarray, n_cells: int
) -> Outcomes:
    """Count the rows of each cell.

    Parameters
    ----------
    cell : ndarray of int64, shape (n_samples,)
        0 to n_cells − 1.
    right : ndarray of float64, shape (n_samples,)
        Probability that the decision is right.
    weight : ndarray of float64, shape (n_samples,)
        Case weights.
    n_cells : int
    """
    halves = (weight * (1 - right), weight * right)
    mass = np.stack([np.bincount(cell, each, n_cells) for each in halves], axis=-1)
    square = np.stack(
        [np.stack([np.bincount(cell, a * b, n_cells) for b in halves], axis=-1) for a in halves],
        axis=-1,
    )
    whole = bool((weight == 1).all() and np.isin(right, (0.0, 1.0)).all())
    return Outcomes(np.bincount(cell, minlength=n_cells), mass, square, whole)


def divide_right(mass: np.ndarray) -> np.ndarray:
    """Return the share that is right of sums of shape (..., 2); NaN where there is nothing."""
    total = mass.sum(axis=-1)
    out = np.full(total.shape, np.nan)
    np.divide(mass[..., 1], total, out=out, where=total > 0)
    return out


def average_known(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean of what is not NaN along an axis; NaN where nothing is."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
