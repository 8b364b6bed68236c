"""The lower convex envelope of points of which less is better in both coordinates."""

from __future__ import annotations

import numpy as np

from fairfrontier.study.frontier import find_pareto


def find_envelope(cost: np.ndarray, harm: np.ndarray) -> np.ndarray:
    """Return the corners of the lower convex envelope of a Pareto front.

    Choosing between two predictors at random attains every point between theirs, so a point above
    such a segment is never worth choosing. ``cost`` and ``harm``, float64 of shape (n_points,), are
    better lower; points with a NaN are left out. The corners are int64 positions by ascending harm
    and so descending cost, the first of equal points; points on a segment are not corners.
    O(n log n): A. M. Andrew, Another efficient algorithm for convex hulls in two dimensions, 1979.
    """
    cost, harm = np.asarray(cost, dtype=np.float64), np.asarray(harm, dtype=np.float64)
    front = np.flatnonzero(find_pareto(-np.column_stack([cost, harm])))
    front = front[np.lexsort((front, harm[front]))]
    corners: list[int] = []
    for point in front.tolist():
        if corners and (cost[point], harm[point]) == (cost[corners[-1]], harm[corners[-1]]):
            continue
        while len(corners) > 1 and not _turns(cost, harm, corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    return np.array(corners, dtype=np.int64)


def _turns(cost: np.ndarray, harm: np.ndarray, first: int, middle: int, last: int) -> bool:
    """Return whether the middle point lies below the segment between the other two."""
    along = (harm[middle] - harm[first]) * (cost[last] - cost[first])
    return bool((cost[middle] - cost[first]) * (harm[last] - harm[first]) < along)
