from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from flows.deployed import _is_running
from flows.server import lock

URL = "http://127.0.0.1:1/api"


def test_a_run_whose_server_has_ended_asks_nobody(tmp_path):
    home = {"PREFECT_HOME": str(tmp_path), "PREFECT_API_URL": URL}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "flows.deployed"],
        env=os.environ | home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"The server of {tmp_path} has ended." in done.stderr
    assert "prefect.engine" not in done.stderr


@pytest.mark.parametrize("locks", [True, False])
def test_a_server_runs_that_holds_its_lock_or_lives_where_there_are_none(
    tmp_path, monkeypatch, locks
):
    monkeypatch.setenv("PREFECT_API_URL", URL)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    held = lock(tmp_path / "server.lock", fcntl.LOCK_EX)
    if not locks:

        def refuse(*_):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", refuse)
    for process, url, running in (
        (os.getpid(), URL, True),
        (os.getpid(), "http://127.0.0.1:2/api", False),
        (ended.pid, URL, locks),
    ):
        (tmp_path / "server.lock").write_text(f"{process} {url}")
        assert _is_running(tmp_path) == running
    held.close()
    assert not _is_running(tmp_path)
