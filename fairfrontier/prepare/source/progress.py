"""Progress bars for downloads and counts, on terminals."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairfrontier.runtime.errors import escape_controls

# Called with a name, how much is done, and how much in all where that is known.
Progress = Callable[[str, int, int | None], None]
# What a bar shows of bytes, and of things counted one by one.
BYTES = ("DownloadColumn", "TransferSpeedColumn")
COUNT = ("MofNCompleteColumn",)
# Seconds until the first line where no terminal shows a bar, and between lines.
FIRST_SECONDS, BETWEEN_SECONDS = 10.0, 30.0
_log = logging.getLogger(__name__)


@contextmanager
def show_progress(also: Progress | None, shown: tuple[str, ...]) -> Iterator[Progress]:
    """Yield a callback that moves a bar on standard error, and calls ``also``.

    The bar is for terminals, and for the main thread only: elsewhere what takes longer than some
    seconds is logged, a line now and then.
    """
    if threading.current_thread() is not threading.main_thread() or not sys.stderr.isatty():
        yield _log_lines(also, " bytes" if shown is BYTES else "")
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


def _log_lines(also: Progress | None, unit: str) -> Progress:
    due = time.monotonic() + FIRST_SECONDS
    begun: dict[str, tuple[float, int]] = {}

    def move(name: str, arrived: int, total: int | None) -> None:
        nonlocal due
        now = time.monotonic()
        # What was there before took no time.
        start, before = begun.setdefault(name, (now, arrived))
        if now > due:
            due = now + BETWEEN_SECONDS
            of, left = "", ""
            if total:
                of = f" of {total:,}"
                if arrived > before:
                    rest = (now - start) * (total - arrived) / (arrived - before)
                    left = f", about {rest:.0f} s left"
            _log.info("%s: %s%s%s%s", name, f"{arrived:,}", of, unit, left)
        if also is not None:
            also(name, arrived, total)

    return move
