from __future__ import annotations

import subprocess
import sys
import time
from threading import Event

import dask.array as da
import numpy as np
import pytest
from distributed import Client

from fairfrontier.runtime.cluster import executor
from fairfrontier.runtime.cluster.executor import (
    WorkerLostError,
    add_up,
    computing_on,
    count_memory,
    fit_rows,
    hold,
    is_collection,
    open_rows,
    read_columns,
)
from fairfrontier.runtime.errors import ClusterError, DataError
from tests.namespaces import SecondDevice

X = np.arange(24.0).reshape(12, 2)
READ: list[int] = []


@pytest.fixture(scope="module")
def client():
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, n_workers=2, **options) as client:
        yield client


def cut(array=X, sizes=(5, 4, 0, 3)):
    return da.from_array(array, chunks=(sizes, array.shape[1]))


def note(block: np.ndarray) -> np.ndarray:
    READ.append(len(block))
    return block


def look(block, factor):
    return block.X.sum(axis=0), factor * float(block["y"].sum())


def read(block):
    return block.start, block.X, block["y"]


def double(block):
    return executor.Block(block.number, block.start, 2 * block.X, block.columns)


def everywhere(client, work, X=X, sizes=(5, 4, 0, 3), **columns):
    """Return what work makes of rows in memory, computed in blocks, and on workers."""
    lazy = cut(X, sizes)
    with computing_on(None):
        found = [fit_rows(work, X, name="mine", **columns)]
        found.append(fit_rows(work, lazy, name="mine", **columns))
    return [*found, fit_rows(work, lazy, client=client, name="mine", **columns)]


def test_values_and_sums_are_the_same_wherever_rows_are(client):
    def work(rows):
        values, total = rows.map(read), rows.sum(look, 2.0)
        assert [start for start, *_ in values] == np.cumsum([0, *rows.sizes])[:-1].tolist()
        assert np.array_equal(np.concatenate([x for _, x, _ in values]), X)
        assert np.array_equal(np.concatenate([y for *_, y in values]), X[:, 0])
        return total

    for sums, number in everywhere(client, work, y=X[:, 0]):
        np.testing.assert_array_equal(sums, X.sum(axis=0))
        assert number == 2.0 * X[:, 0].sum()


def test_rows_are_taken_changed_and_given_columns(client):
    chosen = np.array([0, 3, 9, 10])

    def work(rows):
        some = rows.take(chosen).derive(double).attach(y=np.arange(4))
        assert some.n_samples == 4
        assert np.array_equal(rows.read(chosen, "float32"), X[chosen])
        return [np.concatenate(each) for each in list(zip(*some.map(read), strict=True))[1:]]

    for x, y in everywhere(client, work):
        assert np.array_equal(x, 2 * X[chosen])
        assert y.tolist() == [0, 1, 2, 3]


def test_sums_are_of_neighbours_on_any_number_of_workers(client):
    # Rounding tells the order: 1 is lost beside 1e16; one after the other would give 5.
    numbers = np.array([[1e16], [1.0], [-1e16], [1.0], [4.0]])
    found = everywhere(client, lambda rows: rows.sum(first), numbers, (1,) * 5)
    assert found[1:] == [4.0, 4.0]


def first(block):
    return float(block.X[0, 0])


def count(blocks, factor):
    return add_up(np.array([[sum(len(block) for block in blocks), factor]]))


def test_processes_know_their_sums(client):
    def work(rows):
        team = rows.make(count, 1.0)
        once = rows.together(count, 1.0)
        assert [each.tolist() for each in team.together(np.copy)] == [e.tolist() for e in once]
        return once

    here, lazy, there = everywhere(client, work)
    assert here[0].tolist() == lazy[0].tolist() == [[12.0, 1.0]]
    assert [each.tolist() for each in there] == [[[12.0, 2.0]]] * 2


def test_blocks_on_a_device_are_read_from_the_host():
    asarray = SecondDevice().asarray
    there = cut().map_blocks(asarray, meta=asarray(np.empty((0, 0))))
    found = open_rows(there).map(lambda block: block.X)
    assert all(isinstance(block, np.ndarray) for block in found)
    assert np.array_equal(np.concatenate(found), X)


