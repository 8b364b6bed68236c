"""The pictures of an audit: rates by category or true group, and calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fairfrontier.figure.frontier import (
    COLOURS,
    GREY,
    HEADING,
    INK,
    MARKERS,
    NAME_LENGTH,
    add_grid,
    add_legend,
    add_panels,
    encode_png,
    label_rows,
    make_key,
    name_measure,
    open_figure,
    place_rows,
    shorten,
)
from fairfrontier.models.thresholds.rule import DecisionRule, ThresholdRule
from fairfrontier.study.drawing import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


# Whether the rate of a category is compared with those of others.
COMPARED, EXCLUDED, TOO_FEW = "compared", "excluded", "too few"
# A number with its 95% interval.
Estimate = tuple[float, float, float]
GROUPS_AT_MOST = 16
SHORT = 22
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
            axes.set_yticks(range(len(groups)), [shorten(name, SHORT) for name in groups])
            axes.set_ylim(len(groups) - 0.4, -0.6)
        more = f" ({omitted} smaller groups are in bounds.csv)" if omitted else ""
        figure.supxlabel(f"rate of the true group{more}", fontsize=9.5, color=INK)
        keys = _explain_bounds(bounds, budget, rests_on)
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


def _explain_bounds(bounds: pd.DataFrame, budget: float, rests_on: str) -> list[Line2D]:
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


LINES_AT_MOST = 6
FAIR: Any = {"color": COLOURS[0], "marker": "o", "ls": "none"}
BELOW: Any = {"color": COLOURS[1], "marker": "D", "ls": "none"}
APART: Any = {"color": GREY, "marker": "o", "markerfacecolor": "white", "ls": "none"}
FOUR_FIFTHS: Any = {"color": COLOURS[1], "lw": 1.2, "ls": "--"}
HIGHEST: Any = {"color": INK, "lw": 1.0}


def draw_impact(impact: pd.DataFrame) -> Picture:
    """Draw the rates of all categories with 95% intervals, beside four fifths of the highest one.

    A panel for each rate.
    """
    rates = impact["measure"].unique()
    # The same categories in the same order.
    kept, ticks, omitted = place_rows(impact[impact["measure"] == rates[0]])
    attributes = kept["attribute"].unique().tolist()
    words = []
    height = 1.2 + 0.28 * (len(kept) + 1.4 * len(attributes))
    with open_figure(3.6 + 3.6 * len(rates), height, w_pad=0.1, h_pad=0.08) as figure:
        panels = add_panels(figure, len(rates), len(rates), sharey=True)
        for axes, rate in zip(panels, rates, strict=True):
            table = impact[impact["measure"] == rate].reset_index(drop=True)
            compared = table[table["status"] == COMPARED]
            best = compared.groupby("attribute")["rate"].max()
            for attribute, rows in kept[["y"]].join(table).groupby("attribute", sort=False):
                words += [_draw_category(axes, row) for row in rows.to_dict("records")]
                ends, highest = (rows["y"].min() - 0.4, rows["y"].max() + 0.5), best.get(attribute)
                if highest is not None:
                    axes.vlines(highest, *ends, zorder=1, **HIGHEST)
                    axes.vlines(0.8 * highest, *ends, zorder=1, **FOUR_FIFTHS)
            axes.set_title(f"{name_measure(rate)}: more is better", **HEADING)
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


def _draw_category(axes: Axes, row: dict[Any, Any]) -> str:
    """Draw one rate, and return it in words."""
    name, y = f"{row['attribute']} {row['level']}", row["y"]
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

    A panel for each attribute, without crosses, whose lines would be too many; beyond
    ``LINES_AT_MOST`` categories the smallest are omitted.
    """
    _, *attributes = dict.fromkeys(calibration["attribute"])
    crossed = {*map("×".join, combinations(attributes, 2))}
    attributes = [name for name in attributes if name not in crossed]
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


# Pictures of a debiased classifier: rates of groups, rules over scores, bias against accuracy.

BEFORE_LOOK: Any = {"color": INK, "marker": "o", "markerfacecolor": "white", "ls": "none"}
AFTER_LOOK: Any = {"color": COLOURS[2], "marker": "D", "ls": "none"}
PANELS_AT_MOST = 12
LAYOUT = {"w_pad": 0.1, "h_pad": 0.08}
ABOVE = "outside upper left"


