from __future__ import annotations

import gc
import logging
import sys

import pytest
import typer

from fairfrontier.cli.command import app
from fairfrontier.cli.terminal import log_to_terminal, run_app, say, say_error, show

EVIL, SHOWN = "\x1b]0;title\x07 \u202ea\xa0ü", "\\x1b]0;title\\x07 \\u202ea\xa0ü\n"


@pytest.mark.parametrize("write", [show, say, say_error])
def test_no_line_steers_the_terminal(write, capsys):
    write(EVIL)
    assert "".join(capsys.readouterr()) == SHOWN


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([EVIL], "No such command"),
        (["list", f"--{EVIL}"], "No such option"),
        (["list", "studies", EVIL], "unexpected extra argument"),
        (["list"], "Missing argument 'kind'"),
    ],
)
def test_errors_of_usage_are_one_line_that_steers_nothing(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fairfrontier", *arguments])
    with pytest.raises(SystemExit, match="2"):
        run_app(app)
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not set(said) & {"\x1b", "\x07", "\u202e"}


def test_nothing_is_searched_for_garbage_at_the_end(monkeypatch, capsys):
    ending = []
    monkeypatch.setattr("atexit.register", ending.append)
    monkeypatch.setattr(sys, "argv", ["fairfrontier", "--version"])
    before = gc.get_threshold()
    with pytest.raises(SystemExit):
        run_app(app)
    gc.set_threshold(*before)
    assert ending == [gc.freeze]


def test_no_traceback_steers_the_terminal(monkeypatch, capsys):
    broken = typer.Typer()

    @broken.command()
    def fail():
        raise ValueError(EVIL)

    monkeypatch.setattr(sys, "argv", ["fairfrontier"])
    with pytest.raises(SystemExit, match="1"):
        run_app(broken)
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.endswith(f"ValueError: {SHOWN}")


@pytest.mark.parametrize("detail", ["", f"Unable to allocate 13 GiB {EVIL}\nfor an array."])
def test_too_little_memory_is_one_line_that_steers_nothing(detail, monkeypatch, capsys):
    small = typer.Typer()

    @small.command()
    def fail():
        raise MemoryError(*filter(None, [detail]))

    monkeypatch.setattr(sys, "argv", ["fairfrontier"])
    with pytest.raises(SystemExit, match="2"):
        run_app(small)
    said = capsys.readouterr().err
    assert said.startswith("There is too little memory")
    assert said.count("\n") == 1
    assert not set(said) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize("logger", ["fairfrontier", "matplotlib"])
def test_no_warning_of_the_library_does(logger, monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(logger), "handlers", [])
    log_to_terminal()
    logging.getLogger(f"{logger}.part").warning("No %s.", EVIL)
    assert capsys.readouterr().err == f"No {SHOWN[:-1]}.\n"
