from __future__ import annotations

import io
import logging
import sys
import threading

from fairfrontier.prepare.source import progress
from fairfrontier.prepare.source.progress import BYTES, COUNT, show_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def open_terminal(monkeypatch):
    """Put a terminal in the place of standard error; pytest would take a fixture's away again."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return sys.stderr


def move(also=None):
    with show_progress(also, BYTES) as tell:
        for arrived in (0, 500_000, 1_000_000):
            tell("people.csv", arrived, 1_000_000)
        tell("other.csv", 7, None)


def test_a_terminal_gets_a_bar_and_the_caller_every_step(monkeypatch):
    terminal = open_terminal(monkeypatch)
    seen = []
    move(lambda *told: seen.append(told))
    assert "people.csv" in terminal.getvalue()
    assert "1.0/1.0 MB" in terminal.getvalue()
    assert "other.csv" in terminal.getvalue()
    assert [arrived for _, arrived, _ in seen] == [0, 500_000, 1_000_000, 7]


def test_names_are_neither_markup_nor_commands(monkeypatch):
    terminal = open_terminal(monkeypatch)
    with show_progress(None, COUNT) as tell:
        tell("[bold]x[/] \x1b]0;title\x07", 1, 2)
    assert r"[bold]x[/] \x1b]0;title\x07" in terminal.getvalue()
    assert "\x1b]0" not in terminal.getvalue()


def test_other_threads_are_quiet(monkeypatch):
    terminal = open_terminal(monkeypatch)
    seen = []
    thread = threading.Thread(target=move, args=(lambda *told: seen.append(told),))
    thread.start()
    thread.join()
    assert terminal.getvalue() == ""
    assert len(seen) == 4


def test_what_takes_long_without_a_terminal_is_logged_now_and_then(monkeypatch, caplog):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with caplog.at_level(logging.INFO, "fairfrontier"), show_progress(None, COUNT) as tell:
        for clock[0] in range(0, 200, 5):
            tell("encoding", 400 + int(clock[0]), 1000)
    assert len(caplog.messages) == 6
    assert caplog.messages[0] == "encoding: 415 of 1,000, about 585 s left"


def test_without_a_terminal_nothing_is_written(capsys):
    move()
    assert capsys.readouterr() == ("", "")
