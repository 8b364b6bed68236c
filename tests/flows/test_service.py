from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from flows.server import POLL_SECONDS, find_running
from flows.service import restrict_jobs
from tests.cli.process import wait_for
from tests.flows.served import serve, start_run

PORT = 4271
OWN = f"http://127.0.0.1:{PORT}"


@pytest.mark.slow
def test_a_deployed_run_works_and_the_user_interface_asks_the_right_server(
    fresh, tmp_path, monkeypatch
):
    # What another user may have made in /tmp.
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "runner_storage").write_text("not a folder")
    monkeypatch.setenv("TMPDIR", str(shared))
    with serve(fresh, PORT) as service:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{OWN}/ui-settings", timeout=10) as answer:
            assert json.load(answer)["api_url"] == f"{OWN}/api"
        with opener.open(f"{OWN}/", timeout=10) as answer:
            assert b"The password is in the file" in answer.read()
        # What would run other code, were it listened to.
        told, _ = start_run(
            fresh,
            PORT,
            *("--job-variable", f"command=touch {fresh}/owned"),
            *("--job-variable", "working_dir=/nowhere"),
            *("--job-variable", 'env={"PYTHONSTARTUP": "x", "PYTHONPATH": "/nowhere"}'),
        ).communicate(timeout=120)
        assert "'Completed'" in told
        assert not (fresh / "owned").exists()
    assert (fresh / "data" / "results" / "loans" / "report.html").is_file()
    assert service.returncode == 0
    assert [path.name for path in shared.iterdir()] == ["runner_storage"]
    assert not list((fresh / "data" / "prefect").glob(".*@*"))


def test_a_run_chooses_neither_command_nor_folder_nor_environment(harness):
    from prefect.workers.process import ProcessJobConfiguration, ProcessWorker

    template = restrict_jobs(ProcessWorker.get_default_base_job_template())
    asked = {"command": "touch /tmp/x", "env": {"LD_PRELOAD": "x"}, "working_dir": "/", "name": "a"}
    resolve = ProcessJobConfiguration.from_template_and_values
    done = asyncio.run(resolve(template, asked))
    assert (done.env, done.working_dir, done.name) == ({}, None, "a")
    assert shlex.split(done.command)[2:] == ["-m", "flows.deployed"]


@pytest.fixture
def running(fresh, monkeypatch):
    """Serve a project on PORT; yield it, the service, and the process of a run that takes long."""
    study = fresh / "conf" / "studies" / "loans.yaml"
    study.write_text(study.read_text().replace("n_estimators: 10,", "n_estimators: 100000,"))
    with serve(fresh, PORT) as service, start_run(fresh, PORT):
        wait_for(lambda: find_run(fresh))
        yield fresh, service, find_run(fresh)


def find_run(home):
    """Return the process of a deployed run of a project that trains, or None."""
    mark = f"FAIRFRONTIER_HOME={home}\0".encode()
    training = any((home / "data" / "cache").rglob(".unfinished@*"))
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ours = mark in (path / "environ").read_bytes()
            if training and ours and b"flows.deployed" in (path / "cmdline").read_bytes():
                return int(path.name)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_runs_end_before_the_server_that_they_ask(running, number):
    home, service, run = running
    service.send_signal(number)
    assert service.wait(60) == 0
    assert not Path(f"/proc/{run}").exists()
    assert find_running(home / "data" / "prefect") is None


@pytest.mark.slow
def test_a_server_that_is_killed_ends_the_service_and_its_runs(running):
    home, service, run = running
    os.kill(int(find_running(home / "data" / "prefect")[0]), signal.SIGKILL)
    assert service.wait(60) == 2
    assert "The Prefect server ended" in service.stdout.read()
    assert not Path(f"/proc/{run}").exists()


@pytest.mark.slow
def test_a_run_keeps_the_server_of_a_service_that_is_killed(running):
    home, service, run = running
    service.kill()
    service.wait()
    time.sleep(5 * POLL_SECONDS)
    server, url = find_running(home / "data" / "prefect")
    assert url == f"{OWN}/api"
    # Both end when the other does.
    os.kill(int(server), signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{run}").exists())
