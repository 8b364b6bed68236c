"""The fairness-accuracy frontier: the settings worth choosing between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.special import stdtrit

from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.metrics.statistic.rate import AGGREGATIONS, NAMES, RATES, aggregate_rates
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.store import canonical_json

if TYPE_CHECKING:
    from fairfrontier.study.config import Block, StudyConfig
    from fairfrontier.study.resolve import Planned

CHOICE = ("on_frontier", "on_joint_frontier", "selected_accuracy", "selected_fairness")
ACCURACY = ("accuracy", "accuracy_sd", "accuracy_low", "accuracy_high")
FAIRNESS = ("fairness_value", "fairness_sd", "fairness_low", "fairness_high")
# Differences within rounding of 0 are none.
TOLERANCE = 1e-12
COLUMNS = ("fairness", "method", "setting", *CHOICE, *ACCURACY, *FAIRNESS, "left_out", "n_seeds")


def orient(name: str, values: np.ndarray) -> np.ndarray:
    """Return the values of a measure, float64, oriented so that more is better.

    The registered direction of the measure, named with or without ``:group``, decides: ``lower`` is
    negated, and ``zero`` becomes minus the distance from 0. NaN stays NaN. A ConfigError refuses a
    measure that is unknown or has no direction.
    """
    measure, _ = split_name(name)
    values = np.asarray(values, dtype=np.float64)
    match MEASURES.find(measure).direction:
        case "higher":
            return values
        case "lower":
            return np.asarray(-values)
        case "zero":
            return np.asarray(-np.abs(values))
    raise ConfigError(
        f"The measure {measure!r} is descriptive: no value of it is better than another.",
        "Choose a measure with a direction: `fairfrontier list measures` shows them.",
    )


def find_pareto(scores: np.ndarray) -> np.ndarray:
    """Return a mask of the points that no other point dominates.

    Point p is dominated when some q has q_k >= p_k for every k and q_k > p_k for one k. ``scores``
    are float64 of shape (n_points, n_scores), better higher. Equal points are all kept; a point
    with a NaN is never on the frontier and dominates nothing. O(n log n) for two scores, O(n f k)
    for k scores with f points on the frontier.
    """
    scores = np.asarray(scores, dtype=np.float64)
    kept = np.zeros(scores.shape[0], dtype=bool)
    usable = np.flatnonzero(~np.isnan(scores).any(axis=1))
    if usable.size:
        # Equal points are all dominated, or none is.
        distinct, inverse = np.unique(scores[usable], axis=0, return_inverse=True)
        kept[usable] = _scan(distinct)[inverse.ravel()]
    return kept


def _scan(distinct: np.ndarray) -> np.ndarray:
    """Mask the rows, in lexicographic order, that no later row dominates."""
    best = np.zeros(distinct.shape[0], dtype=bool)
    front = np.empty((0, distinct.shape[1]))
    for i in range(distinct.shape[0] - 1, -1, -1):
        # A dominating row comes later, and is itself dominated only by rows already on the front.
        if not (front >= distinct[i]).all(axis=1).any():
            best[i] = True
            front = np.vstack([front, distinct[i]])
    return best


def list_fits(plan: Sequence[Planned], block: Block) -> pd.DataFrame:
    """Return the fits of a block as (method, setting, seed), as points.parquet names them."""
    rows = [
        (planned.group.method, canonical_json(member.setting), member.seed)
        for planned in plan
        if block in planned.blocks
        for member in planned.group.members
    ]
    return pd.DataFrame(rows, columns=["method", "setting", "seed"])


def name_measures(points: pd.DataFrame) -> pd.Series:
    """Return the name of every point's measure: ``measure``, or ``measure:group``."""
    group = points["group"].astype(str)
    return points["measure"].astype(str).where(group == "", points["measure"] + ":" + group)


