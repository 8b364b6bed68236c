"""Checking the claims of a study against its results."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from fairfrontier.metrics.measure.registry import split_name
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.frontier import list_fits, summarise
from fairfrontier.study.resolve import Planned
from papers.claim import (
    RELATIONS,
    Claim,
    Comparison,
    RowAt,
    Speed,
    Trend,
    choose_block,
    order_settings,
    read_claims,
)
from papers.equal_harm import check_equal_harm


def check_claims(
    study: StudyConfig,
    points: pd.DataFrame,
    plan: Sequence[Planned],
    *,
    seconds: Mapping[str, float] | None = None,
    home: Path | None = None,
) -> list[dict[str, Any]]:
    """Check every claim of a study against its points.

    ``seconds`` maps a row's label to the seconds per call of its oracle.

    Returns
    -------
    list of dict
        ``id``, ``sentence``, ``held`` (true, false, or null where a number is missing) and
        ``evidence``: block, part, seeds, and for every measure the rows compared or the parameter
        followed, their means over the seeds, the sampling error allowed for, and whether it held.
    """
    return [
        _check_claim(study, claim, points, plan, seconds or {}, home)
        for claim in read_claims(study)
    ]


def _check_claim(
    study: StudyConfig,
    claim: Claim,
    points: pd.DataFrame,
    plan: Sequence[Planned],
    seconds: Mapping[str, float],
    home: Path | None,
) -> dict[str, Any]:
    block, _ = choose_block(study, claim.check.block)
    table = summarise(points, list_fits(plan, block), claim.check.part)
    match claim.check:
        case Comparison() as check:
            evidence = _compare(check, points.loc[points["part"] == check.part], table)
        case Trend() as check:
            evidence = _follow(check, table)
        case Speed() as check:
            evidence = _time(check, seconds)
        case check:
            evidence = check_equal_harm(study, check, points, plan, home)
    held = [number["held"] for number in evidence["numbers"]]
    return {
        "id": claim.id,
        "sentence": claim.sentence,
        "held": False if False in held else None if None in held else True,
        "evidence": {
            "block": block,
            "part": claim.check.part,
            "n_seeds": int(table["n_seeds"].max()) if len(table) else 0,
            **evidence,
        },
    }


def _compare(check: Comparison, points: pd.DataFrame, table: pd.DataFrame) -> dict[str, Any]:
    """Return the two sides of a comparison for all rows and measures, and whether each held."""
    numbers = []
    for left, right in check.pairs():
        for measure in check.measure:
            mine = _find(table, left, measure)
            other = None if right is None else _find(table, right, measure)
            value = None if mine is None else float(mine["value"])
            against = None if other is None else float(other["value"])
            if right is None:
                against = check.value
            slack = held = None
            if value is not None and against is not None:
                gap = value - against
                slack = check.tolerance if check.relation in ("==", "!=") else 0.0
                if check.noise:
                    slack = _estimate_noise(points, mine, other, gap)
                held = None if math.isnan(slack) else RELATIONS[check.relation](gap, slack)
            numbers.append(
                {
                    "measure": measure,
                    "left_row": str(left),
                    "left": value,
                    "right_row": None if right is None else str(right),
                    "right": against,
                    "noise": slack if check.noise and held is not None else None,
                    "held": held,
                }
            )
    return {"relation": check.relation, "numbers": numbers}


def _estimate_noise(
    points: pd.DataFrame,
    mine: Mapping[str, Any] | None,
    other: Mapping[str, Any] | None,
    gap: float,
) -> float:
    """Return δ of `Comparison`, from paired differences where there are several common splits."""
    if mine is not None and other is not None:
        gaps = (_list_values(points, mine) - _list_values(points, other)).dropna()
        if len(gaps) > 1:
            quantile = float(stdtrit(len(gaps) - 1, 0.975))
            return quantile * float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    return math.hypot(_reach(mine, up=gap < 0), _reach(other, up=gap > 0))


def _list_values(points: pd.DataFrame, row: Mapping[str, Any]) -> pd.Series[float]:
    """Return the values of a summarised row by seed."""
    measure, group = split_name(row["name"])
    own = points.loc[
        (points["method"] == row["method"])
        & (points["setting"] == row["setting"])
        & (points["measure"] == measure)
        & (points["group"] == group)
    ]
    values: pd.Series[float] = own.set_index("seed")["value"]
    return values


def _reach(row: Mapping[str, Any] | None, *, up: bool) -> float:
    """Return how far a row's own interval extends above or below its value."""
    if row is None:
        return 0.0
    return abs(float(row["own_high" if up else "own_low"]) - float(row["value"]))


def _follow(trend: Trend, table: pd.DataFrame) -> dict[str, Any]:
    """Return the means along a parameter in every measure, and whether each held."""
    settings = table[["method", "setting"]].drop_duplicates()
    order = order_settings(
        trend, [(str(label), json.loads(setting)) for label, setting in settings.to_numpy()]
    )
    numbers: list[dict[str, Any]] = []
    for measure in trend.measure:
        rows = [
            _find(table, RowAt.model_validate({**setting, "row": trend.row.row}), measure)
            for _, setting in order
        ]
        means = [None if row is None else float(row["value"]) for row in rows]
        known = [mean for mean in means if mean is not None]
        held = None
        if len(known) == len(means) > 1:
            upward = np.diff(known) if trend.direction == "rising" else -np.diff(known)
            held = bool(upward.sum() > 0 and (upward >= -trend.tolerance).all())
        numbers.append({"measure": measure, "means": means, "held": held})
    return {
        "row": str(trend.row),
        "along": trend.along,
        "direction": trend.direction,
        "at": [value for value, _ in order],
        "numbers": numbers,
    }


def _time(speed: Speed, seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return the seconds per call of each row, and whether they are few enough."""
    against = seconds.get(speed.right, math.nan)
    numbers = []
    for label in speed.left:
        mine = seconds.get(label, math.nan)
        known = math.isfinite(mine) and math.isfinite(against)
        numbers.append(
            {
                "measure": "oracle_seconds",
                "left_row": label,
                "left": mine if math.isfinite(mine) else None,
                "right_row": f"{speed.factor:g} × {speed.right}",
                "right": speed.factor * against if math.isfinite(against) else None,
                "noise": None,
                "held": mine <= speed.factor * against if known else None,
            }
        )
    return {"relation": "<=", "numbers": numbers}


def _find(table: pd.DataFrame, row: RowAt, name: str) -> Mapping[str, Any] | None:
    """Return a row's summary of a measure; None if it is missing or could not be estimated."""
    own = table.loc[(table["method"] == row.row) & (table["name"] == name)]
    own = own.loc[[row.match(row.row, json.loads(setting)) for setting in own["setting"]]]
    if len(own) != 1 or math.isnan(own["value"].iloc[0]):
        return None
    return {str(key): value for key, value in own.iloc[0].items()}
