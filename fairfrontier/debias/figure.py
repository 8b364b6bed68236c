"""Pictures of a debiased classifier: rates of groups, rules over scores, bias against accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fairfrontier.debias.tally import Estimate
from fairfrontier.figure.frontier import (
    COLOURS,
    INK,
    NAME_LENGTH,
    add_grid,
    add_legend,
    add_panels,
    encode_png,
    label_rows,
    make_key,
    open_figure,
    place_rows,
    shorten,
)
from fairfrontier.study.drawing import Picture
from fairfrontier.train.postprocess.rule import DecisionRule, ThresholdRule

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

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
        keys = _list_keys(6)
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
            axes.hlines(value.value, bias.low, bias.high, color=look["color"], lw=0.9, zorder=1)
            axes.vlines(bias.value, value.low, value.high, color=look["color"], lw=0.9, zorder=1)
            axes.plot(bias.value, value.value, ms=8, zorder=4, **look)
        axes.set_xlim(left=0.0)
        over = shorten(groups, NAME_LENGTH)
        axes.set_xlabel(f"bias: largest minus smallest {rate}, over {over}")
        label = "share of decisions changed"
        if measure != "changed":
            label = f"expected {measure.replace('_', ' ')}"
        axes.set_ylabel(label)
        other = make_key("other bounds ε", color=COLOURS[2], lw=2.2)
        add_legend(figure, [*_list_keys(7), other], 3, loc=ABOVE)
        png = encode_png(figure)
    return Picture(
        png,
        f"Bias between groups of {groups} against {label}: unmodified {before[0].value:.3f} and "
        f"{before[1].value:.3f}, debiased {after[0].value:.3f} and {after[1].value:.3f}, with the "
        "curve of looser bounds between. The numbers are in curve.csv.",
    )


def _list_keys(size: float) -> list[Line2D]:
    return [
        make_key("unmodified", ms=size, **BEFORE_LOOK),
        make_key("debiased", ms=size, **AFTER_LOOK),
    ]
