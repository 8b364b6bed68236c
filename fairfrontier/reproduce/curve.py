"""A row's curve through cost and harm, and what it costs where it does a given harm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairfrontier.study.envelope import find_envelope
from fairfrontier.study.frontier import orient, summarise


@dataclass(frozen=True, eq=False)
class Curve:
    """The settings of a row that are worth drawing between, from the most harmful on.

    Attributes
    ----------
    settings : tuple of str
        Canonical JSON of the corners of the lower convex envelope on the part that chooses.
    cost, harm : ndarray of float64, shape (n_settings,)
        Means over the seeds on the part that reports; less is better.
    """

    settings: tuple[str, ...]
    cost: np.ndarray
    harm: np.ndarray

    def find_cost(self, harm: float) -> float:
        """Return the cost of the curve where it first does no more than ``harm``.

        The curve is walked from its most harmful setting, by ascending harm on the part that
        chose: its first setting if that does no more harm, else the first point of a segment that
        does. Drawing between two predictors costs the mean of theirs, and does at most the mean
        of their harms where harm is convex, as disparities are.

        Returns
        -------
        float
            Infinite where the curve does more harm everywhere, or has no setting.
        """
        for place, reached in enumerate(self.harm):
            if reached <= harm:
                if place == 0:
                    return float(self.cost[0])
                before, cost = self.harm[place - 1], self.cost[place - 1]
                share = (before - harm) / (before - reached)
                return float(cost + share * (self.cost[place] - cost))
        return float("inf")


def trace_curves(
    points: pd.DataFrame,
    fits: pd.DataFrame,
    cost: str,
    harm: str,
    select_on: str,
    report_on: str = "test",
) -> dict[str, Curve]:
    """Trace the curve of every row.

    Parameters
    ----------
    points : DataFrame
        Columns of points.parquet.
    fits : DataFrame
        The fits to take: columns method, setting, seed.
    cost, harm : str
        Measures, ``measure`` or ``measure:group``; of those that are better higher the negative
        is taken.
    select_on, report_on : str
        Parts. What is reported chooses nothing.

    Returns
    -------
    dict of str to Curve
        By row label; a row of one setting has that setting. Settings without both measures on
        both parts are left out.
    """
    tables = {}
    for part in (select_on, report_on):
        table = summarise(points, fits, part)
        wanted = table.loc[table["name"].isin((cost, harm))]
        values = wanted.set_index(["method", "setting", "name"])["value"].unstack()  # noqa: PD010
        tables[part] = values.reindex(columns=[cost, harm]).apply(
            lambda column: -orient(str(column.name), column.to_numpy())
        )
    chosen = tables[select_on].dropna()
    reported = tables[report_on].dropna()
    chosen = chosen.loc[chosen.index.isin(reported.index)]
    curves = {}
    for label in dict.fromkeys(chosen.index.get_level_values("method")):
        own = chosen.loc[label]
        corners = find_envelope(own[cost].to_numpy(), own[harm].to_numpy())[::-1]
        settings = tuple(str(each) for each in own.index[corners])
        found = reported.loc[label].loc[list(settings)]
        curves[str(label)] = Curve(settings, found[cost].to_numpy(), found[harm].to_numpy())
    return curves
