"""The fairness-accuracy frontier: which settings are worth choosing between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from fairfrontier.evaluate.measure.registry import MEASURES
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.claim import Block
from fairfrontier.study.config import split_name
from fairfrontier.study.expand import Planned

COLUMNS = (
    "fairness",
    "method",
    "setting",
    "on_frontier",
    "on_joint_frontier",
    "selected_accuracy",
    "selected_fairness",
    "accuracy",
    "accuracy_sd",
    "accuracy_low",
    "accuracy_high",
    "fairness_value",
    "fairness_sd",
    "fairness_low",
    "fairness_high",
    "n_seeds",
)


def orient(name: str, values: np.ndarray) -> np.ndarray:
    """Turn values of a measure so that more is better.

    Parameters
    ----------
    name : str
        A measure, with or without ``:group``; its registered direction decides: ``lower`` is
        negated, for ``zero`` the distance from 0 is.
    values : ndarray of float64
        Any shape; NaN stays NaN.

    Returns
    -------
    ndarray of float64
        Same shape.

    Raises
    ------
    ConfigError
        When no value of the measure is better than another, or it is unknown.
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
        f"The measure {measure!r} describes; no value of it is better than another.",
        "Choose a measure with a direction: `fairfrontier list measures` shows them.",
    )


def find_pareto(scores: np.ndarray) -> np.ndarray:
    """Find the points that no other point dominates.

    Point p is dominated when some q has q_k >= p_k for every k and q_k > p_k for one k.

    Parameters
    ----------
    scores : ndarray of float64, shape (n_points, n_scores)
        More is better in every column.

    Returns
    -------
    ndarray of bool, shape (n_points,)
        True on the frontier. Equal points are all kept; a point with a NaN is never on the
        frontier and dominates nothing.

    Notes
    -----
    O(m log m) for two scores; O(m f k) for more, with f points on the frontier.
    """
    scores = np.asarray(scores, dtype=np.float64)
    kept = np.zeros(scores.shape[0], dtype=bool)
    usable = np.flatnonzero(~np.isnan(scores).any(axis=1))
    if usable.size:
        # Equal points stand or fall together.
        distinct, inverse = np.unique(scores[usable], axis=0, return_inverse=True)
        best = _scan_pairs(distinct) if scores.shape[1] == 2 else _scan(distinct)
        kept[usable] = best[inverse.ravel()]
    return kept


def _scan_pairs(distinct: np.ndarray) -> np.ndarray:
    """Keep, of lexicographically ascending pairs, those above every later second score."""
    second = distinct[:, 1]
    highest_later = np.append(np.maximum.accumulate(second[::-1])[::-1][1:], -np.inf)
    # The last pair has nothing above it, even at -inf.
    return np.asarray((second > highest_later) | (np.arange(second.size) == second.size - 1))


def _scan(distinct: np.ndarray) -> np.ndarray:
    """Keep, of lexicographically ascending rows, those that no later row dominates."""
    best = np.zeros(distinct.shape[0], dtype=bool)
    front = np.empty((0, distinct.shape[1]))
    for i in range(distinct.shape[0] - 1, -1, -1):
        # What dominates a row comes later, and is dominated only by what is on the front already.
        if not (front >= distinct[i]).all(axis=1).any():
            best[i] = True
            front = np.vstack([front, distinct[i]])
    return best


def list_fits(plan: Sequence[Planned], block: Block) -> pd.DataFrame:
    """Return the fits of a block as (method, setting, seed), as points.parquet names them."""
    rows = [
        (each.group.method, canonical_json(member.setting), member.seed)
        for each in plan
        if block in each.blocks
        for member in each.group.members
    ]
    return pd.DataFrame(rows, columns=["method", "setting", "seed"])


