"""The settings of a frontier side by side, and bounds that hold for all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtr

from fairfrontier.choose.config import IDEAL, KNEE, read_policy
from fairfrontier.deployment.answer import TOLERANCE, find_mixture, list_margins
from fairfrontier.metrics.measure.registry import MEASURES
from fairfrontier.metrics.statistic.interval import (
    Shares,
    bonferroni,
    clopper_pearson,
    invert_wilson,
    propagate_imprecision,
    widen,
)
from fairfrontier.metrics.statistic.rate import NAMES, TNR, TPR
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.study.config import split_name
from fairfrontier.study.frontier import find_pareto, orient
from fairfrontier.study.mixture import AGGREGATES, KEYS, find_rates, pivot_measures

Tables = Mapping[str, pd.DataFrame]
# From the larger and the smaller of two levels' rates to what is to be small.
Worst = Callable[[np.ndarray, np.ndarray], np.ndarray]
ENDS = ("value", "low", "high")
# Measures by how they are bounded: those whose intervals are Wilson's, and aggregates over levels.
# All others are balanced accuracy, which is made of ERRORS, and those whose own are widened.
SHARES = frozenset({*NAMES, "consistency", "auc", "f1"})
ERRORS = ("fpr", "tpr")
EXTREMES = {"max": np.fmax, "min": np.fmin}
PAIRED: dict[str, Worst] = {
    "gap": np.subtract,
    "difference": np.subtract,
    "gap_max": np.subtract,
    "ratio": lambda high, low: -low / high,
}
# The share of rows that count where a rule was fitted on them.
FITTED = 0.5


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
        reach = bonferroni(1.0 - confidence, len(table) * len(bounds))
        own = np.array([key in fitted for key in table.index], dtype=bool)
        worst = {name: bound_scores(name, tables, reach, own) for name in bounds}
        # What has no bound is certain to hold nothing.
        held = {name: np.where(np.isnan(each), -np.inf, each) for name, each in worst.items()}
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


def bound_scores(
    name: str, tables: Tables, reach: float, fitted: np.ndarray | None = None
) -> np.ndarray:
    """Return what a measure is at worst, oriented so that more is better, float64, (n_settings,).

    ``tables`` are value, low and high (of 95% intervals) with a row for every setting and a column
    for every measure; ``reach`` is the z of the bounds. NaN without an interval.

    ``fitted``, bool of shape (n_settings,), says whose rules were fitted on the rows compared, and
    measured by rules of folds: theirs allow for twice the variance and for every pair of levels.
    """
    measure, group = split_name(name)
    fitted = np.zeros(len(tables["value"]), dtype=bool) if fitted is None else fitted
    aggregation, position = AGGREGATES.get(measure, ("", None))
    rates = [TNR, TPR] if position is None else [position]
    levels = [find_rates(tables[end], group)[..., rates] for end in ENDS]
    n_levels = int(np.isfinite(levels[0]).any(axis=(0, 2)).sum())
    # Which levels come to differ most is then chance, so that no pair of them is the one.
    pairs = n_levels * (n_levels - 1) * len(rates) if aggregation else 1
    signs = 2 if MEASURES.find(measure).direction == "zero" else 1
    wide = np.where(fitted, bonferroni(ndtr(-reach), max(pairs, signs)), reach)

    if n_levels and aggregation in PAIRED:
        return -_bound_pairs(_count_rows(levels, fitted), wide, PAIRED[aggregation])
    if measure == "balanced_accuracy" and {*ERRORS} <= {*tables["value"]}:
        return _bound_balanced_accuracy(tables, fitted, wide)
    interval = [tables[end][name].to_numpy() for end in ENDS]
    if n_levels and aggregation in EXTREMES:
        every = bonferroni(ndtr(-reach), n_levels)
        ends = _bound_extreme(_count_rows(levels, fitted), every, EXTREMES[aggregation])
    elif measure in SHARES:
        ends = clopper_pearson(*_count_rows(interval, fitted), wide)
    else:
        ends = _widen(interval, fitted, wide)
    low, high = (orient(name, end) for end in ends)
    return np.asarray(np.minimum(low, high))


def _count_rows(interval: Sequence[np.ndarray], fitted: np.ndarray) -> Shares:
    """Return shares and the rows that their intervals tell, both (n_settings, ...)."""
    size = invert_wilson(*interval)
    # A fit on as many rows varies as its measurement does, and folds may show none of it.
    size[fitted] *= FITTED
    return interval[0], size


def _bound_pairs(levels: Shares, reach: np.ndarray, worst: Worst) -> np.ndarray:
    """Bound from above what two levels make at worst, since the worst is made by one of the pairs.

    ``levels`` have shape (n_settings, n_levels, n_rates), here and below.
    """
    value, size = levels
    larger, smaller = (value[:, :, None], size[:, :, None]), (value[:, None], size[:, None])
    pairs = propagate_imprecision(larger, smaller, reach, worst)
    # A level does not differ from itself, whatever its bounds.
    itself = np.eye(value.shape[1], dtype=bool)[:, :, None]
    pairs = np.where(itself, np.nan, pairs).reshape(len(pairs), -1)
    return np.asarray(np.fmax.reduce(pairs, axis=1))


def _bound_extreme(
    levels: Shares, reach: float, extreme: np.ufunc
) -> tuple[np.ndarray, np.ndarray]:
    """Bound the largest or the smallest level, from below and from above.

    The level of the largest bound need not be the largest: at ``reach`` all have to hold.
    """
    low, high = (extreme.reduce(end, axis=(1, 2)) for end in clopper_pearson(*levels, reach))
    return low, high


def _bound_balanced_accuracy(tables: Tables, fitted: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Bound (1 − (FPR − TPR)) / 2 from below."""
    fpr, tpr = (
        _count_rows([tables[end][rate].to_numpy() for end in ENDS], fitted) for rate in ERRORS
    )
    return np.asarray((1.0 - propagate_imprecision(fpr, tpr, reach, np.subtract)) / 2.0)


