from __future__ import annotations

import os
import socket
import sys

import numpy as np
import pytest
from distributed import Client

from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.runtime.cluster.open import open_cluster
from fairfrontier.train.dask.collective import _unheard, add_up, communicating, convene
from fairfrontier.train.dask.placement import Placement, WorkerLostError
from tests.security.sockets import LOOPBACK, list_listening


def total(number, peers):
    with communicating(**peers):
        return add_up(np.array([[number, 1.0]])), add_up(np.array(number))


def place(client):
    held = [
        (address, client.submit(float, number, workers=[address], pure=False))
        for number, address in enumerate(sorted(client.nthreads()))
    ]
    return Placement(client, held, timeout=120.0)


def test_workers_meet_and_know_the_sum():
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, n_workers=3, **options) as client:
        placed = place(client)
        for _ in range(2):
            for pair, single in placed.call(total, convene(placed)):
                assert pair.tolist() == [[3.0, 3.0]]
                assert single.shape == ()
                assert single == 3.0
        placed.release()


def say_error(peers):
    """Say to every port of this process that is open to the network that a fit has failed."""
    with communicating(**peers):
        open_ports = {
            port for port, host in list_listening([os.getpid()]).items() if host != LOOPBACK
        }
        heard = 0
        for port in open_ports:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=0.5) as connection:
                    connection.sendall(b"\xff" * 4)
                    heard += 1
            except TimeoutError:
                pass
        return len(open_ports), heard, float(add_up(np.ones(1))[0])


def leave(number, peers):
    """Leave the others without a word, but for the process of the first."""
    from xgboost.core import XGBoostError

    with communicating(**peers):
        if number:
            raise XGBoostError("[12:00:00] /workspace/src/collective/result.cc:83: Ring failed.")


@pytest.mark.skipif(sys.platform != "linux", reason="packets are only signed on Linux")
@pytest.mark.parametrize(("family", "hosts"), [(2, ["127.0.0.1"]), (10, ["127.0.0.1", "::1"])])
def test_a_socket_hears_nobody_meanwhile_in_either_family(family, hosts):
    with socket.socket(family) as listener:
        listener.bind(("::" if len(hosts) > 1 else "0.0.0.0", 0))  # noqa: S104
        listener.listen()
        port = listener.getsockname()[1]
        with _unheard(listener):
            for host in hosts:
                with pytest.raises(TimeoutError):
                    socket.create_connection((host, port), timeout=0.2)
        for host in hosts:
            socket.create_connection((host, port), timeout=5.0).close()


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="packets are only signed on Linux")
def test_nobody_ends_a_fit_by_a_port_that_is_open_to_the_network():
    with open_cluster(ClusterConfig(kind="local", workers=2)) as client:
        placed = place(client)
        told = placed.call(lambda _, peers: say_error(peers), convene(placed))
        assert told == [(1, 0, 2.0)] * 2
        # XGBoost itself ends the port, so that the same processes meet again.
        assert placed.call(total, convene(placed))[0][1] == 1.0
        # A connection that broke is a loss: such a fit is tried again, and ends in a sentence.
        with pytest.raises(WorkerLostError, match="lost touch"):
            placed.call(leave, convene(placed))
        placed.release()
