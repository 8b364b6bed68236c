from __future__ import annotations

import subprocess
import sys

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client

from fairfrontier.runtime.cluster import partition
from fairfrontier.runtime.cluster.partition import (
    computing_on,
    count_memory,
    hold,
    let_go,
    map_partitions,
    sum_partitions,
)
from tests.namespaces import SecondDevice

X = np.arange(24.0).reshape(12, 2)
READ: list[int] = []


@pytest.fixture(scope="module")
def client():
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, n_workers=2, **options) as client:
        yield client


def cut() -> da.Array:
    return da.from_array(X, chunks=((5, 4, 3), 2))


def note(block: np.ndarray) -> np.ndarray:
    READ.append(len(block))
    return block


def look(rows: np.ndarray, y: np.ndarray, nothing: None, factor: float) -> tuple[np.ndarray, float]:
    assert nothing is None
    return rows.sum(axis=0), factor * float(y.sum())


def test_values_come_in_the_order_of_the_partitions_with_their_rows():
    with computing_on(None):
        values = map_partitions(look, cut(), (X[:, 0], None), (2.0,))
        total = sum_partitions(look, cut(), (X[:, 0], None), (2.0,))
    edges = [(0, 5), (5, 9), (9, 12)]
    for (sums, number), (start, end) in zip(values, edges, strict=True):
        np.testing.assert_array_equal(sums, X[start:end].sum(axis=0))
        assert number == 2.0 * X[start:end, 0].sum()
    np.testing.assert_array_equal(total[0], X.sum(axis=0))


def test_blocks_on_a_device_are_read_from_the_host():
    asarray = SecondDevice().asarray
    there = cut().map_blocks(asarray, meta=asarray(np.empty((0, 0))))
    found = map_partitions(lambda block: block, there)
    assert all(isinstance(block, np.ndarray) for block in found)
    assert np.array_equal(np.concatenate(found), X)


def test_workers_give_what_this_process_gives(client):
    with computing_on(client):
        total = sum_partitions(look, cut(), (X[:, 0], None), (2.0,))
    np.testing.assert_array_equal(total[0], X.sum(axis=0))


def first(rows: np.ndarray) -> tuple[float]:
    return (float(rows[0, 0]),)


def test_sums_are_of_neighbours_on_any_number_of_workers(client):
    # Rounding tells the order: 1 is lost beside 1e16; one after the other would give 5.
    numbers = np.array([[1e16], [1.0], [-1e16], [1.0], [4.0]])
    X = da.from_array(numbers, chunks=(1, 1))
    for where in (None, client):
        with computing_on(where):
            assert sum_partitions(first, X) == (4.0,)


def test_rows_are_held_once_where_workers_have_room(client, monkeypatch):
    lazy = cut().map_blocks(note, dtype=np.float64, meta=np.empty((0, 2)))
    with computing_on(client):
        for _ in range(2):
            sum_partitions(look, hold(lazy), (X[:, 0], None), (1.0,))
        assert sorted(READ) == [3, 4, 5]
        monkeypatch.setattr(partition, "SHARE", 0.0)
        other = lazy + 1
        assert hold(other) is other
        assert hold(lazy) is not lazy
    assert hold(lazy) is lazy
    with computing_on(client):
        # With SHARE 0 nothing is held, unless it was before.
        assert hold(lazy) is lazy


def test_what_is_let_go_is_read_again(client):
    lazy = cut()
    with computing_on(client):
        held = hold(lazy)
        assert hold(lazy) is held
        let_go(client)
        assert hold(lazy) is not held


def test_settings_of_clusters_that_are_imported_meanwhile_remain():
    code = (
        "import dask; from fairfrontier.runtime.cluster.partition import computing_on\n"
        "with computing_on(None):\n    import distributed\n"
        "assert dask.config.get('distributed.comm.timeouts.connect')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_dask_computes_as_before_afterwards(client):
    before = dask.config.get("scheduler", None)
    with computing_on(client):
        assert dask.config.get("scheduler").client is client
    assert dask.config.get("scheduler", None) is before


@pytest.mark.parametrize(("text", "limited"), [("4096\n", True), ("max\n", False)])
def test_memory_is_at_most_that_of_the_container(tmp_path, monkeypatch, text, limited):
    monkeypatch.setattr(partition, "LIMITS", (tmp_path / "memory.max", tmp_path / "none"))
    whole = count_memory()
    (tmp_path / "memory.max").write_text(text)
    assert count_memory() == (4096 if limited else whole)
