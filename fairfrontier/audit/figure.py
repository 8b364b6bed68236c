"""The picture of an audit: where the rates of true groups lie, a panel for each rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from fairfrontier.figure.frontier import (
    COLOURS,
    GREY,
    INK,
    add_grid,
    add_legend,
    add_panels,
    encode_png,
    make_key,
    name_measure,
    open_figure,
    shorten,
)
from fairfrontier.study.drawing import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

GROUPS_AT_MOST = 16
# Longer names of groups would leave too little width for the panels.
NAME_LENGTH = 22
SEEN: Any = {"color": INK, "marker": "o", "markerfacecolor": "white", "ls": "none", "ms": 6.5}
TRUTH: Any = {"color": COLOURS[1], "marker": "D", "ls": "none", "ms": 4.5}
TIGHT: Any = {"color": COLOURS[0], "lw": 7.0}
LIMIT: Any = {"color": COLOURS[5], "lw": 7.0, "alpha": 0.55}
BALL: Any = {"color": GREY, "lw": 1.3}


def draw_bounds(bounds: pd.DataFrame, budget: float, rests_on: str) -> Picture:
    """Draw the bounds of every rate and true group, and a band of ± budget around all rows' rate.

    If the verdicts rest on the "limit", those of the assignments are drawn behind the model's own,
    and the ball is that of the limits. Beyond ``GROUPS_AT_MOST`` groups those with the fewest rows
    are omitted.
    """
    rates = list(dict.fromkeys(bounds["measure"]))
    groups, omitted = _keep_largest(bounds)
    columns = min(2, len(rates))
    height = (0.36 * len(groups) + 0.95) * math.ceil(len(rates) / columns) + 0.9
    words = []
    with open_figure(4.6 * columns + 0.8, height, w_pad=0.1, h_pad=0.09) as figure:
        panels = add_panels(figure, len(rates), columns, sharey=True)
        for axes, rate in zip(panels, rates, strict=True):
            rows = bounds.loc[bounds["measure"] == rate]
            words.append(_draw_panel(axes, rows, groups, budget, rests_on))
            axes.set_title(name_measure(rate), fontsize=10, loc="left", fontweight="bold")
            axes.set_yticks(range(len(groups)), [shorten(name, NAME_LENGTH) for name in groups])
            axes.set_ylim(len(groups) - 0.4, -0.6)
        more = f" ({omitted} smaller groups are in bounds.csv)" if omitted else ""
        figure.supxlabel(f"rate of the true group{more}", fontsize=9.5, color=INK)
        keys = _list_keys(bounds, budget, rests_on)
        add_legend(figure, keys, columns + 1, loc="outside upper left", fontsize=8.8)
        alt = f"Rates of true groups under every assignment of rows to them. {' '.join(words)}"
        return Picture(encode_png(figure), alt)


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, groups: list[str], budget: float, rests_on: str
) -> str:
    """Draw one rate, and return it in words."""
    overall = float(rows.loc[rows["bound"] == "overall", "value"].iloc[0])
    axes.axvspan(overall - budget, overall + budget, color="#d0d7de", alpha=0.45, lw=0, zorder=0)
    axes.axvline(overall, color=INK, lw=1.0, ls="--", zorder=1)
    words = []
    for height, group in enumerate(groups):
        own: dict[tuple[str, str], dict[Any, Any]] = {
            (row["bound"], row["noise"]): row
            for row in rows.loc[rows["group"] == group].to_dict("records")
        }
        tight, ball = own["assignment", "model"], own["ball", rests_on]
        used = own["assignment", rests_on]
        if rests_on == "limit":
            axes.hlines(height, used["low"], used["high"], zorder=2, **LIMIT)
        axes.hlines(height, tight["low"], tight["high"], zorder=3, **TIGHT)
        ends = [ball["low"], ball["high"]]
        axes.errorbar(ends, [height, height], yerr=0.2, fmt="-", capsize=0, zorder=4, **BALL)
        axes.plot(tight["value"], height, zorder=6, **SEEN)
        if ("truth", "") in own:
            axes.plot(own["truth", ""]["value"], height, zorder=7, **TRUTH)
        if used["low"] == used["low"]:
            words.append(f"{group} {used['low']:.3f} to {used['high']:.3f}")
        else:
            text = "may have too few such rows"
            axes.annotate(text, (0.5, height), ha="center", va="center", fontsize=8)
            words.append(f"{group} unknown")
    axes.set_xlim(-0.02, 1.02)
    add_grid(axes, "x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    rate = str(rows["measure"].iloc[0])
    return f"{name_measure(rate)}, {overall:.3f} of all rows: {', '.join(words)}."


def _list_keys(bounds: pd.DataFrame, budget: float, rests_on: str) -> list[Line2D]:
    keys = [make_key("every assignment of rows", solid_capstyle="butt", **TIGHT)]
    if rests_on == "limit":
        keys.append(make_key("with the noise's limits", solid_capstyle="butt", **LIMIT))
    keys.append(make_key("total variation ball", marker="|", ms=8, **BALL))
    keys.append(make_key("noisy group", **SEEN))
    if (bounds["bound"] == "truth").any():
        keys.append(make_key("true group", **TRUTH))
    return [*keys, make_key(f"all rows ± {budget:g}", color=INK, lw=1.0, ls="--")]


def _keep_largest(bounds: pd.DataFrame) -> tuple[list[str], int]:
    """Return the groups with the most rows, in their order, and the number of others."""
    rows = bounds.loc[bounds["bound"] == "assignment"]
    sizes = rows.groupby("group", sort=False)["n"].max()
    kept = sizes.sort_values(ascending=False, kind="stable").index[:GROUPS_AT_MOST]
    return [str(group) for group in sizes.index if group in kept], len(sizes) - len(kept)
