"""The command line's audit of decisions whose groups are noisy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairfrontier.cli.table import print_table
from fairfrontier.cli.terminal import show

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    import pandas as pd

    from fairfrontier.audit.config import AuditConfig

ROWS_AT_MOST = 24


def audit(config: AuditConfig) -> None:
    """Say what holds of the rates of true groups when only noisy groups are seen."""
    from fairfrontier.audit.auditing import PASSES, run_audit
    from fairfrontier.audit.files import check_options, write_audit
    from fairfrontier.cli.progress import show_passes

    started = time.monotonic()
    with show_passes(config, check_options, PASSES) as progress:
        summary = write_audit(run_audit(config, progress), config.folder, started)
    show_audit(config.folder, summary)


def show_audit(folder: Path, summary: dict[str, Any]) -> None:
    """Print what holds for every assignment of rows to true groups, and what stays open."""
    name, counts, budget = summary["name"], summary["counts"], summary["budget"]
    held = [row for row in summary["conclusions"] if row["verdict"] != "open"]
    unsettled = [row for row in summary["conclusions"] if row["verdict"] == "open"]
    # Open comparisons of two groups are in the report.
    against_all = [row for row in unsettled if not row["other"]]
    rows = f"{counts['rows']:,} rows"
    if held:
        print_table(f"{name}: holds for every assignment of {rows}", _tabulate(held, budget))
    else:
        show(f"{name}: nothing holds for every assignment of {rows}.")
    if against_all:
        print_table("stays open, against all rows", _tabulate(against_all, budget))
    between = counts["open"] - len(against_all)
    show(
        f"{counts['held']} of {counts['conclusions']} conclusions hold"
        + (f"; {between} between two groups stay open too. " if between else ". ")
        + f"All: {folder / 'conclusions.csv'}. Report: {folder / 'report.html'}"
    )


def _tabulate(conclusions: list[dict[str, Any]], budget: float) -> pd.DataFrame:
    import pandas as pd

    shown = []
    for row in conclusions[:ROWS_AT_MOST]:
        low, high, verdict = row["low"], row["high"], str(row["verdict"])
        # Between two groups there is no margin.
        if not row["other"] and verdict != "open":
            verdict += f" {budget:g}" if verdict == "within" else f" by more than {budget:g}"
        known = low is not None and high is not None
        shown.append(
            {
                "rate": row["measure"],
                "group": row["group"],
                "against": row["other"] or "all rows",
                "difference": f"{low:+.3f} to {high:+.3f}" if known else "unknown",
                "holds": verdict,
            }
        )
    if len(conclusions) > ROWS_AT_MOST:
        shown.append({"rate": f"and {len(conclusions) - ROWS_AT_MOST} more"})
    return pd.DataFrame(shown).fillna("")
