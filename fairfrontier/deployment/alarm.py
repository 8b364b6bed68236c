"""Which rates have left their reference or passed a limit, with few false alarms in all periods.

Of the probability α of any false alarm half is for limits, if there are any. Of what is for the
rates that are compared with the reference, half is spent on confidence intervals of their reference
values, which hold all at once (Clopper and Pearson, Bonferroni), since the reference is a sample as
well; half on evidence that a rate is outside of its interval, the same for every rate (Bonferroni);
see `fairfrontier.metrics.statistic.drift`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.deployment.config import Limit
from fairfrontier.deployment.history import COUNTED, History
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
from fairfrontier.runtime.errors import ConfigError, nearest

# The others are their complements.
WATCHED = ("selection_rate", "accuracy", "tpr", "fpr")
REFERENCE, LIMIT = "reference", "limit"


@dataclass(frozen=True, eq=False)
class Check:
    """A null hypothesis on a rate of the groups of an attribute, and when it is given up.

    ``value`` is that of the reference; ``low`` and ``high`` are where the rate, or the limited
    number, may be. ``threshold`` is of log E.
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
        name, hits, rows = (each[position] for each in known[attribute, rate])
        low, high = map(float, bound_rate(hits, rows, confidence))
        checks.append(
            Check(
                kind=REFERENCE,
                name=f"{rate}:{attribute}={name}" if attribute else f"{rate}:all rows",
                rate=rate,
                attribute=attribute,
                groups=(name,),
                value=float(hits / rows),
                low=low,
                high=high,
                prior=np.array([_smooth(hits, rows)]),
                project=within(low, high),
                threshold=threshold,
            )
        )
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
        checks.append(
            Check(
                kind=LIMIT,
                name=limit.name,
                rate=limit.rate,
                attribute=limit.attribute,
                groups=tuple(name for name, kept in zip(names, enough, strict=True) if kept),
                value=measure_limit(limit, hits[enough] / rows[enough]),
                low=low,
                high=high,
                prior=_smooth(hits[enough], rows[enough]),
                project=project,
                threshold=float(np.log(len(limits) / (alpha / 2))),
            )
        )
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
