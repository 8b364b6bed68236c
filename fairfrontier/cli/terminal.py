"""What every command does: find the project, print tables and faults."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairfrontier.runtime.errors import FairfrontierError
from fairfrontier.runtime.home import VARIABLE, find_home

# Dask's workers import this module again: what is heavy is imported where it is used.
if TYPE_CHECKING:
    import pandas as pd

INTERRUPTED = 130
# Columns that are not broken where the terminal is narrow; measures with a group neither.
NARROW = {"method", "accuracy", "name", "bias between", "unmodified", "debiased"}


def settle_home(conf: Path | None) -> Path:
    """Return the project root that --conf, FAIRFRONTIER_HOME or the current folder names."""
    if conf is None:
        return find_home()
    # Pydantic, which that module needs, is not needed by every command.
    from fairfrontier.runtime.option import find_root

    home = find_root(conf)
    # Worker processes and scheduled runs look here.
    os.environ[VARIABLE] = str(home)
    return home


def resolve(name: str) -> str:
    """Return a name as it is, and a path as an absolute one: a flow may run elsewhere."""
    return str(Path(name).absolute()) if name.endswith((".yaml", ".yml")) else name


def log_to_terminal() -> None:
    """Show warnings of the library on standard error."""
    logging.getLogger("fairfrontier").addHandler(logging.StreamHandler())


@contextmanager
def telling_how_to_resume(kept: str, verb: str) -> Iterator[None]:
    """Say what is kept, and the command that goes on, when the block fails or is interrupted."""
    command = shlex.join(["fairfrontier", *sys.argv[1:]])
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


def print_table(title: str, table: pd.DataFrame) -> None:
    """Print a table as it is: nothing in it is markup."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=Text(title, style="italic"), title_justify="left", box=SIMPLE_HEAD)
    for name in table.columns:
        number = str(name) in NARROW or ":" in str(name)
        shown.add_column(Text(str(name)), overflow="fold", no_wrap=number)
    for row in table.itertuples(index=False):
        cells = (f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row)
        shown.add_row(*map(Text, cells))
    Console().print(shown)


def say(text: str) -> None:
    """Write a line to standard error."""
    typer.echo(text, err=True)


def say_error(text: str) -> None:
    """Write a line to standard error, in red."""
    typer.secho(text, fg=typer.colors.RED, err=True)
