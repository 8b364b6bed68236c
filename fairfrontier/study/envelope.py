"""The lower convex envelope of points of which less is better in both coordinates."""

from __future__ import annotations

import numpy as np

from fairfrontier.study.frontier import find_pareto


def find_envelope(cost: np.ndarray, harm: np.ndarray) -> np.ndarray:
    """Find the corners of the lower convex envelope of a Pareto front.

    Drawing between two predictors attains every point between theirs, so that a point above such
    a segment is not worth having.

    Parameters
    ----------
    cost, harm : ndarray of float64, shape (n_points,)
        Less is better in both; points with a NaN are left out.

    Returns
    -------
    ndarray of int64
        Positions of the corners, by ascending harm and so descending cost. Of equal points the
        first; points on a segment between two corners are no corners.

    Notes
    -----
    O(m log m).

    References
    ----------
    Andrew, "Another efficient algorithm for convex hulls in two dimensions", 1979.
    """
    cost, harm = np.asarray(cost, dtype=np.float64), np.asarray(harm, dtype=np.float64)
    front = np.flatnonzero(find_pareto(-np.column_stack([cost, harm])))
    front = front[np.lexsort((front, harm[front]))]
    corners: list[int] = []
    for each in front.tolist():
        if corners and (cost[each], harm[each]) == (cost[corners[-1]], harm[corners[-1]]):
            continue
        while len(corners) > 1 and not _turns(cost, harm, corners[-2], corners[-1], each):
            corners.pop()
        corners.append(each)
    return np.array(corners, dtype=np.int64)


def _turns(cost: np.ndarray, harm: np.ndarray, first: int, middle: int, last: int) -> bool:
    """Tell whether the middle point lies below the segment between the other two."""
    along = (harm[middle] - harm[first]) * (cost[last] - cost[first])
    return bool((cost[middle] - cost[first]) * (harm[last] - harm[first]) < along)
