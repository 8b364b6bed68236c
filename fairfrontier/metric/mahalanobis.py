"""A fair metric from any positive semidefinite matrix."""

from __future__ import annotations

import numpy as np

from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.runtime.errors import ConfigError

# Eigenvalues below this share of the largest are taken for zero.
TOLERANCE = 1e-10


def make_metric(sigma: np.ndarray) -> FairMetric:
    """Make the metric d(x, x') = (x − x')ᵀ Σ (x − x') of a given Σ.

    With Σ = Σ_j λ_j v_j v_jᵀ, the basis has the columns √λ_j v_j of the positive eigenvalues, and
    the free directions are the v_j of the others.

    Parameters
    ----------
    sigma : array of shape (d, d)
        Symmetric and positive semidefinite, both up to rounding.

    Returns
    -------
    FairMetric
        Its ``sigma`` is ``basis @ basis.T``: rounding below zero is gone.

    Raises
    ------
    ConfigError
        When Σ is not square, not finite, not symmetric, or has an eigenvalue below zero.

    Notes
    -----
    One eigenvalue decomposition, O(d**3).
    """
    sigma = np.asarray(sigma, dtype=np.float64)
    square = sigma.ndim == 2 and sigma.shape[0] == sigma.shape[1] > 0
    if not square or not np.isfinite(sigma).all():
        raise ConfigError(
            f"The matrix of a fair metric has shape {sigma.shape} or numbers that are not finite.",
            "Give one row and one column per feature.",
        )
    scale = np.abs(sigma).max()
    if np.abs(sigma - sigma.T).max() > 1e-8 * scale:
        raise ConfigError("The matrix of a fair metric is not symmetric.", "Give (Σ + Σᵀ) / 2.")
    sizes, vectors = np.linalg.eigh((sigma + sigma.T) / 2)
    if sizes[0] < -1e-8 * scale:
        raise ConfigError(
            f"The matrix of a fair metric has the eigenvalue {sizes[0]:.3g}, below zero.",
            "Set its negative eigenvalues to 0.",
        )
    kept = sizes > TOLERANCE * sizes[-1]
    basis = vectors[:, kept] * np.sqrt(sizes[kept])
    return FairMetric(sigma=basis @ basis.T, basis=basis, directions=vectors[:, ~kept].T)
