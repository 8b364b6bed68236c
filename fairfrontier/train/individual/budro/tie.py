"""The rule for points that are equally good for a column: its own point, else the first.

Trees give many rows one loss, and categorical rows lie at equal distances, so that points often tie
in exact arithmetic. Rounding must not choose among them, since it depends on the order of rows and
on which columns are multiplied together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace

Array = Any

# Values tie if they differ by less than this share of the scale in `Search.tolerance`: 4,500 units
# in the last place, above the rounding of sums of some thousand products and of an embedding.
TIE = 1e-12


def choose_first(owner: Array, point: Array, value: Array, own: Array, slack: Array) -> Array:
    """Return for each of m columns the first point whose value is within ``slack`` of the best.

    ``owner``, ``point`` and ``value`` list pairs of a column (0, …, m − 1, rising, all present), a
    candidate point and its value. A column's own point comes before all others, which come in
    rising order. Shapes: (n_pairs,), and (m,) of ``own``, ``slack`` and the result.
    """
    xp = array_namespace(owner)
    column = xp.arange(own.shape[0], device=device(owner))
    start = xp.searchsorted(owner, column)
    rank = xp.where(point == xp.take(own, owner), -1, point)
    if is_numpy_namespace(xp):
        enough = np.maximum.reduceat(value, start) - slack
        rank[value < enough[owner]] = np.iinfo(np.int64).max
        first = np.minimum.reduceat(rank, start)
    else:
        last = xp.searchsorted(owner, column, side="right") - 1
        enough = xp.take(value, xp.take(_sort(owner, value), last)) - slack
        rank = xp.where(value >= xp.take(enough, owner), rank, xp.max(point) + 1)
        first = xp.take(rank, xp.take(_sort(owner, rank), start))
    return xp.where(first < 0, own, first)


def _sort(owner: Array, values: Array) -> Array:
    """Return the order of pairs by owner, then by value."""
    xp = array_namespace(owner)
    rising = xp.argsort(values)
    return xp.take(rising, xp.argsort(xp.take(owner, rising), stable=True))