def test_rows_are_held_once_where_workers_have_room(client, monkeypatch):
    lazy = cut().map_blocks(note, dtype=np.float64, meta=np.empty((0, 2)))
    with computing_on(client):
        for _ in range(2):
            open_rows(hold(lazy), y=X[:, 0]).sum(look, 1.0)
        assert sorted(READ) == [0, 3, 4, 5]
        monkeypatch.setattr(executor, "SHARE", 0.0)
        other = lazy + 1
        assert hold(other) is other
        assert hold(lazy) is not lazy
    assert hold(lazy) is lazy
    assert hold(X) is X
    with computing_on(client):
        # With SHARE 0 nothing is held, unless it was before.
        assert hold(lazy) is lazy


def test_a_fit_that_fills_the_workers_has_the_room_of_what_is_held(client):
    lazy = cut()
    with computing_on(client):
        held = hold(lazy)
        assert hold(lazy) is held
        fit_rows(lambda rows: rows.sum(first), cut(X, (6, 6)), client=client, name="mine")
        assert hold(lazy) is not held


class Fit:
    """A fit that loses its workers in the ways told, and counts its tries."""

    def __init__(self, *ways):
        self.ways, self.tries = ways, 0

    def __call__(self, rows):
        self.tries += 1
        if self.tries <= len(self.ways):
            raise self.ways[self.tries - 1]("it is gone")
        return rows.n_samples


def test_a_lost_worker_costs_a_try_and_a_second_ends_the_fit(client):
    fit = Fit(WorkerLostError)
    assert fit_rows(fit, cut(), client=client, name="mine") == 12
    assert fit.tries == 2
    with pytest.raises(ClusterError):
        fit_rows(Fit(WorkerLostError, WorkerLostError), cut(), client=client, name="mine")


@pytest.mark.parametrize("way", [FileNotFoundError, TimeoutError, ConnectionError])
@pytest.mark.parametrize("losses", [0, 1])
def test_an_error_of_the_work_is_raised_at_either_try(client, way, losses):
    def open_table(block):
        raise way("no such table")

    fit = Fit(*[WorkerLostError] * losses)
    with pytest.raises(way, match=r"^no such table$"):
        fit_rows(lambda rows: fit(rows) and rows.map(open_table), cut(), client=client, name="mine")
    assert fit.tries == losses + 1


# Workers are threads of this process.
TOLD, ENDED = Event(), Event()


def raise_missing(block):
    if block.number:
        raise FileNotFoundError("no such table")
    TOLD.wait(60)
    ENDED.set()


def test_a_failure_is_raised_though_another_worker_is_busy(client, monkeypatch):
    monkeypatch.setattr(executor, "LOOK", 0.05)
    lazy = cut(X, (6, 6))
    # A file that is missing is no lost worker.
    with pytest.raises(FileNotFoundError, match="no such table"):
        fit_rows(lambda rows: rows.map(raise_missing), lazy, client=client, name="mine")
    assert not ENDED.is_set()
    TOLD.set()


def test_work_that_takes_too_long_is_lost(client, monkeypatch):
    monkeypatch.setattr(executor, "LOOK", 0.05)
    monkeypatch.setattr(executor, "TIMEOUT", 0.1)
    with pytest.raises(ClusterError):
        fit_rows(lambda rows: rows.map(wait), cut(), client=client, name="mine")


def wait(block):
    time.sleep(0.4)


def test_columns_of_other_lengths_are_refused(client):
    with pytest.raises(DataError, match="rows of y cannot be matched"):
        read_columns(client, cut(), y=np.ones(11))
    assert is_collection(cut())
    assert not is_collection(X)


def test_settings_of_clusters_that_are_imported_meanwhile_remain():
    code = (
        "import dask; from fairfrontier.runtime.cluster.executor import computing_on\n"
        "with computing_on(None):\n    import distributed\n"
        "assert dask.config.get('distributed.comm.timeouts.connect')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(("text", "limited"), [("4096\n", True), ("max\n", False)])
def test_memory_is_at_most_that_of_the_container(tmp_path, monkeypatch, text, limited):
    monkeypatch.setattr(executor, "LIMITS", (tmp_path / "memory.max", tmp_path / "none"))
    whole = count_memory()
    (tmp_path / "memory.max").write_text(text)
    assert count_memory() == (4096 if limited else whole)
