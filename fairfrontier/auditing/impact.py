"""Rates, impact ratios and tests of selected persons by category, from counts alone.

The definitions are those of New York City's rules on automated employment decision tools (6 RCNY
5-300 ff., Local Law 144 of 2021) and of the Uniform Guidelines on Employee Selection Procedures
(29 CFR 1607.4(D)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import fisher_exact, norm

from fairfrontier.metrics.statistic.interval import Z, effective_size, wilson
from fairfrontier.metrics.statistic.rate import divide
from fairfrontier.prepare.table.role import UNKNOWN, AuditRows, cross, name_cells
from fairfrontier.report.finding import name_pool
from fairfrontier.runtime.errors import DataError

# Castaneda v. Partida, 430 U.S. 482, 496 n. 17 (1977): "two or three standard deviations".
DEVIATIONS = 2.0
# With fewer persons in a category the normal approximation is poor.
SMALL_SAMPLE = 30
POWER = 0.8
COMPARED, EXCLUDED, TOO_FEW = "compared", "excluded", "too few"
STATUSES = (COMPARED, EXCLUDED, UNKNOWN, TOO_FEW)


def tabulate_impact(
    n: np.ndarray,
    selected: np.ndarray,
    known: np.ndarray,
    *,
    minimum: int = 10,
    least: int = 1,
    exclude_below: float = 0.02,
    weight: np.ndarray | None = None,
    size: np.ndarray | None = None,
) -> pd.DataFrame:
    """Compare every category with the one that has the highest rate.

    The rate of a category is selected / n, or selected / weight, and its impact ratio that rate
    over the highest one among the categories that are compared: those that are known, and have at
    least the share ``exclude_below`` of all persons. A rate with the lowest or highest score is the
    same with "selected" read as "scored above the median of the sample".

    Parameters
    ----------
    n : ndarray of int64, shape (n_categories,)
        Persons.
    selected : ndarray of float64, shape (n_categories,)
        Persons who were selected; the expected number under a randomised rule. Where persons have
        weights, their sum.
    known : ndarray of bool, shape (n_categories,)
        False for persons whose category is unknown, who are counted apart.
    minimum, least : int
        With fewer persons than the minimum a category that is left out or unknown has no rate, and
        with fewer than the least no category has one.
    exclude_below : float
        Categories of a smaller share are left out of the ratios; their rate is given all the same.
    weight, size : ndarray of float64, shape (n_categories,), optional
        Sums of case weights, scaled to those of n, and how many unweighted persons would give
        the rate the same variance; without them each person counts as one.

    Returns
    -------
    DataFrame
        A row for each category; NaN, and NA of flags, where not estimable:

        - n, selected, share (of all persons), status (one of `STATUSES`);
        - rate, low, high: with Wilson's 95% interval;
        - ratio, ratio_low, ratio_high: the impact ratio with its 95% interval (Katz et al.). Of
          excluded and unknown categories too, but no flag or limit rests on these;
        - four_fifths: whether the rate is below four fifths of the highest; to_four_fifths: how
          many more selected persons would have met it;
        - deviations: difference of the two rates in standard deviations, from the pooled rate;
          p_value: two-sided, of the normal approximation; two_deviations: whether the rate is that
          far below; small_sample: fewer than 30 persons in either; fisher_p: of Fisher's exact
          test, two-sided;
        - shortfall: selected persons fewer than if both categories had their pooled rate;
        - detectable: the smallest difference below the highest rate that the test of two standard
          deviations would show in 80% of samples of these sizes.

    Notes
    -----
    Tests are of whole persons: under a randomised rule, and with case weights, they are not
    estimable. Intervals and tests take the category of the highest rate as given in advance.
    O(n_categories), times the logarithm of n for Fisher's test.

    References
    ----------
    6 RCNY 5-301. 29 CFR 1607.4(D). Castaneda v. Partida, 430 U.S. 482, 496 n. 17 (1977). Katz,
    Baptista, Azen and Pike, "Obtaining confidence intervals for the risk ratio in cohort studies",
    1978. Fleiss, Levin and Paik, "Statistical methods for rates and proportions", 2003, chapter 4.

    Examples
    --------
    >>> table = tabulate_impact(np.array([80, 40]), np.array([48.0, 12.0]), np.array([True, True]))
    >>> table["ratio"].tolist()
    [1.0, 0.5]
    """
    n, selected = np.asarray(n, dtype=np.int64), np.asarray(selected, dtype=np.float64)
    known, mass = np.asarray(known, dtype=bool), n.astype(np.float64)
    mass = mass if weight is None else np.asarray(weight, dtype=np.float64)
    persons = mass if size is None else np.asarray(size, dtype=np.float64)
    share = divide(mass, np.full(n.size, mass.sum()))
    out = share < exclude_below
    # 6 RCNY 5-301 leaves out no category for its few persons alone.
    few = (n < np.where(known & ~out, least, minimum)) | (mass <= 0)
    status = np.select([~known, few, out], [UNKNOWN, TOO_FEW, EXCLUDED], COMPARED)
    selected = np.where(few, np.nan, selected)
    rate = np.where(few, np.nan, divide(selected, mass))
    low, high = wilson(rate, persons)
    table = pd.DataFrame(
        {
            "n": n,
            "selected": selected,
            "share": share,
            "status": status.astype(str),
            "rate": rate,
            "low": low,
            "high": high,
        }
    )
    compared = np.flatnonzero(status == COMPARED)
    # Of equal rates the one with the most persons.
    order = sorted(compared, key=lambda i: (-rate[i], -n[i]))
    compare = _compare if weight is None else _compare_weighted
    cells = list(zip(selected.tolist(), mass.tolist(), persons.tolist(), n.tolist(), strict=True))
    rows = [
        compare(cells[i], cells[order[0]]) if order and not few[i] else UNCOMPARED
        for i in range(n.size)
    ]
    if order:
        rows[order[0]] |= dict.fromkeys(("ratio_low", "ratio_high", "detectable"), np.nan)
    comparison = pd.DataFrame(rows, columns=list(UNCOMPARED))
    # With a third value, for what is not estimable.
    return table.join(comparison.astype(dict.fromkeys(FLAGS, "boolean")))


FLAGS = ("four_fifths", "two_deviations", "small_sample")
UNCOMPARED = {
    "ratio": np.nan,
    "ratio_low": np.nan,
    "ratio_high": np.nan,
    "four_fifths": None,
    "to_four_fifths": np.nan,
    "deviations": np.nan,
    "p_value": np.nan,
    "two_deviations": None,
    "small_sample": None,
    "fisher_p": np.nan,
    "shortfall": np.nan,
    "detectable": np.nan,
}


def count_impact(
    codes: np.ndarray,
    decision: np.ndarray,
    weight: np.ndarray,
    known: np.ndarray,
    *,
    minimum: int,
    least: int,
    exclude_below: float,
) -> pd.DataFrame:
    """Return `tabulate_impact` of rows' decisions, weighted where their weights differ.

    ``codes`` are of the categories, and ``decision`` the probabilities of being selected; all
    arrays but ``known`` have shape (n_samples,). O(n).
    """
    size, given = (
        known.size,
        dict[str, Any]({"minimum": minimum, "least": least, "exclude_below": exclude_below}),
    )
    n = np.bincount(codes, minlength=size)
    if np.ptp(weight) == 0:
        return tabulate_impact(n, np.bincount(codes, decision, size), known, **given)
    weight = weight * (weight.size / weight.sum())
    mass, squares, selected = (
        np.bincount(codes, term, size) for term in (weight, weight**2, weight * decision)
    )
    rate = divide(selected, mass)
    spread = np.bincount(codes, (weight * (decision - rate[codes])) ** 2, size)
    persons = effective_size(rate, divide(spread, mass**2), divide(mass**2, squares), n)
    return tabulate_impact(n, selected, known, weight=mass, size=persons, **given)


# Selected, all, and effective persons of a category, and its rows.
Cell = tuple[float, float, float, int]
Row = dict[str, float | bool | None]


def _compare_weighted(own: Cell, other: Cell) -> Row:
    """Return the columns of a category against the best one that need no whole persons."""
    (x, n, size, rows), (best, n_best, size_best, rows_best) = own, other
    row: Row = dict(UNCOMPARED)
    row["shortfall"] = n * (x + best) / (n + n_best) - x
    row["small_sample"] = min(rows, rows_best) < SMALL_SAMPLE
    if best > 0:
        rate, highest = x / n, best / n_best
        row["ratio"] = rate / highest
        # Weighted sums are rounded.
        row["four_fifths"] = bool(5 * rate < 4 * highest * (1 - 1e-12))
        if x > 0:
            variance = (1 / rate - 1) / size + (1 / highest - 1) / size_best
            half = Z * np.sqrt(max(variance, 0.0))
            row["ratio_low"], row["ratio_high"] = row["ratio"] * np.exp([-half, half])
    return row


def _compare(own: Cell, other: Cell) -> Row:
    """Return the columns of a category, of whose n persons x are selected, against the best one."""
    row = _compare_weighted(own, other)
    (x, *_, n), (best, *_, n_best) = own, other
    row["detectable"] = find_detectable(n, n_best, best / n_best)
    if best > 0:
        # Products of whole numbers are exact, quotients are not.
        row["four_fifths"] = bool(5 * x * n_best < 4 * best * n)
    if x.is_integer() and best.is_integer():
        x, best = int(x), int(best)
        row["to_four_fifths"] = float(max(-(-4 * best * n // (5 * n_best)) - x, 0))
        deviations = count_deviations(x, n, best, n_best)
        row["deviations"] = deviations
        row["p_value"] = float(2 * norm.sf(abs(deviations)))
        row["two_deviations"] = bool(deviations <= -DEVIATIONS)
        row["fisher_p"] = float(fisher_exact([[x, n - x], [best, n_best - best]]).pvalue)
    return row


def count_deviations(x: int, n: int, other: int, n_other: int) -> float:
    """Return (x/n − other/n_other)/sqrt(p(1 − p)(1/n + 1/n_other)), p pooled; 0 where p is 0 or 1.

    Without a correction for continuity.
    """
    pooled = (x + other) / (n + n_other)
    variance = pooled * (1 - pooled) * (1 / n + 1 / n_other)
    return float((x / n - other / n_other) / np.sqrt(variance)) if variance > 0 else 0.0


def find_detectable(n: int, n_best: int, best: float) -> float:
    """Return the least d for which a rate best − d is found to be lower in 80% of samples.

    By the test of two standard deviations: d = 2·sqrt(p(1 − p)(1/n + 1/n_best)) + z·sqrt(q(1 − q)/n
    + best(1 − best)/n_best), with q = best − d, p the pooled rate and P(N(0, 1) ≤ z) = 0.8. NaN
    where not even q = 0 would be found.
    """

    def excess(d: float) -> float:
        q = best - d
        pooled = (n * q + n_best * best) / (n + n_best)
        null = pooled * (1 - pooled) * (1 / n + 1 / n_best)
        own = q * (1 - q) / n + best * (1 - best) / n_best
        return float(d - DEVIATIONS * np.sqrt(max(null, 0)) - ndtri(POWER) * np.sqrt(max(own, 0)))

    if not excess(best) > 0:
        return np.nan
    # At d = 0 the excess may be 0 itself.
    return float(brentq(excess, 1e-9 * best, best))


def standardise(
    mean: np.ndarray, variance: np.ndarray, n: np.ndarray, best: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return standardised mean differences to the category ``best``, with 95% intervals.

    d = (mean − mean_best)/s, with s² = ((n − 1)·variance + (n_best − 1)·variance_best)/(n + n_best
    − 2); its standard error is sqrt(1/n + 1/n_best + d²/(2(n + n_best))). NaN where s is 0 or
    infinite. ``n`` are effective persons where they have weights.

    References
    ----------
    Cohen, "Statistical power analysis for the behavioral sciences", 1988. Hedges and Olkin,
    "Statistical methods for meta-analysis", 1985, section 5.
    """
    # One person has no variance, and counts for none.
    variance = np.where(n > 1, variance, 0.0)
    degrees = np.maximum(n + n[best] - 2, 1)
    pooled = ((n - 1) * variance + (n[best] - 1) * variance[best]) / degrees
    difference = mean - mean[best]
    d = divide(difference, np.sqrt(np.where(np.isfinite(pooled), pooled, np.nan)))
    half = Z * np.sqrt(1 / np.maximum(n, 1) + 1 / n[best] + d**2 / (2 * (n + n[best])))
    return d, d - half, d + half


