from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import dask
import distributed  # noqa: F401 - its defaults would go with the first setting that is undone
import pytest

from fairfrontier.runtime.cluster.config import CLUSTER_CLASSES, ClusterConfig, load_cluster
from fairfrontier.runtime.cluster.open import (
    ENVIRONMENT,
    KEPT_MEMORY,
    PRIVATE,
    can_start_processes,
    open_cluster,
)
from fairfrontier.runtime.errors import ClusterError
from fairfrontier.runtime.thread import thread_environment

TRIM = "MALLOC_TRIM_THRESHOLD_"


def facts():
    """Run on a worker: what its process was given before NumPy came."""
    import numpy  # noqa: F401
    from threadpoolctl import threadpool_info

    return (
        os.getpid(),
        os.environ["OMP_WAIT_POLICY"],
        os.environ[TRIM],
        {pool["num_threads"] for pool in threadpool_info()},
    )


def test_inline_has_no_client():
    with open_cluster(ClusterConfig(kind="inline")) as client:
        assert client is None


@pytest.mark.once
def test_local_processes_have_their_own_thread_budget_and_a_scheduler_takes_callers():
    from distributed import default_client

    with open_cluster(ClusterConfig(kind="local", workers=1, threads=1)) as client:
        process, policy, trimmed, threads = client.submit(facts, pure=False).result(30)
        assert process != os.getpid()
        assert policy == "PASSIVE"
        assert trimmed == str(KEPT_MEMORY[TRIM])
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


@pytest.mark.parametrize(
    ("memory", "configured"),
    [pytest.param("2GiB", {}, id="watched"), pytest.param(None, {TRIM: 9}, id="configured")],
)
def test_workers_keep_dask_s_memory_settings(memory, configured):
    wanted = dask.config.get(ENVIRONMENT) | configured
    with (
        dask.config.set({ENVIRONMENT: wanted}),
        open_cluster(ClusterConfig(kind="local", workers=1, memory=memory)) as client,
    ):
        assert client.submit(facts, pure=False).result(30)[2] == str(wanted[TRIM])


def test_a_cluster_s_threads_are_not_those_of_the_one_before(monkeypatch):
    for name in thread_environment(1):
        # Dask prefers what a user has set.
        monkeypatch.delenv(name, raising=False)
    for threads in (1, 2):
        with open_cluster(ClusterConfig(kind="local", workers=1, threads=threads)) as client:
            assert client.submit(facts, pure=False).result(30)[3] == {threads}
    assert TRIM not in os.environ


def test_the_dashboard_is_named(caplog):
    caplog.set_level(logging.INFO, "fairfrontier")
    with open_cluster(ClusterConfig(kind="local", workers=1, dashboard=True)) as client:
        link = client.dashboard_link
    assert caplog.messages[0].startswith(f"Dask's dashboard: {link}")
    assert link.startswith(("http://127.0.0.1:", "https://127.0.0.1:"))


@pytest.mark.once
def test_nothing_that_a_cluster_starts_imports_from_the_current_folder(tmp_path):
    # The resource tracker of multiprocessing imports signal before all else, and spawn pickle.
    for name in ("signal", "pickle"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close(); raise SystemExit")
    code = """
import os
from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.runtime.cluster.open import open_cluster
with open_cluster(ClusterConfig(kind="local", workers=1, timeout=20)) as client:
    print(client.submit(abs, -1).result(20), "PYTHONSAFEPATH" in os.environ)
"""
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (tmp_path / "imported").exists()
    assert done.stdout == "1 True\n", done.stderr


def test_the_first_cluster_of_a_process_leaves_dask_its_settings():
    code = """
import contextlib, dask
from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.runtime.cluster.open import open_cluster
from fairfrontier.runtime.errors import ClusterError
from fairfrontier.runtime.thread import thread_environment
nobody = ClusterConfig(kind="scheduler", address="tcp://127.0.0.1:1", timeout=0.1)
with contextlib.suppress(ClusterError), open_cluster(nobody):
    pass
print(dask.config.get("distributed.comm.tls.min-version"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "1.2\n", done.stderr


KILLED = """
import os, signal, sys
import dask
from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.runtime.cluster.open import open_cluster
with dask.config.set(temporary_directory=sys.argv[1]):
    with open_cluster(ClusterConfig(kind="local", workers=1)):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.once
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


@pytest.mark.once
def test_where_its_place_is_taken_a_cluster_uses_another_one_again(tmp_path):
    # As if it were another user's, which only root can make.
    (tmp_path / PRIVATE).touch()
    settings = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, env=settings, check=False).returncode == -signal.SIGKILL
    assert list(tmp_path.rglob("*.pem"))
    with dask.config.set(temporary_directory=str(tmp_path)):
        for _ in range(2):
            with open_cluster(ClusterConfig(kind="local", workers=1)):
                pass
    (left,) = tmp_path.glob(f"{PRIVATE}-*")
    assert list(left.iterdir()) == []