def draw_groups(rows: pd.DataFrame, titles: Mapping[str, str], target: Any) -> Picture:
    """Draw rates of every group, before and after, with 95% intervals.

    ``rows`` are of groups.csv, and ``titles`` name the rates that are drawn; ``target`` is ρ.
    """
    ends = [f"{when}{end}" for when in ("before", "after") for end in ("", "_low", "_high")]
    several = len(titles) > 1
    tables = [
        rows.assign(
            attribute=rows["attribute"] + (f", {title}" if several else ""),
            **{end: rows[f"{rate}_{end}"] for end in ends},
        )
        for rate, title in titles.items()
    ]
    title = "rates of error and success" if several else next(iter(titles.values()))
    kept, ticks, omitted = place_rows(pd.concat(tables))
    attributes = kept["attribute"].unique().tolist()
    height = 1.3 + 0.27 * len(kept) + 0.34 * len(attributes)
    with open_figure(7.6, height, **LAYOUT) as figure:
        axes = figure.subplots()
        axes.hlines(kept["y"], kept["before"], kept["after"], color="#d0d7de", lw=2.5, zorder=1)
        for when, look in (("before", BEFORE_LOOK), ("after", AFTER_LOOK)):
            low, high = kept[f"{when}_low"], kept[f"{when}_high"]
            axes.hlines(kept["y"], low, high, color=look["color"], lw=1.1, zorder=2)
            axes.plot(kept[when], kept["y"], ms=6, zorder=3, **look)
        if target is not None:
            axes.axvline(target, color=COLOURS[2], lw=1.0, ls="--", zorder=0)
        label_rows(axes, ticks, attributes)
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
        more = f" ({omitted} smaller groups are in the table)" if omitted else ""
        axes.set_xlabel(f"{title}, with 95% intervals{more}")
        keys = _explain_rules(6)
        if target is not None:
            keys.append(make_key(f"target rate {target:.3f}", color=COLOURS[2], lw=1.0, ls="--"))
        add_legend(figure, keys, 3, loc=ABOVE)
        png = encode_png(figure)
    shares = "; ".join(
        f"{row.attribute} {row.level} {row.before:.3f} and {row.after:.3f}"
        for row in kept.itertuples()
    )
    return Picture(png, f"{title.capitalize()} by group, before and after: {shares}.")


