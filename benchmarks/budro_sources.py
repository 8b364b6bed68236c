"""BuDRO's transport with few sources for each row, and what its certificate says, against n.

Run ``python -m benchmarks.budro_sources [--rows N ...] [--sources M ...] [--rounds T]
[--exact N] [--threads K] [--record]``; some minutes as it stands, and ``--rows 1000000 --sources
12288`` is the case of a million rows. Rows and losses are those of `benchmarks.budro`, at the same
budget. Each line is T rounds with M sources: the first one, which lays out cells and blocks, the
mean of the later ones, and the widest gap between the bounds, as a share of what moving gains. Up
to ``--exact`` rows the exact solver plays the same rounds in the same process, and its optimum must
lie between the bounds, or all stops.

Seconds are wall clock; those of the processor, over all threads, stand beside them, since on a busy
machine they alone mean something. So does the machine's load: the mean number of processes that
wanted a core in the minute before. ``--record`` writes data/reference/runs/budro-sources.json,
which is committed, in the place of data/results/benchmarks/budro-sources.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.budro import BUDGET, Rounds
from fairfrontier.models.individual.budro.geometry import build_geometry
from fairfrontier.models.individual.budro.solver import solve
from fairfrontier.models.individual.budro.transport import Problem, Setting, Transport
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.runtime.writer import filling

# Of what moving gains: how far the exact solver is from the optimum itself.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Line:
    """Rounds of n rows with so many sources, or with all.

    Attributes
    ----------
    first_seconds, later_seconds, later_processor_seconds : float
        Of the first round, and of a later one in the mean.
    gap_share : float
        Widest (upper − lower bound) / (upper bound − value of staying) of a round.
    load : float
        Processes that wanted a core, in the mean of the last minute.
    """

    n: int
    sources: int | None
    rounds: int
    threads: int
    first_seconds: float
    later_seconds: float
    later_processor_seconds: float
    gap_share: float
    load: float


def play(given: Rounds, sources: int | None, threads: int) -> tuple[Line, list[Transport]]:
    """Play all rounds, and return what they took and found."""
    n, rows = len(given.label), np.arange(len(given.label))
    setting, generator = Setting(sources=sources, tolerance=TOLERANCE), np.random.default_rng(0)
    wall, processor = [time.perf_counter()], [time.process_time()]
    geometry = build_geometry(given.z, given.label)
    found: list[Transport] = []
    for loss in given.losses:
        problem = Problem(geometry, loss, BUDGET)
        last = found[-1] if found else None
        found.append(solve(problem, "exact", setting, start=last, generator=generator))
        wall.append(time.perf_counter())
        processor.append(time.process_time())
    shares = [
        each.gap / (each.dual_value - float(np.mean(loss[rows, given.label])))
        for each, loss in zip(found, given.losses, strict=True)
    ]
    first, *later = np.diff(wall)
    line = Line(
        n=n,
        sources=sources,
        rounds=len(found),
        threads=threads,
        first_seconds=float(first),
        later_seconds=float(np.mean(later)),
        later_processor_seconds=float(np.mean(np.diff(processor)[1:])),
        gap_share=max(shares),
        load=os.getloadavg()[0],
    )
    return line, found


def measure(n: int, sources: Sequence[int], rounds: int, threads: int, exact: int) -> list[Line]:
    """Return a line for each number of sources, and the exact solver's where it is asked for.

    Raises
    ------
    AssertionError
        When the exact solver's optimum is not between the bounds.
    """
    given, lines = Rounds(n, rounds, "numpy"), []
    whole: list[Transport] = []
    if n <= exact:
        line, whole = play(given, None, threads)
        lines.append(line)
    for m in sources:
        line, found = play(given, m, threads)
        lines.append(line)
        for bounds, best in zip(found, whole, strict=False):
            if bounds.objective > best.dual_value or best.objective > bounds.dual_value:
                raise AssertionError(f"The optimum of {n} rows is not between the bounds.")
    return lines


def show(lines: Sequence[Line]) -> None:
    """Print lines as a table."""
    print("      rows  sources  first s  later s  later cpu s    gap   load")
    for each in lines:
        sources = "all" if each.sources is None else f"{each.sources:,}"
        print(
            f"{each.n:10,} {sources:>8} {each.first_seconds:8.1f} {each.later_seconds:8.1f} "
            f"{each.later_processor_seconds:12.1f} {each.gap_share:6.2%} {each.load:6.1f}",
            flush=True,
        )


def write(lines: Sequence[Line], record: bool) -> Path:
    """Write the lines as JSON, whole or not at all, and return the path."""
    part = ("reference", "runs") if record else ("results", "benchmarks")
    folder = find_home().joinpath("data", *part)
    with filling(folder, what="measurements", mend="Mend its permissions.") as work:
        text = json.dumps([asdict(each) for each in lines], indent=1) + "\n"
        (work / "budro-sources.json").write_text(text)
    return folder / "budro-sources.json"


def main() -> None:
    """Run the benchmark, print its tables and write its figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[12_000, 36_177])
    parser.add_argument("--sources", type=int, nargs="*", default=[1024, 4096])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--exact", type=int, default=36_177)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    if chosen.rounds < 2:
        parser.error("--rounds is 2 or more: a first round and a later one")
    written: list[Line] = []
    with limited_threads(chosen.threads):
        for n in sorted(chosen.rows):
            lines = measure(n, chosen.sources, chosen.rounds, chosen.threads, chosen.exact)
            show(lines)
            written.extend(lines)
    print(write(written, chosen.record))


if __name__ == "__main__":
    main()
