"""Claims about rows at equal unfairness, checked on their curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.study.config import StudyConfig
from fairfrontier.study.frontier import list_fits
from fairfrontier.study.resolve import Planned
from papers.claim import RELATIONS, EqualHarm, choose_block
from papers.curve import Curve, trace_curves
from papers.publication import read_publication


def check_equal_harm(
    study: StudyConfig,
    check: EqualHarm,
    points: pd.DataFrame,
    plan: Sequence[Planned],
    home: Path | None = None,
) -> dict[str, Any]:
    """Return the evidence of a claim: its relation, and the numbers compared.

    There is one for every left row and every harm of its right side, with the two costs and whether
    they are as claimed; None is a cost that is infinite or unknown.
    """
    block, select_on = choose_block(study, check.block)
    cost, harm = study.frontier.accuracy, study.frontier.fairness[0]
    fits = list_fits(plan, block)
    curves = trace_curves(points, fits, cost, harm, select_on, check.part)
    numbers = []
    for left, right in check.pairs():
        for label, right_harm, right_cost in _list_right(check, right, curves, home):
            reached = check.share * right_harm
            mine = curves[left].find_cost(reached) if left in curves else math.nan
            if check.common and math.isinf(mine):
                continue
            numbers.append(_judge(check, cost, left, mine, label, reached, right_cost))
    if not numbers:
        numbers.append(_judge(check, cost, check.left[0], math.nan, "", math.nan, math.nan))
    return {"relation": check.relation, "numbers": numbers}


def _list_right(
    check: EqualHarm, right: str | None, curves: Mapping[str, Curve], home: Path | None
) -> list[tuple[str, float, float]]:
    """Return label, harm and cost of every point of the right side."""
    if right is None:
        publication, name = read_publication(str(check.published), home)
        table = publication.tables[name]
        column = table.measures.index(table.along or table.measures[-1])
        return [(row.label, row.mean[column], row.mean[0]) for row in table.rows.values()]
    if right not in curves:
        return [(right, math.nan, math.nan)]
    curve = curves[right]
    return [(right, *point) for point in zip(curve.harm.tolist(), curve.cost.tolist(), strict=True)]


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
