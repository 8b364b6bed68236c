"""The fairest setting at every level of accuracy: one for each bin of an accuracy axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairfrontier.evaluate.measure.registry import MEASURES
from fairfrontier.runtime.errors import DataError
from fairfrontier.study.config import FrontierConfig, split_name
from fairfrontier.study.drawing import Scene
from fairfrontier.study.frontier import list_fits, orient, summarise

# Of BuDRO's Figures 2 and 3.
WIDTH = 0.0016
GAPS = ("lower", "zero")


@dataclass(frozen=True)
class Criterion:
    """What is best in a bin.

    Attributes
    ----------
    measures : tuple of str
        One measure, or several of which the mean counts.
    """

    measures: tuple[str, ...]

    def score(self, table: pd.DataFrame) -> np.ndarray:
        """Return the mean of the oriented measures; more is better, float64 (n_settings,)."""
        values = [orient(name, table["value", name].to_numpy()) for name in self.measures]
        return np.asarray(np.mean(values, axis=0))


def list_criteria(frontier: FrontierConfig) -> tuple[Criterion, ...]:
    """Return the criteria of a study: the average of its gaps, if several, and every measure.

    Gaps are the fairness measures of which less is better. BuDRO's four are the mean of the RMS
    gaps by race and by gender, both alone, and the consistency between spouses.
    """
    gaps = [
        name for name in frontier.fairness if MEASURES.find(split_name(name)[0]).direction in GAPS
    ]
    average = (Criterion(tuple(gaps)),) if len(gaps) > 1 else ()
    return (*average, *(Criterion((name,)) for name in frontier.fairness))


def tabulate_settings(
    points: pd.DataFrame, fits: pd.DataFrame, frontier: FrontierConfig, part: str = "test"
) -> pd.DataFrame:
    """Average what every setting comes to over its splits.

    Parameters
    ----------
    points : DataFrame
        Columns of points.parquet.
    fits : DataFrame
        Columns method, setting, seed: the fits to take.
    frontier : FrontierConfig
        Its measures are kept.
    part : str
        Of which rows.

    Returns
    -------
    DataFrame
        Index (method, setting). Columns (value | low | high, measure): means over the splits, one
        standard deviation of a split to either side, or of a single split its own 95% interval;
        and (n_seeds, ""). Settings without the accuracy are left out.
    """
    wanted = (frontier.accuracy, *frontier.fairness)
    long = summarise(points, fits, part)
    long = long.loc[long["name"].isin(wanted)]
    several = long["n_seeds"] > 1
    long = long.assign(
        low=(long["value"] - long["sd"]).where(several, long["own_low"]),
        high=(long["value"] + long["sd"]).where(several, long["own_high"]),
    )
    keys = ["method", "setting"]
    table = long.pivot_table(
        index=keys, columns="name", values=["value", "low", "high"], dropna=False
    )
    table["n_seeds", ""] = long.groupby(keys)["n_seeds"].max()
    missing = [name for name in wanted if ("value", name) not in table]
    for name in missing:
        for column in ("value", "low", "high"):
            table[column, name] = np.nan
    return table.loc[table["value", frontier.accuracy].notna()].sort_index(axis=1)


def tabulate_scene(scene: Scene) -> pd.DataFrame:
    """Return ``tabulate_settings`` of a study's frontier.

    Raises
    ------
    DataError
        When no setting was measured on test.
    """
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
    """Choose the best of every bin of accuracy.

    Bin b holds the settings with b = ⌊accuracy / width⌋, and of them the one of the largest score
    is chosen: argmax { score_i : ⌊accuracy_i / width⌋ = b }.

    Parameters
    ----------
    accuracy : array of shape (n_settings,)
        Where settings lie; finite.
    score : array of shape (n_settings,)
        More is better; a NaN is never chosen.
    width : float
        Of a bin; above 0.

    Returns
    -------
    ndarray of int64
        Positions of the chosen settings, by ascending accuracy; of those that tie the more
        accurate, then the first. Bins without a score have none.

    Notes
    -----
    O(n log n). Where accuracy and score are measured on the rows that are then shown, the result
    describes these rows: the best of many flatters itself, by more the fuller a bin is.

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
    """Return a method's lines of ``tabulate_settings`` that are best in their bins.

    Returns
    -------
    DataFrame
        The same columns, by ascending accuracy; empty for a method without results.
    """
    if method not in table.index.get_level_values("method"):
        return table.iloc[:0]
    own = table.loc[[method]]
    chosen = choose_in_bins(own["value", accuracy].to_numpy(), criterion.score(own))
    return own.iloc[chosen]
