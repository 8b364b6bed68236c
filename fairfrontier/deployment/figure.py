"""The pictures of a bundle in use: rates by period, and the evidence that they changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fairfrontier.deployment.alarm import LIMIT, REFERENCE, measure_limit
from fairfrontier.deployment.config import Limit
from fairfrontier.figure.frontier import (
    COLOURS,
    GREY,
    HEADING,
    INK,
    MARKERS,
    add_grid,
    add_legend,
    add_panels,
    encode_png,
    make_key,
    name_measure,
    open_figure,
    shorten,
)
from fairfrontier.report.finding import show_number
from fairfrontier.study.drawing import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The rest is in the tables.
GROUPS_AT_MOST, PANELS_AT_MOST, NAMED_AT_MOST = 6, 8, 8
NAME_LENGTH = 22
BAND: Any = {"alpha": 0.13, "lw": 0, "zorder": 1}
ALARM: Any = {"marker": "o", "ms": 13, "mfc": "none", "mec": "#b35900", "mew": 1.8, "ls": "none"}


def draw_rates(
    rates: pd.DataFrame,
    checks: pd.DataFrame,
    limited: Mapping[str, tuple[Limit, Sequence[str]]],
    periods: Sequence[str],
) -> Picture:
    """Draw every limited number and every compared rate by period, with where it may be.

    ``limited`` has every limit by name, with the groups that it is about.
    """
    known = set(rates.loc[rates["value"].notna(), "rate"])
    compared = checks[(checks["kind"] == REFERENCE) & checks["rate"].isin(known)]
    limits = checks[(checks["kind"] == LIMIT) & checks["rate"].isin(known)]
    # Those with an alarm are drawn first.
    by_rate = sorted(
        compared.groupby(["rate", "attribute"], sort=False),
        key=lambda each: (each[1]["alarm"] == "").all(),
    )
    panels: list[tuple[str, Any]] = [
        *((LIMIT, row) for row in limits.to_dict("records")),
        *((REFERENCE, each[1]) for each in by_rate),
    ]
    panels = panels[:PANELS_AT_MOST]
    if not panels:
        panels = [(REFERENCE, compared)]
    columns = min(2, len(panels))
    width, height = 5.2 * columns + 0.4, 2.7 * math.ceil(len(panels) / columns) + 0.6
    words = []
    with open_figure(width, height, w_pad=0.1, h_pad=0.1) as figure:
        for axes, (kind, rows) in zip(
            add_panels(figure, len(panels), columns), panels, strict=True
        ):
            if kind == LIMIT:
                words.append(_draw_limit(axes, rows, rates, *limited[rows["name"]], periods))
            else:
                words.append(_draw_groups(axes, rows, rates, periods))
            _label_periods(axes, periods)
        keys = [
            make_key("where the rate, or the limited number, may be", color=GREY, lw=7, alpha=0.3),
            make_key("alarm raised", **ALARM),
        ]
        add_legend(figure, keys, 2, loc="outside upper left", fontsize=8.8)
        return Picture(encode_png(figure), f"Rates by period. {' '.join(words)}")


def draw_evidence(evidence: pd.DataFrame, checks: pd.DataFrame, entries: Sequence[str]) -> Picture:
    """Draw the evidence against every check by entry, as a share of what raises an alarm.

    ``entries`` are the periods of the entries.
    """
    alarmed = checks.set_index("name")["alarm"]
    strongest = checks.sort_values("p", kind="stable")["name"].tolist()
    with open_figure(9.2, 3.9, w_pad=0.1, h_pad=0.1) as figure:
        (axes,) = add_panels(figure, 1, 1)
        axes.axhline(1.0, color=INK, lw=1.0, ls="--")
        keys = [make_key("alarm", color=INK, lw=1.0, ls="--")]
        for place, name in reversed(list(enumerate(strongest))):
            rows = evidence[evidence["name"] == name]
            share = np.clip(rows["log_e"] / rows["threshold"], -0.25, 3.0)
            look: Any = {"color": GREY, "lw": 0.8, "alpha": 0.6, "zorder": 2}
            if alarmed[name] and place < NAMED_AT_MOST:
                look = {"color": COLOURS[place % len(COLOURS)], "lw": 1.8, "zorder": 3}
                look |= {"marker": MARKERS[place % len(MARKERS)], "ms": 4}
                keys.append(make_key(shorten(name_measure(name), 38), **look))
            axes.plot(rows["entry"], share, **look)
        keys.append(make_key("other checks", color=GREY, lw=0.8))
        axes.set_ylabel("evidence, log E of the alarm's")
        add_grid(axes, "y")
        _label_periods(axes, entries)
        add_legend(figure, keys, min(3, len(keys)), fontsize=8.5)
        raised = ", ".join(name for name in strongest if alarmed[name]) or "none"
        return Picture(encode_png(figure), f"Evidence by period. Alarms: {raised}.")


def _draw_groups(
    axes: Axes, checks: pd.DataFrame, rates: pd.DataFrame, periods: Sequence[str]
) -> str:
    """Draw a rate of the groups of an attribute, and return it in words."""
    if checks.empty:
        axes.set_title("no rate has enough rows", **HEADING)
        return "No rate has enough rows."
    rate, attribute = checks["rate"].iloc[0], checks["attribute"].iloc[0]
    shown = rates[(rates["rate"] == rate) & (rates["attribute"] == attribute)]
    sizes = shown.groupby("group")["n"].sum()
    # Groups with an alarm are drawn first, then those with the most rows.
    order = checks.assign(calm=checks["alarm"] == "", n=checks["group"].map(-sizes))
    chosen = order.sort_values(["calm", "n"], kind="stable").head(GROUPS_AT_MOST)
    keys, words = [], []
    for place, check in enumerate(chosen.to_dict("records")):
        own = shown[shown["group"] == check["group"]].set_index("period").reindex(periods)
        colour, marker = COLOURS[place], MARKERS[place]
        axes.axhspan(check["low"], check["high"], color=colour, **BAND)
        x, value = np.arange(len(periods)), own["value"].to_numpy(dtype=np.float64)
        ends = np.nan_to_num([value - own["low"], own["high"] - value])
        look: Any = {"color": colour, "marker": marker, "ms": 4, "lw": 1.4, "elinewidth": 0.8}
        axes.errorbar(x, value, ends, zorder=3, **look)
        if check["alarm"]:
            at = periods.index(check["alarm"])
            axes.plot([at], [value[at]], zorder=5, **ALARM)
        group = check["group"] or "all rows"
        keys.append(make_key(shorten(group, NAME_LENGTH), color=colour, marker=marker, ms=4))
        since = f", alarm since {check['alarm']}" if check["alarm"] else ""
        words.append(
            f"{group} {show_number(value[-1])}, reference {show_number(check['reference'])}{since}"
        )
    of = f", {attribute}" if attribute else ""
    axes.set_title(f"{name_measure(rate)}{of}", **HEADING)
    axes.legend(handles=keys, fontsize=7.5, frameon=False, loc="best", ncols=2)
    axes.margins(y=0.15)
    return f"{name_measure(rate)}{of}: {'; '.join(words)}."


def _draw_limit(
    axes: Axes,
    check: Mapping[str, Any],
    rates: pd.DataFrame,
    limit: Limit,
    groups: Sequence[str],
    periods: Sequence[str],
) -> str:
    """Draw a limited number by period, and return it in words."""
    chosen = rates[
        (rates["rate"] == check["rate"])
        & (rates["attribute"] == check["attribute"])
        & rates["group"].isin(groups)
    ]
    by_period = {name: table["value"].to_numpy() for name, table in chosen.groupby("period")}
    values = [measure_limit(limit, by_period.get(name, np.empty(0))) for name in periods]
    axes.axhspan(check["low"], check["high"], color=GREY, **BAND)
    axes.axhline(limit.bound, color=INK, lw=1.0, ls="--", zorder=2)
    axes.plot(range(len(periods)), values, color=INK, marker="o", ms=4, lw=1.4, zorder=3)
    if check["alarm"]:
        at = periods.index(check["alarm"])
        axes.plot([at], [values[at]], zorder=5, **ALARM)
    name = name_measure(check["name"])
    axes.set_title(f"{name}: limit {limit.bound:g}", **HEADING)
    finite = [value for value in [*values, limit.bound] if math.isfinite(value)]
    room = 0.25 * max(max(finite) - min(finite), 0.04)
    axes.set_ylim(max(min(finite) - room, -0.01), min(max(finite) + room, 1.01))
    since = f", passed since {check['alarm']}" if check["alarm"] else ""
    return f"{name} {show_number(values[-1])}, limit {limit.bound:g}{since}."


def _label_periods(axes: Axes, names: Sequence[str]) -> None:
    """Name some periods below an axis."""
    step = max(1, math.ceil(len(names) / 8))
    places = range(0, len(names), step)
    axes.set_xticks(places, [shorten(names[at], 14) for at in places], rotation=30, ha="right")
    axes.set_xlim(-0.5, len(names) - 0.5)
    add_grid(axes, "y")
