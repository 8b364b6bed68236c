"""The fairness-accuracy frontier: the settings worth choosing between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from fairfrontier.metrics.measure.registry import MEASURES
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.config import Block, split_name
from fairfrontier.study.expand import Planned

CHOICE = ("on_frontier", "on_joint_frontier", "selected_accuracy", "selected_fairness")
ACCURACY = ("accuracy", "accuracy_sd", "accuracy_low", "accuracy_high")
FAIRNESS = ("fairness_value", "fairness_sd", "fairness_low", "fairness_high")
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
        best = _scan_pairs(distinct) if scores.shape[1] == 2 else _scan(distinct)
        kept[usable] = best[inverse.ravel()]
    return kept


def _scan_pairs(distinct: np.ndarray) -> np.ndarray:
    """Mask the pairs, in lexicographic order, whose second score is above all later ones."""
    second = distinct[:, 1]
    highest_later = np.append(np.maximum.accumulate(second[::-1])[::-1][1:], -np.inf)
    # The last pair has nothing above it, even at -inf.
    return np.asarray((second > highest_later) | (np.arange(second.size) == second.size - 1))


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
