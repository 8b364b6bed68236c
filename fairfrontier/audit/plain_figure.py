"""The pictures of an audit without noise: rates by category, and calibration."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fairfrontier.audit.impact import COMPARED, TOO_FEW
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
    label_rows,
    make_key,
    name_measure,
    open_figure,
    shorten,
)
from fairfrontier.study.drawing import Picture

ROWS_AT_MOST, LINES_AT_MOST = 40, 6
# Longer names of categories would leave too little width for the panels.
NAME_LENGTH = 30
FAIR: Any = {"color": COLOURS[0], "marker": "o", "ls": "none"}
BELOW: Any = {"color": COLOURS[1], "marker": "D", "ls": "none"}
APART: Any = {"color": GREY, "marker": "o", "markerfacecolor": "white", "ls": "none"}
FOUR_FIFTHS: Any = {"color": COLOURS[1], "lw": 1.2, "ls": "--"}
HIGHEST: Any = {"color": INK, "lw": 1.0}


def draw_impact(impact: pd.DataFrame) -> Picture:
    """Draw the rates of all categories with 95% intervals, beside four fifths of the highest one.

    A panel for each rate. Beyond ``ROWS_AT_MOST`` categories the smallest are omitted.
    """
    rates = list(dict.fromkeys(impact["measure"]))
    # The same categories in the same order.
    tables = [impact.loc[impact["measure"] == rate].reset_index(drop=True) for rate in rates]
    omitted = max(len(tables[0]) - ROWS_AT_MOST, 0)
    kept = tables[0].loc[tables[0].nlargest(ROWS_AT_MOST, "n").index.sort_values()]
    attributes = list(dict.fromkeys(kept["attribute"]))
    words = []
    height = 1.2 + 0.28 * (len(kept) + 1.4 * len(attributes))
    with open_figure(3.6 + 3.6 * len(rates), height, w_pad=0.1, h_pad=0.08) as figure:
        panels = add_panels(figure, len(rates), len(rates), sharey=True)
        for axes, rate, table in zip(panels, rates, tables, strict=True):
            y, ticks = 0.0, []
            for attribute in attributes:
                ticks.append((y, attribute))
                top = y
                of_attribute = table.loc[table["attribute"] == attribute]
                for _, row in of_attribute.loc[of_attribute.index.isin(kept.index)].iterrows():
                    y -= 1.0
                    name = shorten(row["level"], NAME_LENGTH)
                    ticks.append((y, f"{name}  (n = {row['n']:,})"))
                    words.append(_draw_category(axes, y, f"{attribute} {row['level']}", row))
                best = of_attribute.loc[of_attribute["status"] == COMPARED, "rate"].max()
                ends = (y - 0.4, top - 0.5)
                axes.vlines(best, *ends, zorder=1, **HIGHEST)
                axes.vlines(0.8 * best, *ends, zorder=1, **FOUR_FIFTHS)
                y -= 1.25
            axes.set_title(name_measure(rate), **HEADING)
            label_rows(axes, ticks, attributes)
            axes.set_xlim(left=0.0)
        more = f" ({omitted} smaller categories are in impact.csv)" if omitted else ""
        figure.supxlabel(f"rate, with 95% intervals{more}", fontsize=9.5, color=INK)
        keys = [
            make_key("four fifths of the highest, or more", ms=6, **FAIR),
            make_key("below four fifths", ms=5, **BELOW),
            make_key("not compared", ms=6, **APART),
            make_key("highest rate", **HIGHEST),
            make_key("four fifths of it", **FOUR_FIFTHS),
        ]
        add_legend(figure, keys, 3, loc="outside upper left", fontsize=8.8)
        png = encode_png(figure)
    return Picture(png, f"Rates by category: {'; '.join(words)}.")


def _draw_category(axes: Any, y: float, name: str, row: pd.Series) -> str:
    """Draw one rate, and return it in words."""
    if row["status"] == TOO_FEW or pd.isna(row["rate"]):
        axes.annotate("too few rows", (0.01, y), va="center", fontsize=8, color=GREY)
        return f"{name} too few rows"
    below = pd.notna(row["four_fifths"]) and row["four_fifths"]
    look = APART if row["status"] != COMPARED else BELOW if below else FAIR
    axes.hlines(y, row["low"], row["high"], color=look["color"], lw=1.3, zorder=2)
    axes.plot(row["rate"], y, ms=6, zorder=3, **look)
    return f"{name} {row['rate']:.3f}"


def draw_calibration(calibration: pd.DataFrame) -> Picture:
    """Draw the share of positive labels over the mean score of each tenth, by category.

    A panel for each attribute, without their cross, whose lines would be too many; beyond
    ``LINES_AT_MOST`` categories the smallest are omitted.
    """
    _, *attributes = dict.fromkeys(calibration["attribute"])
    if attributes[-1] == "×".join(attributes[:-1]):
        attributes.pop()
    everyone = calibration.loc[calibration["attribute"] == ""]
    probable = everyone["score_low"].min() >= 0 and everyone["score_high"].max() <= 1
    columns = min(2, len(attributes))
    rows = -(-len(attributes) // columns)
    words = []
    with open_figure(4.4 * columns, 3.7 * rows + 0.4, w_pad=0.08, h_pad=0.08) as figure:
        for axes, attribute in zip(
            add_panels(figure, len(attributes), columns), attributes, strict=True
        ):
            table = calibration.loc[calibration["attribute"] == attribute]
            sizes = table.groupby("level", sort=False)["n"].sum()
            kept = sizes.nlargest(LINES_AT_MOST).index
            if probable:
                axes.plot([0, 1], [0, 1], color=GREY, lw=1.0, ls=":", zorder=1)
            for i, level in enumerate(level for level in sizes.index if level in kept):
                line = table.loc[(table["level"] == level) & table["positive"].notna()]
                if line.empty:
                    continue
                colour = COLOURS[i % len(COLOURS)]
                axes.errorbar(
                    line["score"],
                    line["positive"],
                    yerr=[line["positive"] - line["low"], line["high"] - line["positive"]],
                    color=colour,
                    marker=MARKERS[i % len(MARKERS)],
                    ms=4.5,
                    lw=1.2,
                    elinewidth=0.7,
                    label=shorten(level, NAME_LENGTH),
                )
                words.append(
                    f"{attribute} {level} from {line['positive'].iloc[0]:.3f} in the lowest tenth "
                    f"to {line['positive'].iloc[-1]:.3f} in the highest"
                )
            omitted = len(sizes) - len(kept)
            axes.set_title(f"{attribute} ({omitted} more)" if omitted else attribute, **HEADING)
            axes.set_xlabel("mean score of a tenth of the rows")
            axes.set_ylabel("share of positive labels")
            axes.set_ylim(-0.02, 1.02)
            add_grid(axes)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize=7.5, frameon=False, loc="lower right")
        png = encode_png(figure)
    return Picture(png, f"Share of positive labels by score: {'; '.join(words)}.")
