"""A fair metric: which rows are similar once protected attributes are ignored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from array_api_compat import array_namespace, device

from fairfrontier.runtime.errors import StoreError

Array = Any


@dataclass(frozen=True, eq=False)
class FairMetric:
    """The squared Mahalanobis distance d(x, x') = (x − x')ᵀ Σ (x − x') = ‖z − z'‖².

    Attributes
    ----------
    sigma : ndarray of float64, shape (d, d)
        Symmetric, positive semidefinite; a projector for a sensitive subspace.
    basis : ndarray of float64, shape (d, k)
        ``basis @ basis.T == sigma``; z = x @ basis.
    directions : ndarray of float64, shape (r, d)
        Orthonormal free directions: moving along them costs nothing. Empty unless Σ is singular.

    References
    ----------
    M. Yurochkin, A. Bower, Y. Sun. Training individually fair ML models with sensitive subspace
    robustness. ICLR 2020, Section 2 and Appendix B.
    """

    sigma: np.ndarray
    basis: np.ndarray
    directions: np.ndarray

    def _convert(self, field: str, x: Array) -> Array:
        xp = array_namespace(x)
        return xp.asarray(getattr(self, field), dtype=xp.float64, device=device(x))

    def distance(self, x: Array, other: Array) -> Array:
        """Return d(x, x') ≥ 0 of row pairs, (n,), in squared units, on x's backend."""
        xp = array_namespace(x, other)
        difference = x - other
        value = xp.sum((difference @ self._convert("sigma", x)) * difference, axis=-1)
        return xp.maximum(value, xp.zeros_like(value))

    def embed(self, x: Array) -> Array:
        """Return z of shape (n, k) with ‖z − z'‖² = d(x, x'), on x's backend."""
        return x @ self._convert("basis", x)

    def project(self, x: Array) -> Array:
        """Return x Σ, shape (n, d): for a subspace, x with the free directions projected out."""
        return x @ self._convert("sigma", x)

    def save(self, path: str | Path) -> Path:
        """Write the metric as one npz file and return its path."""
        path = Path(path)
        np.savez(path, sigma=self.sigma, basis=self.basis, directions=self.directions)
        return path if path.suffix == ".npz" else path.with_name(path.name + ".npz")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote; StoreError when the file is missing, damaged or no metric."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return cls(**{key: stored[key] for key in ("sigma", "basis", "directions")})
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise StoreError(
                f"{path} is not a fair metric.", "Name a file that FairMetric.save wrote."
            ) from error