def draw_rules(
    histogram: np.ndarray,
    names: Sequence[str],
    counts: np.ndarray,
    groups: np.ndarray,
    rule: DecisionRule,
    scale: str,
) -> Picture:
    """Draw the scores of some groups, by number, with their rules over them.

    ``histogram`` is the weight in bins of equal width over f ∈ [−1, 1], shape (n_groups, n_bins),
    and ``counts`` the rows of the groups; beyond ``PANELS_AT_MOST`` the smallest are omitted.
    Scores of the scale ``signed`` are shown as such, others as probabilities.
    """
    order = np.argsort(-counts[groups], kind="stable")[:PANELS_AT_MOST]
    shown = np.sort(groups[order]).tolist()
    columns = min(3, len(shown))
    height = 2.05 * math.ceil(len(shown) / columns) + 1.0

    def convert(signed: np.ndarray) -> np.ndarray:
        return signed if scale == "signed" else (signed + 1.0) / 2.0

    with open_figure(3.35 * columns + 0.4, height, **LAYOUT) as figure:
        panels = add_panels(figure, len(shown), columns, sharex=True, sharey=True)
        # Above a gap in the last row, the panel carries the axis.
        for axes in panels[-columns:]:
            axes.tick_params(labelbottom=True)
        edges = np.linspace(-1.0, 1.0, histogram.shape[1] + 1)
        low = -1.0 if scale == "signed" else 0.0
        fine = np.linspace(-1.0, 1.0, 2001)
        for axes, group in zip(panels, shown, strict=True):
            mass = histogram[group]
            axes.stairs(mass / max(mass.max(), 1e-300), convert(edges), fill=True, color="#b6c8d9")
            h = rule.probability(fine, np.full(fine.shape, group))
            axes.plot(convert(fine), h, color=COLOURS[2], lw=2.0)
            if isinstance(rule, ThresholdRule) and rule.width == 0:
                at = convert(rule.threshold[group : group + 1])
                axes.plot(at, rule.coin[group], "o", color=COLOURS[2], ms=5, zorder=3)
            axes.axvline(convert(np.zeros(1))[0], color=INK, lw=1.0, ls=":")
            title = f"{shorten(names[group], NAME_LENGTH)}, n = {counts[group]:,}"
            axes.set_title(title, fontsize=8.8, loc="left")
            axes.set_xlim(low - 0.02 * (1 - low), 1.0 + 0.02 * (1 - low))
            axes.set_ylim(0.0, 1.06)
        kinds = {"signed": "score", "points": "score by its rank, from the cut of all rows at ½"}
        axis = kinds.get(scale, "score as a probability")
        figure.supxlabel(axis, fontsize=9.5, color=INK)
        figure.supylabel("probability of deciding 1", fontsize=9.5, color=INK)
        keys = [
            make_key("probability of deciding 1", color=COLOURS[2], lw=2.0),
            make_key("unmodified threshold", color=INK, lw=1.0, ls=":"),
            make_key("scores, relative to the fullest bin", color="#b6c8d9", lw=6),
        ]
        add_legend(figure, keys, columns, loc=ABOVE, fontsize=8.8)
        png = encode_png(figure)
    if isinstance(rule, ThresholdRule):
        starts = rule.threshold[shown]
    else:
        chosen = [rule.probability(fine, np.full(fine.shape, group)) > 0 for group in shown]
        starts = fine[np.argmax(chosen, axis=1)]
    begins = convert(np.asarray(starts))
    listed = "; ".join(
        f"{names[group]} {start:.3f}" for group, start in zip(shown, begins, strict=True)
    )
    return Picture(png, f"Scores of each group and where its rule begins to decide 1: {listed}.")


def draw_curve(
    curve: pd.DataFrame,
    before: tuple[Estimate, Estimate],
    after: tuple[Estimate, Estimate],
    measure: str,
    groups: str,
    rate: str,
) -> Picture:
    """Draw what a looser constraint gains: bias against accuracy, for ε from 0 on.

    ``curve`` has the columns bias and ``measure``: an objective such as "accuracy", or "changed"
    where there are no labels. ``before`` and ``after`` are the bias and the measure of the
    unmodified and of the debiased classifier; the bias is that of a ``rate`` between ``groups``,
    such as sex×race.
    """
    with open_figure(6.4, 4.3, **LAYOUT) as figure:
        axes = figure.subplots()
        add_grid(axes)
        axes.plot(curve["bias"], curve[measure], color=COLOURS[2], lw=2.2, zorder=2)
        for (bias, value), look in ((before, BEFORE_LOOK), (after, AFTER_LOOK)):
            axes.hlines(value[0], *bias[1:], color=look["color"], lw=0.9, zorder=1)
            axes.vlines(bias[0], *value[1:], color=look["color"], lw=0.9, zorder=1)
            axes.plot(bias[0], value[0], ms=8, zorder=4, **look)
        axes.set_xlim(left=0.0)
        over = shorten(groups, NAME_LENGTH)
        axes.set_xlabel(f"bias: largest minus smallest {rate}, over {over}")
        label = "share of decisions changed"
        if measure != "changed":
            label = f"expected {measure.replace('_', ' ')}"
        axes.set_ylabel(label)
        other = make_key("other bounds ε", color=COLOURS[2], lw=2.2)
        add_legend(figure, [*_explain_rules(7), other], 3, loc=ABOVE)
        png = encode_png(figure)
    return Picture(
        png,
        f"Bias between groups of {groups} against {label}: unmodified {before[0][0]:.3f} and "
        f"{before[1][0]:.3f}, debiased {after[0][0]:.3f} and {after[1][0]:.3f}, with the "
        "curve of looser bounds between. The numbers are in curve.csv.",
    )


def _explain_rules(size: float) -> list[Line2D]:
    return [
        make_key("unmodified", ms=size, **BEFORE_LOOK),
        make_key("debiased", ms=size, **AFTER_LOOK),
    ]
