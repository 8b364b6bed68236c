from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import dask
import pytest
from pydantic import ValidationError

from fairfrontier.runtime import cluster
from fairfrontier.runtime.cluster import (
    ClusterConfig,
    call_worker,
    load_cluster,
    open_cluster,
    renew,
)
from fairfrontier.runtime.errors import ClusterError, ConfigError


def facts():
    """Run on a worker: what its process was given before NumPy came."""
    import numpy  # noqa: F401
    from threadpoolctl import threadpool_info

    return (
        os.getpid(),
        os.environ["OMP_WAIT_POLICY"],
        {pool["num_threads"] for pool in threadpool_info()},
    )


@pytest.mark.parametrize("name", ["inline", "local", "cuda", "scheduler"])
def test_the_shipped_clusters_are_read(name):
    assert load_cluster(name).kind == name


def test_a_project_without_clusters_has_the_shipped_ones(tmp_path):
    assert load_cluster("inline", tmp_path).kind == "inline"


def test_inline_has_no_client():
    with open_cluster(ClusterConfig(kind="inline")) as client:
        assert client is None


def test_local_processes_have_their_own_thread_budget_and_a_scheduler_takes_callers():
    from distributed import default_client

    with open_cluster(ClusterConfig(kind="local", workers=1, threads=1)) as client:
        process, policy, threads = client.submit(facts, pure=False).result(30)
        assert process != os.getpid()
        assert policy == "PASSIVE"
        assert threads == {1}
        with pytest.raises(ValueError, match="No clients found"):
            default_client()
        address = client.cluster.scheduler_address
        assert address.startswith("tls://127.0.0.1:")
        security = client.cluster.security
        files = {
            "tls_ca_file": security.tls_ca_file,
            "tls_cert": security.tls_client_cert,
            "tls_key": security.tls_client_key,
        }
        with open_cluster(ClusterConfig(kind="scheduler", address=address, **files)) as other:
            assert other.submit(facts, pure=False).result(30)[0] == process
        assert client.submit(facts, pure=False).result(30)[0] == process
    assert client.status == "closed"


def test_two_clusters_live_side_by_side():
    config = ClusterConfig(kind="local", workers=1)
    with open_cluster(config) as one, open_cluster(config) as other:
        assert one.submit(os.getpid, pure=False).result(30) != other.submit(
            os.getpid, pure=False
        ).result(30)
        assert one.cluster.scheduler.http_server.address == "127.0.0.1"


