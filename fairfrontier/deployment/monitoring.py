"""A bundle in use: a new period is decided, counted once, and compared with the reference."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from fairfrontier.deployment.bundle import (
    MANIFEST,
    Bundle,
    ClassifierBundle,
    load_bundle,
    view_binary,
)
from fairfrontier.deployment.config import RATES, Limit, MonitorConfig, read_limit
from fairfrontier.deployment.history import (
    COUNTED,
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
from fairfrontier.deployment.scoring import Progress, find_columns
from fairfrontier.figure.frontier import (
    COLOURS,
    GREY,
    HEADING,
    INK,
    MARKERS,
    add_grid,
    add_legend,
    add_panels,
    encode_png,
    make_key,
    name_measure,
    open_figure,
    shorten,
)
from fairfrontier.metrics.statistic.drift import (
    Projection,
    accumulate_evidence,
    bound_rate,
    within,
    within_difference,
    within_ratio,
)
from fairfrontier.metrics.statistic.interval import wilson
from fairfrontier.metrics.statistic.rate import divide
from fairfrontier.prepare.table.frame import as_file
from fairfrontier.prepare.table.reader import check_stamps, digest_table, stamp_table
from fairfrontier.report.finding import Finding, show_number, write_finding
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.option import RESULTS
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.text_file import list_rows
from fairfrontier.runtime.writer import filling, holding, recover, sharing
from fairfrontier.study.drawing import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Which rates have left their reference or passed a limit, with few false alarms in all periods.

# The others are their complements.
WATCHED = ("selection_rate", "accuracy", "tpr", "fpr")
REFERENCE, LIMIT = "reference", "limit"


@dataclass(frozen=True, eq=False)
class Check:
    """A null hypothesis on a rate of the groups of an attribute, and when it is given up.

    ``value`` is that of the reference; ``low`` and ``high`` are where the rate, or the limited
    number, may be. ``threshold`` is of log E; ``limit`` is what the check is of, if any.
    """

    kind: str
    name: str
    rate: str
    attribute: str
    groups: tuple[str, ...]
    value: float
    low: float
    high: float
    prior: np.ndarray
    project: Projection
    threshold: float
    limit: Limit | None

    def take(self, rates: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of `tabulate_periods` that it is about."""
        own = (rates["rate"] == self.rate) & (rates["attribute"] == self.attribute)
        return rates[own & rates["group"].isin(self.groups)]


