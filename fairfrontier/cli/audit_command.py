"""The command line's audit of decisions whose groups are noisy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairfrontier.cli.table import print_table
from fairfrontier.cli.terminal import log_to_terminal, telling_how_to_resume

# What is heavy is imported where it is used.
if TYPE_CHECKING:
    import pandas as pd

    from fairfrontier.audit.config import AuditConfig

ROWS_AT_MOST = 24


def audit(config: AuditConfig) -> None:
    """Say what holds of the rates of true groups when only noisy groups are seen."""
    from fairfrontier.audit.auditing import PASSES, run_audit
    from fairfrontier.audit.files import check_options, write_audit
    from fairfrontier.cli.progress import PassProgress

    started = time.monotonic()
    log_to_terminal()
    check_options(config)
    with (
        telling_how_to_resume("No file was changed", "start again"),
        PassProgress(config.name, PASSES) as progress,
    ):
        summary = write_audit(run_audit(config, progress), config.folder, started)
    show_audit(config.folder, summary)


def show_audit(folder: Path, done: dict[str, Any]) -> None:
    """Print what holds for every assignment of rows to true groups, and what stays open."""
    conclusions = done["conclusions"]
    held = [each for each in conclusions if each["verdict"] != "open"]
    # What no assignment decides between two groups stands in the report.
    left = [each for each in conclusions if each["verdict"] == "open" and not each["other"]]
    rows = f"{done['counts']['rows']:,} rows"
    if held:
        print_table(
            f"{done['name']}: holds for every assignment of {rows}", _tabulate(held, done["budget"])
        )
    else:
        typer.echo(f"{done['name']}: nothing holds for every assignment of {rows}.")
    if left:
        print_table("stays open, against all rows", _tabulate(left, done["budget"]))
    between = done["counts"]["open"] - len(left)
    typer.echo(
        f"{done['counts']['held']} of {done['counts']['conclusions']} conclusions hold"
        + (f"; {between} between two groups stay open too. " if between else ". ")
        + f"All: {folder / 'conclusions.csv'}. Report: {folder / 'report.html'}"
    )


def _tabulate(conclusions: list[dict[str, Any]], budget: float) -> pd.DataFrame:
    import pandas as pd

    shown = [
        {
            "rate": each["measure"],
            "group": each["group"],
            "against": each["other"] or "all rows",
            "difference": _join(each["low"], each["high"]),
            "holds": _name_verdict(each, budget),
        }
        for each in conclusions[:ROWS_AT_MOST]
    ]
    if len(conclusions) > ROWS_AT_MOST:
        shown.append({"rate": f"and {len(conclusions) - ROWS_AT_MOST} more"})
    return pd.DataFrame(shown).fillna("")


def _name_verdict(conclusion: dict[str, Any], budget: float) -> str:
    """Write a verdict with its margin: between two groups there is none."""
    verdict = str(conclusion["verdict"])
    if conclusion["other"] or verdict == "open":
        return verdict
    return f"{verdict} {budget:g}" if verdict == "within" else f"{verdict} by more than {budget:g}"


def _join(low: float | None, high: float | None) -> str:
    return "unknown" if low is None or high is None else f"{low:+.3f} to {high:+.3f}"