KILLED = """
import os, signal, sys
import dask
from fairfrontier.runtime.cluster import ClusterConfig, open_cluster
with dask.config.set(temporary_directory=sys.argv[1]):
    with open_cluster(ClusterConfig(kind="local", workers=1)):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_cluster_leaves_goes_with_the_next_one(tmp_path):
    # Certificates of running clusters lie in the same place as those that are left.
    settings = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, env=settings, check=False).returncode == -signal.SIGKILL
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in left if path.suffix == ".pem"]
    with (
        dask.config.set(temporary_directory=str(tmp_path)),
        open_cluster(ClusterConfig(kind="local", workers=1)),
    ):
        assert not [path for path in left if path.exists()]
        assert list(tmp_path.rglob("*.pem"))
    assert list(tmp_path.rglob("*")) == [tmp_path / f"fairfrontier-{os.getuid()}"]


def test_other_processes_can_neither_call_nor_watch_a_local_cluster():
    from distributed.core import connect
    from distributed.security import Security

    stranger = Security.temporary().get_connection_args("client")
    with open_cluster(ClusterConfig(kind="local", workers=1)) as client:
        scheduler = client.cluster.scheduler
        plain = scheduler.address.replace("tls", "tcp")
        for address, arguments in ((plain, {}), (scheduler.address, stranger)):
            with pytest.raises(OSError, match=r"TLS certificate|reset"):
                asyncio.run(connect(address, timeout=2, **arguments))
        pages = f"http://127.0.0.1:{scheduler.http_server.port}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for page in ("/", "/health", "/info/main/workers.html", "/json/counts.json", "/metrics"):
            with pytest.raises(urllib.error.HTTPError, match="404") as refused:
                opener.open(pages + page, timeout=5)
            refused.value.close()


def test_a_clock_that_is_set_back_leaves_a_certificate_valid(tmp_path):
    from cryptography.x509 import load_pem_x509_certificate

    security = cluster._make_certificate(tmp_path)
    made = load_pem_x509_certificate(Path(security.tls_ca_file).read_bytes())
    now = datetime.now(UTC)
    assert made.not_valid_before_utc < now - timedelta(hours=23)
    assert made.not_valid_after_utc > now + timedelta(days=364)
    assert Path(security.tls_worker_key).stat().st_mode & 0o777 == 0o600


def test_a_clock_that_is_set_back_during_work_is_named(monkeypatch):
    turned = iter([0.0, 0.0])
    clock = SimpleNamespace(
        time=lambda: time.time() - next(turned, 7200.0), monotonic=time.monotonic
    )
    with open_cluster(ClusterConfig(kind="local", workers=1)) as client:
        monkeypatch.setattr(cluster, "time", clock)
        with pytest.raises(ClusterError, match="set back by 7200 s"):
            call_worker(client, time.sleep, 4)
    assert not multiprocessing.active_children()


def test_a_worker_that_never_starts_is_given_up():
    started = time.monotonic()
    with (
        dask.config.set({"distributed.worker.preload": ["import time; time.sleep(60)"]}),
        pytest.raises(ClusterError, match="had no worker within 2 s"),
        open_cluster(ClusterConfig(kind="local", workers=1, timeout=2)),
    ):
        pass
    assert time.monotonic() - started < 40
    assert not multiprocessing.active_children()


def test_ctrl_c_is_not_for_the_workers():
    with open_cluster(ClusterConfig(kind="local", workers=1)) as client:
        process = client.submit(os.getpid, pure=False).result(30)
        os.kill(process, signal.SIGINT)
        assert client.submit(os.getpid, pure=False).result(30) == process


def test_workers_are_started_afresh():
    with open_cluster(ClusterConfig(kind="local", workers=1, timeout=90)) as client:
        # So long is a worker that died waited for.
        assert dask.config.get("distributed.deploy.lost-worker-timeout") == "90.0s"
        # And one that is silent.
        assert client.cluster.scheduler.worker_ttl == 60
        process = client.submit(os.getpid, pure=False).result(30)
        with renew(client, 1, timeout=90) as fresh:
            assert fresh is not client
            assert fresh.submit(os.getpid, pure=False).result(30) != process
        assert fresh.status == "closed"
        assert client.submit(os.getpid, pure=False).result(30) != process


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
with LocalCluster(n_workers=1, processes=False, dashboard_address=None, protocol="tcp") as cluster:
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
                with pytest.raises(ClusterError, match="does not answer any more"):
                    waiting.result(20)
            with pytest.raises(ClusterError, match="does not answer any more"):
                call_worker(client, abs, -1)


def test_workers_that_dask_does_not_bring_back_are_started_again():
    with (
        open_cluster(ClusterConfig(kind="local", workers=1)) as client,
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1s"}),
    ):
        client.cluster.sync(client.cluster.workers[0].close)
        assert call_worker(client, abs, -1) == 1


def test_a_cluster_that_stays_without_workers_is_given_up(monkeypatch):
    monkeypatch.setattr(cluster, "RETURN", 1.0)
    options = {"processes": False, "n_workers": 1, "dashboard_address": None}
    monkeypatch.setitem(cluster.CLUSTER_CLASSES, "mine", ("distributed", "LocalCluster"))
    config = ClusterConfig(kind="mine", options=options, timeout=0.5)
    with open_cluster(config) as client:
        client.cluster.scale(0)
        with pytest.raises(ClusterError, match=r"had no worker for \d s"):
            call_worker(client, abs, -1)


def test_a_registered_class_is_opened_by_its_short_name(monkeypatch):
    monkeypatch.setitem(cluster.CLUSTER_CLASSES, "mine", ("distributed", "LocalCluster"))
    options = {"processes": False, "n_workers": 0, "dashboard_address": None}
    with open_cluster(ClusterConfig(kind="mine", options=options)) as client:
        assert client.submit(sum, [1, 2]).result(30) == 3


def test_a_cluster_of_a_batch_system_speaks_tls(monkeypatch):
    from distributed import LocalCluster

    def start(shared_temp_directory, **options):
        return LocalCluster(processes=False, n_workers=1, dashboard_address=":0", **options)

    monkeypatch.setitem(sys.modules, "dask_jobqueue", SimpleNamespace(SLURMCluster=start))
    with open_cluster(ClusterConfig(kind="slurm")) as client:
        assert client.scheduler.address.startswith("tls://")
        assert client.security.require_encryption
        pages = f"http://127.0.0.1:{client.cluster.scheduler.http_server.port}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            opener.open(f"{pages}/info/main/workers.html", timeout=5)
        refused.value.close()


@pytest.mark.parametrize("kind", ["cuda", "slurm", "kubernetes"])
def test_a_missing_library_is_named(kind):
    with (
        pytest.raises(ClusterError, match=r"needs dask-\w+"),
        open_cluster(ClusterConfig(kind=kind)),
    ):
        pass


def test_a_silent_scheduler_is_named():
    config = ClusterConfig(kind="scheduler", address="tcp://127.0.0.1:1", timeout=1)
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1"), open_cluster(config):
        pass


@pytest.mark.parametrize(
    "error", [AttributeError("wall"), KeyError("wall"), AssertionError("wall")]
)
def test_what_a_class_of_another_library_makes_of_options_is_said(monkeypatch, error):
    def refuse(**options):
        raise error

    monkeypatch.setitem(sys.modules, "dask_jobqueue", SimpleNamespace(PBSCluster=refuse))
    config = ClusterConfig(kind="pbs", options={"walltime": [{}]})
    with pytest.raises(ClusterError, match=r"pbs.*wall"), open_cluster(config):
        pass


def test_a_missing_certificate_is_named():
    files = dict.fromkeys(("tls_ca_file", "tls_cert", "tls_key"), "nowhere.pem")
    config = ClusterConfig(kind="scheduler", address="tls://127.0.0.1:1", **files)
    with pytest.raises(ClusterError, match=r"nowhere\.pem"), open_cluster(config):
        pass


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "slrum"}, "Did you mean 'slurm'"),
        ({"kind": "scheduler"}, "address"),
        ({"kind": "local", "address": "tcp://x:1"}, "address"),
        ({"kind": "scheduler", "address": "tls://x:1", "tls_key": "k"}, "together"),
        ({"kind": "inline", "options": {"a": 1}}, "no options"),
        # A file, an address or text of Python that every worker runs; their environment.
        ({"kind": "local", "options": {"preload": ["x.py"]}}, "options: there is no key 'preload'"),
        (
            {"kind": "local", "options": {"env": {"LD_PRELOAD": "x"}}},
            "options: there is no key 'env'",
        ),
        ({"kind": "local", "options": {"host": ""}}, "options: there is no key 'host'"),
        ({"kind": "cuda", "options": {"pre_import": "x"}}, "options: there is no key 'pre_import'"),
        ({"kind": "cuda", "options": {"protocol": "tcp"}}, "options.protocol: .*ucx"),
        ({"options": {"lifetim": 60}}, "Did you mean 'lifetime'"),
        ({"options": {"resources": {"GPU": -1}}}, "options.resources.GPU: .*greater"),
        ({"options": {"resources": [1]}}, "options.resources: "),
        ({"options": {"lifetime_restart": {}}}, "options.lifetime_restart: "),
        ({"kind": "cuda", "options": {"rmm_pool_size": "-1GB"}}, "no amount of memory"),
        ({"kind": "cuda", "options": {"jit_unspill": [True]}}, "options.jit_unspill: "),
        ({"memory": "lots"}, "'lots' is no amount of memory"),
        ({"memory": "-4GiB"}, "'-4GiB' is no amount of memory"),
        ({"workers": 0}, "workers"),
        ({"workers": 10**6}, "workers"),
        ({"timeout": 1e300}, "timeout"),
    ],
)
def test_impossible_combinations_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        ClusterConfig(**fields)


@pytest.mark.parametrize("name", ["death_timeout", "lifetime", "lifetime_stagger"])
@pytest.mark.parametrize("value", [{"a": 1}, [1], math.nan, -1, "-5 s", "", "soon", "1e400 s", 1e9])
def test_what_is_no_time_is_refused(name, value):
    assert ClusterConfig(options={name: "5 minutes"}).options[name] == "5 minutes"
    with pytest.raises(ValidationError, match=f"options.{name}: .* is no time"):
        ClusterConfig(options={name: value})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: local\nwrokers: 2\n", "Did you mean 'workers'"),
        ("kind: local\nworkers: many\n", "workers"),
        ("kind: [\n", "is not valid YAML"),
        ("- local\n", "keys and values"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml") as caught:
        load_cluster(path)
    assert message in str(caught.value)


def test_a_project_cannot_pass_another_cluster_off_as_a_local_one(tmp_path):
    folder = tmp_path / "conf" / "clusters"
    folder.mkdir(parents=True)
    (folder / "local.yaml").write_text("kind: scheduler\naddress: tcp://evil.example:8786\n")
    with pytest.raises(ConfigError, match="in a file that is called local"):
        load_cluster("local", tmp_path)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'local'"):
        load_cluster("locall")
