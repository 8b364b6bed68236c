"""Whether the nodes of a tree that was read from a file hold together."""

from __future__ import annotations

import numpy as np

LEAF = -1


def is_downward(
    left: np.ndarray, right: np.ndarray, inner: np.ndarray, feature: np.ndarray, n_features: int
) -> bool:
    """Return whether every walk down a tree ends in a leaf of it, on features that there are.

    Parameters
    ----------
    left, right : int64 arrays of shape (n_nodes,)
        Children, -1 in leaves.
    inner : bool array of shape (n_nodes,)
        Nodes that are no leaves.
    feature : int64 array of shape (n_nodes,)
        What inner nodes ask about.
    n_features : int
        Features that a row has.

    Notes
    -----
    Trees are numbered downwards, so children that come later rule out circles. O(n_nodes).
    """
    place = np.arange(len(left))
    for child in (left, right):
        below = (child > place) & (child < len(left))
        if not np.array_equal(below, inner) or (child[~inner] != LEAF).any():
            return False
    asked = feature[inner]
    return not bool(((asked < 0) | (asked >= n_features)).any())
