from __future__ import annotations

import logging

import pytest

from fairfrontier.cli.terminal import log_to_terminal, say, say_error, show

EVIL, SHOWN = "\x1b]0;title\x07 \u202ea\xa0ü", "\\x1b]0;title\\x07 \\u202ea\xa0ü\n"


@pytest.mark.parametrize("write", [show, say, say_error])
def test_no_line_steers_the_terminal(write, capsys):
    write(EVIL)
    assert "".join(capsys.readouterr()) == SHOWN


def test_no_warning_of_the_library_does(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger("fairfrontier"), "handlers", [])
    log_to_terminal()
    logging.getLogger("fairfrontier.prepare").warning("No %s.", EVIL)
    assert capsys.readouterr().err == f"No {SHOWN[:-1]}.\n"
