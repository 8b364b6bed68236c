"""Fair distances as array code: squared, with free directions projected out."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

Array = Any


def orthonormalise(vectors: Array, *, tolerance: float = 1e-10) -> tuple[Array, Array]:
    """Split the space into the span of some vectors and its orthogonal complement.

    Parameters
    ----------
    vectors : array of shape (r, d)
        Rows that span the sensitive subspace; dependent rows and zeros add nothing.
    tolerance : float
        Singular values below this share of the largest are taken for zero.

    Returns
    -------
    directions : array of shape (k, d)
        Orthonormal basis of the span, k <= r.
    basis : array of shape (d, d - k)
        Orthonormal basis of the complement, as columns. Entries that are zero but for rounding
        are exactly zero, so that a coordinate inside the span moves nothing.

    Notes
    -----
    One singular value decomposition, O(r d**2 + d**3).
    """
    xp = array_namespace(vectors)
    _, sizes, right = xp.linalg.svd(vectors, full_matrices=True)
    largest = float(sizes[0]) if sizes.shape[0] else 0.0
    rank = int(xp.sum(xp.astype(sizes > tolerance * largest, xp.int64))) if largest > 0 else 0
    right = xp.where(xp.abs(right) < 1e-12, xp.zeros_like(right), right)
    return right[:rank, :], right[rank:, :].T


def squared_distance(x: Array, other: Array, sigma: Array) -> Array:
    """Return d(x, x') = (x - x')ᵀ Σ (x - x') row by row.

    Parameters
    ----------
    x, other : array of shape (n, d)
        Pairs of rows.
    sigma : array of shape (d, d)
        Symmetric, positive semidefinite.

    Returns
    -------
    array of shape (n,)
        In squared units of the features; never negative.
    """
    xp = array_namespace(x, other, sigma)
    difference = x - other
    value = xp.sum((difference @ sigma) * difference, axis=-1)
    return xp.maximum(value, xp.zeros_like(value))
