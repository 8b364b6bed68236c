"""Histograms of scores that are Dask arrays: a partition at a time, wherever it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed

from fairfrontier.train.postprocess.histogram import BINS, ScoreHistogram

if TYPE_CHECKING:
    from distributed import Client


def collect_histogram(
    score: da.Array,
    code: da.Array,
    n_groups: int,
    *,
    bins: int = BINS,
    weight: da.Array | None = None,
    y: da.Array | None = None,
    client: Client | None = None,
) -> ScoreHistogram:
    """Count scores by group and bin, in one pass over the partitions.

    Parameters
    ----------
    score : dask array of float, shape (n_samples,)
        f ∈ [−1, 1].
    code : dask array of integers, shape (n_samples,)
        Group codes in 0, …, n_groups − 1.
    n_groups, bins : int
        As `ScoreHistogram`.
    weight, y : dask arrays of shape (n_samples,), optional
        Case weights and labels.
    client : distributed.Client, optional
        Whose workers count; Dask's default scheduler otherwise.

    Returns
    -------
    ScoreHistogram
        The very one that adding the partitions one after the other gives, to the last bit.

    Notes
    -----
    What travels is one histogram a partition; they are merged in the partitions' order.
    """
    columns = [score, code, weight, y]
    blocks = [
        [None] * score.npartitions
        if column is None
        else column.rechunk(score.chunks).to_delayed().reshape(-1).tolist()
        for column in columns
    ]
    merged = delayed(ScoreHistogram.empty)(n_groups, bins)
    for block in zip(*blocks, strict=True):
        merged = delayed(_merge)(merged, delayed(_count)(n_groups, bins, *block))
    if client is not None:
        found: ScoreHistogram = client.compute(merged).result()
        return found
    (found,) = dask.compute(merged)
    return found


def _count(
    n_groups: int,
    bins: int,
    score: np.ndarray,
    code: np.ndarray,
    weight: np.ndarray | None,
    y: np.ndarray | None,
) -> ScoreHistogram:
    return ScoreHistogram.empty(n_groups, bins).add(score, code, weight, y)


def _merge(first: ScoreHistogram, second: ScoreHistogram) -> ScoreHistogram:
    return first.merge(second)
