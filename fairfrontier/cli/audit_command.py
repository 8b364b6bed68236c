"""The command line's audit of decisions or scores, of groups that may be noisy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairfrontier.cli.apart import apart
from fairfrontier.cli.table import print_table, print_unseen
from fairfrontier.cli.terminal import show
from fairfrontier.runtime.errors import DataError

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    import pandas as pd

    from fairfrontier.audit.config import AuditConfig

ROWS_AT_MOST = 24
# The exit code where a limit is exceeded.
LIMIT_EXCEEDED = 4


@apart(lambda config: config.model)
def audit(config: AuditConfig) -> None:
    """Compare groups in decisions or scores; of noisy groups, say what holds of the true ones.

    The exit code is 4 when a limit is exceeded.
    """
    from fairfrontier.audit.verb import audit as run_audit
    from fairfrontier.audit.verb import check_options, list_passes, write
    from fairfrontier.cli.progress import show_passes

    started = time.monotonic()
    with show_passes(config, check_options, list_passes(config)) as progress:
        summary = write(run_audit(config, progress), config.folder, started)
    if config.noisy:
        show_audit(config.folder, summary)
    else:
        show_plain_audit(config.folder, summary)


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
    for line in tell_rows(summary["subject"], counts["rows"]):
        show(line)
    show(
        f"{counts['held']} of {counts['conclusions']} conclusions hold"
        + (f"; open between two groups: {between:,}. " if between else ". ")
        + f"All: {folder / 'conclusions.csv'}. Report: {folder / 'report.html'}"
    )


def show_plain_audit(folder: Path, summary: dict[str, Any]) -> None:
    """Print impact ratios and limits; raise Exit where a limit is exceeded."""
    import pandas as pd

    complete, counts = str(folder / "impact.csv"), summary["counts"]
    # Scoring rates of what was decided, too, are in the files.
    measure = summary["impact"][0]["measure"]
    selected = f" of {chosen}" if (chosen := summary["subject"].get("selected")) else ""
    for attribute in summary["attributes"]:
        table = [
            _describe(row)
            for row in summary["impact"]
            if (row["measure"], row["attribute"]) == (measure, attribute)
        ]
        title = f"{summary['name']}: {measure}{selected} by {attribute}, {counts['rows']:,} rows"
        shown = pd.DataFrame(table[:ROWS_AT_MOST])
        print_table(title, shown, keep=("category", "n", "rate", "ratio"), complete=complete)
        if len(table) > ROWS_AT_MOST:
            show(f"and {len(table) - ROWS_AT_MOST} more: {complete}")
    if summary["limits"]:
        limits = [
            {
                "limit": f"{row['limit']}={row['bound']:g}",
                "of": row["group"] or "all rows",
                "value": _round(row["value"]),
                "": row["verdict"],
            }
            for row in summary["limits"]
        ]
        print_table("limits", pd.DataFrame(limits))
    if individual := [row for row in summary["measures"] if row["measure"] == "consistency"]:
        shares = ", ".join(f"{_round(row['value'])} of {row['group']}" for row in individual)
        show(f"The same decision in all versions of a row: {shares}.")
    for line in tell_rows(summary["subject"], counts["rows"]):
        show(line)
    print_unseen(summary["subject"].get("unseen", {}), counts["rows"])
    if refused := sum(summary["subject"].get("refused", {}).values()):
        show(f"{refused:,} further rows were refused, and are in no rate.")
    show(
        f"{counts['compared']} of {counts['categories']} categories compared, "
        f"{counts['below_four_fifths']} below four fifths. Report: {folder / 'report.html'}"
    )
    _judge(summary["limits"])


def tell_rows(subject: dict[str, Any], rows: int) -> list[str]:
    """Return sentences on which rows of a table count, and as what."""
    told = []
    if read := subject.get("table_rows"):
        told.append(
            f"{subject['weights']} counts persons: {read:,} rows of the table are {rows:,} persons."
        )
    if undecided := subject.get("undecided"):
        levels = ", ".join(f"{level} ({n:,})" for level, n in undecided.items())
        told.append(f"Rows without a decision, left out: {levels}.")
    for column, zeros in subject.get("zeros", {}).items():
        levels = ", ".join(f"{level} ({n:,})" for level, n in zeros.items())
        mend = "--undecided leaves out those that are no decision"
        if column != subject.get("decisions"):
            mend = "name further levels that mean 1 with --positive"
        told.append(f"Counted as 0 of {column}: {levels}; {mend}.")
    return told


def _describe(row: dict[str, Any]) -> dict[str, str]:
    """Return a category's line on the terminal."""
    ratio = "not estimable" if row["ratio"] is None else _round(row["ratio"])
    if row["status"] != "compared":
        ratio += f" ({row['status']})"
    elif row["four_fifths"]:
        ratio += " < 4/5"
    if row["status"] == "compared" and row["small_sample"]:
        ratio += " (few)"
    return {
        "category": row["level"],
        "n": f"{row['n']:,}",
        "rate": _round(row["rate"]),
        "ratio": ratio,
        "SD": _round(row["deviations"], 1),
        "shortfall": _round(row["shortfall"], 0),
    }


def _round(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _judge(limits: list[dict[str, Any]]) -> None:
    """End the command where a limit is exceeded, or could not be judged at all."""
    verdicts: dict[str, set[str]] = {}
    for row in limits:
        verdicts.setdefault(row["limit"], set()).add(row["verdict"])
    if any("exceeded" in seen for seen in verdicts.values()):
        raise typer.Exit(LIMIT_EXCEEDED)
    for limit, seen in verdicts.items():
        if seen == {"not estimable"}:
            raise DataError(
                f"The limit of {limit} can be judged of no group: too few rows.",
                "Audit more rows, lower --minimum or --exclude-below, or leave the limit out.",
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