def _widen(
    interval: Sequence[np.ndarray], fitted: np.ndarray, reach: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a 95% interval at another z; see `widen`."""
    value, *ends = interval
    low, high = (value + (end - value) / np.sqrt(np.where(fitted, FITTED, 1.0)) for end in ends)
    wide = widen(value, low, high, reach)
    return wide[:, 0], wide[:, 1]


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


def apply_policy(policy: str, scores: np.ndarray) -> int:
    """Return the point of a frontier that a policy chooses.

    With s_i in [0, 1]^k, the scores of the points that no other dominates, scaled from the worst to
    the best of them:

    - ``knee``: the largest Σ_j s_ij, which is the farthest from the plane through the extremes;
    - ``closest-to-ideal``: the least Σ_j (1 − s_ij)²;
    - ``least-disparity-within=t``: the largest sum of s_i2, …, s_ik of the points whose raw first
      score is within t of the best.

    Parameters
    ----------
    policy : str
        One of these.
    scores : ndarray of float64, shape (n_points, n_scores)
        Accuracy, then fairness, better higher, without NaN.

    Returns
    -------
    int
        Its position; the first of equal ones.

    Raises
    ------
    ConfigError
        For another policy.

    References
    ----------
    I. Das. On characterizing the "knee" of the Pareto curve based on normal-boundary intersection.
    Structural Optimization 18, 1999. P. L. Yu. A class of solutions for group decision problems.
    Management Science 19, 1973.
    """
    name, tolerance = read_policy(policy)
    front = np.flatnonzero(find_pareto(scores))
    kept = scores[front]
    low, high = kept.min(axis=0), kept.max(axis=0)
    # What does not vary on the frontier decides nothing.
    scaled = np.where(high > low, (kept - low) / np.where(high > low, high - low, 1.0), 1.0)
    if name == KNEE:
        value = scaled.sum(axis=1)
    elif name == IDEAL:
        value = -((1.0 - scaled) ** 2).sum(axis=1)
    else:
        # Rounding must not cost the best point itself.
        near = kept[:, 0] >= high[0] - tolerance - 1e-12
        value = np.where(near, scaled[:, 1:].sum(axis=1), -np.inf)
    return int(front[np.argmax(value)])
