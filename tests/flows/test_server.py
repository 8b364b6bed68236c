from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fairfrontier.runtime.errors import ClusterError, StoreError
from flows.server import Server, hold, set_environment, start_server
from tests.project import ROOT, call


@pytest.fixture
def clean(monkeypatch):
    """Hide the settings of the tests' own server, and set them back afterwards."""
    for name in [each for each in os.environ if each.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_settings_are_absolute_and_what_the_user_set_stays(clean, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_LOCAL_STORAGE_PATH", "/elsewhere")
    monkeypatch.setenv("no_proxy", "intern")
    set_environment(tmp_path)
    assert os.environ["PREFECT_HOME"] == str(tmp_path / "data" / "prefect")
    assert os.environ["PREFECT_LOCAL_STORAGE_PATH"] == "/elsewhere"
    assert os.environ["DO_NOT_TRACK"] == "1"
    assert os.environ["no_proxy"] == "intern,127.0.0.1,localhost"


def test_a_home_that_cannot_be_written_is_told(clean):
    with pytest.raises(StoreError, match="cannot be made"):
        set_environment(Path("/proc/nowhere"))


def test_a_server_of_the_users_is_used_and_asked_for(clean, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    set_environment(tmp_path)
    monkeypatch.setattr("flows.server.ANSWER_SECONDS", 0.2)
    with start_server(tmp_path) as server:
        assert server.url == "http://127.0.0.1:1/api"
        with pytest.raises(ClusterError, match="unset PREFECT_API_URL"):
            server.wait()


def test_a_server_that_does_not_start_points_at_its_log(clean, tmp_path):
    set_environment(tmp_path)
    server = Server(tmp_path)
    with pytest.raises(ClusterError, match=r"server\.log"):
        server.wait(seconds=0.05)
    server.stop()
    assert "PREFECT_API_URL" not in os.environ


def test_a_second_run_in_a_project_is_told_of_the_first(fresh):
    place = fresh / "data" / "prefect"
    place.mkdir()
    with hold(place):
        result = call(fresh, "run", "loans", module="flows")
    assert result.returncode == 2
    told = f"Another run, process {os.getpid()}, is going on here and holds {place}. Wait"
    assert result.stderr.startswith(told)
    assert "PREFECT_HOME=" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    serving = "http://127.0.0.1:4200/api"
    with hold(place, serving), pytest.raises(StoreError, match=f"PREFECT_API_URL={serving},"):
        hold(place)


def test_a_killed_run_holds_nothing(tmp_path):
    code = "import sys, time, flows.server as s; from pathlib import Path; "
    code += "held = s.hold(Path(sys.argv[1])); print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(StoreError, match=f"process {process.pid},"):
            hold(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with hold(tmp_path):
        assert (tmp_path / "run.lock").read_text().split() == [str(os.getpid())]


def test_a_server_holds_its_folder_until_it_stops(clean, tmp_path, monkeypatch):
    set_environment(tmp_path)
    with start_server(tmp_path):
        del os.environ["PREFECT_API_URL"]
        with pytest.raises(StoreError, match="Another run"):
            Server(tmp_path)
        monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "other"))
        set_environment(tmp_path)
        other = Server(tmp_path)
        assert other.log == tmp_path / "other" / "server.log"
        other.stop()
        monkeypatch.delenv("PREFECT_HOME")
    with start_server(tmp_path):
        pass


def test_a_taken_port_is_told(clean, tmp_path):
    set_environment(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ClusterError, match="Choose another port"):
            Server(tmp_path, "serve", taken.getsockname()[1])
