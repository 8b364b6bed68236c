"""Which of the points that are equally good for a column gets it: its own, else the first one.

Trees give many rows one loss, and rows of categories lie at equal distances, so that points tie in
exact arithmetic as a rule. Rounding must not choose among them: it depends on the order of rows,
and on which columns are multiplied together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace

Array = Any

# Values that differ by less, as a share of what `Search.tolerance` names, tie: 4,500 units in the
# last place, above what sums of some thousand products and the last digits of an embedding differ
# by, and far below what tells two points apart.
TIE = 1e-12


def choose_first(owner: Array, point: Array, value: Array, own: Array, slack: Array) -> Array:
    """Return which point within ``slack`` of the best comes first, for each of some columns.

    Parameters
    ----------
    owner : int64 array of shape (n_pairs,)
        Columns 0, …, m − 1, rising; each of them is there.
    point : int64 array of shape (n_pairs,)
        A point that may be the best.
    value : float64 array of shape (n_pairs,)
        What it is worth to the column.
    own : int64 array of shape (m,)
        The column's own point, which comes before all others; these come in rising order.
    slack : float64 array of shape (m,)
        By how much less than the best is as good.

    Returns
    -------
    int64 array of shape (m,)
    """
    xp = array_namespace(owner)
    every = xp.arange(own.shape[0], device=device(owner))
    start = xp.searchsorted(owner, every)
    rank = xp.where(point == xp.take(own, owner), -1, point)
    if is_numpy_namespace(xp):
        enough = np.maximum.reduceat(value, start) - slack
        rank[value < enough[owner]] = np.iinfo(np.int64).max
        first = np.minimum.reduceat(rank, start)
    else:
        last = xp.searchsorted(owner, every, side="right") - 1
        enough = xp.take(value, xp.take(_sort(owner, value), last)) - slack
        rank = xp.where(value >= xp.take(enough, owner), rank, xp.max(point) + 1)
        first = xp.take(rank, xp.take(_sort(owner, rank), start))
    return xp.where(first < 0, own, first)


def _sort(owner: Array, values: Array) -> Array:
    """Return the places of pairs by owner, then by value."""
    xp = array_namespace(owner)
    rising = xp.argsort(values)
    return xp.take(rising, xp.argsort(xp.take(owner, rising), stable=True))