def find_rate(rate: str, sums: np.ndarray, favourable: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows for which something happened, and all, of sums whose last axis is COUNTED.

    Sums are of decisions 1; where the ``favourable`` class is 0, the others are selected.
    """
    rows, selected, labelled, positive, hit, false = np.moveaxis(np.asarray(sums, float), -1, 0)
    negative = labelled - positive
    return {
        "selection_rate": (selected if favourable else rows - selected, rows),
        "accuracy": (hit + negative - false, labelled),
        "tpr": (hit, positive),
        "fnr": (positive - hit, positive),
        "fpr": (false, negative),
        "tnr": (negative - false, negative),
    }[rate]


def list_checks(
    reference: Mapping[str, Any],
    limits: Sequence[Limit],
    alpha: float,
    minimum: int,
    favourable: int = 1,
) -> list[Check]:
    """Return all checks; their number, on which thresholds depend, is known before any period.

    Of the probability α of any false alarm half is for limits, if there are any. Of what is for the
    rates that are compared with the reference, half is spent on confidence intervals of their
    reference values, which hold all at once (Clopper and Pearson, Bonferroni), since the reference
    is a sample as well; half on evidence that a rate is outside of its interval, the same for every
    rate (Bonferroni); see `fairfrontier.metrics.statistic.drift`.

    Groups and rates with fewer than ``minimum`` rows of the reference are not checked; ConfigError
    where there are no others.
    """
    groups = {"": {"": reference["counts"]}, **reference["groups"]}
    known = {}
    for attribute, counted in groups.items():
        sums = np.array([[each[name] for name in COUNTED] for each in counted.values()])
        for rate in {*WATCHED, *(limit.rate for limit in limits)}:
            hits, rows = find_rate(rate, sums, favourable)
            known[attribute, rate] = (list(counted), hits, rows)
    watched = [
        (attribute, rate, position)
        for attribute in groups
        for rate in WATCHED
        for position in np.flatnonzero(known[attribute, rate][2] >= minimum)
    ]
    if not watched:
        raise ConfigError(
            f"The bundle's reference has fewer than {minimum} rows, and nothing to compare with.",
            "Choose on a table with more test rows.",
        )
    share = alpha / 2 if limits else alpha
    confidence = 1.0 - share / 2 / len(watched)
    threshold = float(np.log(len(watched) / (share / 2)))
    checks = []
    for attribute, rate, position in watched:
        names, hits, rows = known[attribute, rate]
        of = slice(position, position + 1)
        low, high = map(float, bound_rate(hits[position], rows[position], confidence))
        name = f"{rate}:{attribute}={names[position]}" if attribute else f"{rate}:all rows"
        value, prior = float(hits[position] / rows[position]), _smooth(hits[of], rows[of])
        of_check = (REFERENCE, name, rate, attribute, tuple(names[of]), value, low, high, prior)
        checks.append(Check(*of_check, within(low, high), threshold, None))
    for limit in limits:
        if limit.attribute not in groups:
            raise ConfigError(
                f"--limit {limit.name} names {limit.attribute!r}, which the bundle does not know.",
                nearest(limit.attribute, [name for name in groups if name]),
            )
        names, hits, rows = known[limit.attribute, limit.rate]
        enough = rows >= minimum
        if enough.sum() < limit.fewest:
            raise ConfigError(
                f"--limit {limit.name} needs groups that have {minimum} rows in the bundle's "
                "reference.",
                "Leave it out, or choose on a table with more test rows or labels.",
            )
        low, high, project = _limit(limit)
        kept = tuple(name for name, of_enough in zip(names, enough, strict=True) if of_enough)
        hits, rows = hits[enough], rows[enough]
        value, prior = measure_limit(limit, hits / rows), _smooth(hits, rows)
        threshold = float(np.log(len(limits) / (alpha / 2)))
        of_check = (LIMIT, limit.name, limit.rate, limit.attribute, kept, value, low, high, prior)
        checks.append(Check(*of_check, project, threshold, limit))
    return checks


def _smooth(hits: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return rates that are neither 0 nor 1."""
    return (hits + 0.5) / (rows + 1.0)


def _limit(limit: Limit) -> tuple[float, float, Projection]:
    """Return where a limited number may be, and the null hypothesis that it is there."""
    match limit.kind:
        case "difference":
            return 0.0, limit.bound, within_difference(limit.bound)
        case "ratio":
            return limit.bound, 1.0, within_ratio(limit.bound)
        case "min":
            return limit.bound, 1.0, within(limit.bound, 1.0)
    return 0.0, limit.bound, within(0.0, limit.bound)


def measure_limit(limit: Limit, rates: np.ndarray) -> float:
    """Return the limited number of rates, of those that are known."""
    rates = rates[~np.isnan(rates)]
    if rates.size < limit.fewest:
        return float("nan")
    least, most = float(rates.min()), float(rates.max())
    ratio = least / most if most > 0 else 1.0
    return {"difference": most - least, "ratio": ratio, "min": least, "max": most}[limit.kind]


def gather_evidence(check: Check, history: History, favourable: int = 1) -> pd.DataFrame:
    """Return the evidence after every entry that has rows for a check: entry, period, log_e."""
    sums, groups = history.sum_batches(check.attribute)
    entries = history.entries
    of_check = sums[:, :, [groups.index(each) for each in check.groups]]
    hits, rows = find_rate(check.rate, of_check, favourable)
    used = rows.sum(axis=(1, 2)) > 0
    log_e = np.empty(0)
    if used.any():
        log_e = accumulate_evidence(hits[used], rows[used], check.prior, check.project)
    found: pd.DataFrame = entries.loc[used, ["entry", "period"]].reset_index(drop=True)
    return found.assign(log_e=log_e)


def tabulate_periods(
    history: History, rates: Sequence[str], minimum: int, favourable: int = 1
) -> pd.DataFrame:
    """Return every rate of every group in every period, whenever labels came, with its interval.

    Columns period, attribute, group, rate, n, value, low, high; the last three are NaN with fewer
    than ``minimum`` rows.
    """
    keys = ["period", "attribute", "group"]
    summed = history.counts.groupby(keys, sort=False)[list(COUNTED)].sum()
    tables = []
    for rate in rates:
        hits, rows = find_rate(rate, summed.to_numpy(), favourable)
        value = np.where(rows >= minimum, divide(hits, rows), np.nan)
        low, high = wilson(value, rows)
        table = summed.index.to_frame(index=False).assign(rate=rate, n=rows.astype(np.int64))
        tables.append(table.assign(value=value, low=low, high=high))
    return pd.concat(tables, ignore_index=True)


# The pictures of a bundle in use: rates by period, and the evidence that they changed.

# The rest is in the tables.
GROUPS_AT_MOST, PANELS_AT_MOST, NAMED_AT_MOST = 6, 8, 8
NAME_LENGTH = 22
BAND: Any = {"alpha": 0.13, "lw": 0, "zorder": 1}
ALARM: Any = {"marker": "o", "ms": 13, "mfc": "none", "mec": "#b35900", "mew": 1.8, "ls": "none"}


def draw_rates(
    rates: pd.DataFrame, checks: pd.DataFrame, limited: Mapping[str, Check], periods: Sequence[str]
) -> Picture:
    """Draw every limited number and every compared rate by period, with where it may be.

    ``limited`` has the check of every limit by name.
    """
    known = set(rates.loc[rates["value"].notna(), "rate"])
    compared = checks[(checks["kind"] == REFERENCE) & checks["rate"].isin(known)]
    limits = checks[(checks["kind"] == LIMIT) & checks["rate"].isin(known)]
    # Those with an alarm are drawn first.
    by_rate = sorted(
        compared.groupby(["rate", "attribute"], sort=False),
        key=lambda each: (each[1]["alarm"] == "").all(),
    )
    panels: list[tuple[str, Any]] = [
        *((LIMIT, row) for row in limits.to_dict("records")),
        *((REFERENCE, each[1]) for each in by_rate),
    ]
    panels = panels[:PANELS_AT_MOST]
    if not panels:
        panels = [(REFERENCE, compared)]
    columns = min(2, len(panels))
    width, height = 5.2 * columns + 0.4, 2.7 * math.ceil(len(panels) / columns) + 0.6
    words = []
    with open_figure(width, height, w_pad=0.1, h_pad=0.1) as figure:
        for axes, (kind, rows) in zip(
            add_panels(figure, len(panels), columns), panels, strict=True
        ):
            if kind == LIMIT:
                words.append(_draw_limit(axes, rows, rates, limited[rows["name"]], periods))
            else:
                words.append(_draw_groups(axes, rows, rates, periods))
            _label_periods(axes, periods)
        keys = [
            make_key("where the rate, or the limited number, may be", color=GREY, lw=7, alpha=0.3),
            make_key("alarm raised", **ALARM),
        ]
        add_legend(figure, keys, 2, loc="outside upper left", fontsize=8.8)
        return Picture(encode_png(figure), f"Rates by period. {' '.join(words)}")


def draw_evidence(evidence: pd.DataFrame, checks: pd.DataFrame, entries: Sequence[str]) -> Picture:
    """Draw the evidence against every check by entry, as a share of what raises an alarm.

    ``entries`` are the periods of the entries.
    """
    alarmed = checks.set_index("name")["alarm"]
    strongest = checks.sort_values("p", kind="stable")["name"].tolist()
    with open_figure(9.2, 3.9, w_pad=0.1, h_pad=0.1) as figure:
        (axes,) = add_panels(figure, 1, 1)
        axes.axhline(1.0, color=INK, lw=1.0, ls="--")
        keys = [make_key("alarm", color=INK, lw=1.0, ls="--")]
        for place, name in reversed(list(enumerate(strongest))):
            rows = evidence[evidence["name"] == name]
            share = np.clip(rows["log_e"] / rows["threshold"], -0.25, 3.0)
            look: Any = {"color": GREY, "lw": 0.8, "alpha": 0.6, "zorder": 2}
            if alarmed[name] and place < NAMED_AT_MOST:
                look = {"color": COLOURS[place % len(COLOURS)], "lw": 1.8, "zorder": 3}
                look |= {"marker": MARKERS[place % len(MARKERS)], "ms": 4}
                keys.append(make_key(shorten(name_measure(name), 38), **look))
            axes.plot(rows["entry"], share, **look)
        keys.append(make_key("other checks", color=GREY, lw=0.8))
        axes.set_ylabel("evidence, log E of the alarm's")
        add_grid(axes, "y")
        _label_periods(axes, entries)
        add_legend(figure, keys, min(3, len(keys)), fontsize=8.5)
        raised = ", ".join(name for name in strongest if alarmed[name]) or "none"
        return Picture(encode_png(figure), f"Evidence by period. Alarms: {raised}.")


def _draw_groups(
    axes: Axes, checks: pd.DataFrame, rates: pd.DataFrame, periods: Sequence[str]
) -> str:
    """Draw a rate of the groups of an attribute, and return it in words."""
    if checks.empty:
        axes.set_title("no rate has enough rows", **HEADING)
        return "No rate has enough rows."
    rate, attribute = checks["rate"].iloc[0], checks["attribute"].iloc[0]
    shown = rates[(rates["rate"] == rate) & (rates["attribute"] == attribute)]
    sizes = shown.groupby("group")["n"].sum()
    # Groups with an alarm are drawn first, then those with the most rows.
    order = checks.assign(calm=checks["alarm"] == "", n=checks["group"].map(-sizes))
    chosen = order.sort_values(["calm", "n"], kind="stable").head(GROUPS_AT_MOST)
    keys, words = [], []
    for place, check in enumerate(chosen.to_dict("records")):
        own = shown[shown["group"] == check["group"]].set_index("period").reindex(periods)
        colour, marker = COLOURS[place], MARKERS[place]
        axes.axhspan(check["low"], check["high"], color=colour, **BAND)
        x, value = np.arange(len(periods)), own["value"].to_numpy(dtype=np.float64)
        ends = np.nan_to_num([value - own["low"], own["high"] - value])
        look: Any = {"color": colour, "marker": marker, "ms": 4, "lw": 1.4, "elinewidth": 0.8}
        axes.errorbar(x, value, ends, zorder=3, **look)
        if check["alarm"]:
            at = periods.index(check["alarm"])
            axes.plot([at], [value[at]], zorder=5, **ALARM)
        group = check["group"] or "all rows"
        keys.append(make_key(shorten(group, NAME_LENGTH), color=colour, marker=marker, ms=4))
        since = f", alarm since {check['alarm']}" if check["alarm"] else ""
        words.append(
            f"{group} {show_number(value[-1])}, reference {show_number(check['reference'])}{since}"
        )
    of = f", {attribute}" if attribute else ""
    axes.set_title(f"{name_measure(rate)}{of}", **HEADING)
    axes.legend(handles=keys, fontsize=7.5, frameon=False, loc="best", ncols=2)
    axes.margins(y=0.15)
    return f"{name_measure(rate)}{of}: {'; '.join(words)}."


def _draw_limit(
    axes: Axes,
    check: Mapping[str, Any],
    rates: pd.DataFrame,
    limited: Check,
    periods: Sequence[str],
) -> str:
    """Draw a limited number by period, and return it in words."""
    limit, chosen = cast("Limit", limited.limit), limited.take(rates)
    by_period = {name: table["value"].to_numpy() for name, table in chosen.groupby("period")}
    values = [measure_limit(limit, by_period.get(name, np.empty(0))) for name in periods]
    axes.axhspan(check["low"], check["high"], color=GREY, **BAND)
    axes.axhline(limit.bound, color=INK, lw=1.0, ls="--", zorder=2)
    axes.plot(range(len(periods)), values, color=INK, marker="o", ms=4, lw=1.4, zorder=3)
    if check["alarm"]:
        at = periods.index(check["alarm"])
        axes.plot([at], [values[at]], zorder=5, **ALARM)
    name = name_measure(check["name"])
    axes.set_title(f"{name}: limit {limit.bound:g}", **HEADING)
    finite = [value for value in [*values, limit.bound] if math.isfinite(value)]
    room = 0.25 * max(max(finite) - min(finite), 0.04)
    axes.set_ylim(max(min(finite) - room, -0.01), min(max(finite) + room, 1.01))
    since = f", passed since {check['alarm']}" if check["alarm"] else ""
    return f"{name} {show_number(values[-1])}, limit {limit.bound:g}{since}."


def _label_periods(axes: Axes, names: Sequence[str]) -> None:
    """Name some periods below an axis."""
    step = max(1, math.ceil(len(names) / 8))
    places = range(0, len(names), step)
    axes.set_xticks(places, [shorten(names[at], 14) for at in places], rotation=30, ha="right")
    axes.set_xlim(-0.5, len(names) - 0.5)
    add_grid(axes, "y")


READING, COMPARING = PASSES = ("deciding on rows", "comparing with the reference")


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
        Name of a limit -> its check, which is about the groups with enough rows in the reference.
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
    limited: dict[str, Check]

    @property
    def alarms(self) -> pd.DataFrame:
        """The checks with an alarm."""
        return self.checks[self.checks["alarm"] != ""]

    def tabulate(self) -> dict[str, pd.DataFrame]:
        """Return the tables by name."""
        return {"rates": self.rates, "checks": self.checks, "evidence": self.evidence}

    def draw(self) -> dict[str, Picture]:
        """Return the pictures by name."""
        periods, entries = self.history.periods, self.history.entries["period"].tolist()
        return {
            "rates": draw_rates(self.rates, self.checks, self.limited, periods),
            "evidence": draw_evidence(self.evidence, self.checks, entries),
        }

    def summarise(self) -> dict[str, Any]:
        """Return what was found as plain values; None for what is unknown."""
        config, history, bundle = self.config, self.history, self.bundle
        period, entries = config.period_name, history.entries
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


def check_options(config: MonitorConfig) -> None:
    """Raise a FairfrontierError for whatever is known to be wrong before a row is read."""
    bundle = _load(config)
    # Else another process may be moving files there, or was killed as it did.
    with sharing(config.folder):
        recover(config.folder)
        history = _open_history(config)
    _list_checks(bundle, history)
    if config.period_name not in history.periods:
        row_id = config.row_id or bundle.row_id
        find_columns(bundle, config.table, row_id, bundle.encoder.names, labelled=config.labelled)
    config.check_results([config.table], [*FILES, name_kept(config.period_name)])


def watch(config: MonitorConfig, progress: Progress | None = None) -> MonitorFindings:
    """Count a new period, or later labels of one, and compare all periods with the reference.

    See `list_checks` for what is compared, and `fairfrontier.metrics.statistic.drift` for the
    mathematics.

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
    bundle, period = _load(config), config.period_name
    history = _open_history(config)
    checks = _list_checks(bundle, history)
    history, kept, new = _count(
        config, bundle, history, period, checks, lambda share: report(READING, share)
    )
    check_stamps(config.table, stamps)
    report(READING, 1.0)
    favourable = int(bundle.favourable != 0)
    rates = tabulate_periods(history, RATES, config.minimum, favourable)
    gathered, described, now = [], [], rates[rates["period"] == period]
    for number, check in enumerate(checks):
        found = gather_evidence(check, history, favourable)
        gathered.append(found.assign(name=check.name, threshold=check.threshold))
        described.append(_describe_check(check, found, check.take(now), history.alpha))
        report(COMPARING, (number + 1) / len(checks))
    table, evidence = pd.DataFrame(described), pd.concat(gathered, ignore_index=True)
    columns = ["name", "entry", "period", "log_e", "threshold"]
    limited = {check.name: check for check in checks if check.limit}
    return MonitorFindings(
        config, bundle, history, kept, new, rates, table, evidence[columns], limited
    )


def _list_checks(bundle: ClassifierBundle, history: History) -> list[Check]:
    """Return the checks, which are the same whenever one looks: the bundle says its minimum."""
    minimum = int(bundle.manifest["minimum"])
    limits = [read_limit(name, bound) for name, bound in history.limits.items()]
    favourable = int(bundle.favourable != 0)
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
        if check.limit is None or unknown < config.minimum:
            continue
        enough = [sizes[check.attribute, group] >= config.minimum for group in check.groups]
        if sum(enough) < check.limit.fewest:
            raise DataError(
                f"{unknown:,} rows of {config.table} are of no known group of {check.attribute}, "
                f"and --limit {check.name} cannot be judged.",
                f"{nearest('', names[check.attribute])} Write groups as these, or count the rows "
                "with those of the next period.",
            )


def _count_last(history: History, ignored: int = 0) -> dict[str, int]:
    last = history.entries.iloc[-1]
    return {"rows": int(last["rows"]), "labels": int(last["labelled"]), "ignored": ignored}


def _describe_check(
    check: Check, evidence: pd.DataFrame, rates: pd.DataFrame, alpha: float
) -> dict[str, Any]:
    """Return the row of a check, with its value by the rates of a period."""
    value = rates["value"].to_numpy(dtype=np.float64)
    log_e = evidence["log_e"].to_numpy()
    most = float(log_e.max(initial=0.0))
    raised = evidence["period"][log_e >= check.threshold]
    return {
        "kind": check.kind,
        "name": check.name,
        "rate": check.rate,
        "attribute": check.attribute,
        "group": check.groups[0] if check.kind == REFERENCE else "",
        "reference": check.value,
        "low": check.low,
        "high": check.high,
        "value": measure_limit(check.limit, value) if check.limit else float(value[0]),
        "n": int(rates["n"].sum()),
        "log_e": float(log_e[-1]) if log_e.size else 0.0,
        "threshold": check.threshold,
        "p": float(min(1.0, alpha * np.exp(check.threshold - most))),
        "alarm": str(raised.iloc[0]) if len(raised) else "",
    }


FILES = RESULTS["monitor"]
# Rows of the page's tables; all are in the files.
SHOWN_AT_MOST = 40


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
        The fields of `MonitorConfig`: ``table``, ``period``, ``limit`` and so on. The table may be
        a frame of pandas, Polars or Arrow; then the period has to be named.

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
        table = options.get("table", "")
        if not isinstance(table, str | Path):
            if "period" not in options:
                raise ConfigError("A frame has no name, which a period needs.", "Give period.")
            with as_file(table) as path:
                return run_monitor(bundle, progress, **{**options, "table": path})
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
    kept = name_kept(findings.config.period_name)

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
