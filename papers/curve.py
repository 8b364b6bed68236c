"""A row's curve through cost and harm, and its cost at a given harm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairfrontier.study.frontier import find_pareto, orient, summarise


@dataclass(frozen=True, eq=False)
class Curve:
    """The corners of a row's lower convex envelope, by descending harm on the part that chooses.

    ``settings`` are canonical JSON; ``cost`` and ``harm``, float64 of shape (n_settings,), are
    means over the seeds on the part that reports, better lower.
    """

    settings: tuple[str, ...]
    cost: np.ndarray
    harm: np.ndarray

    def find_cost(self, harm: float) -> float:
        """Return the cost at the first point of the curve that does no more than ``harm``.

        The curve is followed from its most harmful setting, by descending harm on the part that
        chose: its first setting if that does no more harm, else the first point of a segment that
        does. Choosing between two predictors at random costs the mean of theirs, and does at most
        the mean of their harms where harm is convex, as disparities are. The cost is infinite where
        the whole curve does more harm.
        """
        for i, reached in enumerate(self.harm):
            if reached <= harm:
                if i == 0:
                    return float(self.cost[0])
                before, cost = self.harm[i - 1], self.cost[i - 1]
                share = (before - harm) / (before - reached)
                return float(cost + share * (self.cost[i] - cost))
        return float("inf")


def trace_curves(
    points: pd.DataFrame,
    fits: pd.DataFrame,
    cost: str,
    harm: str,
    select_on: str,
    report_on: str = "test",
) -> dict[str, Curve]:
    """Return the curve of every row of ``fits`` (columns method, setting, seed), by its label.

    ``cost`` and ``harm`` are measures, negated where higher is better. The part ``select_on``
    chooses the settings, ``report_on`` takes no part. Settings without both measures on both parts
    are left out.
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
        settings = tuple(map(str, own.index[corners]))
        corner_rows = reported.loc[label].loc[list(settings)]
        curves[str(label)] = Curve(
            settings, corner_rows[cost].to_numpy(), corner_rows[harm].to_numpy()
        )
    return curves


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
        while len(corners) > 1:
            first, middle = corners[-2:]
            along = (harm[middle] - harm[first]) * (cost[point] - cost[first])
            # Below the segment between the other two, it stays.
            if (cost[middle] - cost[first]) * (harm[point] - harm[first]) < along:
                break
            corners.pop()
        corners.append(point)
    return np.array(corners, dtype=np.int64)