def summarise(points: pd.DataFrame, fits: pd.DataFrame, part: str) -> pd.DataFrame:
    """Average the measures of fits (columns method, setting, seed) on a part over their seeds.

    Returns
    -------
    DataFrame
        Columns method, setting, name (``measure`` or ``measure:group``), value (mean), sd, low,
        high, own_low, own_high (means over the seeds of each run's own interval), n (mean),
        n_seeds, left_out (levels of too few rows, in the seed of most). sd has ddof 1, NaN for one
        seed. With two seeds or more, low and high bound the mean's 95% interval, value ±
        t·sd/sqrt(seeds), clipped to [0, 1] where all values of that measure are;
        with one seed they are that run's own. A mean over a NaN is NaN.

    Notes
    -----
    Splits of one table overlap, so the interval describes this table, and is too narrow for a new
    one.
    """
    kept = points.loc[points["part"] == part].merge(fits, on=["method", "setting", "seed"])
    kept = kept.sort_values(["method", "setting", "measure", "group", "seed"], kind="stable")
    kept["name"] = name_measures(kept)
    # Points of version 0.2.0 do not say.
    kept["left_out"] = kept.get("left_out", 0)
    grouped = kept.groupby(["method", "setting", "name"], sort=True)
    own = {side: grouped[side].mean(skipna=False) for side in ("low", "high")}
    table = pd.DataFrame(
        {
            "value": grouped["value"].mean(skipna=False),
            "sd": grouped["value"].std(ddof=1),
            **own,
            "own_low": own["low"],
            "own_high": own["high"],
            "n": grouped["n"].mean(),
            "n_seeds": grouped["seed"].size(),
            "left_out": grouped["left_out"].max(),
        }
    ).reset_index()
    seeds = table["n_seeds"].to_numpy(dtype=np.float64)
    value = table["value"].to_numpy(dtype=np.float64)
    quantile = stdtrit(np.maximum(seeds - 1, 1), 0.975)
    half = quantile * table["sd"].to_numpy(dtype=np.float64) / np.sqrt(seeds)
    shares = kept["value"].between(0, 1).groupby(kept["name"]).all()
    share = shares.reindex(table["name"]).to_numpy(dtype=bool)
    for side, bound in (("low", value - half), ("high", value + half)):
        clipped = np.where(share, bound.clip(0, 1), bound)
        table[side] = np.where(seeds > 1, clipped, table[side])
    table.loc[table["value"].isna(), "sd"] = np.nan
    return table


def build_frontier(
    points: pd.DataFrame,
    fits: pd.DataFrame,
    accuracy: str,
    fairness: Sequence[str],
    select_on: str,
    report_on: str = "test",
) -> pd.DataFrame:
    """Find the Pareto set of accuracy against each fairness measure, and against all of them.

    Settings compete by their means over the seeds on the part ``select_on``; ``report_on`` has no
    influence on the choice. A DataError names a measure that ``points`` lack on either part.

    Returns
    -------
    DataFrame
        One row per fairness measure × method × setting, dominated ones included:

        - ``fairness``, ``method``, ``setting`` (canonical JSON) identify the row;
        - ``on_frontier``: no other setting is as good in accuracy and in this measure, and better
          in one, on ``select_on``; ``on_joint_frontier``: the same over accuracy and all the
          fairness measures together;
        - ``selected_accuracy``, ``selected_fairness``: means on ``select_on``;
        - ``accuracy``, ``fairness_value``: means on ``report_on``, with ``_sd`` over the seeds and
          95% ``_low`` and ``_high`` (see `summarise`); ``n_seeds`` counts the seeds.

        Sorted by measure in the order of ``fairness``, frontier first, then by descending accuracy.
    """
    chosen = summarise(points, fits, select_on)
    reported = summarise(points, fits, report_on)
    for part, table in ((select_on, chosen), (report_on, reported)):
        missing = [name for name in (accuracy, *fairness) if name not in set(table["name"])]
        if missing:
            raise DataError(
                f"The results have no {missing[0]} on the part {part}.",
                "Choose a group or counterfactual set that the dataset declares, and a part of its "
                "split.",
            )
    keys = ["method", "setting"]
    selected = pd.concat(
        {
            name: chosen.loc[chosen["name"] == name].set_index(keys)["value"]
            for name in (accuracy, *fairness)
        },
        axis=1,
    ).sort_index()
    oriented = np.column_stack(
        [orient(name, selected[name].to_numpy()) for name in (accuracy, *fairness)]
    )
    joint = find_pareto(oriented)
    tables = []
    for position, name in enumerate(fairness, start=1):
        table = pd.DataFrame(
            {
                "fairness": name,
                "on_frontier": find_pareto(oriented[:, [0, position]]),
                "on_joint_frontier": joint,
                "selected_accuracy": selected[accuracy].to_numpy(),
                "selected_fairness": selected[name].to_numpy(),
            },
            index=selected.index,
        )
        for columns, measure in ((FAIRNESS, name), (ACCURACY, accuracy)):
            rows = reported.loc[reported["name"] == measure].set_index(keys)
            for column, statistic in zip(columns, ("value", "sd", "low", "high"), strict=True):
                table[column] = rows[statistic]
            table["n_seeds"] = rows["n_seeds"]
            if measure == name:
                table["left_out"] = rows["left_out"]
        counts = ["left_out", "n_seeds"]
        table[counts] = table[counts].fillna(0).astype("int64")
        table["better"] = oriented[:, 0]
        table = table.reset_index().sort_values(
            ["on_frontier", "better", "method", "setting"],
            ascending=[False, False, True, True],
            kind="stable",
        )
        tables.append(table[list(COLUMNS)])
    return pd.concat(tables, ignore_index=True)


