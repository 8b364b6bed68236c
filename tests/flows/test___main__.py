from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from fairfrontier.runner import run_plain
from fairfrontier.study.config import RunOptions
from fairfrontier.study.run import start_study
from tests.cli.process import kill_when
from tests.project import call, make_project


def states(folder):
    """Return the states of the last two runs."""
    asked = "SELECT state_name FROM flow_run ORDER BY created DESC LIMIT 2"
    with closing(sqlite3.connect(folder / "prefect.db")) as base:
        return [name for (name,) in reversed(base.execute(asked).fetchall())]


@pytest.mark.once
def test_a_flow_that_was_killed_is_shown_as_crashed_and_goes_on(fresh, tmp_path, harness):
    # Runs that share Prefect's folder share its server.
    folder = harness.log.parent
    shared = {"module": "flows", "PREFECT_HOME": str(folder)}
    store = fresh / "data" / "cache" / "store" / "fit"
    options = ("--cluster", "inline", "--profile", "short")
    kill_when(fresh, lambda: len(list(store.glob("*/*"))) >= 1, *options, **shared)
    again = call(fresh, "run", "loans", *options, **shared)
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr
    assert states(folder) == ["Crashed", "Completed"]
    points = (fresh / "data" / "results" / "loans@short" / "points.parquet").read_bytes()
    whole = make_project(tmp_path / "whole")
    run_plain(
        start_study(RunOptions(study="loans", conf=str(whole), cluster="inline", profile="short"))
    )
    assert points == (whole / "data" / "results" / "loans@short" / "points.parquet").read_bytes()
