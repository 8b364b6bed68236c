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
    encode_png,
    name_measure,
    open_figure,
)
from fairfrontier.study.drawing import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUPS_AT_MOST = 16
# Longer names of groups would push the panels together.
NAME_LENGTH = 22
SEEN: Any = {"color": INK, "marker": "o", "markerfacecolor": "white"}
TRUTH: Any = {"color": COLOURS[1], "marker": "D"}
TIGHT: Any = {"color": COLOURS[0], "lw": 7.0, "solid_capstyle": "butt"}
LIMIT: Any = {"color": COLOURS[5], "lw": 7.0, "solid_capstyle": "butt", "alpha": 0.55}
BALL: Any = {"color": GREY, "lw": 1.3}


def draw_bounds(bounds: pd.DataFrame, budget: float, rests_on: str) -> Picture:
    """Draw the bounds of every rate and true group.

    Parameters
    ----------
    bounds : DataFrame
        See `Findings`.
    budget : float
        α; the band around the rate of all rows.
    rests_on : {"model", "limit"}
        With limits those of the assignments are drawn behind the model's own, and the ball is that
        of the limits.

    Returns
    -------
    Picture
        Beyond ``GROUPS_AT_MOST`` groups those with the fewest rows are left out.
    """
    rates = list(dict.fromkeys(bounds["measure"]))
    groups, left_out = _keep_largest(bounds)
    columns = min(2, len(rates))
    lines = math.ceil(len(rates) / columns)
    more = f" ({left_out} smaller groups stand in bounds.csv)" if left_out else ""
    told = []
    with open_figure(
        4.6 * columns + 0.8, (0.36 * len(groups) + 0.95) * lines + 0.9, w_pad=0.1, h_pad=0.09
    ) as figure:
        panels = figure.subplots(lines, columns, squeeze=False, sharey=True)
        for axes in panels.flat[len(rates) :]:
            axes.set_visible(False)
        for axes, rate in zip(panels.flat, rates, strict=False):
            rows = bounds.loc[bounds["measure"] == rate]
            told.append(_draw_panel(axes, rows, groups, budget, rests_on))
            axes.set_title(name_measure(rate), fontsize=10, loc="left", fontweight="bold")
            axes.set_yticks(range(len(groups)), [_shorten(group) for group in groups])
            axes.set_ylim(len(groups) - 0.4, -0.6)
        figure.supxlabel(f"rate of the true group{more}", fontsize=9.5, color=INK)
        figure.legend(
            handles=_list_keys(bounds, budget, rests_on),
            loc="outside upper left",
            ncols=3 if columns > 1 else 2,
            frameon=False,
            fontsize=8.8,
        )
        png = encode_png(figure)
    return Picture(
        png, f"Rates of true groups under every assignment of rows to them. {' '.join(told)}"
    )


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
        if rests_on == "limit":
            limit = own[("assignment", "limit")]
            axes.hlines(height, limit["low"], limit["high"], zorder=2, **_line(LIMIT))
        tight = own[("assignment", "model")]
        axes.hlines(height, tight["low"], tight["high"], zorder=3, **_line(TIGHT))
        ball = own[("ball", rests_on)]
        axes.errorbar(
            [ball["low"], ball["high"]],
            [height, height],
            yerr=0.2,
            fmt="-",
            capsize=0,
            zorder=4,
            **BALL,
        )
        axes.plot(tight["value"], height, ls="none", ms=6.5, zorder=6, **SEEN)
        if ("truth", "") in own:
            axes.plot(own[("truth", "")]["value"], height, ls="none", ms=4.5, zorder=7, **TRUTH)
        used = own[("assignment", rests_on)]
        if used["low"] == used["low"]:
            words.append(f"{group} {used['low']:.3f} to {used['high']:.3f}")
        else:
            axes.annotate(
                "may have no such row", (0.5, height), ha="center", va="center", fontsize=8
            )
            words.append(f"{group} unknown")
    axes.set_xlim(-0.02, 1.02)
    add_grid(axes, "x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    rate = str(rows["measure"].iloc[0])
    return f"{name_measure(rate)}, {overall:.3f} of all rows: {', '.join(words)}."


def _line(look: Any) -> Any:
    """Return a look for a line of a collection, which has no cap."""
    return {key: value for key, value in look.items() if key != "solid_capstyle"}


def _list_keys(bounds: pd.DataFrame, budget: float, rests_on: str) -> list[Any]:
    from matplotlib.lines import Line2D

    def key(label: str, **look: Any) -> Any:
        return Line2D([], [], label=label, **look)

    keys = [key("every assignment of rows", **TIGHT)]
    if rests_on == "limit":
        keys.append(key("with the noise's limits", **LIMIT))
    keys.append(key("total variation ball", marker="|", ms=8, **BALL))
    keys.append(key("noisy group", ls="none", ms=6.5, **SEEN))
    if (bounds["bound"] == "truth").any():
        keys.append(key("true group", ls="none", ms=4.5, **TRUTH))
    keys.append(key(f"all rows ± {budget:g}", color=INK, lw=1.0, ls="--"))
    return keys


def _keep_largest(bounds: pd.DataFrame) -> tuple[list[str], int]:
    """Return the groups with the most rows, in their order, and how many others there are."""
    rows = bounds.loc[bounds["bound"] == "assignment"]
    largest = rows.groupby("group", sort=False)["n"].max()
    kept = largest.sort_values(ascending=False, kind="stable").index[:GROUPS_AT_MOST]
    return [str(group) for group in largest.index if group in set(kept)], len(largest) - len(kept)


def _shorten(name: str) -> str:
    """Take the middle out of a long name: names of groups differ at both ends."""
    half = NAME_LENGTH // 2
    return name if len(name) <= NAME_LENGTH else f"{name[:half]}…{name[-half + 1 :]}"
