"""What a study comes to: its points in their one order, and its frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from fairfrontier.runtime.errors import DataError
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.expand import Planned
from fairfrontier.study.frontier import build_frontier, list_fits

KEYS = ("dataset", "method", "setting", "seed", "part", "measure", "group")
SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("method", pa.string()),
        ("setting", pa.string()),
        ("seed", pa.int64()),
        ("part", pa.string()),
        ("measure", pa.string()),
        ("group", pa.string()),
        ("value", pa.float64()),
        ("n", pa.int64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)


@dataclass(frozen=True, eq=False)
class StudyResults:
    """A study that was run.

    Attributes
    ----------
    study : StudyConfig
        What was asked.
    plan : sequence of Planned
        What was trained.
    points : DataFrame
        Columns of ``SCHEMA``, sorted by ``KEYS``.
    frontier : DataFrame
        From `build_frontier`.
    skipped : mapping of str to str
        Row label -> why its method could not be trained on this dataset.
    """

    study: StudyConfig
    plan: Sequence[Planned]
    points: pd.DataFrame
    frontier: pd.DataFrame
    skipped: Mapping[str, str]


def build_results(
    study: StudyConfig, plan: Sequence[Planned], points: pd.DataFrame, skipped: Mapping[str, str]
) -> StudyResults:
    """Sort the points of a study and find its frontier.

    Parameters
    ----------
    study : StudyConfig
        What was asked.
    plan : sequence of Planned
        What was trained.
    points : DataFrame
        One row per dataset × method × setting × seed × part × measure × group, in any order.
    skipped : mapping of str to str
        Row label -> why it could not be run.

    Returns
    -------
    StudyResults

    Raises
    ------
    DataError
        When two points share their key, or a measure of the frontier is missing.
    """
    points = sort_points(points)
    frontier = build_frontier(
        points,
        list_fits(plan, "frontier"),
        study.frontier.accuracy,
        study.frontier.fairness,
        study.select_on,
    )
    return StudyResults(study, plan, points, frontier, skipped)


def sort_points(points: pd.DataFrame) -> pd.DataFrame:
    """Return points in their one order: the columns of points.parquet, sorted by all keys.

    Raises
    ------
    DataError
        When a column is missing, or two rows share their key.
    """
    missing = [name for name in SCHEMA.names if name not in points.columns]
    if missing:
        raise DataError(
            f"The points lack the column {missing[0]}.", f"Give {', '.join(SCHEMA.names)}."
        )
    ordered: pd.DataFrame = points[SCHEMA.names].sort_values(
        list(KEYS), kind="stable", ignore_index=True
    )
    double = ordered.duplicated(list(KEYS))
    if double.any():
        first = ordered.loc[double, list(KEYS)].iloc[0].tolist()
        raise DataError(
            f"Two points stand for {' '.join(str(each) for each in first)}.",
            "Give the rows of the study different labels.",
        )
    return ordered
