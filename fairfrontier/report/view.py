"""What a report opens with: for up to three attributes a chart, the price list, rates by group."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.figure.frontier import (
    Chart,
    greater_is_better,
    name_measure,
    name_priced,
    name_within,
    trace_chart,
)
from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.report.finding import show_number
from fairfrontier.study.price import find_scale
from fairfrontier.study.query import WORDS

AT_MOST = 3
# Groups of a picture; the tables further down have all.
GROUPS_AT_MOST = 10
# Of a level, where the results have them; some of them are of all of its rows.
RATES = (
    "selection_rate", "mean_prediction", "tpr", "fpr", "accuracy", "disparity", "mae", "rmse",
    "mean_residual",
)  # fmt: skip
# Paths between -1 and 1: of points that do not ask for the group, of those that do, and further
# ones of methods; with eight colours the first forty methods differ.
SHAPES = (
    "M-1,0A1,1,0,1,1,1,0A1,1,0,1,1,-1,0Z",
    "M0,-1L1,0L0,1L-1,0Z",
    "M-.85,-.85H.85V.85H-.85Z",
    "M0,-1L.95,.75H-.95Z",
    "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z",
)
# Where a letter stands at its point: letters of points near each other stand around them.
CORNERS = ((10, -8, "start"), (-10, -8, "end"), (10, 18, "start"), (-10, 18, "end"))
# In percent of the chart.
NEAR = 5.0


def list_views(
    table: pd.DataFrame,
    prices: Sequence[Mapping[str, Any]],
    objective: str,
    asks: Collection[tuple[str, str]],
    asked: Sequence[str],
    minimum: int,
) -> list[dict[str, Any]]:
    """Return what the report shows of the first three attributes whose gap is estimable.

    ``table`` is from `summarise`, on test, and ``prices`` are the rows of the price list; ``asks``
    has the (method, setting) that ask for the group. Commands name study and folder as ``asked``,
    and levels have the ``minimum`` of rows.
    """
    letters, views = name_priced(prices), list[dict[str, Any]]()
    for measure in dict.fromkeys(row["measure"] for row in prices):
        own = [row for row in prices if row["measure"] == measure]
        if own[0]["gap"] is None or len(views) == AT_MOST:
            continue
        chart = trace_chart(table, objective, measure, prices, asks)
        gap, size = (100.0 if unit else 1.0 for unit in chart.units)
        rows = [
            {
                **row,
                "letter": "" if row["bound"] is None else letters[row["method"], row["setting"]],
                "limit": None if row["bound"] is None else f"{gap * row['bound']:.3g}",
                "passed": None not in (row["bound"], row["gap"]) and row["gap"] > row["bound"],
                "command": write_command(row, objective, asked),
                "shown": {
                    name: [show_scaled(row[f"{name}{end}"], by) for end in ("", "_low", "_high")]
                    for name, by in (("gap", gap), ("objective", size), ("cost", size))
                },
            }
            for row in own
        ]
        best = next((row for row in rows if row["suggested"]), None)
        views.append(
            {
                "measure": measure,
                "within": name_within(measure),
                "attribute": split_name(measure)[1],
                "rows": rows,
                "best": best,
                "gap_unit": " points" if gap > 1 else "",
                "unit": " points" if size > 1 else "",
                "left_out": int(table.loc[table["name"] == measure, "left_out"].max()),
                "chart": draw_chart(chart),
                "rates": compare_rates(table, measure, rows[0], best or rows[-1], minimum),
            }
        )
    return views


def show_scaled(value: float | None, scale: float) -> str:
    """Return a number for reading: a share in percent with one digit."""
    return show_number(value) if value is None or scale == 1 else show_number(scale * value, 1)


def write_command(row: Mapping[str, Any], objective: str, asked: Sequence[str]) -> str | None:
    """Return the command that selects a row of the price list; None if no query can say it."""
    name, *options = asked
    measure = row["measure"]
    query = f"{WORDS[MEASURES.find(split_name(objective)[0]).direction][0]} {objective}"
    if row["bound"] is not None:
        if re.search(r"[\s<>≤≥]", measure):
            return None
        query += f" subject to {measure} <= {row['bound']:g}"
    return shlex.join(["fairfrontier", "select", name, query, *options])


def draw_chart(chart: Chart) -> dict[str, Any]:
    """Return a chart for the template: all places in percent, from the left and from the top.

    Better is up: an axis of which less is better runs downwards.
    """
    upwards = greater_is_better(chart.objective)

    def across(value: float) -> float:
        return _place(value, *chart.across)

    def up(value: float) -> float:
        low, high = chart.up
        return _place(value, high, low) if upwards else _place(value, low, high)

    axes = tuple(zip("xy", chart.units, (chart.measure, chart.objective), strict=True))
    marks, named = list[dict[Any, Any]](), list[tuple[float, float]]()
    for row in chart.inside.to_dict("records"):
        at = (across(row["x"]), up(row["y"]))
        bars = {
            axis: None if np.isnan(sum(ends)) else tuple(map(to, ends))
            for axis, to in (("x", across), ("y", up))
            for ends in [(row[f"{axis}_low"], row[f"{axis}_high"])]
        }
        mark = {**row, "at": at, "bars": bars, "shape": SHAPES[row["asks"]]}
        mark["lines"] = [f"{name_measure(name)}: {_write(row, *of)}" for *of, name in axes]
        if row["letter"] or row["free"]:
            beside = sum(max(abs(at[0] - x), abs(at[1] - y)) < NEAR for x, y in named)
            mark["corner"] = CORNERS[min(beside, 3)]
            named.append(at)
        marks.append(mark)
    return {
        "objective": chart.objective,
        "marks": marks,
        "beyond": len(chart.points) - len(marks),
        "band": None if chart.bound is None else across(chart.bound),
        "across": [(across(tick), f"{tick:g}") for tick in _list_ticks(*chart.across)],
        "up": [(up(tick), f"{tick:g}") for tick in _list_ticks(*chart.up)],
        "units": chart.units,
        "upwards": upwards,
    }


def _place(value: float, first: float, last: float) -> float:
    """Return where a value lies between the ends of an axis, in percent."""
    return round(float(np.clip(100 * (value - first) / (last - first), 0, 100)), 2)


def _write(row: Mapping[Any, Any], axis: str, unit: str) -> str:
    """Return a value with its interval and unit."""
    numbers = (row[f"{axis}{end}"] for end in ("", "_low", "_high"))
    value, low, high = (show_number(number, 1 if unit else 3) for number in numbers)
    return f"{value} {unit}".strip() + ("" if low == "–" else f" ({low} – {high})")


def _list_ticks(low: float, high: float) -> list[float]:
    """Return some five round numbers between the ends of an axis."""
    rough = (high - low) / 5
    ten = 10.0 ** np.floor(np.log10(rough))
    step = ten * next(each for each in (1, 2, 5, 10) if each * ten >= rough)
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    # Not -0.
    return [round(float(step * each), 12) + 0.0 for each in np.arange(first, last + 1)]


def compare_rates(
    table: pd.DataFrame,
    measure: str,
    free: Mapping[str, Any],
    best: Mapping[str, Any],
    minimum: int,
) -> dict[str, Any] | None:
    """Return the rates of an attribute's largest levels by the models of two rows of the list.

    The rate is that of the measure where it has one, else the first there is; None if none.
    """
    name, attribute = split_name(measure)
    before, after = (
        table.loc[(table["method"] == row["method"]) & (table["setting"] == row["setting"])]
        .drop_duplicates("name")
        .set_index("name")
        for row in (free, best)
    )
    levels: dict[str, list[str]] = {}
    for each in before.index[before["n"] >= minimum]:
        rate, group = split_name(each)
        if rate in RATES and group.startswith(f"{attribute}="):
            levels.setdefault(rate, []).append(each)
    if not levels:
        return None
    rate = min(levels, key=lambda rate: (not name.startswith(rate), RATES.index(rate)))
    shown = before.loc[levels[rate], "n"].nlargest(GROUPS_AT_MOST, keep="first")
    values = [each["value"].reindex(shown.index) for each in (before, after)]
    known = np.concatenate(values)
    known = known[np.isfinite(known)]
    if not len(known):
        return None
    scale = find_scale(known, rate)
    low, high = min(0.0, known.min()), 1.05 * max(0.0, known.max()) or 1.0
    return {
        "name": rate,
        "unit": " %" if scale > 1 else "",
        "other": best["letter"],
        "levels": [
            {
                "level": each.partition("=")[2],
                "n": round(n),
                "at": [None if value != value else _place(value, low, high) for value in pair],
                "shown": [show_scaled(value, scale) for value in pair],
            }
            for (each, n), *pair in zip(shown.items(), *values, strict=True)
        ],
    }
