from __future__ import annotations

import sqlite3

from tests.cli.process import kill_when
from tests.project import call


def states(home):
    with sqlite3.connect(home / "data" / "prefect" / "prefect.db") as base:
        rows = base.execute("SELECT state_name FROM flow_run ORDER BY created").fetchall()
    return [name for (name,) in rows]


def test_a_flow_that_was_killed_is_shown_as_crashed_and_goes_on(fresh, inline):
    store = fresh / "data" / "cache" / "store" / "fit"
    options = ("--cluster", "inline")
    below = kill_when(fresh, lambda: len(list(store.glob("*/*"))) >= 2, *options, module="flows")
    assert below, "a server"
    again = call(fresh, "run", "loans", *options, module="flows")
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr
    assert states(fresh) == ["Crashed", "Completed"]
    points = (fresh / "data" / "results" / "loans" / "points.parquet").read_bytes()
    assert points == inline[1]
