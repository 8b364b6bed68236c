"""Ranks of numbers within a distribution."""

from __future__ import annotations

import numpy as np


def rank(scores: np.ndarray, reference: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return F(s): the weighted share of the reference below s, and half of that equal to s.

    ``scores`` may have any shape, which is that of the ranks; ``reference`` and ``weight`` have
    shape (n,). O(n log n).
    """
    order = np.argsort(reference, kind="stable")
    held, total = reference[order], np.append(0.0, np.cumsum(weight[order]))
    # In rising order each search begins in the cache, where the one before has ended.
    rising = np.argsort(scores, axis=None)
    sought = scores.astype(held.dtype, copy=False).ravel()[rising]
    below, up_to = (total[np.searchsorted(held, sought, side=side)] for side in ("left", "right"))
    ranks = np.empty(scores.size)
    ranks[rising] = (below + up_to) / (2 * total[-1])
    return ranks.reshape(scores.shape)
