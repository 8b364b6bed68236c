"""Bounds that hold for all settings at once, from the intervals of their measures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.special import ndtri

from fairfrontier.evaluate.statistic.interval import Z, wilson
from fairfrontier.evaluate.statistic.rate import NAMES, TNR, TPR
from fairfrontier.study.config import split_name
from fairfrontier.study.frontier import orient
from fairfrontier.study.mixture import AGGREGATES, find_rates

Tables = Mapping[str, pd.DataFrame]
ENDS = ("value", "low", "high")


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
