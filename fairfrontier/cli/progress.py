"""Progress on the terminal while fits are trained, or a table is read."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from fairfrontier.cli.apart import beat
from fairfrontier.cli.terminal import log_to_terminal, telling_how_to_resume
from fairfrontier.runtime.errors import escape_controls
from fairfrontier.runtime.option import ResultOptions

# Seconds until the first line where no terminal redraws a bar, and between lines.
FIRST_SECONDS, QUIET_SECONDS = 10.0, 30.0
# Names of what runs in such a line.
MOST_NAMES = 2
Options = TypeVar("Options", bound=ResultOptions)


class Bar:
    """A bar with amount, time elapsed and time remaining; a context manager.

    It writes to standard error by default, so that standard output is for results.
    """

    def __init__(
        self, title: str, total: float, amount: Sequence[ProgressColumn], console: Console | None
    ) -> None:
        self.console = console or Console(stderr=True)
        self._title = escape_controls(title)
        self._started = self.console.get_time()
        self._written = self._started - max(0.0, QUIET_SECONDS - FIRST_SECONDS)
        self._bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=24),
            *amount,
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[running]}", style="dim", markup=False),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task(self._title, total=total, running="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _log(self, amount: str, done: float, *, last: bool = False) -> None:
        """Write a line now and then, and the last one, where no terminal redraws the bar.

        ``done`` is the share of all that is done, from 0 to 1; 0 where it is not known.
        """
        now = self.console.get_time()
        if not self.console.is_terminal and (last or now - self._written > QUIET_SECONDS):
            self._written = now
            elapsed = now - self._started
            line = f"{self._title}: {amount}, {elapsed:.0f} s"
            if 0.0 < done < 1.0:
                line += f", about {elapsed * (1.0 - done) / done:.0f} s left"
            self.console.print(Text(line), soft_wrap=True)


class FitProgress(Bar):
    """The number of fits done and the running ones; at its end, their warnings by method."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        super().__init__(title, 0, (MofNCompleteColumn(), TextColumn("fits")), console)
        self._running: dict[int, str] = {}
        self._first: dict[tuple[str, str], str] = {}
        self._count: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._total = self._done = 0
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        if not self.console.is_terminal:
            # Stages that count nothing are in the log, too.
            threading.Thread(target=self._tell, daemon=True).start()
        return super().__enter__()

    def _tell(self) -> None:
        while not self._ended.wait(FIRST_SECONDS):
            with self._lock:
                self._count_done()

    def expect(self, total: int) -> None:
        """Set the number of fits."""
        self._total = total
        self._bar.update(self._task, total=total)

    @property
    def share(self) -> float:
        """Percentage of the fits that are done."""
        return 100.0 if not self._total else 100.0 * self._done / self._total

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        super().__exit__()
        if self._total:
            self._count_done(last=True)
        for kind, remark in self._first.items():
            count = self._count[kind]
            times = f", {count} times" if count > 1 else ""
            self.console.print(Text(escape_controls(f"{kind[0]}{times}: {remark}")))

    def note(self, method: str, remarks: Iterable[str]) -> None:
        """Record a fit's warnings; those that differ only in numbers are shown once."""
        with self._lock:
            for remark in remarks:
                kind = (method, re.sub(r"\d[\d.,e+ -]*", "", remark))
                self._first.setdefault(kind, remark)
                self._count[kind] += 1

    @contextmanager
    def watch(self, label: str) -> Iterator[None]:
        """Show a fit while it runs; several threads may."""
        thread = threading.get_ident()
        with self._lock:
            self._running[thread] = label
            self._show()
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(thread, None)
                self._show()

    def advance(self) -> None:
        """Count a fit as done."""
        with self._lock:
            self._done += 1
            self._bar.update(self._task, completed=self._done)
            self._count_done()

    def _count_done(self, *, last: bool = False) -> None:
        """Write a line on the fits that are done and on what runs, now and then."""
        running = dict.fromkeys(self._running.values())
        names = escape_controls(", ".join([*running][:MOST_NAMES]))
        count = [f"{self._done} of {self._total} fits"] if self._total or self._done else []
        done = self._done / self._total if self._total else 0.0
        self._log(", ".join([*count, *([names] if names else [])]), done, last=last)

    def _show(self) -> None:
        self._bar.update(self._task, running=escape_controls(", ".join(self._running.values())))


class PassProgress(Bar):
    """How much of a table has been read in each of several passes; call it with pass and share."""

    def __init__(self, title: str, passes: Sequence[str], console: Console | None = None) -> None:
        super().__init__(title, 100.0, (TaskProgressColumn(),), console)
        self._passes = tuple(passes)
        # Percentage of all passes.
        self.share = 0.0

    def __call__(self, name: str, share: float) -> None:
        """Show that a share of a pass is done, from 0 to 1."""
        beat()
        self.share = 100.0 * (self._passes.index(name) + share) / len(self._passes)
        self._bar.update(self._task, completed=self.share, running=name)
        self._log(f"{self.share:.0f}%, {name}", self.share / 100.0)


@contextmanager
def show_passes(
    options: Options, check: Callable[[Options], None], passes: Sequence[str]
) -> Iterator[PassProgress]:
    """Check a command's options, then show its passes over a table on the terminal."""
    log_to_terminal()
    check(options)
    with (
        telling_how_to_resume("No file was changed", "start again"),
        PassProgress(options.name, passes) as progress,
    ):
        yield progress
