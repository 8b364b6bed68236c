"""Commands on a project: init, log, clean and doctor."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairfrontier.cli.table import print_table
from fairfrontier.cli.terminal import log_to_terminal, say, show, write_bytes
from fairfrontier.runtime.errors import ConfigError

if TYPE_CHECKING:
    from fairfrontier.choose.config import LogConfig
    from fairfrontier.cli.upkeep.cleaning import Cleaning, Item
    from fairfrontier.cli.upkeep.config import CleanConfig, DoctorConfig
    from fairfrontier.prepare.draft.config import InitConfig


def init(config: InitConfig) -> None:
    """Draft a dataset and a study for a table, as commented YAML to be corrected."""
    from fairfrontier.study.draft import draft_project

    draft = draft_project(config.table, config)
    show(f"{draft.table.name}: {draft.summary}.")
    for warning in draft.warnings:
        say(f"Look at: {warning}.")
    elsewhere = "" if draft.home.samefile(Path.cwd()) else f", in the project {draft.home}"
    show(f"Drafted {os.path.relpath(draft.dataset)} and {os.path.relpath(draft.study)}{elsewhere}.")
    show(f"Next: {draft.command}")


def log(config: LogConfig) -> None:
    """Log a finished study, and the bundle of its choice, to MLflow."""
    from fairfrontier.choose.tracking import log_study

    log_to_terminal()
    logged = log_study(config)
    what = f"run {logged.run} with {logged.settings:,} nested ones, in {logged.experiment}"
    show(f"Logged: {what}." if logged.new else f"Logged before: {what}.")
    show(f"Its files: {logged.files}")
    if logged.model is None:
        show("There is no choice yet: `fairfrontier select` makes one, and log adds its bundle.")
    else:
        show(f"The choice is {logged.model}{'' if logged.new_model else ', as before'}.")


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


def doctor(config: DoctorConfig) -> None:
    """Say what works here and what does not, with the command that mends it.

    The exit code is 2 when something that is needed does not work.
    """
    from fairfrontier.cli.upkeep.doctor import examine

    log_to_terminal()
    findings = []
    for finding in examine(config):
        findings.append(finding)
        if not config.as_json:
            show(f"{finding.state:7} {finding.about}: {finding.found}")
            if finding.mend:
                show(f"{'':7}   {finding.mend}")
    wrong = [finding for finding in findings if finding.state == "wrong"]
    if config.as_json:
        show(json.dumps({"works": not wrong, "findings": [asdict(each) for each in findings]}))
    elif wrong:
        names = ", ".join(finding.about for finding in wrong)
        show(f"To be mended: {names}.")
    else:
        show("All that is needed works.")
    if wrong:
        raise typer.Exit(ConfigError.exit_code)
