"""The command line's watch over a bundle in use."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairfrontier.cli.apart import apart
from fairfrontier.cli.audit_command import LIMIT_EXCEEDED
from fairfrontier.cli.table import print_table
from fairfrontier.cli.terminal import show

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    from fairfrontier.monitor.config import MonitorConfig

ROWS_AT_MOST = 24


@apart(lambda config: config.bundle)
def monitor(config: MonitorConfig) -> None:
    """Count a new period of a bundle's rows, and say which rates changed or passed a limit.

    The exit code is 4 when there is an alarm, from an earlier period too.
    """
    from fairfrontier.cli.progress import show_passes
    from fairfrontier.monitor.monitoring import PASSES, check_options, watch, write_monitor
    from fairfrontier.runtime.writer import holding

    started = time.monotonic()
    with show_passes(config, check_options, PASSES) as progress, holding(config.folder):
        summary = write_monitor(watch(config, progress), started)
    show_monitor(config.folder, summary)
    if summary["alarms"]:
        raise typer.Exit(LIMIT_EXCEEDED)


def show_monitor(folder: Path, summary: dict[str, Any]) -> None:
    """Print the limits, the alarms, and the columns that drifted beyond chance."""
    import pandas as pd

    name, period, new, counts = (summary[key] for key in ("name", "period", "new", "counts"))
    if not any(new.values()):
        show(f"{name}: the table was counted before, as the period {period}.")
    if summary["limits"]:
        rows = [
            {
                "limit": limit["name"],
                "": f"≤ {limit['high']:g}" if limit["low"] == 0 else f"≥ {limit['low']:g}",
                "reference": _write(limit["reference"]),
                period: _write(limit["value"]),
                "alarm": f"since {limit['alarm']}" if limit["alarm"] else "no",
            }
            for limit in summary["limits"]
        ]
        print_table(f"{name}: limits", pd.DataFrame(rows))
    changed = [alarm for alarm in summary["alarms"] if alarm["kind"] == "reference"]
    if changed:
        rows = [
            {
                "rate": alarm["name"],
                "reference": f"{alarm['low']:.3f} to {alarm['high']:.3f}",
                period: _write(alarm["value"]),
                "p": f"{alarm['p']:.1e}",
                "alarm": f"since {alarm['alarm']}",
            }
            for alarm in changed[:ROWS_AT_MOST]
        ]
        complete = str(folder / "checks.csv")
        keep = ("rate", "alarm")
        print_table(f"{name}: rates that changed", pd.DataFrame(rows), keep=keep, complete=complete)
    else:
        seen = counts["periods"]
        periods = "one period" if seen == 1 else f"{seen:,} periods"
        show(f"{name}: no rate is known to have changed in {periods}.")
    (own,) = (each for each in summary["periods"] if each["period"] == period)
    for attribute, rows in own["unknown"].items():
        if rows:
            of_all = f"{rows:,} of {own['rows']:,} rows of {period}"
            show(f"{of_all} are of no known group of {attribute}.")
    drifted = [each["column"] for each in summary["drift"] if (each["beyond"] or 0) > 1]
    if drifted:
        show(f"Drifted beyond chance in {period}: {', '.join(drifted[:ROWS_AT_MOST])}.")
    show(
        f"{new['rows']:,} rows and {new['labels']:,} labels counted, {counts['rows']:,} and "
        f"{counts['labels']:,} in all. Report: {folder / 'report.html'}"
    )
    if ignored := new["ignored"]:
        show(f"{ignored:,} labels were ignored: their rows have one already.")


def _write(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
