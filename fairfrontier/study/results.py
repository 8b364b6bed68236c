"""The results of a study: its points in a canonical order, and its frontier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd
import pyarrow as pa

from fairfrontier.runtime.errors import DataError
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.expand import Planned
from fairfrontier.study.frontier import build_frontier, list_fits

# Why the study shows nothing of a row that was searched.
UNTRIED = "the search ended before its turn: give it more trials or minutes"
NO_TRIAL = "none of its trials succeeded, {count} failed, most often so: {reason}"
NO_MODEL = "no trial of the model behind it succeeded"
NO_MEMBERS = "no row had two settings that can be its members"
KEYS = ("dataset", "method", "setting", "seed", "part", "measure", "group")
_NUMBERS = dict.fromkeys(("seed", "n", "left_out"), pa.int64()) | dict.fromkeys(
    ("value", "low", "high"), pa.float64()
)
SCHEMA = pa.schema(
    [
        (name, _NUMBERS.get(name, pa.string()))
        for name in (*KEYS, "value", "n", "low", "high", "left_out")
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

    ``points`` has the columns of ``SCHEMA``, sorted by ``KEYS``; ``frontier`` is from
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
        list(KEYS), kind="stable", ignore_index=True
    )
    repeated = ordered.duplicated(list(KEYS))
    if repeated.any():
        first = ordered.loc[repeated, list(KEYS)].iloc[0].tolist()
        raise DataError(
            f"There are two points for {' '.join(map(str, first))}.",
            "Give the rows of the study different labels.",
        )
    return ordered
