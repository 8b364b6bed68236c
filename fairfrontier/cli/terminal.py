"""Common to all commands: the project, logging, and the printing of errors."""

from __future__ import annotations

import atexit
import gc
import logging
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from fairfrontier.runtime.errors import FairfrontierError, escape_controls, explain_missing
from fairfrontier.runtime.home import find_home

INTERRUPTED = 130
# By default 700 new objects start a search for garbage: a tenth of a short command's time.
COLLECT_AFTER = 500_000


def find_project(conf: Path | None) -> Path:
    """Return the project root that --conf, FAIRFRONTIER_HOME or the current folder names."""
    if conf is None:
        return find_home()
    # Not every command needs pydantic, which that module imports.
    from fairfrontier.runtime.option import find_root

    return find_root(conf)


def log_to_terminal() -> None:
    """Show messages of the library, and Python's warnings, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable())
    logging.captureWarnings(True)
    logging.getLogger("fairfrontier").setLevel(logging.INFO)
    # matplotlib quotes the matplotlibrc of the current folder.
    for name in ("fairfrontier", "py.warnings", "matplotlib"):
        logging.getLogger(name).addHandler(handler)


class _Printable(logging.Formatter):
    """Escapes what would steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(escape_controls, super().format(record).split("\n")))


def run_app(app: Callable[..., Any], program: str | None = None) -> None:
    """Run a command line, an error of the user's is printed in one line, with its exit code.

    Of any other error the traceback is printed, without what would steer the terminal. ``program``
    is how help names it, and the variable by which a shell asks for completions.
    """
    gc.set_threshold(COLLECT_AFTER)
    # Python's last search, among all that was imported, would take half a second.
    atexit.register(gc.freeze)
    try:
        # Else Typer prints errors itself, with whatever the arguments hold.
        # Of a command that ends by itself there is no code.
        sys.exit(app(standalone_mode=False, prog_name=program) or 0)
    except FairfrontierError as error:
        say_error(str(error))
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        missing = explain_missing(error)
        if missing is None:
            raise
        say_error(str(missing))
        sys.exit(2)
    except MemoryError as error:
        fault = " ".join(f"There is too little memory: {error}".split()).rstrip(".:")
        say_error(f"{fault}. Give the machine more, or the command fewer rows or another model.")
        sys.exit(2)
    except typer.Abort:
        sys.exit(INTERRUPTED)
    except Exception as error:
        # Typer's errors of usage have no base class that all its versions show.
        if not hasattr(error, "format_message"):
            for line in traceback.format_exc().splitlines():
                say(line)
            sys.exit(1)
        message = error.format_message()
        # None where help was asked for by giving no arguments.
        if message:
            end = "" if message.endswith((".", "?")) else "."
            say_error(f"{message}{end} `--help` shows what is expected.")
        sys.exit(2)


@contextmanager
def telling_how_to_resume(kept: str, verb: str, program: str = "fairfrontier") -> Iterator[None]:
    """When the block fails or is interrupted, say what is kept, and the command to continue."""
    command = f"{program} {shlex.join(sys.argv[1:])}"
    try:
        yield
    except KeyboardInterrupt:
        say_error(f"Interrupted. {kept}; {verb} with: {command}")
        sys.exit(INTERRUPTED)
    except FairfrontierError:
        say(f"{kept}; when this is mended {verb} with: {command}")
        raise
    except Exception:
        say(f"{kept}; {verb} with: {command}")
        raise


def show(text: str) -> None:
    """Write a line to standard output; like all of these, without steering the terminal."""
    typer.echo(escape_controls(text))


def say(text: str) -> None:
    """Write a line to standard error."""
    typer.echo(escape_controls(text), err=True)


def say_error(text: str) -> None:
    """Write a line to standard error, in red."""
    typer.secho(escape_controls(text), fg=typer.colors.RED, err=True)


def write_bytes(count: int) -> str:
    """Return a number of bytes with its unit."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(max(count.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{count / 1024**power:.3g} {units[power]}"
