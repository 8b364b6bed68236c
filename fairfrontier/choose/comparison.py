"""The settings of a frontier side by side, and bounds that hold for all of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtri

from fairfrontier.choose.mixture import TOLERANCE, find_mixture, list_margins
from fairfrontier.evaluate.statistic.interval import Z, wilson
from fairfrontier.evaluate.statistic.rate import NAMES, TNR, TPR
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.study.config import split_name
from fairfrontier.study.frontier import orient
from fairfrontier.study.mixture import AGGREGATES, KEYS, find_rates, pivot_measures

Tables = Mapping[str, pd.DataFrame]
ENDS = ("value", "low", "high")


@dataclass(frozen=True, eq=False)
class Compared:
    """The settings that are compared on a part, a row for each in every table.

    ``tables`` have all measures: value, and low and high of their intervals. ``table`` has the
    values asked about, ``scores`` the same turned so that more is better. ``held`` is what bounded
    measures are taken to be, turned, and ``limits`` what that has to be at least; ``certified`` is
    ``held`` as measures, without columns where no confidence was asked for.
    """

    part: str
    n_samples: int
    tables: Mapping[str, pd.DataFrame]
    table: pd.DataFrame
    scores: Mapping[str, np.ndarray]
    held: Mapping[str, np.ndarray]
    limits: Mapping[str, float]
    certified: pd.DataFrame

    def row(self, position: int) -> tuple[pd.Series, pd.Series]:
        """Return the values of one setting, and what is certified of it."""
        return self.table.iloc[position], self.certified.iloc[position]

    def find_excess(self) -> np.ndarray:
        """Return how far each setting exceeds the bound that it violates most; 0 within all."""
        excess = np.zeros(len(self.table))
        for name, limit in self.limits.items():
            # Means and differences of rates are rounded: .4 - .3 is more than .1.
            excess = np.maximum(excess, limit - self.held[name] - TOLERANCE)
        return excess


def compare(
    means: pd.DataFrame,
    part: str,
    names: Sequence[str],
    bounds: Mapping[str, float],
    confidence: float | None,
) -> Compared:
    """Return the settings that have estimates of all measures, and intervals where needed."""
    known = set(means["name"])
    for name in names:
        if name not in known:
            raise ConfigError(
                f"The study holds no measure {name!r} on its {part} rows.", nearest(name, known)
            )
    tables = {column: pivot_measures(means, KEYS, column) for column in ("value", "low", "high")}
    kept = tables["value"][[*names]].notna().all(axis=1)
    if not kept.any():
        raise ConfigError(
            f"No setting of the study has estimates of all of {', '.join(names)}.",
            "Choose by measures of larger groups.",
        )
    if confidence is not None:
        kept &= tables["high"][[*bounds]].notna().all(axis=1)
        if not kept.any():
            raise ConfigError(
                f"No setting of the study has intervals of all of {', '.join(bounds)} on its "
                f"{part} rows, so that no bound on them is certain.",
                "Bound other measures, or select without confidence.",
            )
    tables = {column: table[kept] for column, table in tables.items()}
    table = tables["value"][[*names]]
    scores = {name: orient(name, table[name].to_numpy()) for name in names}
    limits = {name: float(orient(name, np.array([bound]))[0]) for name, bound in bounds.items()}
    held, certified = scores, pd.DataFrame(index=table.index)
    if confidence is not None:
        reach = find_reach(confidence, len(table) * len(bounds))
        held = {name: bound_scores(name, tables, reach) for name in bounds}
        # A bound on the measure itself, not on the turned one.
        certified = pd.DataFrame(
            {name: held[name] * orient(name, np.ones(1)) for name in bounds}, index=table.index
        )
    n_samples = int(means["n"].max())
    return Compared(part, n_samples, tables, table, scores, held, limits, certified)


def mix_compared(
    compared: Compared, measure: str, bounds: Mapping[str, float], confidence: float | None
) -> tuple[int, int, float] | None:
    """Return two settings and the share of the second; None where one setting alone is best."""
    margins = [np.zeros((len(compared.table), 0))]
    for name, bound in bounds.items():
        # What is convex in the decision rule is at most the mean of two bounds.
        margins.append(
            list_margins(name, bound, compared.tables["value"])
            if confidence is None
            else compared.held[name][:, None] - compared.limits[name]
        )
    found = find_mixture(compared.scores[measure], np.hstack(margins))
    return found if found is not None and 0 < found[2] < 1 else None


def find_reach(confidence: float, comparisons: int) -> float:
    """Return the z of one-sided bounds of which all hold at once, by Bonferroni's inequality."""
    return float(-ndtri((1.0 - confidence) / comparisons))


