"""The picture of an explanation: which columns matter, and what they add to each group."""

from __future__ import annotations

import pandas as pd

from fairfrontier.figure.frontier import (
    COLOURS,
    GREY,
    HEADING,
    INK,
    MARKERS,
    add_grid,
    add_panels,
    encode_png,
    open_figure,
    shorten,
)
from fairfrontier.study.drawing import Picture

COLUMNS_AT_MOST, LEVELS_AT_MOST, ATTRIBUTES_AT_MOST = 15, 6, 3
NAME_LENGTH = 28


def draw_explanation(table: pd.DataFrame, unit: str) -> Picture:
    """Draw the mean of |value| of the first columns, and beside it their mean value by group.

    ``table`` is as of `Explanation.tabulate`. A panel for each attribute; of more than
    ``ATTRIBUTES_AT_MOST`` attributes, or ``LEVELS_AT_MOST`` groups, the last or smallest are
    omitted.
    """
    overall = table[table["attribute"] == ""]
    columns = overall["column"].head(COLUMNS_AT_MOST).tolist()
    place = {column: -position for position, column in enumerate(columns)}
    shown = table[table["column"].isin(columns) & table["mean"].notna()]
    attributes = list(dict.fromkeys(shown["attribute"]))[1:]
    panels = attributes[:ATTRIBUTES_AT_MOST]
    words = []
    with open_figure(3.2 + 3.2 * (1 + len(panels)), 1.5 + 0.32 * len(columns), w_pad=0.1) as figure:
        first, *others = add_panels(figure, 1 + len(panels), 1 + len(panels), sharey=True)
        rows = shown[shown["attribute"] == ""]
        first.barh(rows["column"].map(place), rows["mean_abs"], 0.62, color=COLOURS[0])
        first.set_title("all rows", **HEADING)
        first.set_xlabel(f"mean |SHAP value|, {unit}")
        names = [shorten(column, NAME_LENGTH) for column in columns]
        first.set_yticks(list(place.values()), names)
        first.set_ylim(0.6 - len(columns), 0.6)
        words += [f"{row.column} {row.mean_abs:.3f}" for row in rows.itertuples()]
        for axes, attribute in zip(others, panels, strict=True):
            of_attribute = shown[shown["attribute"] == attribute]
            sizes = of_attribute.groupby("level", sort=False)["n"].first()
            kept = sizes.nlargest(LEVELS_AT_MOST).index
            axes.axvline(0.0, color=GREY, lw=1.0, zorder=1)
            for number, level in enumerate(level for level in sizes.index if level in kept):
                values = of_attribute[of_attribute["level"] == level]
                label = f"{shorten(level, NAME_LENGTH)} (n = {sizes[level]:,})"
                axes.plot(
                    values["mean"],
                    values["column"].map(place),
                    color=COLOURS[number],
                    marker=MARKERS[number],
                    ls="none",
                    ms=6,
                    label=label,
                )
            omitted = len(sizes) - len(kept)
            axes.set_title(f"{attribute} ({omitted} more)" if omitted else attribute, **HEADING)
            axes.set_xlabel(f"mean SHAP value, {unit}")
            axes.legend(
                fontsize=7.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16)
            )
        for axes in (first, *others):
            axes.tick_params(axis="y", length=0)
            add_grid(axes, "x")
        if len(overall) > len(columns):
            more = len(overall) - len(columns)
            told = f"{more} columns of smaller values are in explain.csv"
            figure.suptitle(told, fontsize=9, color=INK)
        png = encode_png(figure)
    told = ", ".join(words) or "too few rows"
    return Picture(png, f"Mean absolute SHAP value by column: {told}.")
