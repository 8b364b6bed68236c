"""Points in compact blocks: halves of halves, each cut across its widest coordinate."""

from __future__ import annotations

import numpy as np


def split_points(point: np.ndarray, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut points in two at the middle of the coordinate of largest variance, and so on.

    Parameters
    ----------
    point : float64 array of shape (n_points, k)
        Distinct points.
    largest : int
        Points of a block at most, 1 or more.

    Returns
    -------
    order : int64 array of shape (n_points,)
        Points, block by block.
    start : int64 array of shape (n_blocks,)
        Place in that order where each block begins.

    Notes
    -----
    O(n k log n). A cut never parts points of an equal coordinate where another place nearby would
    do, so that a category stays together; blocks hold between a few and ``largest`` points.
    """
    order = np.arange(point.shape[0])
    waiting, start = [(0, point.shape[0])], []
    while waiting:
        first, stop = waiting.pop()
        if stop - first <= largest:
            start.append(first)
            continue
        members = point[order[first:stop]]
        axis = int(np.argmax(members.var(axis=0)))
        rising = np.argsort(members[:, axis], kind="stable")
        order[first:stop] = order[first:stop][rising]
        cut = first + _find_gap(members[rising, axis])
        waiting += [(first, cut), (cut, stop)]
    return order, np.sort(np.asarray(start, dtype=np.int64))


def _find_gap(sorted_values: np.ndarray) -> int:
    """Return the place nearest to the middle where the value changes, or the middle."""
    half = sorted_values.size // 2
    left, right = (
        int(np.searchsorted(sorted_values, sorted_values[half], side=side))
        for side in ("left", "right")
    )
    near, far = (left, right) if half - left <= right - half else (right, left)
    for place in (near, far):
        if 0 < place < sorted_values.size:
            return place
    return half
