"""The fairest setting at every level of accuracy: the best of each bin of the accuracy axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fairfrontier.figure.frontier import greater_is_better
from fairfrontier.runtime.errors import DataError
from fairfrontier.study.config import FrontierConfig
from fairfrontier.study.drawing import Scene
from fairfrontier.study.frontier import list_fits, orient, summarise

# Of BuDRO's Figures 2 and 3.
WIDTH = 0.0016
# Measures whose mean ranks the settings of a bin.
Criterion = tuple[str, ...]


def list_criteria(frontier: FrontierConfig) -> tuple[Criterion, ...]:
    """Return the criteria of a study: the mean of its gaps, if several, and every measure alone.

    Gaps are the fairness measures of which smaller values are better. BuDRO's four are the mean of
    the RMS gaps by race and by gender, each of them, and the consistency between spouses.
    """
    gaps = tuple(name for name in frontier.fairness if not greater_is_better(name))
    return (*((gaps,) if len(gaps) > 1 else ()), *((name,) for name in frontier.fairness))


def tabulate_settings(
    points: pd.DataFrame, fits: pd.DataFrame, frontier: FrontierConfig
) -> pd.DataFrame:
    """Return the frontier's measures of every setting on test, means over the splits of ``fits``.

    The index is (method, setting). Columns are (value | low | high, measure): the mean, and one
    standard deviation to either side, or a single split's own 95% interval; and (n_seeds, "").
    Settings without an accuracy are omitted.
    """
    wanted = (frontier.accuracy, *frontier.fairness)
    long = summarise(points, fits, "test")
    long = long.loc[long["name"].isin(wanted)]
    several = long["n_seeds"] > 1
    long = long.assign(
        low=(long["value"] - long["sd"]).where(several, long["own_low"]),
        high=(long["value"] + long["sd"]).where(several, long["own_high"]),
    )
    keys, columns = ["method", "setting"], ["value", "low", "high"]
    table = long.pivot_table(index=keys, columns="name", values=columns, dropna=False)
    table["n_seeds", ""] = long.groupby(keys)["n_seeds"].max()
    for name in wanted:
        for column in columns if ("value", name) not in table else ():
            table[column, name] = np.nan
    return table.loc[table["value", frontier.accuracy].notna()].sort_index(axis=1)


def tabulate_scene(scene: Scene) -> pd.DataFrame:
    """Return `tabulate_settings` of a study's frontier; raise DataError when it is empty."""
    study = scene.study
    table = tabulate_settings(scene.points, list_fits(scene.plan, "frontier"), study.frontier)
    if table.empty:
        raise DataError(
            f"The results of {study.study} hold no {study.frontier.accuracy} on test.",
            "Run the study first, on a dataset whose split has a test part.",
        )
    return table


def choose_in_bins(
    accuracy: Sequence[float] | np.ndarray,
    score: Sequence[float] | np.ndarray,
    width: float = WIDTH,
) -> np.ndarray:
    """Return the positions of the best settings of the bins, by ascending accuracy, int64.

    Bin b holds the settings with b = ⌊accuracy / width⌋, of which argmax { score_i } is chosen; of
    ties the more accurate, then the first. NaN scores are never chosen. O(n log n). Where accuracy
    and score are measured on the rows that are then shown, the result is optimistically biased, the
    more so the more settings a bin holds.

    References
    ----------
    A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
    Appendix C.4.1, Figures 2 and 3.
    """
    x, s = np.asarray(accuracy, dtype=np.float64), np.asarray(score, dtype=np.float64)
    usable = np.flatnonzero(~np.isnan(s))
    bins = np.floor(x[usable] / width)
    order = np.lexsort((usable, -x[usable], -s[usable], bins))
    first = np.unique(bins[order], return_index=True)[1]
    return np.asarray(usable[order[first]])


def choose_settings(
    table: pd.DataFrame, method: str, accuracy: str, criterion: Criterion
) -> pd.DataFrame:
    """Return a method's rows of `tabulate_settings` that are best in their bins, none without any.

    Rows are by ascending accuracy. Settings are ranked by the mean of the criterion's measures,
    oriented so that more is better.
    """
    if method not in table.index.get_level_values("method"):
        return table.iloc[:0]
    own = table.loc[[method]]
    values = [orient(name, own["value", name].to_numpy()) for name in criterion]
    score = np.mean(values, axis=0)
    return own.iloc[choose_in_bins(own["value", accuracy].to_numpy(), score)]
