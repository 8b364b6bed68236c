"""The command line's debiasing of any model's scores."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairfrontier.cli.audit_command import tell_rows
from fairfrontier.cli.table import join_interval, print_table
from fairfrontier.cli.terminal import show

# What is heavy is imported where it is used.
if TYPE_CHECKING:
    from fairfrontier.debias.config import DebiasConfig


def debias(config: DebiasConfig) -> None:
    """Turn any model's scores into decisions of equal rates between groups."""
    from fairfrontier.cli.progress import show_passes
    from fairfrontier.debias.debiasing import PASSES, fit_debiasing
    from fairfrontier.debias.files import check_options, write_debiasing

    started = time.monotonic()
    with show_passes(config, check_options, PASSES) as progress:
        debiasing = fit_debiasing(config, progress)
        summary = write_debiasing(debiasing, config.folder, started, progress)
    show_debiasing(config.folder, summary)


def show_debiasing(folder: Path, summary: dict[str, Any]) -> None:
    """Print the bias before and after, on the reported rows."""
    import pandas as pd

    from fairfrontier.debias.tally import describe_doubt

    shown: dict[str, dict[str, str]] = {}
    for bias in summary["bias"]:
        # Rules of parity on one column alone are in the report.
        if bias["part"] == summary["reported_on"] and bias["rule"] in ("unmodified", "debiased"):
            row = shown.setdefault(bias["attribute"], {"bias between": bias["attribute"]})
            row[bias["rule"]] = join_interval(bias["value"], bias["low"], bias["high"])
    expected = summary["expected"]
    for bias in expected.get("bias", ()):
        shown[bias["attribute"]]["expected on fresh rows"] = (
            f"{bias['before']:.3f} → {bias['after']:.3f}"
        )
    rows = summary["counts"][summary["reported_on"]]
    print_table(f"{summary['name']}: bias on {rows:,} rows", pd.DataFrame(shown.values()))
    if doubt := describe_doubt(expected):
        show(f"Not recommended: {doubt[0].lower()}{doubt[1:]}")
    for line in tell_rows({"zeros": summary.get("zeros", {})}, rows):
        show(line)
    # An earlier rule does not say how it was found.
    if not summary["fit"].get("converged", True):
        show("The rule may not be the best of its kind: that none is better is not proven.")
    show(
        f"{summary['counts']['rows']:,} rows decided in {summary['seconds']:.0f} s. "
        f"Rule: {folder / 'thresholds.json'}. Report: {folder / 'report.html'}"
    )
