from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from distributed import Client, futures_of

from fairfrontier.runtime.errors import ClusterError, ConfigError, DataError
from fairfrontier.train.dask import collection
from fairfrontier.train.dask.collection import is_collection, place_partitions, try_twice
from fairfrontier.train.dask.placement import WorkerLostError


@pytest.fixture(scope="module")
def client():
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, n_workers=2, **options) as client:
        yield client


class Fit:
    """A fit that loses its workers in the ways told, and notes its clients."""

    def __init__(self, *ways):
        self.ways, self.clients = ways, []

    def __call__(self, client):
        assert client.submit(int, 1, pure=False).result(10) == 1
        self.clients.append(client)
        if len(self.clients) <= len(self.ways):
            raise self.ways[len(self.clients) - 1]("it is gone")


def test_the_second_try_is_by_another_client(client):
    fit = Fit(WorkerLostError)
    try_twice(fit, client, name="mine")
    first, second = fit.clients
    assert first is client
    assert second is not client
    assert second.status == "closed"


def test_arrays_that_are_persisted_keep_their_client(client):
    fit, array = Fit(WorkerLostError), client.persist(da.ones(4, chunks=2))
    try_twice(fit, client, name="mine", arrays=(array, np.ones(4), None))
    assert fit.clients == [client, client]
    assert futures_of(array)


def test_a_second_loss_ends_the_fit(client):
    fit = Fit(WorkerLostError, WorkerLostError)
    with pytest.raises(ClusterError, match=r"mine lost a worker .* retried: it is gone") as told:
        try_twice(fit, client, name="mine")
    assert "Check the workers' logs" in told.value.mend
    assert len(fit.clients) == 2


@pytest.mark.parametrize("way", [TimeoutError, ConnectionError])
def test_workers_that_do_not_come_back_end_the_fit(client, monkeypatch, way):
    def renew(*_, **__):
        raise way("Only 0\nof 2")

    monkeypatch.setattr(collection, "renew", renew)
    fit = Fit(WorkerLostError)
    with pytest.raises(ClusterError, match=r"retried: no worker came \(Only 0 of 2\)"):
        try_twice(fit, client, name="mine")
    assert len(fit.clients) == 1


@pytest.mark.parametrize("way", [FileNotFoundError, TimeoutError, ConnectionError])
@pytest.mark.parametrize("losses", [0, 1])
def test_a_fault_of_the_work_is_told_at_either_try(client, way, losses):
    def open_table(number, *_):
        raise way("no such table")

    lost = [WorkerLostError] * losses

    def fit(workers):
        if lost:
            raise lost.pop()("it is gone")
        X = da.ones((4, 1), chunks=(2, 1))
        place_partitions(open_table, (X,), names=(), client=workers, timeout=30.0)

    with pytest.raises(way, match=r"^no such table$"):
        try_twice(fit, client, name="mine")
    assert not lost


def test_what_is_no_loss_is_not_tried_again(client):
    tries = []

    def fit(workers):
        tries.append(workers)
        raise DataError("Wrong.", "Mend.")

    with pytest.raises(DataError):
        try_twice(fit, client, name="mine")
    assert len(tries) == 1
    with pytest.raises(ConfigError, match="mine is given Dask arrays without a client"):
        try_twice(fit, None, name="mine")


def test_partitions_are_dealt_in_order_and_others_cut_alike(client):
    X = np.arange(20.0).reshape(10, 2)
    lazy = da.from_array(X, chunks=((3, 0, 4, 3), 1))
    placed = place_partitions(
        lambda number, x, y, absent, told: (number, x, y, absent, told),
        (lazy, np.arange(10), None),
        ("told",),
        names=("y", "weight"),
        client=client,
    )
    assert is_collection(lazy)
    assert not is_collection(X)
    assert [address for address, _ in placed.objects] == sorted(client.nthreads())
    found = placed.collect(lambda part: part)
    assert [part[0] for part in found] == [0, 1, 2, 3]
    assert np.array_equal(np.concatenate([part[1] for part in found]), X)
    assert [part[2].tolist() for part in found] == [[0, 1, 2], [], [3, 4, 5, 6], [7, 8, 9]]
    assert {part[3:] for part in found} == {(None, "told")}
    placed.release()


def test_rows_that_are_placed_need_the_room_of_held_ones(client, monkeypatch):
    let_go = []
    monkeypatch.setattr(collection, "let_go", let_go.append)
    X = da.ones((4, 1), chunks=(2, 1))
    place_partitions(count, (X,), names=(), client=client).release()
    assert let_go == [client]
    # Those that are held already are not placed anew.
    place_partitions(count, (client.persist(X),), names=(), client=client).release()
    assert let_go == [client]


def count(number, X):
    return number, len(X)