@pytest.mark.once
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


def test_ctrl_c_does_not_wait_for_workers_that_never_start(monkeypatch):
    def interrupt(*_):
        while not multiprocessing.active_children():
            time.sleep(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr("fairfrontier.runtime.cluster.open._await_workers", interrupt)
    started = time.monotonic()
    with (
        dask.config.set({"distributed.worker.preload": ["import time; time.sleep(60)"]}),
        pytest.raises(KeyboardInterrupt),
        open_cluster(ClusterConfig(kind="local", workers=1)),
    ):
        pass
    assert time.monotonic() - started < 30
    assert not multiprocessing.active_children()


def test_ctrl_c_is_not_for_the_workers():
    with open_cluster(ClusterConfig(kind="local", workers=1)) as client:
        process = client.submit(os.getpid, pure=False).result(30)
        os.kill(process, signal.SIGINT)
        assert client.submit(os.getpid, pure=False).result(30) == process


def test_a_registered_class_is_opened_by_its_short_name(monkeypatch):
    monkeypatch.setitem(CLUSTER_CLASSES, "mine", ("distributed", "LocalCluster"))
    options = {"processes": False, "n_workers": 0, "dashboard_address": "127.0.0.1:0"}
    with open_cluster(ClusterConfig(kind="mine", options=options)) as client:
        assert client.submit(sum, [1, 2]).result(30) == 3


def test_a_cluster_of_a_batch_system_speaks_tls(monkeypatch):
    from distributed import LocalCluster

    def start(shared_temp_directory, python, **options):
        assert python == f"{sys.executable} -P"
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


def test_a_batch_system_that_is_not_here_is_not_waited_for(monkeypatch):
    cluster = SimpleNamespace(job_cls=SimpleNamespace(submit_command="no-such-batch --parsable"))
    monkeypatch.setitem(sys.modules, "dask_jobqueue", SimpleNamespace(SLURMCluster=cluster))
    with pytest.raises(ClusterError), open_cluster(ClusterConfig(kind="slurm")):
        pass


def test_the_example_of_slurm_makes_a_job(tmp_path, monkeypatch):
    jobqueue = pytest.importorskip("dask_jobqueue")
    monkeypatch.chdir(tmp_path)
    config = load_cluster("slurm")
    options = {"security": True, "shared_temp_directory": str(tmp_path), **config.options}
    with jobqueue.SLURMCluster(**options, scheduler_options={"dashboard_address": ":0"}) as cluster:
        script = cluster.job_script()
    assert "#SBATCH --mem=8G" in script
    assert "tls://" in script


@pytest.mark.parametrize("kind", ["cuda", "slurm", "kubernetes"])
def test_a_missing_library_is_named(kind, monkeypatch):
    for module in ("dask_cuda", "dask_jobqueue", "dask_kubernetes.operator"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ClusterError), open_cluster(ClusterConfig(kind=kind)):
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
    with pytest.raises(ClusterError), open_cluster(config):
        pass


def test_a_missing_certificate_is_named():
    files = dict.fromkeys(("tls_ca_file", "tls_cert", "tls_key"), "nowhere.pem")
    config = ClusterConfig(kind="scheduler", address="tls://127.0.0.1:1", **files)
    with pytest.raises(ClusterError, match=r"nowhere\.pem"), open_cluster(config):
        pass


@pytest.mark.parametrize(
    ("text", "can"),
    [
        ("import fairfrontier as ff\nff.run_study('loans')\n", False),
        ("if __name__ == '__main__':\n    main()\n", True),
        (None, True),
    ],
    ids=["a script", "with a guard", "a notebook"],
)
def test_a_script_that_workers_would_run_again_has_none(tmp_path, monkeypatch, text, can):
    main = SimpleNamespace()
    if text is not None:
        main.__file__ = str(tmp_path / "script.py")
        (tmp_path / "script.py").write_text(text)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert can_start_processes() is can


def test_a_package_s_main_module_is_not_run_again(tmp_path, monkeypatch):
    (tmp_path / "__main__.py").write_text("import fairfrontier as ff\nff.run_study('loans')\n")
    spec = SimpleNamespace(name="made.__main__")
    main = SimpleNamespace(__file__=str(tmp_path / "__main__.py"), __spec__=spec)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert can_start_processes()
