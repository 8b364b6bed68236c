"""Common to all commands: the project, logging, and the printing of errors."""

from __future__ import annotations

import atexit
import gc
import json
import logging
import re
import shlex
import sys
import textwrap
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairfrontier.runtime.errors import FairfrontierError, escape_controls, explain_missing
from fairfrontier.runtime.home import find_home

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


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


def show_filled(text: str) -> None:
    """Write a paragraph to standard output, in lines of 80 columns."""
    for line in textwrap.wrap(text, 80, break_long_words=False, break_on_hyphens=False):
        show(line)


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


# Tables on the terminal, without the columns that do not fit.

# Heavy modules are imported where they are used.

# Width that a longer column of text needs, and between two columns.
NARROWEST, GAP = 16, 3
# Texts up to here are on one line, as intervals are.
ONE_LINE = 24


def print_table(
    title: str,
    table: pd.DataFrame,
    *,
    keep: Collection[str] = (),
    complete: str = "",
    console: Console | None = None,
) -> None:
    """Print a table in the width of the terminal; nothing in it is markup or steers the terminal.

    Numbers are right-aligned; they and short texts are never wrapped. Columns that do not fit are
    omitted and listed, with ``complete``, where all columns are; those to ``keep`` come first.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    heading = Text(escape_controls(title), style="italic")
    grid = Table(title=heading, title_justify="left", box=SIMPLE_HEAD)
    columns, room, omitted = dict[str, list[Text]](), console.width - 1, list[str]()
    for name in sorted(table.columns, key=lambda name: name not in keep):
        # A long name is broken behind _ and :.
        parts = re.sub(r"([_:])", r"\1 ", escape_controls(str(name)))
        head = [re.sub("(?<=[_:]) ", "", line) for line in textwrap.wrap(parts, ONE_LINE)]
        texts = ["\n".join(head), *map(_write_cell, table[name])]
        wide = max(1, *map(len, (*head, *texts[1:])))
        short = table[name].dtype.kind in "if" or wide <= ONE_LINE
        least = wide if short else max(NARROWEST, *(len(w) for t in texts for w in t.split()))
        if least + GAP > room and columns:
            omitted.append("".join(head))
            continue
        room -= least + GAP
        columns[name] = [Text(text, no_wrap=short, overflow="fold") for text in texts]
    shown = [name for name in table.columns if name in columns]
    for name in shown:
        justify: Any = "right" if table[name].dtype.kind in "if" else "left"
        no_wrap = bool(columns[name][0].no_wrap)
        grid.add_column(columns[name][0], justify=justify, no_wrap=no_wrap, overflow="fold")
    for row in zip(*(columns[name][1:] for name in shown), strict=True):
        grid.add_row(*row)
    console.print(grid)
    if omitted:
        where = f" All columns: {escape_controls(complete)}" if complete else ""
        omission = f"Omitted for lack of space: {', '.join(omitted)}.{where}"
        console.print(Text(omission), soft_wrap=True)


def print_unseen(unseen: Mapping[str, int], n_samples: int) -> None:
    """Print how many of the decided rows have a level that training had not, by column."""
    import pandas as pd

    if not unseen:
        return
    levels = pd.DataFrame({"column": unseen.keys(), "rows": unseen.values()})
    print_table("Decided with a level that training had not, as if it were none", levels)
    for name in (name for name, count in unseen.items() if count == n_samples):
        show(
            f"No cell of {name} is a level that training had: is it written as in the study? "
            "01 is not 1, nor is 1.50 the text 1.5."
        )


def write_settings(methods: Iterable[str], settings: Iterable[str]) -> list[str]:
    """Return settings such as max_depth=3, of the keys that differ within a method.

    Every row has a method and a setting as canonical JSON.
    """
    import pandas as pd

    from fairfrontier.figure.frontier import list_swept

    table = pd.DataFrame({"method": list(methods), "setting": list(settings)})
    swept = list_swept(table)
    return [
        write_setting(json.loads(setting), swept[method])
        for method, setting in zip(table["method"], table["setting"], strict=True)
    ]


def write_setting(setting: Mapping[str, Any], keys: Collection[str]) -> str:
    """Return what a setting has under some keys, as max_depth=3."""
    return " ".join(f"{key}={_write_value(value)}" for key, value in setting.items() if key in keys)


def join_interval(
    value: float, low: float = nan, high: float = nan, left_out: float = 0, *, digits: int = 3
) -> str:
    """Return an estimate with its interval, which stays on one line.

    And how many groups it leaves out, since they have too few rows.
    """
    from fairfrontier.report.finding import show_number

    few = f", small groups left out: {left_out:.0f}" if left_out else ""
    if value != value:
        return f"not estimable{few}"
    estimate, least, most = (show_number(each, digits) for each in (value, low, high))
    if low != low and high != high:
        return f"{estimate}{few}"
    return f"{estimate} [{least}, {most}]{few}"


def _write_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_write_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _write_cell(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else escape_controls(str(cell))
