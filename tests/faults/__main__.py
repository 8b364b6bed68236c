"""`make faults`: 200 kills at random moments, then the other faults; a table of what was left.

What was done is kept in data/results/faults, so that an interrupted call goes on. The tables are
written into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

# Imported once, for the forks in which commands run.
import distributed  # noqa: F401
import matplotlib.figure  # noqa: F401
import xgboost  # noqa: F401

import fairfrontier.auditing.debiased
import fairfrontier.auditing.noisy_groups
import fairfrontier.choose.choosing
import fairfrontier.choose.select
import fairfrontier.cli.command
import fairfrontier.runner  # noqa: F401
from fairfrontier.models.registry import METHODS
from tests.faults import fault, hosts
from tests.faults.job import JOBS, Scene, count_differences, make_template
from tests.project import ROOT

FOLDER = ROOT / "data" / "results" / "faults"
PAGE = ROOT / "docs" / "reliability.md"
FAULTS = fault.FAULTS | {name: partial(hosts.separate_hosts, name) for name in hosts.CASES}
# Kills in a row, before a run that is left alone.
IN_A_ROW = 4
Row = dict[str, Any]


def read_rows(name: str) -> list[Row]:
    """Return the rows of a kind that are kept."""
    path = FOLDER / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep_row(name: str, row: Row) -> Row:
    """Add a row to those that are kept."""
    with (FOLDER / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(name, {key: value for key, value in row.items() if key != "files"}, flush=True)
    return row


def find_undisturbed(template: Path) -> dict[str, Row]:
    """Return for each job the digests of what it leaves when left alone, and its seconds."""
    rows = {row["job"]: row for row in read_rows("undisturbed")}
    for name, job in JOBS.items():
        if name not in rows:
            scene = Scene(FOLDER / "scene", template)
            code, seconds = scene.run(job)
            assert code == 0, scene.said()
            row = {"job": name, "seconds": seconds, "files": scene.results()}
            rows[name] = keep_row("undisturbed", {**row, "leftovers": scene.leftovers()})
    return rows


def kill_jobs(template: Path, undisturbed: dict[str, Row], kills: int, seed: int) -> None:
    """Kill every job in its share of ``kills``, at moments drawn from the seed."""
    done = read_rows("kills")
    for name, job in JOBS.items():
        before = [row for row in done if row["job"] == name]
        count, trial = sum(row["kills"] for row in before), len(before)
        seconds = undisturbed[name]["seconds"]
        while count < round(job.kills * kills / 200):
            draw = random.Random(f"{seed} {name} {trial}")  # noqa: S311
            scene = Scene(FOLDER / "scene", template)
            killed, started = 0, time.monotonic()
            while killed < IN_A_ROW and scene.kill(job, draw.uniform(0, seconds)):
                killed += 1
            if killed == 0:
                # The machine is faster now: later moments would kill nothing.
                seconds = min(seconds, time.monotonic() - started)
            code, needed = scene.run(job)
            row = {
                "job": name,
                "trial": trial,
                "kills": killed,
                "exit": code,
                "seconds": needed,
                "differences": count_differences(scene.results(), undisturbed[name]["files"]),
                "leftovers": scene.leftovers(),
            }
            keep_row("kills", row)
            count, trial = count + killed, trial + 1


def tabulate() -> str:
    """Return both tables as Markdown."""
    lines = ["| command | kills | runs afterwards | failed | files that differ | leftovers |"]
    lines.append("|---|---|---|---|---|---|")
    rows, total = read_rows("kills"), [0] * 5
    for name in JOBS:
        own = [row for row in rows if row["job"] == name]
        counts = [
            sum(row["kills"] for row in own),
            len(own),
            sum(row["exit"] != 0 for row in own),
            sum(row["differences"] for row in own),
            sum(len(row["leftovers"]) for row in own),
        ]
        total = [a + b for a, b in zip(total, counts, strict=True)]
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    lines.append(f"| all | {' | '.join(map(str, total))} |")
    lines += ["", "| fault | tried | what happened |", "|---|---|---|"]
    kept = {row["fault"]: row for row in read_rows("faults")}
    lines += [
        f"| {name} | {kept[name]['tried']} | {kept[name]['outcome']} |"
        for name in FAULTS
        if name in kept
    ]
    return "\n".join(lines)


def write_page() -> None:
    """Put the tables between the markers of the page."""
    start, end = "<!-- figures: make faults -->", "<!-- end -->"
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(start)
    tail = rest.split(end)[1]
    PAGE.write_text(f"{head}{start}\n{tabulate()}\n{end}{tail}", encoding="utf-8")


def list_missing(again: bool) -> Iterator[str]:
    """Yield the faults that have no row yet, or all."""
    kept = {row["fault"] for row in read_rows("faults")}
    yield from (name for name in FAULTS if again or name not in kept)


def main() -> None:
    """Do what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="forget what was done")
    options = parser.parse_args()
    if options.again:
        shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    METHODS.all()
    template = make_template(FOLDER / "template")
    undisturbed = find_undisturbed(template)
    for name in list_missing(options.again):
        tried, outcome = FAULTS[name](FOLDER, template, undisturbed)
        keep_row("faults", {"fault": name, "tried": tried, "outcome": outcome})
        write_page()
    kill_jobs(template, undisturbed, options.kills, options.seed)
    write_page()


if __name__ == "__main__":
    main()
