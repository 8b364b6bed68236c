"""What a run shows of itself while fits are trained, or a table is read."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

# Where no terminal redraws a line, one is written this often.
QUIET_SECONDS = 30.0


class FitProgress:
    """Fits done of all, the ones that run, time elapsed and time left; a context manager.

    At its end it shows what fits were noted to warn of, once for each method.

    Parameters
    ----------
    title : str
        What runs, e.g. the study.
    total : int
        Number of fits; `expect` may say it later.
    done : int
        How many the store holds already.
    console : Console, optional
        Standard error by default, so that standard output stays for results.
    """

    def __init__(
        self, title: str, total: int = 0, done: int = 0, console: Console | None = None
    ) -> None:
        self.console = console or Console(stderr=True)
        self._title = title
        self._running: dict[int, str] = {}
        self._first: dict[tuple[str, str], str] = {}
        self._count: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._written = time.monotonic()
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("fits"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[running]}", table_column=None),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=total, completed=done, running="")
        self._total = total
        self._done = done
        self._started = time.monotonic()

    def expect(self, total: int) -> None:
        """Show how many fits there are, once that is known."""
        self._total = total
        self._bar.update(self._task, total=total)

    @property
    def share(self) -> float:
        """Per cent of the fits that are done."""
        return 100.0 if not self._total else 100.0 * self._done / self._total

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        for alike, remark in self._first.items():
            count = self._count[alike]
            times = f", {count} times" if count > 1 else ""
            self.console.print(f"{alike[0]}{times}: {remark}", highlight=False, markup=False)

    def note(self, method: str, remarks: Iterable[str]) -> None:
        """Note what a fit warned of; remarks that differ in numbers alone are alike."""
        with self._lock:
            for remark in remarks:
                alike = (method, re.sub(r"\d[\d.,e+ -]*", "", remark))
                self._first.setdefault(alike, remark)
                self._count[alike] += 1

    @contextmanager
    def watch(self, label: str) -> Iterator[None]:
        """Show a fit while it runs; several threads may."""
        mark = threading.get_ident()
        with self._lock:
            self._running[mark] = label
            self._show()
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(mark, None)
                self._show()

    def advance(self) -> None:
        """Count a fit as done."""
        with self._lock:
            self._done += 1
            self._bar.update(self._task, completed=self._done)
            now = time.monotonic()
            if not self.console.is_terminal and (
                now - self._written > QUIET_SECONDS or self._done == self._total
            ):
                self._written = now
                self.console.print(
                    f"{self._title}: {self._done} of {self._total} fits, "
                    f"{now - self._started:.0f} s",
                    highlight=False,
                )

    def _show(self) -> None:
        self._bar.update(self._task, running=", ".join(self._running.values()))


class PassProgress:
    """How far a table has been read, in each of several passes; a context manager and a callback.

    Parameters
    ----------
    title : str
        What runs.
    passes : sequence of str
        Names of the passes, in their order.
    console : Console, optional
        Standard error by default, so that standard output stays for results.
    """

    def __init__(self, title: str, passes: Sequence[str], console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._title = title
        self._passes = tuple(passes)
        self._started = self._written = time.monotonic()
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[running]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=100.0, running="")
        # Per cent of all passes.
        self.share = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, name: str, share: float) -> None:
        """Show that so much of a pass is done, from 0 to 1."""
        self.share = 100.0 * (self._passes.index(name) + share) / len(self._passes)
        self._bar.update(self._task, completed=self.share, running=name)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._written > QUIET_SECONDS:
            self._written = now
            self.console.print(
                f"{self._title}: {self.share:.0f}%, {name}, {now - self._started:.0f} s",
                highlight=False,
            )
