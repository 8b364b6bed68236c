"""What `make reproduce` costs after its set-up: every study for the first time, and again.

Run ``python -m benchmarks.reproduce [--profile P] [--record]``; as long as `make reproduce` takes.
The command runs twice in a project of its own, with an empty store and the downloads of this one.
Seconds are from its start, or from the end of the study before, until the study's table is on the
screen; the first study's have the server's start in them, and the last line those until the command
ends. Ours is the second run, the peer the first one. n is the number of rows of all parts of a
split.

``--record`` writes data/reference/runs/reproduce.json, which is committed, too.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from benchmarks.record import Record, show_records, write_records
from fairfrontier.runtime.home import VARIABLE, find_home

# The first line of what the command shows of a study that is done.
TITLE = re.compile(r"^\s*(\S+): (?:published / ours|claims)")
END = "until its end"


def make_project(folder: Path, home: Path) -> None:
    """Make a project like that of a fresh checkout, with the downloads of another one."""
    for name in ("conf", "data/raw", "data/reference"):
        shutil.copytree(home / name, folder / name)
    downloads = home / "data" / "cache" / "downloads"
    if downloads.is_dir():
        (folder / "data" / "cache").mkdir()
        (folder / "data" / "cache" / "downloads").symlink_to(downloads)


def time_studies(lines: Iterable[str], start: float) -> dict[str, float]:
    """Return the seconds that each study took until its table came, and those after the last."""
    seconds = {}
    for line in lines:
        print(line, end="", flush=True)
        if found := TITLE.match(line):
            end = time.perf_counter()
            seconds[found[1]], start = end - start, end
    return {**seconds, END: time.perf_counter() - start}


def run(folder: Path, profile: str) -> dict[str, float]:
    """Run the command in a project, and time its studies."""
    command = [sys.executable, "-u", "-m", "flows", "reproduce", "--profile", profile]
    told = os.environ | {VARIABLE: str(folder)}
    start = time.perf_counter()
    with subprocess.Popen(command, env=told, stdout=subprocess.PIPE, text=True) as process:
        seconds = time_studies(process.stdout or (), start)
    if process.returncode:
        raise SystemExit(f"The command ended with code {process.returncode}.")
    if len(seconds) == 1:
        raise SystemExit("The command showed no study's table by a title that is known here.")
    return seconds


def count_rows(folder: Path) -> int:
    """Return the rows of the parts of a study's split, from its results."""
    points = pd.read_parquet(folder / "points.parquet")
    fit = ["dataset", "method", "setting", "seed"]
    parts = points[points["group"] == ""].groupby([*fit, "part"])["n"].max()
    return int(parts.groupby(fit).sum().max())


def make_records(
    first: Mapping[str, float], again: Mapping[str, float], rows: Mapping[str, int]
) -> list[Record]:
    """Return a record of each study, of the end, and of all."""
    pairs = {name: (seconds, again[name]) for name, seconds in first.items()}
    pairs["all"] = (sum(first.values()), sum(again.values()))
    nan = float("nan")
    return [
        Record(name, rows.get(name, 0), ours, "first run", peer, peer / ours, nan, nan, "numpy")
        for name, (peer, ours) in pairs.items()
    ]


def main() -> None:
    """Run the command twice, print the table and write data/results/benchmarks/reproduce.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="default")
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    home = find_home()
    with tempfile.TemporaryDirectory(prefix="reproduce-") as scratch:
        folder = Path(scratch)
        make_project(folder, home)
        first, again = (run(folder, chosen.profile) for _ in range(2))
        results = folder / "data" / "results"
        rows = {
            path.parent.name.partition("@")[0]: count_rows(path.parent)
            for path in results.glob("*/points.parquet")
        }
    records = make_records(first, again, rows)
    show_records("reproduce", records)
    print(write_records("reproduce", records))
    if chosen.record:
        print(write_records("reproduce", records, home / "data" / "reference" / "runs"))


if __name__ == "__main__":
    main()
