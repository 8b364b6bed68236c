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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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


# Tables on the terminal: wrapped at spaces, without the columns that do not fit.

# Heavy modules are imported where they are used.

# Least widths of columns of text, if no word is longer; the second is of columns to keep.
NARROWEST, NARROWEST_KEPT = 16, 24
# Width between two columns, and at the left end.
GAP, EDGE = 3, 1
# A space at which text is not wrapped, and an invisible place at which it may be.
FIXED_SPACE, SOFT_BREAK = "\N{NO-BREAK SPACE}", "\N{ZERO WIDTH SPACE}"


def print_table(
    title: str,
    table: pd.DataFrame,
    *,
    keep: Collection[str] = (),
    complete: str = "",
    console: Console | None = None,
) -> None:
    """Print a table in the width of the terminal; nothing in it is markup or steers the terminal.

    Numbers are right-aligned and never wrapped; text is wrapped at spaces. Columns that do not fit
    are omitted and listed, with ``complete``, where all columns are; those to ``keep`` come first.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    names = [escape_controls(str(name)) for name in table.columns]
    numeric = [dtype.kind in "if" for dtype in table.dtypes]
    cells = [[_write_cell(cell) for cell in table.iloc[:, i]] for i in range(len(names))]
    heads = [re.sub(r"([_:])", rf"\1{SOFT_BREAK}", name) for name in names]
    columns = [[head, *column] for head, column in zip(heads, cells, strict=True)]
    shown, widths = choose_widths(columns, numeric, console.width, [name in keep for name in names])
    heading = Text(escape_controls(title), style="italic")
    grid = Table(title=heading, title_justify="left", box=SIMPLE_HEAD)
    wrapped = {
        i: [Text(wrap(text, width)) for text in columns[i]]
        for i, width in zip(shown, widths, strict=True)
    }
    for i, width in zip(shown, widths, strict=True):
        justify: Any = "right" if numeric[i] else "left"
        grid.add_column(wrapped[i][0], justify=justify, width=width, no_wrap=True)
    for row in range(1, len(table) + 1):
        grid.add_row(*(column[row] for column in wrapped.values()))
    console.print(grid)
    omitted = [name for i, name in enumerate(names) if i not in shown]
    if omitted:
        where = f" All columns: {escape_controls(complete)}" if complete else ""
        console.print(
            Text(f"Omitted for lack of space: {', '.join(omitted)}.{where}"), soft_wrap=True
        )


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


def choose_widths(
    columns: Sequence[Sequence[str]], numeric: Sequence[bool], width: int, kept: Sequence[bool]
) -> tuple[list[int], list[int]]:
    """Return the positions of the columns that fit into a width, and their widths.

    Columns hold their texts, including the name. Numeric ones are as wide as their widest text;
    those to keep are placed before the others.
    """
    # A column of empty texts takes room, too.
    natural = [
        max(1, *(len(text.replace(SOFT_BREAK, "")) for text in column)) for column in columns
    ]
    least = [
        full
        if fixed
        else max(
            min(full, NARROWEST_KEPT if important else NARROWEST),
            max(map(_find_longest_word, column)),
        )
        for column, full, fixed, important in zip(columns, natural, numeric, kept, strict=True)
    ]
    room = width - EDGE
    shown: list[int] = []
    for i in sorted(range(len(columns)), key=lambda i: not kept[i]):
        if least[i] + GAP <= room or not shown:
            room -= least[i] + GAP
            shown.append(i)
    shown.sort()
    widths = {i: least[i] for i in shown}
    # The columns most in need of it share the remaining room.
    while room > 0 and any(widths[i] < natural[i] for i in shown):
        widths[max(shown, key=lambda i: natural[i] / widths[i])] += 1
        room -= 1
    if room < 0:
        widths[shown[0]] = max(width - GAP - EDGE, 1)
    return shown, [widths[i] for i in shown]


def wrap(text: str, width: int) -> str:
    """Return a text in lines of at most so many letters, broken at spaces where possible."""
    lines = [""]
    for word in re.findall(f"[^ {SOFT_BREAK}]+ ?", text):
        while len(word.rstrip()) > width:
            lines.append(word[:width])
            word = word[width:]
        if len((lines[-1] + word).rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip(" ") for line in lines if line.strip(" ")).replace(
        FIXED_SPACE, " "
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
    return f"{estimate} [{least},{FIXED_SPACE}{most}]{few}"


def _write_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_write_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", FIXED_SPACE)


def _write_cell(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else escape_controls(str(cell))


def _find_longest_word(text: str) -> int:
    return max(map(len, re.split(f"[ {SOFT_BREAK}]", text)))
