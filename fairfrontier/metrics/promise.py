"""Bounds in words, checked on decisions: what they bound, what it may be at worst, on how few rows.

Every rate of a group is a share of rows, hits of trials, whose bounds by Clopper and Pearson hold
all at once with the confidence asked for. What a bound bounds is at worst what rates within these
bounds make of it: differences of the largest from above and the smallest from below, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.metrics.grouped import read_rows
from fairfrontier.metrics.statistic.interval import CONFIDENCE, bonferroni, clopper_pearson
from fairfrontier.models.group import number_cells
from fairfrontier.models.thresholds.bound import (
    RATES,
    SELECTED,
    Bound,
    divide,
    read_bound,
    require_groups,
)
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, InputError

Shares = tuple[np.ndarray, np.ndarray]
Levels = Mapping[str, np.ndarray]


def check_bounds(
    y: Any,
    decision: Any,
    *,
    sensitive_features: Any,
    bounds: Sequence[str],
    confidence: float = CONFIDENCE,
    pos_label: Any = None,
) -> pd.DataFrame:
    """Check bounds in words on decisions, with what they are at worst on fresh rows.

    Parameters
    ----------
    y : array_like of shape (n_samples,)
        Labels of two classes, of rows on which the decisions were not fitted.
    decision : array_like of shape (n_samples,)
        Labels that were decided; what is drawn has to be drawn.
    sensitive_features : frame, mapping or array
        Attributes and strata that the bounds name.
    bounds : sequence of str
        As in ``selection_rate_ratio:race >= 0.8``; see `fairfrontier.models.thresholds.bound`.
    confidence : float
        With which all bounds that are ``certified`` hold at once for the population of the rows.
    pos_label : optional
        The favourable label, of labels that are not 0 and 1.

    Returns
    -------
    DataFrame
        A row for each bound: ``bound``; the ``value`` on these rows; ``worst``, what it is at most
        (or at least); whether it is ``kept`` here and ``certified``; ``n``; and ``needed``, about
        how many such rows would certify it, NaN where it is not kept.

    Raises
    ------
    ConfigError
        For what is no bound, or names an attribute or a group that is not there.
    InputError
        For decisions that are not labels.

    Notes
    -----
    O(n) and some intervals. Bonferroni's correction over all rates of all groups makes it careful
    where these are many. ``selected`` is of as many rows as these.

    Examples
    --------
    >>> import numpy as np, fairfrontier as ff
    >>> rng = np.random.default_rng(0)
    >>> sex, y = rng.choice(["f", "m"], 4_000), rng.integers(0, 2, 4_000)
    >>> hired = (rng.random(4_000) < 0.3).astype(int)
    >>> bounds = ["selection_rate_difference:sex <= 0.1", "tpr_min:sex >= 0.2"]
    >>> found = ff.metrics.check_bounds(y, hired, sensitive_features={"sex": sex}, bounds=bounds)
    >>> found["certified"].tolist()
    [True, True]
    """
    if isinstance(bounds, str) or not 0 < confidence < 1:
        raise ConfigError(
            f"bounds are {bounds!r}, and the confidence is {confidence!r}.",
            "Give a list of bounds, and a number in (0, 1).",
        )
    read = [read_bound(text) for text in bounds]
    rows = read_rows(y, decision, sensitive_features, None, None, pos_label, "binary")
    part, decided = rows.part, np.asarray(rows.prediction.decision)
    if not np.isin(decided, (0, 1)).all():
        raise InputError("The decisions are probabilities.", "Draw them, and give what was drawn.")
    levels, counts, _ = count_crossed(part, decided)
    require_groups(read, levels)
    n_rates = sum(count_rates(bound, levels) for bound in read)
    reach = bonferroni((1.0 - confidence) / 2.0, max(n_rates, 1))
    listed = []
    for bound in read:
        value, worst = bound.value(counts, levels), find_worst(bound, counts, levels, reach)
        slack, width = -bound.exceeds(value), abs(worst - value)
        kept, size = bool(slack >= -1e-9), part.n_samples
        needed = math.ceil(size * (width / slack) ** 2) if slack > 0 else math.nan
        certified = bool(bound.exceeds(worst) <= 0)
        listed.append(
            {
                "bound": str(bound),
                "value": value,
                "worst": worst,
                "kept": kept,
                "certified": certified,
                "n": size,
                "needed": needed,
            }
        )
    return pd.DataFrame(listed)


def count_crossed(part: Part, decision: np.ndarray) -> tuple[Levels, np.ndarray, float]:
    """Return the levels of the crosses of all attributes, and TP, FP, P and N of each.

    Decisions are the probabilities of 1, and rows count by their weight. The last number is how
    many rows of equal weight a unit of it is worth, Σw/Σw², in the cell where that is least.
    """
    cells, code = number_cells(part.groups)
    levels = {
        name: np.array([str(own[k]) for k in cells[:, column].tolist()])
        for column, (name, own) in enumerate(part.attributes.items())
    }
    one, other = part.weight * (part.y == 1), part.weight * (part.y != 1)
    columns = [one * decision, other * decision, one, other]
    counts = np.column_stack([np.bincount(code, each, len(cells)) for each in columns])
    squares = np.bincount(code, part.weight**2, len(cells))
    return levels, counts, float(np.nanmin(divide(counts[:, 2:].sum(axis=1), squares)))


def count_rates(bound: Bound, levels: Levels) -> int:
    """Return of how many rates a bound is made."""
    sizes = [len(each.names) + bound.overall for each in bound.compare(levels)]
    return sum(sizes) * len(bound.rates)


def find_worst(bound: Bound, counts: np.ndarray, levels: Levels, reach: float) -> float:
    """Return what a bound's measure is at worst within the intervals of its rates."""
    found = []
    for compared in bound.compare(levels):
        masks = compared.masks[compared.masks.any(axis=1)].astype(np.float64)
        own, whole = masks @ counts, compared.within.astype(np.float64) @ counts
        for rate in bound.rates:
            numerator, denominator = RATES[rate]
            if bound.form == "share":
                shares = own @ SELECTED, np.array([whole @ SELECTED])
            else:
                shares = own @ numerator, own @ denominator
            low, high = _bound_shares(*shares, reach)
            every = _bound_shares(
                np.array([whole @ numerator]), np.array([whole @ denominator]), reach
            )
            found.append(_combine(bound, (low, high), every, float(own[:, 2:].sum())))
    # Nothing is known of what has no rows.
    return math.nan if np.isnan(found).any() else max(found, key=bound.exceeds)


def _bound_shares(hits: np.ndarray, trials: np.ndarray, reach: float) -> Shares:
    """Return the ends of intervals of hits/trials: 0 and 1 without trials."""
    value = divide(hits, trials)
    low, high = clopper_pearson(value, trials, reach)
    return np.where(trials > 0, low, 0.0), np.where(trials > 0, high, 1.0)


def _combine(bound: Bound, ends: Shares, every: Shares, n_rows: float) -> float:
    low, high = ends
    upper = bound.sign == "<="
    if bound.form not in ("difference", "ratio"):
        value = float(high.max() if upper else low.min())
        return value * n_rows if bound.form == "selected" else value
    others = every if bound.overall else ends
    if not bound.overall and len(low) < 2:
        return math.nan
    pairs = ~np.eye(len(low), dtype=bool) if not bound.overall else np.ones((len(low), 1), bool)
    if bound.form == "difference":
        apart = np.maximum(high[:, None] - others[0], others[1] - low[:, None])
        return float(apart[pairs].max())
    first = np.divide(low[:, None], others[1], out=np.zeros(pairs.shape), where=others[1] > 0)
    second = divide(others[0], high[:, None])
    return float(np.fmin(first, np.nan_to_num(second))[pairs].min())