def summarise(points: pd.DataFrame, fits: pd.DataFrame, part: str) -> pd.DataFrame:
    """Average the measures of some fits over their seeds.

    Parameters
    ----------
    points : DataFrame
        Columns of points.parquet.
    fits : DataFrame
        The fits to take: columns method, setting, seed.
    part : str
        ``train``, ``calibration``, ``validation`` or ``test``.

    Returns
    -------
    DataFrame
        Columns method, setting, name (``measure`` or ``measure:group``), value (mean), sd, low,
        high, own_low, own_high (means over the seeds of each run's own interval), n (mean),
        n_seeds. sd has ddof 1, NaN for one seed.

    Notes
    -----
    With two seeds or more, low and high bound the mean's 95% interval, value ± t·sd/sqrt(seeds),
    kept within 0 to 1 where all values of that measure are; with one seed they are that run's
    own. Splits of one table overlap, so the interval speaks about this table, and is narrow for
    a new one. A mean with a NaN in it is NaN: a measure that could not be estimated on one split
    is not compared on the others.
    """
    kept = points.loc[points["part"] == part].merge(fits, on=["method", "setting", "seed"])
    kept = kept.sort_values(["method", "setting", "measure", "group", "seed"], kind="stable")
    group = kept["group"].astype(str)
    kept["name"] = kept["measure"].astype(str).where(group == "", kept["measure"] + ":" + group)
    grouped = kept.groupby(["method", "setting", "name"], sort=True)
    table = pd.DataFrame(
        {
            "value": grouped["value"].mean(skipna=False),
            "sd": grouped["value"].std(ddof=1),
            "low": grouped["low"].mean(skipna=False),
            "high": grouped["high"].mean(skipna=False),
            "own_low": grouped["low"].mean(skipna=False),
            "own_high": grouped["high"].mean(skipna=False),
            "n": grouped["n"].mean(),
            "n_seeds": grouped["seed"].size(),
        }
    ).reset_index()
    several = table["n_seeds"].to_numpy() > 1
    seeds = table["n_seeds"].to_numpy(dtype=np.float64)
    value = table["value"].to_numpy(dtype=np.float64)
    quantile = stdtrit(np.maximum(seeds - 1, 1), 0.975)
    half = quantile * table["sd"].to_numpy(dtype=np.float64) / np.sqrt(seeds)
    low, high = value - half, value + half
    shares = kept.groupby("name")["value"].agg(lambda v: bool(v.between(0, 1).all()))
    share = shares.reindex(table["name"]).to_numpy(dtype=bool)
    low, high = np.where(share, low.clip(0, 1), low), np.where(share, high.clip(0, 1), high)
    table["low"] = np.where(several, low, table["low"])
    table["high"] = np.where(several, high, table["high"])
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

    A setting is chosen by its means over the seeds on ``select_on``; what is reported is
    ``report_on``, which the choice has not seen.

    Parameters
    ----------
    points : DataFrame
        Columns of points.parquet.
    fits : DataFrame
        The fits that compete: columns method, setting, seed.
    accuracy : str
        A measure; its direction says which values are better, as of those of fairness.
    fairness : sequence of str
        Measures as ``measure:group``.
    select_on, report_on : str
        Parts.

    Returns
    -------
    DataFrame
        One row per fairness measure × method × setting, dominated ones included:

        - ``fairness``, ``method``, ``setting`` (canonical JSON) name the row;
        - ``on_frontier``: no other setting is as good in accuracy and in this measure, and better
          in one, on ``select_on``; ``on_joint_frontier``: the same over accuracy and all the
          fairness measures together;
        - ``selected_accuracy``, ``selected_fairness``: the means that decided, on ``select_on``;
        - ``accuracy``, ``fairness_value``: means on ``report_on``, with ``_sd`` over the seeds and
          95% ``_low`` and ``_high`` (see ``summarise``); ``n_seeds`` says how many seeds.

        Sorted by measure in the order asked, frontier first, then from the best accuracy on.

    Raises
    ------
    DataError
        When ``points`` lacks the part or a measure.
    """
    chosen_by = summarise(points, fits, select_on)
    reported = summarise(points, fits, report_on)
    for part, table in ((select_on, chosen_by), (report_on, reported)):
        missing = [each for each in (accuracy, *fairness) if each not in set(table["name"])]
        if missing:
            raise DataError(
                f"The results hold no {missing[0]} on the part {part}.",
                "Measure a group or counterfactual set that the dataset declares, on a part that "
                "its split has.",
            )
    keys = ["method", "setting"]
    selected = pd.concat(
        {
            name: chosen_by.loc[chosen_by["name"] == name].set_index(keys)["value"]
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
        for prefix, measure in (("accuracy", accuracy), ("fairness", name)):
            found = reported.loc[reported["name"] == measure].set_index(keys)
            value = prefix if prefix == "accuracy" else "fairness_value"
            table[value] = found["value"]
            for column in ("sd", "low", "high"):
                table[f"{prefix}_{column}"] = found[column]
            if prefix == "accuracy":
                table["n_seeds"] = found["n_seeds"]
        table["n_seeds"] = table["n_seeds"].fillna(0).astype("int64")
        table["better"] = oriented[:, 0]
        table = table.reset_index().sort_values(
            ["on_frontier", "better", "method", "setting"],
            ascending=[False, False, True, True],
            kind="stable",
        )
        tables.append(table[list(COLUMNS)])
    return pd.concat(tables, ignore_index=True)


def name_columns(frontier: pd.DataFrame, accuracy: str) -> pd.DataFrame:
    """Return a frontier whose columns of accuracy have the name of the measure that they hold.

    Parameters
    ----------
    frontier : DataFrame
        From `build_frontier`.
    accuracy : str
        The measure: of ``balanced_accuracy``, the columns are ``balanced_accuracy``, with ``_sd``,
        ``_low`` and ``_high``, and ``selected_balanced_accuracy``.
    """
    names = ("accuracy", "accuracy_sd", "accuracy_low", "accuracy_high", "selected_accuracy")
    return frontier.rename(columns={name: name.replace("accuracy", accuracy) for name in names})
