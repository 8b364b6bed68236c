"""The command line's debiasing of any model's scores."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairfrontier.cli.table import join_interval, print_table
from fairfrontier.cli.terminal import log_to_terminal, telling_how_to_resume

# What is heavy is imported where it is used.
if TYPE_CHECKING:
    from fairfrontier.debias.config import DebiasConfig


def debias(config: DebiasConfig) -> None:
    """Turn any model's scores into decisions of equal rates between groups."""
    from fairfrontier.cli.progress import PassProgress
    from fairfrontier.debias.debiasing import PASSES, fit_debiasing
    from fairfrontier.debias.files import check_options, write_debiasing

    started = time.monotonic()
    log_to_terminal()
    check_options(config)
    with (
        telling_how_to_resume("No file was changed", "start again"),
        PassProgress(config.name, PASSES) as progress,
    ):
        debiasing = fit_debiasing(config, progress)
        summary = write_debiasing(debiasing, config.folder, started, progress)
    show_debiasing(config.folder, summary)


def show_debiasing(folder: Path, summary: dict[str, Any]) -> None:
    """Print the bias before and after, on the rows that the report is about."""
    import pandas as pd

    shown: dict[str, dict[str, str]] = {}
    for each in summary["bias"]:
        # What parity on one column alone would give stands in the report.
        if each["part"] == summary["reported_on"] and each["rule"] in ("unmodified", "debiased"):
            row = shown.setdefault(each["attribute"], {"bias between": each["attribute"]})
            row[each["rule"]] = join_interval(each["value"], each["low"], each["high"])
    rows = summary["counts"][summary["reported_on"]]
    print_table(f"{summary['name']}: bias on {rows:,} rows", pd.DataFrame(shown.values()))
    typer.echo(
        f"{summary['counts']['rows']:,} rows decided in {summary['seconds']:.0f} s. "
        f"Rule: {folder / 'thresholds.json'}. Report: {folder / 'report.html'}"
    )
