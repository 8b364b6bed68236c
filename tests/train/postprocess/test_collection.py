from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client

from fairfrontier.train.postprocess.collection import collect_histogram
from fairfrontier.train.postprocess.threshold import ScoreHistogram

CHUNKS = (40, 1, 109)


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    score = np.clip(generator.normal(size=150), -1, 1)
    return (
        score,
        generator.integers(3, size=150),
        generator.exponential(size=150),
        generator.integers(2, size=150),
    )


def stream(score, code, weight, y):
    held = ScoreHistogram.empty(3, 64)
    start = 0
    for size in CHUNKS:
        batch = slice(start, start + size)
        held = held.add(
            score[batch],
            code[batch],
            None if weight is None else weight[batch],
            None if y is None else y[batch],
        )
        start += size
    return held


def collections(columns, chunks):
    return [None if each is None else da.from_array(each, chunks=(chunks,)) for each in columns]


@pytest.mark.parametrize("told", [(True, True), (False, True), (False, False)])
def test_distributed_is_local_to_the_last_bit(rows, told):
    score, code, weight, y = rows
    weight, y = (each if held else None for each, held in zip((weight, y), told, strict=True))
    local = stream(score, code, weight, y)
    lazy_score, _, lazy_weight, lazy_y = collections((score, code, weight, y), CHUNKS)
    # Other partitions of the other columns are no obstacle.
    lazy_code = da.from_array(code, chunks=70)
    with dask.config.set(scheduler="synchronous"):
        found = collect_histogram(lazy_score, lazy_code, 3, bins=64, weight=lazy_weight, y=lazy_y)
    assert found.rows == local.rows
    assert found.mass.tobytes() == local.mass.tobytes()
    assert (found.positive is None) == (y is None)
    if y is not None:
        assert found.positive.tobytes() == local.positive.tobytes()


def test_a_client_s_workers_count(rows):
    local = stream(*rows)
    score, code, weight, y = collections(rows, CHUNKS)
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": ":0"}
    with Client(processes=False, **options) as client:
        found = collect_histogram(score, code, 3, bins=64, weight=weight, y=y, client=client)
    assert found.mass.tobytes() == local.mass.tobytes()
