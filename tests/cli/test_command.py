from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from fairfrontier.cli import command as cli
from fairfrontier.runtime.errors import ConfigError
from tests.flows.project import call, command, environment


def wait_for(condition, seconds=180.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def children(process):
    """Return the processes below one, on Linux."""
    told = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = [tuple(map(int, line.split())) for line in told.splitlines()]
    found = {process}
    while True:
        more = {pid for pid, parent in pairs if parent in found} - found
        if not more:
            return found - {process}
        found |= more


def gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{process}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "Z"


def states(home):
    with sqlite3.connect(home / "data" / "prefect" / "prefect.db") as base:
        rows = base.execute("SELECT state_name FROM flow_run ORDER BY created").fetchall()
    return [name for (name,) in rows]


def test_killed_and_started_again_it_finishes_with_the_same_bytes(fresh, inline):
    store = fresh / "data" / "cache" / "store" / "fit"
    process = subprocess.Popen(
        command("run", "loans"),
        env=environment(fresh),
        cwd=fresh,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(list(store.glob("*/*"))) >= 2)
        below = children(process.pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(below) >= 3, "a server and two workers"
    wait_for(lambda: all(gone(each) for each in below), 20)
    assert not (fresh / "data" / "results" / "loans" / "points.parquet").exists()

    again = call(fresh, "run", "loans")
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr
    assert "report.html" in again.stdout
    assert states(fresh) == ["Crashed", "Completed"]
    points = (fresh / "data" / "results" / "loans" / "points.parquet").read_bytes()
    assert points == inline[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "lones"), "Did you mean 'loans'"),
        (("run", "loans", "--out", "/proc/nowhere"), "--out"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(fresh, arguments, told):
    result = call(fresh, *arguments)
    assert result.returncode == 2
    assert told in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (fresh / "data" / "results").exists()


def test_what_is_known_is_listed(project):
    result = call(project, "list", "studies", "--json")
    assert result.returncode == 0, result.stderr
    entries = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert entries["paper"]["reproduces"] == "toy.table1"
    assert entries["loans"]["profiles"] == "default, short"


@pytest.mark.parametrize("kind", cli.KINDS)
def test_every_kind_is_listed_as_table_and_as_json(kind, root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    cli.list_known(kind, as_json=True)
    entries = json.loads(capsys.readouterr().out)
    assert len(entries) >= 1
    assert all(entry["name"] for entry in entries)
    cli.list_known(kind, as_json=False)
    assert entries[0]["name"][:5] in capsys.readouterr().out


def test_an_unknown_kind_gets_the_nearest(project):
    with pytest.raises(ConfigError, match="Did you mean 'methods'"):
        cli.list_known("method", conf=project)


def test_conf_names_the_folder_or_the_root_that_holds_it(project, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRFRONTIER_HOME", "")
    assert cli.settle_home(project) == project
    assert cli.settle_home(project / "conf") == project
    with pytest.raises(ConfigError, match="--conf"):
        cli.settle_home(tmp_path)


def test_the_version_is_printed(project):
    result = call(project, "--version")
    assert result.returncode == 0
    assert result.stdout.strip().count(".") == 2
