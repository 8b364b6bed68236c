from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import dask
import pytest

from fairfrontier.runtime.cluster import open as opening
from fairfrontier.runtime.cluster.config import CLUSTER_CLASSES, ClusterConfig
from fairfrontier.runtime.cluster.executor import computing_on
from fairfrontier.runtime.cluster.open import call_worker, open_cluster
from fairfrontier.runtime.errors import ClusterError


def stop_once(path):
    """Run on a worker: stop its process, as SIGSTOP from elsewhere would, the first time."""
    with suppress(FileExistsError):
        path.touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGSTOP)
    return os.getpid()


@pytest.mark.slow
def test_a_stopped_worker_is_replaced(tmp_path):
    with open_cluster(ClusterConfig(kind="local", workers=1, silence=1)) as client:
        first = client.submit(os.getpid, pure=False).result(30)
        assert call_worker(client, stop_once, tmp_path / "stopped") != first


SCHEDULER = """
import time
from distributed import LocalCluster
with LocalCluster(n_workers=1, processes=False, dashboard_address=":0", protocol="tcp") as cluster:
    print(cluster.scheduler_address, flush=True)
    time.sleep(60)
"""


def test_a_scheduler_that_is_killed_is_noticed_at_once():
    command = [sys.executable, "-c", SCHEDULER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        config = ClusterConfig(kind="scheduler", address=process.stdout.readline().strip())
        with open_cluster(config) as client:
            with ThreadPoolExecutor() as threads:
                waiting = threads.submit(call_worker, client, time.sleep, 60)
                assert call_worker(client, abs, -1) == 1
                process.kill()
                with pytest.raises(ClusterError):
                    waiting.result(20)
            with pytest.raises(ClusterError):
                call_worker(client, abs, -1)


@pytest.mark.once
def test_workers_that_dask_does_not_bring_back_are_started_again():
    with (
        open_cluster(ClusterConfig(kind="local", workers=1)) as client,
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1s"}),
    ):
        client.cluster.sync(client.cluster.workers[0].close)
        assert call_worker(client, abs, -1) == 1
        # A worker may answer before the cluster lists it.
        until = time.monotonic() + 20
        while not client.cluster.workers and time.monotonic() < until:
            time.sleep(0.01)
        # So are they where Dask itself computes.
        client.cluster.sync(next(iter(client.cluster.workers.values())).close)
        with computing_on(client):
            assert dask.compute(dask.delayed(abs)(-1), 2) == (1, 2)


@pytest.mark.once
def test_a_cluster_that_stays_without_workers_is_given_up(monkeypatch):
    monkeypatch.setattr(opening, "RETURN", 1.0)
    options = {"processes": False, "n_workers": 1, "dashboard_address": "127.0.0.1:0"}
    monkeypatch.setitem(CLUSTER_CLASSES, "mine", ("distributed", "LocalCluster"))
    config = ClusterConfig(kind="mine", options=options, timeout=0.5)
    with open_cluster(config) as client:
        client.cluster.scale(0)
        with pytest.raises(ClusterError):
            call_worker(client, abs, -1)
        with computing_on(client), pytest.raises(ClusterError):
            dask.compute(dask.delayed(abs)(-1))