def find_median(score: np.ndarray, weight: np.ndarray) -> float:
    """Return the median score: where weights differ the least with half of the weight up to it."""
    if np.ptp(weight) == 0:
        return float(np.median(score))
    return float(np.quantile(score, 0.5, weights=weight, method="inverted_cdf"))


# Beyond this many categories of one attribute hardly any could be compared.
LEVELS_AT_MOST = 1000


@dataclass(frozen=True, eq=False)
class Categories:
    """The categories of an attribute, or of a cross of attributes such as sex×race.

    ``codes``, int64 of shape (n,), are those of ``levels``; ``known`` and ``compared``, bool of
    shape (n_levels,), say which are known, and which take part in ratios and differences.
    """

    codes: np.ndarray
    levels: tuple[str, ...]
    known: np.ndarray
    compared: np.ndarray

    def find_few(self, minimum: int) -> np.ndarray:
        """Return which levels have fewer rows than the minimum, bool."""
        return np.asarray(np.bincount(self.codes, minlength=len(self.levels)) < minimum)


def cross_groups(rows: AuditRows) -> dict[str, Categories]:
    """Return the categories of each attribute, and of the cross of all of them."""
    columns = [(rows.codes[:, i], levels) for i, levels in enumerate(rows.attributes.values())]
    groups: dict[str, tuple[np.ndarray, tuple[tuple[str, ...], ...]]] = {
        name: (codes, tuple((level,) for level in levels))
        for name, (codes, levels) in zip(rows.attributes, columns, strict=True)
    }
    if len(columns) > 1:
        groups["×".join(rows.attributes)] = cross(columns)
    for name, (_, levels) in groups.items():
        if len(levels) > LEVELS_AT_MOST:
            raise DataError(
                f"{name} has {len(levels)} categories, more than {LEVELS_AT_MOST}.",
                "Name fewer columns with --groups, or merge their levels first.",
            )
    return {
        name: Categories(
            codes,
            name_cells(levels, name),
            np.array([UNKNOWN not in parts for parts in levels]),
            np.zeros(len(levels), dtype=bool),
        )
        for name, (codes, levels) in groups.items()
    }


def pool_small(table: pd.DataFrame, few: np.ndarray | pd.Series) -> pd.DataFrame:
    """Return a table of an attribute's levels with those of few rows, which have no rate, as one.

    Rows of no known level are counted apart all the same.
    """
    small = few & (table["level"] != UNKNOWN)
    if not small.any():
        return table
    one = table[small].tail(1).assign(level=name_pool(int(small.sum())))
    for name in {"n", "share"} & {*table.columns}:
        one[name] = table.loc[small, name].sum()
    return pd.concat([table[~small], one], ignore_index=True)
