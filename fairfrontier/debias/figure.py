"""Pictures of a debiased classifier: rates of groups, rules over scores, bias against accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fairfrontier.debias.tally import Estimate
from fairfrontier.figure.frontier import COLOURS, INK, add_grid, encode_png, open_figure
from fairfrontier.study.drawing import Picture
from fairfrontier.train.postprocess.rule import ThresholdRule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEFORE_LOOK: Any = {"color": INK, "marker": "o", "markerfacecolor": "white"}
AFTER_LOOK: Any = {"color": COLOURS[2], "marker": "D"}
PANELS_AT_MOST = 12
ROWS_AT_MOST = 40
# Longer names of groups would push the panels together.
NAME_LENGTH = 34
LAYOUT = {"w_pad": 0.1, "h_pad": 0.08}


@dataclass(frozen=True)
class Bar:
    """One group's rates, as they are drawn.

    Attributes
    ----------
    attribute, level : str
        E.g. sex and Female.
    n : int
        Rows.
    before, after : Estimate
        Shares decided 1.
    """

    attribute: str
    level: str
    n: int
    before: Estimate
    after: Estimate


def draw_groups(bars: Sequence[Bar], rate: float) -> Picture:
    """Draw the share decided 1 in every group, before and after, with 95% intervals.

    Parameters
    ----------
    bars : sequence of Bar
        By attribute; beyond ``ROWS_AT_MOST`` the smallest groups are left out.
    rate : float
        ρ, the target.
    """
    kept = _keep_largest(bars)
    attributes = list(dict.fromkeys(bar.attribute for bar in kept))
    height = 1.3 + 0.27 * len(kept) + 0.34 * len(attributes)
    with open_figure(7.6, height, **LAYOUT) as figure:
        axes = figure.subplots()
        places: list[float] = []
        names: list[str] = []
        headings: list[int] = []
        top = 0.0
        for attribute in attributes:
            headings.append(len(places))
            places.append(top)
            names.append(attribute)
            for bar in (each for each in kept if each.attribute == attribute):
                top -= 1.0
                places.append(top)
                names.append(f"{_shorten(bar.level)}  (n = {bar.n:,})")
                _draw_bar(axes, bar, top)
            top -= 1.25
        axes.axvline(rate, color=COLOURS[2], lw=1.0, ls="--", zorder=0)
        axes.set_yticks(places, names)
        for label in [axes.get_yticklabels()[place] for place in headings]:
            label.set(fontweight="bold", color=INK)
        axes.set_ylim(top + 0.6, 0.7)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        add_grid(axes, "x")
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
        left_out = len(bars) - len(kept)
        more = f" ({left_out} smaller groups stand in the table)" if left_out else ""
        axes.set_xlabel(f"share decided 1, with 95% intervals{more}")
        handles = [
            _key("unmodified", ls="none", ms=6, **BEFORE_LOOK),
            _key("debiased", ls="none", ms=6, **AFTER_LOOK),
            _key(f"target rate {rate:.3f}", color=COLOURS[2], lw=1.0, ls="--"),
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=3, frameon=False)
        png = encode_png(figure)
    told = "; ".join(
        f"{bar.attribute} {bar.level} {bar.before.value:.3f} and {bar.after.value:.3f}"
        for bar in kept
    )
    return Picture(png, f"Share decided 1 by group, before and after: {told}.")


def draw_rules(
    histogram: np.ndarray, names: Sequence[str], counts: np.ndarray, rule: ThresholdRule, scale: str
) -> Picture:
    """Draw the scores of every group with its rule over them.

    Parameters
    ----------
    histogram : ndarray of float64, shape (n_groups, n_bins)
        Weight in bins of equal width over f ∈ [−1, 1].
    names : sequence of str
        Of the groups.
    counts : ndarray of int64, shape (n_groups,)
        Rows. Beyond ``PANELS_AT_MOST`` groups the smallest are left out.
    rule : ThresholdRule
        By group code.
    scale : str
        Of the scores: ``signed`` ones are shown as such, others as probabilities.
    """
    order = np.argsort(-counts, kind="stable")[:PANELS_AT_MOST]
    shown = np.sort(order).tolist()
    columns = min(3, len(shown))
    lines = math.ceil(len(shown) / columns)
    with open_figure(3.35 * columns + 0.4, 2.05 * lines + 1.0, **LAYOUT) as figure:
        panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for axes in panels.flat[len(shown) :]:
            axes.set_visible(False)
        # Beyond the last panel of an incomplete line the one above carries the axis.
        for axes in panels.flat[max(0, len(shown) - columns) : len(shown)]:
            axes.tick_params(labelbottom=True)
        edges = np.linspace(-1.0, 1.0, histogram.shape[1] + 1)
        low = -1.0 if scale == "signed" else 0.0

        def place(signed: np.ndarray) -> np.ndarray:
            return signed if scale == "signed" else (signed + 1.0) / 2.0

        fine = np.linspace(-1.0, 1.0, 2001)
        for axes, group in zip(panels.flat, shown, strict=False):
            mass = histogram[group]
            axes.stairs(mass / max(mass.max(), 1e-300), place(edges), fill=True, color="#b6c8d9")
            code = np.full(fine.shape, group)
            h = rule.probability(fine, code)
            axes.plot(place(fine), h, color=COLOURS[2], lw=2.0)
            if rule.width == 0:
                at = place(rule.threshold[group : group + 1])
                axes.plot(at, rule.coin[group], "o", color=COLOURS[2], ms=5, zorder=3)
            axes.axvline(place(np.zeros(1))[0], color=INK, lw=1.0, ls=":")
            axes.set_title(
                f"{_shorten(names[group])}, n = {counts[group]:,}", fontsize=8.8, loc="left"
            )
            axes.set_xlim(low - 0.02 * (1 - low), 1.0 + 0.02 * (1 - low))
            axes.set_ylim(0.0, 1.06)
        axis = "score" if scale == "signed" else "score as a probability"
        figure.supxlabel(axis, fontsize=9.5, color=INK)
        figure.supylabel("probability of deciding 1", fontsize=9.5, color=INK)
        handles = [
            _key("probability of deciding 1", color=COLOURS[2], lw=2.0),
            _key("unmodified threshold", color=INK, lw=1.0, ls=":"),
            _key("scores, to the fullest bin", color="#b6c8d9", lw=6),
        ]
        figure.legend(
            handles=handles,
            loc="outside upper left",
            ncols=min(3, columns),
            frameon=False,
            fontsize=8.8,
        )
        png = encode_png(figure)
    thresholds = place(np.asarray(rule.threshold))
    told = "; ".join(f"{names[group]} {thresholds[group]:.3f}" for group in shown)
    return Picture(png, f"Scores of each group and where its rule begins to decide 1: {told}.")


def draw_curve(
    curve: pd.DataFrame,
    before: tuple[Estimate, Estimate],
    after: tuple[Estimate, Estimate],
    measure: str,
    groups: str,
) -> Picture:
    """Draw what a looser constraint buys: bias against accuracy, for ε from 0 on.

    Parameters
    ----------
    curve : DataFrame
        Columns bias and the measure.
    before, after : pairs of Estimate
        Bias and measure of the unmodified and of the debiased classifier.
    measure : {"accuracy", "changed"}
        Expected accuracy, or the share of decisions that change where there are no labels.
    groups : str
        What the bias is between, e.g. ``sex×race``.
    """
    with open_figure(6.4, 4.3, **LAYOUT) as figure:
        axes = figure.subplots()
        add_grid(axes)
        axes.plot(curve["bias"], curve[measure], color=COLOURS[2], lw=2.2, zorder=2)
        for (bias, value), look in ((before, BEFORE_LOOK), (after, AFTER_LOOK)):
            axes.hlines(value.value, bias.low, bias.high, color=look["color"], lw=0.9, zorder=1)
            axes.vlines(bias.value, value.low, value.high, color=look["color"], lw=0.9, zorder=1)
            axes.plot(bias.value, value.value, ls="none", ms=8, zorder=4, **look)
        axes.set_xlim(left=0.0)
        axes.set_xlabel(f"bias: largest minus smallest share decided 1, over {_shorten(groups)}")
        label = "expected accuracy" if measure == "accuracy" else "share of decisions changed"
        axes.set_ylabel(label)
        handles = [
            _key("unmodified", ls="none", ms=7, **BEFORE_LOOK),
            _key("debiased", ls="none", ms=7, **AFTER_LOOK),
            _key("other bounds ε", color=COLOURS[2], lw=2.2),
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=3, frameon=False)
        png = encode_png(figure)
    return Picture(
        png,
        f"Bias between groups of {groups} against {label}: unmodified {before[0].value:.3f} and "
        f"{before[1].value:.3f}, debiased {after[0].value:.3f} and {after[1].value:.3f}, with the "
        "curve of looser bounds between. The numbers stand in curve.csv.",
    )


def _draw_bar(axes: Axes, bar: Bar, height: float) -> None:
    ends = [bar.before.value, bar.after.value]
    axes.plot(ends, [height, height], color="#d0d7de", lw=2.5, zorder=1)
    for estimate, look in ((bar.before, BEFORE_LOOK), (bar.after, AFTER_LOOK)):
        axes.hlines(height, estimate.low, estimate.high, color=look["color"], lw=1.1, zorder=2)
        axes.plot(estimate.value, height, ls="none", ms=6, zorder=3, **look)


def _keep_largest(bars: Sequence[Bar]) -> list[Bar]:
    places = sorted(range(len(bars)), key=lambda place: -bars[place].n)[:ROWS_AT_MOST]
    return [bars[place] for place in sorted(places)]


def _shorten(name: str) -> str:
    """Take the middle out of a long name: names of groups differ at both ends."""
    half = NAME_LENGTH // 2
    return name if len(name) <= NAME_LENGTH else f"{name[:half]}…{name[-half + 1 :]}"


def _key(label: str, **look: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)
