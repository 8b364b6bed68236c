"""Histograms of scores that are Dask arrays, counted partition by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dask
import dask.array as da
from dask.delayed import delayed

from fairfrontier.train.postprocess.threshold import BINS, ScoreHistogram

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
    """Count scores by group and bin, in one pass over the partitions of Dask arrays.

    Arguments are those of `ScoreHistogram.add`. The workers of ``client`` count, or else Dask's
    default scheduler. One histogram per partition is sent, and they are merged in the partitions'
    order: the same bits as from adding the partitions one after the other.
    """
    blocks = [
        [None] * score.npartitions
        if column is None
        else column.rechunk(score.chunks).to_delayed().reshape(-1).tolist()
        for column in (score, code, weight, y)
    ]
    empty = ScoreHistogram.empty(n_groups, bins)
    total = delayed(empty)
    for block in zip(*blocks, strict=True):
        total = delayed(ScoreHistogram.merge)(total, delayed(ScoreHistogram.add)(empty, *block))
    histogram: ScoreHistogram
    if client is not None:
        histogram = client.compute(total).result()
    else:
        (histogram,) = dask.compute(total)
    return histogram
