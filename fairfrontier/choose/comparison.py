"""The settings of a frontier side by side, and bounds that hold for all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import betaincinv, ndtr, ndtri

from fairfrontier.choose.mixture import TOLERANCE, find_mixture, list_margins
from fairfrontier.evaluate.measure.registry import MEASURES
from fairfrontier.evaluate.statistic.interval import Z
from fairfrontier.evaluate.statistic.rate import NAMES, TNR, TPR
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.study.config import split_name
from fairfrontier.study.frontier import orient
from fairfrontier.study.mixture import AGGREGATES, KEYS, find_rates, pivot_measures

Tables = Mapping[str, pd.DataFrame]
ENDS = ("value", "low", "high")
# Shares of rows, and the two that balanced accuracy is made of: what is added and what is taken.
SHARES = frozenset({*NAMES, "consistency"})
ERRORS = ("fpr", "tpr")
# What is at worst, from the larger and the smaller of two levels' rates, with the sign turned.
PAIRED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "gap": np.subtract,
    "difference": np.subtract,
    "gap_max": np.subtract,
    "ratio": lambda high, low: -low / high,
}
ANGLES = np.linspace(0.0, np.pi / 2, 13)
# An interval without width tells infinitely many rows.
MOST_ROWS = 1e12


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
    fitted: Collection[tuple[str, str]] = (),
) -> Compared:
    """Return the settings that have estimates of all measures, and intervals where needed.

    ``fitted`` are the settings whose rules were fitted on the rows of the part; see `bound_scores`.
    """
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
        own = np.array([key in fitted for key in table.index], dtype=bool)
        held = {name: bound_scores(name, tables, reach, own) for name in bounds}
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


def bound_scores(
    name: str, tables: Tables, reach: float, fitted: np.ndarray | None = None
) -> np.ndarray:
    """Return what a measure is at worst, oriented so that more is better, float64, (n_settings,).

    ``tables`` are value, low and high (of 95% intervals) with a row for every setting and a column
    for every measure. At ``reach`` standard errors, the bound is that of `bound_above` for a share
    of rows, and that of `bound_pairs` for what two shares make: a difference or a ratio of levels,
    the worst over their pairs, since the true largest difference is of one of these, and balanced
    accuracy. Other intervals are widened in proportion. NaN without an interval.

    ``fitted``, bool of shape (n_settings,), says whose rules were fitted on the rows compared, and
    measured by rules of folds: theirs allow for twice the variance and for every pair of levels.
    """
    measure, group = split_name(name)
    value, low, high = (tables[each][name].to_numpy() for each in ENDS)
    fitted = np.zeros(len(value), dtype=bool) if fitted is None else fitted
    # A fit on as many rows varies as its measurement does, and folds may show none of it.
    rows = np.where(fitted, 0.5, 1.0)
    aggregation, position = AGGREGATES.get(measure, ("", None))
    kept = [TNR, TPR] if position is None else [position]
    rates, *ends = (find_rates(tables[each], group)[..., kept] for each in ENDS)
    n_levels = int(np.isfinite(rates).any(axis=(0, 2)).sum())
    # Which levels come to differ most is then chance, so that no pair of them is the one.
    pairs = n_levels * (n_levels - 1) * len(kept) if aggregation else 1
    signs = 2 if MEASURES.find(measure).direction == "zero" else 1
    wide = np.where(fitted, _share_error(reach, max(pairs, signs)), reach)
    if n_levels and aggregation in PAIRED:
        size = find_size(rates, *ends) * rows[:, None, None]
        above, below = (_spread((rates, size), axis) for axis in (2, 1))
        all_pairs = bound_pairs(above, below, wide, PAIRED[aggregation])
        # The difference of a level to itself is not above 0, as no bound here is below.
        own = np.eye(rates.shape[1], dtype=bool)[:, :, None]
        all_pairs = np.where(own, -np.inf, all_pairs).reshape(len(value), -1)
        return -np.asarray(np.fmax.reduce(all_pairs, axis=1))
    if n_levels and aggregation in ("max", "min"):
        # The level of the largest bound need not be the largest: all have to hold.
        levels = (rates, find_size(rates, *ends) * rows[:, None, None])
        every = _share_error(reach, n_levels)
        extreme = np.fmax if aggregation == "max" else np.fmin
        low, high = (
            extreme.reduce(bound(*levels, every), axis=(1, 2))
            for bound in (bound_below, bound_above)
        )
    elif measure in SHARES:
        size = find_size(value, low, high) * rows
        low, high = (bound(value, size, wide) for bound in (bound_below, bound_above))
    elif measure == "balanced_accuracy" and {*ERRORS} <= {*tables["value"]}:
        named = [[tables[each][rate].to_numpy() for each in ENDS] for rate in ERRORS]
        above, below = ((each[0], find_size(*each) * rows) for each in named)
        return np.asarray((1.0 - bound_pairs(above, below, wide, np.subtract)) / 2.0)
    else:
        low, high = (value + wide / Z * (end - value) / np.sqrt(rows) for end in (low, high))
    return np.asarray(np.minimum(orient(name, low), orient(name, high)))


def find_size(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the number of rows that Wilson's 95% interval of a share tells."""
    end = np.where(high - value > value - low, high, low)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.minimum(Z**2 * end * (1.0 - end) / (end - value) ** 2, MOST_ROWS))


def bound_above(value: np.ndarray, size: np.ndarray, reach: np.ndarray | float) -> np.ndarray:
    """Return Clopper and Pearson's bound from above of a share of so many rows, at ``reach``.

    Wilson's is too narrow towards a share of 1/2 where few rows, or almost all, are counted.
    """
    hits, misses = value * size, (1.0 - value) * size
    some = np.where(misses > 0, misses, 1.0)
    # NaN in, NaN out.
    return np.where(misses == 0, 1.0, betaincinv(hits + 1.0, some, ndtr(reach)) + 0.0 * misses)


def bound_below(value: np.ndarray, size: np.ndarray, reach: np.ndarray | float) -> np.ndarray:
    """Return the bound of a share from below; see `bound_above`."""
    return 1.0 - bound_above(1.0 - value, size, reach)


def bound_pairs(
    above: tuple[np.ndarray, np.ndarray],
    below: tuple[np.ndarray, np.ndarray],
    reach: np.ndarray | float,
    worst: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Bound from above what grows with one share and falls with another, independent one.

        max worst(high at a, low at b)   over   a² + b² = reach²

    ``above`` and ``below`` are shares and sizes that broadcast; ``reach`` is one number or one for
    each along the first axis. For the difference of normal shares this is Newcombe's bound, whose
    root of squares is too narrow where the shares are skewed.
    """
    bound = np.asarray(-np.inf)
    reach = np.reshape(reach, (-1, *(1,) * (np.ndim(above[0]) - 1)))
    for angle in ANGLES:
        high = bound_above(*above, reach * np.cos(angle))
        low = bound_below(*below, reach * np.sin(angle))
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = np.maximum(bound, worst(high, low))
    return bound


def _share_error(reach: float, comparisons: int) -> float:
    """Return the z at which so many bounds all hold with the probability of one at ``reach``."""
    return float(-ndtri(ndtr(-reach) / comparisons))


def _spread(shares: tuple[np.ndarray, np.ndarray], axis: int) -> tuple[np.ndarray, np.ndarray]:
    first, second = (np.expand_dims(each, axis) for each in shares)
    return first, second


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
