from __future__ import annotations

import time
from threading import Event

import pytest
from distributed import Client

from fairfrontier.train.dask import placement
from fairfrontier.train.dask.placement import Placement, WorkerLostError, add_up


@pytest.fixture(scope="module")
def client():
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, n_workers=2, **options) as client:
        yield client


@pytest.fixture
def placed(client):
    """Two partitions on one worker and one on the other."""
    held = [
        (address, client.submit(list, parts, workers=[address], pure=False))
        for address, parts in zip(sorted(client.nthreads()), ((1, 2), (3,)), strict=True)
    ]
    placed = Placement(client, held, timeout=30.0)
    yield placed
    placed.release()


# Workers are threads of this process.
TOLD, ENDED = Event(), Event()


def raise_missing(parts):
    if len(parts) == 1:
        raise FileNotFoundError("no such table")
    TOLD.wait(60)
    ENDED.set()


def test_functions_go_to_partitions_and_sums_come_back(placed):
    tenfold = placed.replace(lambda part, factor: part * factor, 10)
    assert tenfold.collect(lambda part: part) == [10, 20, 30]
    assert tenfold.sum(lambda part: (part, 1)) == (60, 3)
    assert placed.call(len) == [2, 1]
    assert placed.keep([False, True]).call(sum) == [3]


def test_objects_are_made_of_objects_and_dropped(placed, client):
    state = placed.make_each(sum)
    for _ in range(3):
        later = state.make_each(lambda total, more: total + more, 1)
        state.drop()
        state = later
    assert state.call(float) == [6.0, 6.0]
    placed.release()
    assert not client.futures
    assert not placed.futures


def test_a_failure_is_told_though_another_worker_is_busy(placed, monkeypatch):
    monkeypatch.setattr(placement, "LOOK", 0.05)
    # A file that is missing is no lost worker.
    with pytest.raises(FileNotFoundError, match="no such table"):
        placed.call(raise_missing)
    assert not ENDED.is_set()
    TOLD.set()


def test_work_that_is_cancelled_or_takes_too_long_is_lost(placed, client, monkeypatch):
    monkeypatch.setattr(placement, "LOOK", 0.05)
    late = Placement(client, placed.objects, timeout=0.1)
    with pytest.raises(WorkerLostError, match="no answer in time"):
        late.call(lambda parts: time.sleep(0.4))


def test_sums_of_tuples_are_taken_entry_by_entry():
    assert add_up([(1, (2, 3)), (4, (5, 6))]) == (5, (7, 9))
