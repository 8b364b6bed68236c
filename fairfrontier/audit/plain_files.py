"""The files of an audit without noise: impact ratios, measures, limits, and a report in HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.audit.impact import COMPARED, EXCLUDED, TOO_FEW, UNKNOWN
from fairfrontier.audit.plain import EXCEEDED, NOT_ESTIMABLE, PlainFindings
from fairfrontier.audit.plain_figure import draw_calibration, draw_impact
from fairfrontier.report.template import embed, open_template
from fairfrontier.runtime.text_file import list_rows
from fairfrontier.study.drawing import Picture

TEMPLATE = Path(__file__).with_name("plain.html.j2")
# Rates by category that the report shows; all measures are in measures.csv.
SHOWN = ("accuracy", "tpr", "fpr", "ppv", "npv")
# Of predictions of numbers, whose measures of an attribute are those of its worst level.
SHOWN_NUMBERS = ("absolute_loss", "square_loss", "disparity")


def tabulate(findings: PlainFindings) -> dict[str, pd.DataFrame]:
    """Return the tables that are written, by name."""
    return {
        "impact": findings.impact,
        "scores": findings.scores,
        "measures": findings.measures,
        "calibration": findings.calibration,
    }


def draw(findings: PlainFindings) -> dict[str, Picture]:
    """Return the pictures, by name."""
    pictures = {"impact": draw_impact(findings.impact)}
    if (findings.calibration["attribute"] != "").any():
        pictures["calibration"] = draw_calibration(findings.calibration)
    return pictures


def summarise(findings: PlainFindings) -> dict[str, Any]:
    """Return what was audited and the results, as plain values; None for what is not estimable."""
    config, impact = findings.config, findings.impact
    # The categories are the same for both rates.
    categories = impact.loc[impact["measure"] == impact["measure"].iloc[0]]
    statuses = categories["status"].value_counts()
    below = categories["four_fifths"].fillna(False) & (categories["status"] == COMPARED)
    verdicts = findings.limits["verdict"].value_counts()
    group = findings.measures["group"]
    levels = group.str.contains("=", regex=False) & ~group.str.startswith("budget=")
    aggregates = findings.measures.loc[~levels]
    return {
        "attributes": list(categories["attribute"].unique()),
        "median": findings.median,
        "minimum": config.minimum,
        "exclude_below": config.exclude_below,
        "counts": {
            "rows": findings.n_samples,
            "categories": len(categories),
            "compared": int(statuses.get(COMPARED, 0)),
            "excluded": int(statuses.get(EXCLUDED, 0)),
            "unknown": int(statuses.get(UNKNOWN, 0)),
            "too_few": int(statuses.get(TOO_FEW, 0)),
            "below_four_fifths": int(below.sum()),
            "limits": len(findings.limits),
            "exceeded": int(verdicts.get(EXCEEDED, 0)),
            "not_estimable": int(verdicts.get(NOT_ESTIMABLE, 0)),
        },
        "limits": list_rows(findings.limits),
        "impact": list_rows(impact),
        "scores": list_rows(findings.scores),
        "measures": list_rows(aggregates),
    }


def render(
    findings: PlainFindings, summary: Mapping[str, Any], pictures: Mapping[str, Picture]
) -> str:
    """Return the report as HTML, in which all text from data or configuration is escaped."""
    impact = [
        {"measure": measure, "attribute": attribute, "rows": list_rows(table)}
        for (measure, attribute), table in findings.impact.groupby(
            ["measure", "attribute"], sort=False
        )
    ]
    scores = findings.scores.groupby("attribute", sort=False)
    shown, suffix = (SHOWN_NUMBERS, "_max") if findings.numeric else (SHOWN, "_difference")
    return open_template(TEMPLATE).render(
        summary=summary,
        config=findings.config,
        impact=impact,
        scores=[(attribute, list_rows(table)) for attribute, table in scores],
        rates=_tabulate_rates(findings.measures, shown, suffix),
        numeric=findings.numeric,
        similar=list_rows(findings.similar),
        individual=list_rows(findings.individual),
        shown=[name for name in shown if (findings.measures["measure"] == name).any()],
        pictures={name: embed(picture) for name, picture in pictures.items()},
    )


def _tabulate_rates(
    measures: pd.DataFrame, shown: Sequence[str], suffix: str
) -> list[tuple[str, dict[str, dict[str, Any]]]]:
    """Return, for all rows, every level and the aggregates of an attribute, the shown rates.

    ``suffix`` is that of the aggregates' names.
    """
    names = {f"{name}{end}": name for name in shown for end in ("", suffix)}
    kept = measures.loc[measures["measure"].isin(names)]
    rates: dict[str, dict[str, dict[str, Any]]] = {}
    for row in list_rows(kept):
        rates.setdefault(row["group"], {})[names[row["measure"]]] = row
    return list(rates.items())