def bound_scores(name: str, tables: Tables, reach: float) -> np.ndarray:
    """Return what a measure is at worst, oriented so that more is better, float64, (n_settings,).

    ``tables`` are value, low and high (of 95% intervals) with a row for every setting and a column
    for every measure. At ``reach`` standard errors, the bound is Wilson's for a rate, and for a
    difference of levels the largest of Newcombe's over their pairs: the true largest difference is
    one of these. Other intervals are widened in proportion. NaN without an interval.
    """
    measure, group = split_name(name)
    value, low, high = (tables[each][name].to_numpy() for each in ENDS)
    aggregation, position = AGGREGATES.get(measure, ("", None))
    if aggregation in ("gap", "difference", "gap_max"):
        kept = [TNR, TPR] if position is None else [position]
        rates, lows, highs = (find_rates(tables[each], group)[..., kept] for each in ENDS)
        if np.isfinite(rates).any():
            return -_bound_difference(rates, lows, highs, reach)
    if measure in NAMES:
        low, high = widen_share(value, low, high, reach)
    else:
        low, high = (value + reach / Z * (end - value) for end in (low, high))
    return np.asarray(np.minimum(orient(name, low), orient(name, high)))


def widen_share(
    value: np.ndarray, low: np.ndarray, high: np.ndarray, reach: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return Wilson's interval at another z, of the size that the interval at 95% tells."""
    end = np.where(high - value > value - low, high, low)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = Z**2 * end * (1.0 - end) / (end - value) ** 2
    return wilson(value, size, reach)


def _bound_difference(
    value: np.ndarray, low: np.ndarray, high: np.ndarray, reach: float
) -> np.ndarray:
    """Bound the largest difference of any rate; arrays of shape (n_settings, n_levels, n_rates)."""
    low, high = widen_share(value, low, high, reach)
    difference = value[:, :, None] - value[:, None]
    error = np.hypot((high - value)[:, :, None], (value - low)[:, None])
    # The difference of a level to itself is not above 0, as no bound here is below.
    bound = np.where(np.eye(value.shape[1], dtype=bool)[:, :, None], -np.inf, difference + error)
    return np.asarray(np.fmax.reduce(bound.reshape(len(value), -1), axis=1))


def find_needed_rows(
    scores: Mapping[str, np.ndarray], held: Mapping[str, np.ndarray], limits: Mapping[str, float]
) -> tuple[int, float] | None:
    """Return the setting that needs fewest rows to be certified, and how many times as many.

    An interval shrinks with 1/√n, so that slack = width / √(n'/n). ``scores`` are the oriented
    estimates, ``held`` what they are at worst. None where no setting meets the limits as estimated.
    """
    factor = np.zeros(len(next(iter(scores.values()))))
    for name, limit in limits.items():
        slack = scores[name] - limit
        width = scores[name] - held[name]
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(slack > 0, (width / slack) ** 2, np.inf)
        factor = np.maximum(factor, np.nan_to_num(times, nan=np.inf, posinf=np.inf))
    best = int(factor.argmin())
    return (best, float(factor[best])) if np.isfinite(factor[best]) else None
