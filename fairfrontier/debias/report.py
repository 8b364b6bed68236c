"""The report of a debiased classifier: one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.debias.debiasing import AFTER, BEFORE, Debiasing, name_alone
from fairfrontier.report.template import embed, open_template
from fairfrontier.study.drawing import Picture

TEMPLATE = Path(__file__).with_name("debias.html.j2")


def render_debiasing(
    debiasing: Debiasing,
    summary: Mapping[str, Any],
    groups: pd.DataFrame,
    pictures: Mapping[str, Picture],
    small: int,
) -> str:
    """Render the report.

    Parameters
    ----------
    debiasing : Debiasing
        What was asked, and the rule.
    summary : mapping
        What stands in summary.json.
    groups : DataFrame
        See `tabulate_groups`.
    pictures : mapping of str to Picture
        ``groups``, ``rules`` and, where a rule was fitted, ``curve``.
    small : int
        Groups with fewer rows are marked.

    Returns
    -------
    str
        HTML. Every text that comes from data or configuration is escaped.
    """
    shown = groups.loc[groups["part"] == summary["reported_on"]]
    return open_template(TEMPLATE).render(
        summary=summary,
        config=debiasing.config,
        columns=debiasing.columns,
        book=debiasing.rulebook,
        labelled=debiasing.labelled,
        pictures={name: embed(picture) for name, picture in pictures.items()},
        rules=[BEFORE, *map(name_alone, debiasing.alone), AFTER],
        bias=_tabulate_bias(summary),
        lesson=_find_lesson(debiasing, summary),
        overall={
            each["rule"]: each
            for each in summary["overall"]
            if each["part"] == summary["reported_on"]
        },
        groups=[
            {"attribute": attribute, "rows": table.to_dict("records")}
            for attribute, table in shown.groupby("attribute", sort=False)
        ],
        small=small,
    )


def _tabulate_bias(summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return attribute -> rule -> bias on the reported rows."""
    table: dict[str, dict[str, Any]] = {}
    for each in summary["bias"]:
        if each["part"] == summary["reported_on"]:
            table.setdefault(each["attribute"], {})[each["rule"]] = each
    return table


def _find_lesson(debiasing: Debiasing, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return, for parity on one column alone, what bias it leaves between the whole groups."""
    crossed = "×".join(debiasing.columns.groups)
    found = _tabulate_bias(summary)
    return [
        {
            "column": column,
            "own": found[column][name_alone(column)]["value"],
            "left": found[crossed][name_alone(column)]["value"],
            "before": found[crossed][BEFORE]["value"],
            "after": found[crossed][AFTER]["value"],
        }
        for column in debiasing.alone
    ]
