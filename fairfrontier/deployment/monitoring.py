"""A bundle in use: a new period is decided, counted once, and compared with the reference."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.deployment.alarm import (
    LIMIT,
    REFERENCE,
    Check,
    gather_evidence,
    list_checks,
    measure_limit,
    tabulate_periods,
)
from fairfrontier.deployment.bundle import MANIFEST, Bundle, ClassifierBundle, load_bundle
from fairfrontier.deployment.config import RATES, MonitorConfig, check_period, read_limit
from fairfrontier.deployment.figure import draw_evidence, draw_rates
from fairfrontier.deployment.history import (
    SUMMARY,
    History,
    PeriodRows,
    count_labels,
    count_period,
    name_kept,
    read_history,
    read_kept,
    write_table,
)
from fairfrontier.deployment.scoring import find_columns
from fairfrontier.deployment.view import view_binary
from fairfrontier.figure.frontier import name_measure
from fairfrontier.prepare.table.reader import check_stamps, digest_table, stamp_table
from fairfrontier.report.finding import Finding, write_finding
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.option import RESULTS
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.text_file import list_rows
from fairfrontier.runtime.writer import filling, holding, recover, sharing
from fairfrontier.study.drawing import Picture

READING, COMPARING = PASSES = ("deciding on rows", "comparing with the reference")
Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class MonitorFindings(Finding):
    """What is known of a bundle after a period.

    Attributes
    ----------
    config : MonitorConfig
        The options.
    bundle : Bundle
        What decided, as one of two classes; see `view_binary`.
    history : History
        With the new period, or the new labels.
    kept : DataFrame or None
        The decisions of the period, for labels that come later; see `PeriodRows`.
    new : dict
        ``rows`` and ``labels`` that were counted now, and labels ``ignored`` since their rows had
        one; all are 0 where the table was counted before.
    rates : DataFrame
        `tabulate_periods` of all rates.
    checks : DataFrame
        Columns kind (reference or limit), name, rate, attribute, group, reference, low and high
        (where the rate or limited number may be), value (over the period's rows), n, log_e,
        threshold, p and alarm: the period since which there is one, empty without. p ≤ α exactly
        where there is an alarm, however often one looked, and over all checks.
    evidence : DataFrame
        Columns name, entry, period, log_e, threshold.
    limited : dict
        Name of a limit -> the groups that it is about: those with enough rows in the reference.
    """

    page = Path(__file__).with_name("monitor.html.j2")
    file = SUMMARY

    config: MonitorConfig
    bundle: ClassifierBundle
    history: History
    kept: pd.DataFrame | None
    new: dict[str, int]
    rates: pd.DataFrame
    checks: pd.DataFrame
    evidence: pd.DataFrame
    limited: dict[str, tuple[str, ...]]

    @property
    def alarms(self) -> pd.DataFrame:
        """The checks with an alarm."""
        return self.checks[self.checks["alarm"] != ""]

    def tabulate(self) -> dict[str, pd.DataFrame]:
        """Return the tables by name."""
        return {"rates": self.rates, "checks": self.checks, "evidence": self.evidence}

    def draw(self) -> dict[str, Picture]:
        """Return the pictures by name."""
        limited = {
            name: (read_limit(name, self.history.limits[name]), groups)
            for name, groups in self.limited.items()
        }
        periods, entries = self.history.periods, self.history.entries["period"].tolist()
        return {
            "rates": draw_rates(self.rates, self.checks, limited, periods),
            "evidence": draw_evidence(self.evidence, self.checks, entries),
        }

    def summarise(self) -> dict[str, Any]:
        """Return what was found as plain values; None for what is unknown."""
        config, history, bundle = self.config, self.history, self.bundle
        period, entries = name_period(config), history.entries
        alarms = list_rows(self.alarms)
        drift = history.drift[history.drift["period"] == period].drop(columns=["entry", "period"])
        # By how far they drifted beyond chance.
        drift = drift.assign(beyond=(drift["psi"] / drift["psi_by_chance"]).astype(float))
        drift = drift.sort_values("beyond", ascending=False, kind="stable")
        sums = entries.groupby("period", sort=False)[["rows", "labelled", "refused"]].sum()
        periods = sums.astype(int).rename(columns={"labelled": "labels"}).reset_index()
        return {
            "bundle": {
                "name": config.name,
                "digest": history.bundle,
                "study": bundle.manifest["study"],
                "selected": bundle.class_names[int(bundle.favourable != 0)],
            },
            "period": period,
            "new": self.new,
            "alpha": history.alpha,
            "alarms": [{**alarm, "sentence": say(alarm)} for alarm in alarms],
            # What a flow makes events of, and then marks.
            "raised": [each["name"] for each in alarms if each["name"] not in history.announced],
            "limits": list_rows(self.checks[self.checks["kind"] == LIMIT]),
            "counts": {
                "periods": len(periods),
                **{name: int(periods[name].sum()) for name in ("rows", "labels", "refused")},
                "checks": len(self.checks),
                "alarms": len(alarms),
            },
            "drift": list_rows(drift),
            "periods": [
                {**row, "unknown": history.count_unknown(row["period"])}
                for row in list_rows(periods)
            ],
        }

    def context(self) -> dict[str, Any]:
        """Return the checks that the page shows."""
        compared = self.checks[self.checks["kind"] == REFERENCE].sort_values("p", kind="stable")
        return {
            "checks": list_rows(compared.head(SHOWN_AT_MOST)),
            "more": max(0, len(compared) - SHOWN_AT_MOST),
            "most": SHOWN_AT_MOST,
        }


def check_config(config: MonitorConfig) -> None:
    """Raise a FairfrontierError when the bundle or the table cannot be used; no row is read."""
    bundle = _load(config)
    # Else another process may be moving files there, or was killed as it did.
    with sharing(config.folder):
        recover(config.folder)
        history = _open_history(config)
    _list_checks(bundle, history)
    if name_period(config) not in history.periods:
        row_id = config.row_id or bundle.row_id
        find_columns(bundle, config.table, row_id, bundle.encoder.names, labelled=config.labelled)


def name_period(config: MonitorConfig) -> str:
    """Return the period; ConfigError where the table's name, its default, is none."""
    name = config.period_name
    try:
        return check_period(name)
    except ValueError:
        raise ConfigError(
            f"{name!r}, from the name of the table, is no name of a period.",
            "Name the period with --period, in letters, digits, dots and dashes.",
        ) from None


def watch(config: MonitorConfig, progress: Progress | None = None) -> MonitorFindings:
    """Count a new period, or later labels of one, and compare all periods with the reference.

    See `fairfrontier.deployment.alarm` for what is compared, and `sequential` for the mathematics.

    Parameters
    ----------
    config : MonitorConfig
        Which bundle and table.
    progress : callable, optional
        Called with the name of a pass and the share of it that is done, from 0 to 1.

    Returns
    -------
    MonitorFindings
        A table that was counted before, as the same period, is not counted again.

    Raises
    ------
    ConfigError
        When a file or column does not exist, the table was counted as another period, or the
        history is of another bundle or has other limits.
    DataError
        When no row can be decided, no label belongs to the period, a label is none of the study's
        table, or so many rows are of no known group that a limit cannot be judged.
    StoreError
        When the bundle was altered, or the history cannot be read.

    Notes
    -----
    O(n) for n rows, which are read in batches, and O(checks · periods²).
    """
    report = progress or (lambda *_: None)
    stamps = stamp_table(config.table)
    bundle, period = _load(config), name_period(config)
    history = _open_history(config)
    checks = _list_checks(bundle, history)
    history, kept, new = _count(
        config, bundle, history, period, checks, lambda share: report(READING, share)
    )
    check_stamps(config.table, stamps)
    report(READING, 1.0)
    favourable = int(bundle.favourable != 0)
    rates = tabulate_periods(history, RATES, config.minimum, favourable)
    found = []
    for number, check in enumerate(checks):
        gathered = gather_evidence(check, history, favourable)
        found.append(gathered.assign(name=check.name))
        report(COMPARING, (number + 1) / len(checks))
    table = _tabulate_checks(checks, found, rates, period, history.alpha)
    thresholds = {check.name: check.threshold for check in checks}
    evidence = pd.concat(found, ignore_index=True)
    evidence["threshold"] = evidence["name"].map(thresholds)
    columns = ["name", "entry", "period", "log_e", "threshold"]
    limited = {check.name: check.groups for check in checks if check.kind == LIMIT}
    return MonitorFindings(
        config, bundle, history, kept, new, rates, table, evidence[columns], limited
    )


def _list_checks(bundle: ClassifierBundle, history: History) -> list[Check]:
    """Return the checks, which are the same whenever one looks: the bundle says its minimum."""
    minimum = int(bundle.manifest["minimum"])
    limits, favourable = history.list_limits(), int(bundle.favourable != 0)
    return list_checks(bundle.reference, limits, history.alpha, minimum, favourable)


def _load(config: MonitorConfig) -> ClassifierBundle:
    return view_binary(load_bundle(config.bundle), config.accepted)


def _open_history(config: MonitorConfig) -> History:
    digest = hash_file(config.bundle / MANIFEST)
    if config.accepted is not None:
        digest = f"{digest} {config.accepted}"
    return read_history(config.folder, digest, config)


def _count(
    config: MonitorConfig,
    bundle: Bundle,
    history: History,
    period: str,
    checks: list[Check],
    report: Callable[[float], None],
) -> tuple[History, pd.DataFrame | None, dict[str, int]]:
    """Return the history with the table's rows or labels, and the decisions kept of the period."""
    entries, digest = history.entries, digest_table(config.table)
    row_id = config.row_id or bundle.row_id
    same = entries[entries["digest"] == digest]
    if period in set(same["period"]):
        return history, None, {"rows": 0, "labels": 0, "ignored": 0}
    if (same["rows"] > 0).any():
        raise ConfigError(
            f"{config.table} was counted already, as the period {same['period'].iloc[0]}.",
            "Name that period, or another table.",
        )
    if period not in history.periods:
        rows = count_period(bundle, config.table, row_id, report, labelled=config.labelled)
        _check_groups(config, bundle, checks, rows)
        refused = sum(rows.refused.values())
        history = history.add(period, digest, refused, rows.counts, rows.drift, rows.unknown)
        return history, rows.kept, _count_last(history)
    path = config.folder / name_kept(period)
    if row_id is None or not os.path.lexists(path):
        raise ConfigError(
            f"The period {period} was counted already, from another table and without row ids.",
            "Name a new period with --period; for labels that come later, count periods with "
            "--row-id COLUMN.",
        )
    kept = read_kept(path)
    counts, kept, ignored = count_labels(bundle, config.table, row_id, kept, period, report)
    history = history.add(period, digest, 0, counts, history.drift.iloc[:0])
    return history, kept, _count_last(history, ignored)


def _check_groups(
    config: MonitorConfig, bundle: Bundle, checks: list[Check], rows: PeriodRows
) -> None:
    """Raise a DataError where rows of no known group leave too few groups to judge a limit by.

    These rows have to be enough for a group: the few of a small period say nothing.
    """
    sizes = rows.counts.groupby(["attribute", "group"])["rows"].sum()
    names = {each.name: each.names for each in bundle.encoder.attributes}
    for check in checks:
        unknown = rows.unknown.get(check.attribute, 0)
        if check.kind != LIMIT or unknown < config.minimum:
            continue
        enough = [sizes[check.attribute, group] >= config.minimum for group in check.groups]
        if sum(enough) < read_limit(check.name, 0.5).fewest:
            raise DataError(
                f"{unknown:,} rows of {config.table} are of no known group of {check.attribute}, "
                f"and --limit {check.name} cannot be judged.",
                f"{nearest('', names[check.attribute])} Write groups as these, or count the rows "
                "with those of the next period.",
            )


def _count_last(history: History, ignored: int = 0) -> dict[str, int]:
    last = history.entries.iloc[-1]
    return {"rows": int(last["rows"]), "labels": int(last["labelled"]), "ignored": ignored}


def _tabulate_checks(
    checks: list[Check],
    evidence: list[pd.DataFrame],
    rates: pd.DataFrame,
    period: str,
    alpha: float,
) -> pd.DataFrame:
    """Return a row for every check, with its value in a period."""
    now = rates[rates["period"] == period]
    rows: list[dict[str, Any]] = []
    for check, found in zip(checks, evidence, strict=True):
        of_groups = now[
            (now["attribute"] == check.attribute)
            & (now["rate"] == check.rate)
            & now["group"].isin(check.groups)
        ]
        value = of_groups["value"].to_numpy(dtype=np.float64)
        log_e = found["log_e"].to_numpy()
        most = float(log_e.max(initial=0.0))
        raised = found["period"][log_e >= check.threshold]
        rows.append(
            {
                "kind": check.kind,
                "name": check.name,
                "rate": check.rate,
                "attribute": check.attribute,
                "group": check.groups[0] if check.kind == REFERENCE else "",
                "reference": check.value,
                "low": check.low,
                "high": check.high,
                "value": float(value[0])
                if check.kind != LIMIT
                else measure_limit(read_limit(check.name, 0.5), value),
                "n": int(of_groups["n"].sum()),
                "log_e": float(log_e[-1]) if log_e.size else 0.0,
                "threshold": check.threshold,
                "p": float(min(1.0, alpha * np.exp(check.threshold - most))),
                "alarm": str(raised.iloc[0]) if len(raised) else "",
            }
        )
    return pd.DataFrame(rows)


FILES = RESULTS["monitor"]
# Rows of the page's tables; all are in the files.
SHOWN_AT_MOST = 40


def check_options(config: MonitorConfig) -> None:
    """Raise a FairfrontierError for whatever is known to be wrong before a row is read."""
    check_config(config)
    written = [*FILES, name_kept(name_period(config))]
    config.check_results([config.table], written)


def run_monitor(
    bundle: MonitorConfig | Path | str, progress: Progress | None = None, **options: Any
) -> dict[str, Any]:
    """Count a new period of a bundle's rows, or labels that come later, and say what changed.

    Parameters
    ----------
    bundle : MonitorConfig or path
        Which bundle, table and period; the path of a bundle with ``options``.
    progress : callable, optional
        As of `watch`.
    **options
        The fields of `MonitorConfig`: ``table``, ``period``, ``limit`` and so on.

    Returns
    -------
    dict
        The content of monitor.json: ``alarms``, ``raised`` (those that were no event of the flow
        yet), ``limits``, ``counts``, ``drift``, ``periods`` and so on. The ``FILES`` in
        ``config.folder`` are written.

    Raises
    ------
    ConfigError, DataError, StoreError
        As in `watch`; then no file has changed.
    """
    started = time.monotonic()
    config = bundle
    if not isinstance(config, MonitorConfig):
        config = parse(MonitorConfig, {"bundle": config, **options}, "The options of monitor")
    check_options(config)
    with holding(config.folder):
        return write_monitor(watch(config, progress), started)


def write_monitor(findings: MonitorFindings, started: float) -> dict[str, Any]:
    """Write the ``FILES`` and the decisions kept of the period; return the content of monitor.json.

    Whoever holds the folder since its history was read may.

    Raises
    ------
    StoreError
        When the folder cannot be written; then no file in it has changed.
    """
    kept = name_kept(name_period(findings.config))

    def make(work: Path) -> Finding:
        findings.history.write(work)
        if findings.kept is not None:
            write_table(findings.kept, work / kept)
        return findings

    return write_finding("monitor", findings.config.folder, make, started, held=True, more=(kept,))


def mark_announced(findings: MonitorFindings, names: Iterable[str]) -> None:
    """Note in the history that the alarms of some checks were announced, for good.

    Whoever holds the folder since its history was read may.
    """
    announced = (*findings.history.announced, *names)
    with filling(findings.config.folder, held=True) as work:
        replace(findings.history, announced=announced).write(work)


def say(check: Mapping[str, Any]) -> str:
    """Return an alarm as a sentence."""
    name, since = name_measure(check["name"]), check["alarm"]
    if check["kind"] == LIMIT:
        bound = check["high"] if check["low"] == 0 else check["low"]
        return f"{name} has passed its limit {bound:g}, known since {since}."
    group = f" of {check['attribute']}={check['group']}" if check["attribute"] else ""
    return (
        f"{name_measure(check['rate'])}{group} has left {check['low']:.3f} to {check['high']:.3f}, "
        f"where it was on the reference rows, known since {since}."
    )
