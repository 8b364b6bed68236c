"""Measures of two settings of which one, drawn for every row, decides; from the rates of both.

A rate of such a mixture is exactly the mean of the two rates, in expectation over the draws. A
difference between groups is not that of the two differences: it is computed from the mixed rates.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from fairfrontier.metrics.statistic.rate import AGGREGATIONS, NAMES, RATES, aggregate_rates
from fairfrontier.study.config import split_name
from fairfrontier.study.frontier import find_pareto, name_measures, orient

KEYS = ["method", "setting"]
# Linear in the decision rule; the gap of two levels keeps its sign.
LINEAR = frozenset({*NAMES, *(f"{name}_gap" for name in NAMES), "balanced_accuracy", "error_cost"})
# Name of an aggregate over levels -> its aggregation and the position of its rate, if it is of one.
AGGREGATES: dict[str, tuple[str, int | None]] = {
    **{
        f"{rate.name}_{each.name}": (each.name, position)
        for position, rate in enumerate(RATES)
        for each in AGGREGATIONS
    },
    "gap_max": ("gap_max", None),
    "gap_rms": ("gap_rms", None),
}
# Points that are drawn between two settings.
STEPS = 17


def is_linear(name: str) -> bool:
    """Return whether a measure of a mixture is the mean of those of its two settings."""
    return split_name(name)[0] in LINEAR


def is_mixable(name: str) -> bool:
    """Return whether a measure of a mixture follows from the rates of its two settings."""
    return is_linear(name) or split_name(name)[0] in AGGREGATES


def find_rates(values: pd.DataFrame, attribute: str) -> np.ndarray:
    """Return the rates of an attribute's levels, float64, shape (n_settings, n_levels, n_rates).

    ``values`` has a row for every setting and a column for every ``measure:group``. Levels come in
    the order of their names, and what is not estimable is NaN.
    """
    start = f"accuracy:{attribute}="
    levels = sorted(name[len("accuracy:") :] for name in values.columns if name.startswith(start))
    columns = [f"{rate}:{level}" for level in levels for rate in NAMES]
    table = values.reindex(columns=columns).to_numpy(dtype=np.float64)
    return table.reshape(len(values), len(levels), len(NAMES))


def mix_measure(
    name: str, first: pd.DataFrame, second: pd.DataFrame, share: np.ndarray
) -> np.ndarray:
    """Return a measure when ``second`` decides with probability ``share``, else ``first``.

    ``first`` and ``second`` are aligned tables as for `find_rates`, with one row for every split;
    ``share`` has shape (n_shares,), the result (n_splits, n_shares).
    """
    measure, group = split_name(name)
    share = np.asarray(share, dtype=np.float64)
    if measure in LINEAR:
        start, end = (table[name].to_numpy(dtype=np.float64)[:, None] for table in (first, second))
        return np.asarray((1.0 - share) * start + share * end)
    aggregation, position = AGGREGATES[measure]
    start, end = (find_rates(table, group)[:, None] for table in (first, second))
    share = share[:, None, None]
    mixed = aggregate_rates((1.0 - share) * start + share * end)[aggregation]
    return mixed if position is None else np.asarray(mixed[..., position])


def pivot_measures(named: pd.DataFrame, index: list[str], column: str = "value") -> pd.DataFrame:
    """Return a column of named measures as a table: a row for each ``index``, a column for each."""
    return named.set_index([*index, "name"])[column].unstack()  # noqa: PD010


def trace_mixtures(
    points: pd.DataFrame, fits: pd.DataFrame, frontier: pd.DataFrame, accuracy: str
) -> pd.DataFrame:
    """Return what mixtures of neighbouring corners of a frontier's hull attain on the test part.

    Corners are those of `find_envelope` on the values that the frontier was chosen by. Columns
    fairness, piece (the number of the pair), accuracy and fairness_value: means over the splits,
    exact in expectation over the draws. Empty where a measure is not made of rates.
    """
    kept = points.loc[points["part"] == "test"].merge(fits, on=[*KEYS, "seed"])
    values = pivot_measures(kept.assign(name=name_measures(kept)), [*KEYS, "seed"])
    share = np.linspace(0.0, 1.0, STEPS)
    tables = []
    binary = "tpr" in values.columns
    for name, table in frontier.groupby("fairness", sort=False):
        if not (binary and is_linear(accuracy) and is_mixable(str(name))):
            continue
        cost, harm = (
            -orient(measure, table[f"selected_{column}"].to_numpy())
            for measure, column in ((accuracy, "accuracy"), (str(name), "fairness"))
        )
        corners = [
            values.loc[tuple(key)] for key in table[KEYS].to_numpy()[find_envelope(cost, harm)]
        ]
        for piece, (first, second) in enumerate(pairwise(corners)):
            seeds = first.index.intersection(second.index)
            ends = (first.loc[seeds], second.loc[seeds])
            attained = pd.DataFrame(
                {
                    column: mix_measure(measure, *ends, share).mean(axis=0)
                    for column, measure in (("accuracy", accuracy), ("fairness_value", str(name)))
                }
            )
            tables.append(attained.assign(fairness=name, piece=piece))
    columns = ["fairness", "piece", "accuracy", "fairness_value"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def find_envelope(cost: np.ndarray, harm: np.ndarray) -> np.ndarray:
    """Return the corners of the lower convex envelope of a Pareto front.

    Choosing between two predictors at random attains every point between theirs, so a point above
    such a segment is never worth choosing. ``cost`` and ``harm``, float64 of shape (n_points,), are
    better lower; points with a NaN are left out. The corners are int64 positions by ascending harm
    and so descending cost, the first of equal points; points on a segment are not corners.
    O(n log n): A. M. Andrew, Another efficient algorithm for convex hulls in two dimensions, 1979.
    """
    cost, harm = np.asarray(cost, dtype=np.float64), np.asarray(harm, dtype=np.float64)
    front = np.flatnonzero(find_pareto(-np.column_stack([cost, harm])))
    front = front[np.lexsort((front, harm[front]))]
    corners: list[int] = []
    for point in front.tolist():
        if corners and (cost[point], harm[point]) == (cost[corners[-1]], harm[corners[-1]]):
            continue
        while len(corners) > 1 and not _turns(cost, harm, corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    return np.array(corners, dtype=np.int64)


def _turns(cost: np.ndarray, harm: np.ndarray, first: int, middle: int, last: int) -> bool:
    """Return whether the middle point lies below the segment between the other two."""
    along = (harm[middle] - harm[first]) * (cost[last] - cost[first])
    return bool((cost[middle] - cost[first]) * (harm[last] - harm[first]) < along)
