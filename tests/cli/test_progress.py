from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from fairfrontier.cli import progress
from fairfrontier.cli.progress import FitProgress, PassProgress
from flows.artifact import make_key, to_rows


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self):
        return self.now


def make(terminal, clock=None):
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, get_time=clock)


def test_a_terminal_shows_what_runs():
    console = make(terminal=True)
    with FitProgress("adult", console) as shown:
        shown.expect(2)
        with shown.watch("budro/0"):
            shown._bar.refresh()
        shown.advance()
        assert shown.share == 50.0
    assert "budro/0" in console.file.getvalue()
    assert "1/2" in console.file.getvalue()


def test_a_log_gets_a_line_at_the_end():
    console = make(terminal=False)
    with FitProgress("adult", console) as shown:
        shown.expect(2)
        shown.advance()
        shown.advance()
    assert console.file.getvalue().strip().startswith("adult: 2 of 2 fits")
    assert shown.share == 100.0


def test_a_terminal_shows_the_time_left():
    clock = Clock()
    console = make(True, clock)
    with FitProgress("adult", console) as shown:
        shown.expect(5)
        for _ in range(2):
            clock.now += 10.0
            assert "0:00:30" not in console.file.getvalue()
            shown.advance()
        shown._bar.refresh()
    # Before there was anything to go by.
    assert "-:--:--" in console.file.getvalue()
    # Three of ten seconds each.
    assert "0:00:30" in console.file.getvalue()


def test_a_log_has_the_time_left_once_there_is_something_to_go_by(monkeypatch):
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    clock = Clock()
    console = make(False, clock)
    with FitProgress("loans", console) as shown:
        # Before it is known how many there are.
        for seconds in (3.0, 4.0):
            clock.now = seconds
            shown.advance()
        shown.expect(8)
        for seconds in (9.0, 21.0):
            clock.now = seconds
            shown.advance()
        # More came than were expected.
        shown.expect(3)
        clock.now = 22.0
        shown.advance()
    assert console.file.getvalue().splitlines() == [
        "loans: 1 of 0 fits, 3 s",
        "loans: 2 of 0 fits, 4 s",
        "loans: 3 of 8 fits, 9 s, about 15 s left",
        "loans: 4 of 8 fits, 21 s, about 21 s left",
        "loans: 5 of 3 fits, 22 s",
        "loans: 5 of 3 fits, 22 s",
    ]


def test_a_log_of_passes_has_the_time_left(monkeypatch):
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    clock = Clock()
    console = make(False, clock)
    with PassProgress("scores", ("reading", "deciding"), console) as shown:
        for name, share, seconds in (
            ("reading", 0.0, 1.0),
            ("reading", 0.5, 30.0),
            ("deciding", 1.0, 100.0),
        ):
            clock.now = seconds
            shown(name, share)
    assert console.file.getvalue().splitlines() == [
        "scores: 0%, reading, 1 s",
        "scores: 25%, reading, 30 s, about 90 s left",
        "scores: 100%, deciding, 100 s",
    ]


def test_what_fits_warn_of_is_shown_once_for_each_method():
    console = make(terminal=False)
    with FitProgress("adult", console) as shown:
        for level in (0.1, "1, 2", 1e-05):
            shown.note("dro", [f"The level {level} need not hold [b]."])
        shown.note("sensei", ["The level 2 need not hold [b].", "λ stayed."])
        shown.note("linear", [])
        assert not console.file.getvalue()
    assert console.file.getvalue().splitlines() == [
        "dro, 3 times: The level 0.1 need not hold [b].",
        "sensei: The level 2 need not hold [b].",
        "sensei: λ stayed.",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_names_are_neither_markup_nor_commands(terminal):
    evil = "[bold]x[/] [link=http://a]y[/link] :boom: \x1b]52;c;YQ==\x07 \u202ez"
    shown = r"[bold]x[/] [link=http://a]y[/link] :boom: \x1b]52;c;YQ==\x07 \u202ez"
    console = Console(file=io.StringIO(), force_terminal=terminal, width=400)
    with FitProgress(evil, console) as bar:
        bar.expect(1)
        with bar.watch(evil):
            bar._bar.refresh()
        bar.advance()
        bar.note(evil, [evil])
    written = console.file.getvalue()
    assert f"{shown}: {shown}" in written
    # The title, and on a terminal the running fit as well.
    assert written.count(shown) >= 3
    for control in ("\x1b]", "\x07", "\u202e"):
        assert control not in written


def test_a_log_names_what_takes_long_before_anything_is_counted(monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    console = make(terminal=False)
    with FitProgress("adult", console) as shown, shown.watch("preparing adult seed 0"):
        while not console.file.getvalue():
            time.sleep(0.01)
    assert console.file.getvalue().startswith("adult: preparing adult seed 0, ")


def test_nothing_to_do_is_all_done():
    assert FitProgress("adult", make(terminal=False)).share == 100.0


def test_passes_over_a_table_are_shown(monkeypatch):
    console = make(terminal=True)
    with PassProgress("scores", ("reading", "deciding"), console) as shown:
        shown("reading", 0.5)
        assert shown.share == 25.0
        shown("deciding", 1.0)
        assert shown.share == 100.0
    assert "deciding" in console.file.getvalue()
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    log = make(terminal=False)
    with PassProgress("scores", ("reading", "deciding"), log) as shown:
        shown("deciding", 0.5)
    assert log.file.getvalue().startswith("scores: 75%, deciding")


def test_keys_and_rows_are_what_prefect_takes():
    import numpy as np
    import pandas as pd

    assert make_key("adult@paper", "report.html") == "adult-paper-report-html"
    rows = to_rows(pd.DataFrame({"a": [np.float64(0.5), np.nan], "b": np.array([True, False])}))
    assert rows == [{"a": 0.5, "b": True}, {"a": None, "b": False}]
    assert type(rows[0]["a"]) is float
