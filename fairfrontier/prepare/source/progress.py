"""Progress bars for downloads and counts, on terminals."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairfrontier.runtime.errors import escape_controls

# Called with a name, how much is done, and how much in all where that is known.
Progress = Callable[[str, int, int | None], None]
# What a bar shows of bytes, and of things counted one by one.
BYTES = ("DownloadColumn", "TransferSpeedColumn")
COUNT = ("MofNCompleteColumn",)


@contextmanager
def show_progress(also: Progress | None, shown: tuple[str, ...]) -> Iterator[Progress]:
    """Yield a callback that moves a bar on standard error, and calls ``also``.

    The bar is for terminals, and for the main thread only: workers and scheduled runs are quiet.
    """
    if threading.current_thread() is not threading.main_thread() or not sys.stderr.isatty():
        yield also or (lambda *_: None)
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}", style="bold", markup=False),
        bars.BarColumn(bar_width=24),
        *(getattr(bars, name)() for name in shown),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as bar:
        rows: dict[str, bars.TaskID] = {}

        def move(name: str, arrived: int, total: int | None) -> None:
            if name not in rows:
                rows[name] = bar.add_task(escape_controls(name), total=total)
            bar.update(rows[name], completed=arrived, total=total)
            if also is not None:
                also(name, arrived, total)

        yield move
