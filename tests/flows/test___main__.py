from __future__ import annotations

import shutil
import sqlite3

from fairfrontier.runner import run_plain
from fairfrontier.study.option import RunOptions
from fairfrontier.study.run import start_study
from tests.cli.process import kill_when
from tests.project import call, make_project


def states(home):
    with sqlite3.connect(home / "data" / "prefect" / "prefect.db") as base:
        rows = base.execute("SELECT state_name FROM flow_run ORDER BY created").fetchall()
    return [name for (name,) in rows]


def test_a_flow_that_was_killed_is_shown_as_crashed_and_goes_on(fresh, tmp_path, database):
    (fresh / "data" / "prefect").mkdir()
    shutil.copy(database, fresh / "data" / "prefect")
    store = fresh / "data" / "cache" / "store" / "fit"
    options = ("--cluster", "inline", "--profile", "short")
    below = kill_when(fresh, lambda: len(list(store.glob("*/*"))) >= 1, *options, module="flows")
    assert below, "a server"
    again = call(fresh, "run", "loans", *options, module="flows")
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr
    assert states(fresh) == ["Crashed", "Completed"]
    points = (fresh / "data" / "results" / "loans@short" / "points.parquet").read_bytes()
    whole = make_project(tmp_path / "whole")
    run_plain(
        start_study(RunOptions(study="loans", conf=str(whole), cluster="inline", profile="short"))
    )
    assert points == (whole / "data" / "results" / "loans@short" / "points.parquet").read_bytes()
