"""What a benchmark leaves behind: seconds and peak memory of ours and of a named peer."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.writer import filling

if TYPE_CHECKING:
    from rich.console import Console

Result = TypeVar("Result")
MIB = 2**20


@dataclass(frozen=True)
class Timed(Generic[Result]):
    """One call, measured.

    Attributes
    ----------
    seconds : float
        Wall clock, the best of several calls.
    peak_mib : float
        Largest memory held at once by what the call allocated, in MiB.
    result : object
        What it returned.
    """

    seconds: float
    peak_mib: float
    result: Result


@dataclass(frozen=True)
class Record:
    """One line of data/results/benchmarks/NAME.json; ``ratio`` is peer over ours, in seconds.

    What was not measured is NaN; null in the file.
    """

    case: str
    n: int
    ours_seconds: float
    peer: str
    peer_seconds: float
    ratio: float
    ours_peak_mib: float
    peer_peak_mib: float
    backend: str


def measure_call(call: Callable[[], Result], repeat: int = 3) -> Timed[Result]:
    """Time a call and take its peak memory.

    Parameters
    ----------
    call : callable
        Without arguments; its inputs are made before and so count for neither.
    repeat : int
        Timed calls; the best counts, for the others were disturbed by the machine. The first
        one also warms caches and lazy imports.

    Returns
    -------
    Timed

    Notes
    -----
    The memory comes from tracemalloc in a further call, because tracing slows Python code down.
    It sees every array of NumPy and every Python object that the call allocates, whether or not
    a page was ever touched, and nothing that was there before, so ours and a peer's can be
    measured in one process, one after the other. Resident memory could not tell them apart
    without a process for each. What native libraries allocate by themselves (BLAS buffers, the
    memory of a GPU) is not seen.
    """
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    tracemalloc.start()
    try:
        result = call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return Timed(best, peak / MIB, result)


def compare(
    case: str, n: int, ours: Timed[Any], peer: str, theirs: Timed[Any], backend: str = "numpy"
) -> Record:
    """Put two measured calls side by side."""
    return Record(
        case,
        n,
        ours.seconds,
        peer,
        theirs.seconds,
        theirs.seconds / ours.seconds,
        ours.peak_mib,
        theirs.peak_mib,
        backend,
    )


def write_records(name: str, records: Sequence[Record], folder: Path | None = None) -> Path:
    """Write data/results/benchmarks/NAME.json, whole or not at all, and return its path.

    Raises
    ------
    StoreError
        When the folder cannot be written.
    """
    folder = folder or find_home() / "data" / "results" / "benchmarks"
    path = folder / f"{name}.json"
    lines = [{key: _clear(value) for key, value in asdict(each).items()} for each in records]
    mend = "Choose another one, or mend its permissions."
    with filling(folder, what="measurements", mend=mend) as work:
        (work / path.name).write_text(json.dumps(lines, indent=1, allow_nan=False) + "\n")
    return path


def _clear(value: object) -> object:
    """Return None for NaN, which JSON does not know."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _write(value: float, form: str, unit: str = "") -> str:
    """Return a number of a table; a dash for what was not measured."""
    return "–" if math.isnan(value) else f"{value:{form}}{unit}"


def show_records(title: str, records: Sequence[Record], console: Console | None = None) -> None:
    """Print the records as a table that fits 80 columns; as plain lines where rich is missing."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        for each in records:
            print(json.dumps(asdict(each)))
        return
    peers = dict.fromkeys(f"{each.peer} ({each.backend})" for each in records)
    table = Table(title=title, caption=f"peer: {', '.join(peers)}", box=box.SIMPLE)
    table.add_column("case")
    for heading in ("n", "ours s", "peer s", "ratio", "ours MiB", "peer MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in records:
        table.add_row(
            each.case,
            f"{each.n:,}",
            _write(each.ours_seconds, ".3g"),
            _write(each.peer_seconds, ".3g"),
            _write(each.ratio, ".1f", "×"),
            _write(each.ours_peak_mib, ".1f"),
            _write(each.peer_peak_mib, ".1f"),
        )
    (console or Console()).print(table)