def name_columns(frontier: pd.DataFrame, accuracy: str) -> pd.DataFrame:
    """Return a frontier whose accuracy columns are named after the measure that they hold.

    For ``balanced_accuracy``, ``selected_accuracy`` becomes ``selected_balanced_accuracy``.
    """
    names = (*ACCURACY, "selected_accuracy")
    return frontier.rename(columns={name: name.replace("accuracy", accuracy) for name in names})


# The results of a study: its points in a canonical order, and its frontier.

# Why the study shows nothing of a row that was searched.
UNTRIED = "the search ended before its turn: give it more trials or minutes"
NO_TRIAL = "none of its trials succeeded, {count} failed, most often so: {reason}"
NO_MODEL = "no trial of the model behind it succeeded"
NO_MEMBERS = "no row had two settings that can be its members"
POINT_KEYS = ("dataset", "method", "setting", "seed", "part", "measure", "group")
_NUMBERS = dict.fromkeys(("seed", "n", "left_out"), pa.int64()) | dict.fromkeys(
    ("value", "low", "high"), pa.float64()
)
SCHEMA = pa.schema(
    [
        (name, _NUMBERS.get(name, pa.string()))
        for name in (*POINT_KEYS, "value", "n", "low", "high", "left_out")
    ]
)


@dataclass(frozen=True)
class Searched:
    """Counts of a search: trials, fits, and those that the store did not hold.

    ``failed`` has the label and reason of each trial that failed; ``absent`` maps the labels of
    rows of which nothing is shown to the reasons.
    """

    trials: int
    fits: int
    trained: int
    failed: tuple[tuple[str, str], ...]
    absent: Mapping[str, str]

    def list_failed(self) -> list[dict[str, Any]]:
        """Return ``row``, ``reason`` and how many ``trials`` failed for it, as plain rows."""
        return [
            {"row": row, "reason": reason, "trials": count}
            for (row, reason), count in Counter(self.failed).items()
        ]


@dataclass(frozen=True, eq=False)
class StudyResults:
    """The results of a study that was run.

    ``points`` has the columns of ``SCHEMA``, sorted by ``POINT_KEYS``; ``frontier`` is from
    `build_frontier`; ``skipped`` maps a row's label to why its method could not be trained;
    ``budgets`` maps (method, setting) to ``budget`` and ``budget_share`` of methods that report
    them, means over the seeds; ``searched`` is what a search came to, if there was one.
    """

    study: StudyConfig
    plan: Sequence[Planned]
    points: pd.DataFrame
    frontier: pd.DataFrame
    skipped: Mapping[str, str]
    budgets: Mapping[tuple[str, str], Mapping[str, float]]
    searched: Searched | None = None


def build_results(
    study: StudyConfig,
    plan: Sequence[Planned],
    points: pd.DataFrame,
    skipped: Mapping[str, str],
    budgets: Mapping[tuple[str, str], Mapping[str, float]] = MappingProxyType({}),
    searched: Searched | None = None,
) -> StudyResults:
    """Sort the points of a study and find its frontier; see `sort_points` and `build_frontier`."""
    points = sort_points(points)
    fits, traded = list_fits(plan, "frontier"), study.frontier
    frontier = build_frontier(points, fits, traded.accuracy, traded.fairness, study.select_on)
    return StudyResults(study, plan, points, frontier, skipped, budgets, searched)


def sort_points(points: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of points.parquet, sorted by all keys.

    A DataError names a missing column, or a key that two rows share.
    """
    points = points.assign(left_out=points.get("left_out", 0))
    missing = [name for name in SCHEMA.names if name not in points.columns]
    if missing:
        raise DataError(
            f"The points lack the column {missing[0]}.", f"Give {', '.join(SCHEMA.names)}."
        )
    ordered: pd.DataFrame = points[SCHEMA.names].sort_values(
        list(POINT_KEYS), kind="stable", ignore_index=True
    )
    repeated = ordered.duplicated(list(POINT_KEYS))
    if repeated.any():
        first = ordered.loc[repeated, list(POINT_KEYS)].iloc[0].tolist()
        raise DataError(
            f"There are two points for {' '.join(map(str, first))}.",
            "Give the rows of the study different labels.",
        )
    return ordered


# Measures of two settings of which one, drawn for every row, decides; from the rates of both.

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
