"""A bundle in use: a new period is decided, counted once, and compared with the reference."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.choose.bundle import MANIFEST, Bundle, ClassifierBundle, load_bundle
from fairfrontier.choose.scoring import find_columns
from fairfrontier.choose.view import view_binary
from fairfrontier.monitor.alarm import (
    LIMIT,
    REFERENCE,
    Check,
    gather_evidence,
    list_checks,
    measure_limit,
    tabulate_periods,
)
from fairfrontier.monitor.config import RATES, MonitorConfig, check_period, read_limit
from fairfrontier.monitor.count import KEYS, Groups, PeriodRows, Tally, count_labels, count_period
from fairfrontier.monitor.history import History, check_history, name_kept, read_history, read_kept
from fairfrontier.prepare.table.reader import check_stamps, digest_table, stamp_table
from fairfrontier.runtime.draft import recover
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.writer import sharing

READING, COMPARING = PASSES = ("deciding on rows", "comparing with the reference")
Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Findings:
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

    config: MonitorConfig
    bundle: Bundle
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


def check_config(config: MonitorConfig) -> None:
    """Raise a FairfrontierError when the bundle or the table cannot be used; no row is read."""
    bundle = _load(config)
    # Else another process may be moving files there, or was killed as it did.
    with sharing(config.folder):
        recover(config.folder)
        history = _open_history(config, bundle)
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


def watch(config: MonitorConfig, progress: Progress | None = None) -> Findings:
    """Count a new period, or later labels of one, and compare all periods with the reference.

    See `fairfrontier.monitor.alarm` for what is compared, and `sequential` for the mathematics.

    Parameters
    ----------
    config : MonitorConfig
        Which bundle and table.
    progress : callable, optional
        Called with the name of a pass and the share of it that is done, from 0 to 1.

    Returns
    -------
    Findings
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
    history = _open_history(config, bundle)
    checks = _list_checks(bundle, history)
    history, kept, new = _count(
        config, bundle, history, period, checks, lambda share: report(READING, share)
    )
    check_stamps(config.table, stamps)
    # What could not be read again is not written.
    check_history(config.folder, history, _list_keys(bundle))
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
    return Findings(config, bundle, history, kept, new, rates, table, evidence[columns], limited)


def _list_checks(bundle: ClassifierBundle, history: History) -> list[Check]:
    """Return the checks, which are the same whenever one looks: the bundle says its minimum."""
    minimum = int(bundle.manifest["minimum"])
    limits, favourable = history.list_limits(), int(bundle.favourable != 0)
    return list_checks(bundle.reference, limits, history.alpha, minimum, favourable)


def _load(config: MonitorConfig) -> ClassifierBundle:
    return view_binary(load_bundle(config.bundle), config.accepted)


def _open_history(config: MonitorConfig, bundle: Bundle) -> History:
    digest = hash_file(config.bundle / MANIFEST)
    if config.accepted is not None:
        digest = f"{digest} {config.accepted}"
    return read_history(config.folder, digest, config, _list_keys(bundle))


def _list_keys(bundle: Bundle) -> pd.DataFrame:
    """Return the attribute, group and batch of each row of an entry."""
    return Tally(Groups(bundle)).tabulate()[list(KEYS)]


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
    kept = read_kept(path, Groups(bundle).levels)
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
