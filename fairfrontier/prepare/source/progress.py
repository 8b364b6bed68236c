"""Bars for what is fetched and what is counted, where somebody watches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fairfrontier.prepare.source.download import Progress


@contextmanager
def show_bytes(also: Progress | None) -> Iterator[Progress]:
    """Yield a callback that moves a bar on standard error, and tells ``also``.

    The bar is for terminals, and for the main thread only: workers and scheduled runs are quiet.
    """
    with _show(also, ("DownloadColumn", "TransferSpeedColumn")) as tell:
        yield tell


@contextmanager
def show_count(also: Progress | None) -> Iterator[Progress]:
    """Yield a callback as `show_bytes` does, for things that are counted one by one."""
    with _show(also, ("MofNCompleteColumn",)) as tell:
        yield tell


@contextmanager
def _show(also: Progress | None, shown: tuple[str, ...]) -> Iterator[Progress]:
    watched = threading.current_thread() is threading.main_thread() and sys.stderr.isatty()
    if not watched:
        yield also or _say_nothing
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("[bold]{task.description}"),
        bars.BarColumn(bar_width=24),
        *(getattr(bars, name)() for name in shown),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as bar:
        rows: dict[str, bars.TaskID] = {}

        def move(name: str, arrived: int, total: int | None) -> None:
            if name not in rows:
                rows[name] = bar.add_task(name, total=total)
            bar.update(rows[name], completed=arrived, total=total)
            if also is not None:
                also(name, arrived, total)

        yield move


def _say_nothing(name: str, arrived: int, total: int | None) -> None:
    """Stand for a callback where nobody watches."""
