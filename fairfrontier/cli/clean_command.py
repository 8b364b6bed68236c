"""The command line's removal of what a project holds."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from fairfrontier.cli.table import print_table
from fairfrontier.cli.terminal import say, show, write_bytes

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    from fairfrontier.cli.upkeep.cleaning import Cleaning, Item
    from fairfrontier.cli.upkeep.config import CleanConfig

DAY = 86_400.0
SEVERAL = "several"


def clean(config: CleanConfig) -> None:
    """Show what the project holds in data/cache and data/results, by study and age; remove some.

    Nothing is removed without --yes, and results only where --kind names them. What a running
    command uses stays.
    """
    from fairfrontier.cli.upkeep.cleaning import clean as run_clean

    done = run_clean(config)
    rows = summarise(done, removed=config.yes)
    freed = sum(item.bytes for item in (done.removed if config.yes else done.chosen))
    if config.as_json:
        links = [str(link) for link in done.links]
        said = {"removed": config.yes, "bytes": freed, "held": len(done.held), "links": links}
        kept = {str(path): reason for path, reason in done.kept.items()}
        show(json.dumps({**said, "kept": kept, "holds": rows}))
        return
    show_cleaning(done, rows, freed, removed=config.yes)


def show_cleaning(
    done: Cleaning, rows: Sequence[dict[str, Any]], freed: int, *, removed: bool
) -> None:
    """Print a table of what there is, what of it goes, and what stays and why."""
    import pandas as pd

    goes = "freed" if removed else "would be freed"
    if not rows:
        show("The project holds nothing in data/cache and data/results.")
    else:
        shown = [
            {
                "kind": row["kind"],
                "study": row["study"],
                "entries": row["entries"],
                "size": write_bytes(row["bytes"]),
                "days old": _write_days(row["newest_days"], row["oldest_days"]),
                goes: write_bytes(row["chosen_bytes"]) if row["chosen_bytes"] else "",
            }
            for row in rows
        ]
        print_table("What the project holds", pd.DataFrame(shown), keep=("kind", "study", goes))
    for link in done.links:
        say(f"{link} is a link, which is not followed: what it leads to stays.")
    if done.held:
        held = sum(item.bytes for item in done.held)
        say(
            f"{len(done.held):,} of the entries ({write_bytes(held)}) stay: a running command uses "
            "them, or their file system has no locks."
        )
    for path, reason in done.kept.items():
        say(f"{path} cannot be removed and stays: {reason}.")
    if removed:
        show(f"{len(done.removed):,} entries removed, {write_bytes(freed)} freed.")
    elif done.chosen:
        command = shlex.join(["fairfrontier", *sys.argv[1:], "--yes"])
        show(f"{write_bytes(freed)} would be freed by: {command}")
    elif rows:
        show("Nothing of it was chosen.")


def summarise(done: Cleaning, *, removed: bool) -> list[dict[str, Any]]:
    """Return a row for every kind and study, in the order of the kinds; ages are in days."""
    from fairfrontier.cli.upkeep.config import KINDS

    gone = {item.path for item in (done.removed if removed else done.chosen)}
    rows: dict[tuple[int, str], list[Item]] = defaultdict(list)
    for item in done.items:
        rows[KINDS.index(item.kind), _name_studies(item.studies)].append(item)
    now = time.time()
    return [
        {
            "kind": KINDS[kind],
            "study": study,
            "entries": len(items),
            "bytes": sum(item.bytes for item in items),
            "newest_days": (now - max(item.written for item in items)) / DAY,
            "oldest_days": (now - min(item.written for item in items)) / DAY,
            "chosen_bytes": sum(item.bytes for item in items if item.path in gone),
        }
        for (kind, study), items in sorted(rows.items(), key=lambda row: row[0])
    ]


def _name_studies(studies: Collection[str]) -> str:
    return SEVERAL if len(studies) > 1 else next(iter(studies), "")


def _write_days(newest: float, oldest: float) -> str:
    return f"{oldest:.0f}" if round(newest) == round(oldest) else f"{newest:.0f} to {oldest:.0f}"
