"""Claims about rows where they are equally unfair, checked on their curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.reproduce.curve import Curve, trace_curves
from fairfrontier.study.claim import RELATIONS, EqualHarm, claim_side
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.expand import Planned
from fairfrontier.study.frontier import list_fits
from fairfrontier.study.publication import read_publication


def check_equal_harm(
    study: StudyConfig,
    check: EqualHarm,
    points: pd.DataFrame,
    plan: Sequence[Planned],
    home: Path | None = None,
) -> dict[str, Any]:
    """Compare rows at equal harm.

    Parameters
    ----------
    study : StudyConfig
        Names cost and harm under ``frontier``.
    check : EqualHarm
        What is claimed.
    points : DataFrame
        Columns of points.parquet.
    plan : sequence of Planned
        What was run.
    home : Path, optional
        The project root, for published numbers.

    Returns
    -------
    dict
        ``relation``, and ``numbers``: for every left row and every harm of its right side the two
        costs and whether they are as claimed; None stands for a cost that is infinite or unknown.
    """
    block, select_on = claim_side(study, check.block)
    cost, harm = study.frontier.accuracy, study.frontier.fairness[0]
    fits = list_fits(plan, block)
    curves = trace_curves(points, fits, cost, harm, select_on, check.part)
    numbers = []
    for left, right in check.pairs():
        for label, reached, against in _list_right(check, right, curves, home):
            mine = curves[left].find_cost(check.share * reached) if left in curves else math.nan
            if check.common and math.isinf(mine):
                continue
            numbers.append(_judge(check, cost, left, mine, label, check.share * reached, against))
    if not numbers:
        numbers.append(_judge(check, cost, check.left[0], math.nan, "", math.nan, math.nan))
    return {"relation": check.relation, "numbers": numbers}


def _list_right(
    check: EqualHarm, right: str | None, curves: Mapping[str, Curve], home: Path | None
) -> list[tuple[str, float, float]]:
    """Return label, harm and cost of everything that stands right."""
    if right is None:
        publication, name = read_publication(str(check.published), home)
        table = publication.tables[name]
        place = table.measures.index(table.along or table.measures[-1])
        return [(row.label, row.mean[place], row.mean[0]) for row in table.rows.values()]
    if right not in curves:
        return [(right, math.nan, math.nan)]
    curve = curves[right]
    return [(right, *each) for each in zip(curve.harm.tolist(), curve.cost.tolist(), strict=True)]


def _judge(
    check: EqualHarm, measure: str, left: str, mine: float, right: str, harm: float, against: float
) -> dict[str, Any]:
    gap = mine - check.factor * against
    known = not math.isnan(gap)
    return {
        "measure": measure,
        "left_row": f"{left} at {harm:.3f}" if known else left,
        "left": mine if math.isfinite(mine) else None,
        "right_row": right if check.factor == 1 else f"{check.factor:g} × {right}",
        "right": check.factor * against if known else None,
        "noise": check.tolerance or None,
        "harm": harm if known else None,
        "held": RELATIONS[check.relation](gap, check.tolerance) if known else None,
    }
