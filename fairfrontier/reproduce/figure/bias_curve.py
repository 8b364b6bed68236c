"""Curves of bias against accuracy: one panel for each classifier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairfrontier.figure.frontier import COLOURS, INK, add_grid, encode_png, open_figure
from fairfrontier.reproduce.figure.classifier import (
    THRESHOLDS,
    Classifier,
    ClassifierRow,
    Scored,
    list_classifiers,
    refuse_dataset,
)
from fairfrontier.reproduce.figure.tradeoff import (
    Curve,
    average,
    measure_decision,
    measure_unmodified,
    trace_hardt,
    trace_reject_option,
    trace_thresholds,
)
from fairfrontier.study.drawing import Picture, Scene, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "bias_curve"
UNMODIFIED, HARDT, REJECT = "unmodified", "hardt", "reject_option"


@dataclass(frozen=True)
class Look:
    """How a post-processor is shown."""

    name: str
    colour: str
    marker: str


LOOKS: Mapping[str, Look] = {
    UNMODIFIED: Look("unmodified", INK, "o"),
    THRESHOLDS: Look("randomised thresholds", COLOURS[2], "D"),
    HARDT: Look("Hardt et al.", COLOURS[1], "s"),
    REJECT: Look("reject option", COLOURS[4], "^"),
    "shift_inference": Look("shift inference", COLOURS[0], "v"),
}


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """What post-processors make of one classifier, as means over the splits.

    Attributes
    ----------
    label : str
        The classifier.
    points : mapping of str to ndarray of float64, shape (n_seeds, 2)
        ``unmodified`` or a post-processor of the study -> bias and accuracy of its decisions on
        test, by split.
    curves : mapping of str to Curve
        Post-processor -> its path, where it has one.
    """

    label: str
    points: Mapping[str, np.ndarray]
    curves: Mapping[str, Curve]


@figure(
    NAME,
    title="Bias against accuracy",
    what="Accuracy on test against bias, the largest less the smallest share of positive "
    "decisions over the groups, both in expectation and as means over the splits. Large markers "
    "are what the rows of the study decide, with the range over the splits. Curves sweep the bound "
    "ε of randomised thresholds (at the width and rate that were chosen on validation), the "
    "tolerance of Hardt et al., and θ of the reject option, dotted beyond the least bias. Where "
    "scores tie at one half, the widest bound decides 0 and the unmodified classifier 1.",
    supports=refuse_dataset,
)
def draw_bias_curve(scene: Scene) -> Picture:
    """Draw a panel for each classifier."""
    classifiers = list_classifiers(scene, NAME)
    found = tuple(trace_tradeoff(scene, each) for each in classifiers)
    positive = classifiers[0].positive(scene.home)
    return Picture(_draw(found, positive), _describe(found, positive))


def trace_tradeoff(scene: Scene, classifier: Classifier) -> Tradeoff:
    """Measure what the study's post-processors decide, and trace what they could have.

    Notes
    -----
    0.5 s a split of 10,000 rows a part, nearly all of it fairlearn's.
    """
    thresholds = classifier.thresholds
    attributes = thresholds.attributes
    rows = {UNMODIFIED: classifier.base}
    for method in LOOKS:
        row = classifier.find(method, attributes)
        if row is not None:
            rows[method] = row
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    curves: dict[str, list[Curve]] = {}
    for seed, base in classifier.base.fits.items():
        parts = {
            part: base.scored(part, attributes, scene.home) for part in ("calibration", "test")
        }
        for name, row in rows.items():
            points[name].append(_measure(row, seed, parts["test"]))
        processor = thresholds.fits[seed].model()
        curves.setdefault(THRESHOLDS, []).append(trace_thresholds(processor, **parts))
        if HARDT in rows:
            fitted = rows[HARDT].fits[seed]
            path = trace_hardt(
                fitted.model(),
                fitted.predictions()["test"].decision,
                parts["calibration"],
                parts["test"],
            )
            curves.setdefault(HARDT, []).append(path)
        if REJECT in rows:
            curves.setdefault(REJECT, []).append(trace_reject_option(parts["test"]))
    return Tradeoff(
        classifier.label,
        {name: np.asarray(found) for name, found in points.items()},
        {name: average(found) for name, found in curves.items()},
    )


def _measure(row: ClassifierRow, seed: int, test: Scored) -> tuple[float, float]:
    if row.then is None:
        return measure_unmodified(test)
    return measure_decision(test, row.fits[seed].predictions()["test"].decision)


def _describe(found: Sequence[Tradeoff], positive: str) -> str:
    """Return the picture in words."""
    told = []
    for each in found:
        means = [
            f"{LOOKS[name].name} {values[:, 0].mean():.3f} and {values[:, 1].mean():.3f}"
            for name, values in each.points.items()
        ]
        told.append(f"{each.label}: {', '.join(means)}")
    return (
        f"Bias, the largest less the smallest share decided {positive}, and accuracy on test. "
        + ". ".join(told)
        + "."
    )


def _draw(found: Sequence[Tradeoff], positive: str) -> bytes:
    from matplotlib.lines import Line2D

    columns = min(2, len(found))
    lines = math.ceil(len(found) / columns)
    with open_figure(4.9 * columns, 3.1 * lines + 0.7, w_pad=0.08, h_pad=0.08) as picture:
        panels = picture.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for axes in panels.flat[len(found) :]:
            axes.set_visible(False)
        for axes, each in zip(panels.flat, found, strict=False):
            _draw_panel(axes, each)
        _fit_to_points(panels[0, 0], found)
        picture.supxlabel(
            f"bias on test: largest minus smallest share decided {positive}, over the groups",
            fontsize=9.5,
        )
        picture.supylabel("accuracy on test", fontsize=9.5)
        shown = [name for name in LOOKS if any(name in each.points for each in found)]
        handles = [
            Line2D(
                [], [], color=LOOKS[name].colour, marker=LOOKS[name].marker, ms=7,
                mfc="white" if name == HARDT else None, mew=2 if name == HARDT else 1,
                ls="-" if any(name in each.curves for each in found) else "none",
                label=LOOKS[name].name,
            )
            for name in shown
        ]  # fmt: skip
        picture.legend(handles=handles, loc="outside upper left", ncols=len(handles), frameon=False)
        return encode_png(picture)


def _draw_panel(axes: Axes, found: Tradeoff) -> None:
    axes.set_title(found.label, fontsize=10.5, fontweight="bold", loc="left")
    add_grid(axes)
    for name, curve in found.curves.items():
        width = 2.2 if name == THRESHOLDS else 1.3
        # A θ wider than that of the least bias turns it round: dotted.
        turn = int(curve.bias.argmin()) if name == REJECT else len(curve.bias) - 1
        for part, line in ((slice(turn + 1), "-"), (slice(turn, None), ":")):
            axes.plot(
                curve.bias[part], curve.accuracy[part], line, color=LOOKS[name].colour, lw=width
            )
    for name, points in found.points.items():
        look = LOOKS[name]
        bias, accuracy = points.mean(axis=0)
        low, high = points.min(axis=0), points.max(axis=0)
        axes.hlines(accuracy, low[0], high[0], color=look.colour, lw=0.9, zorder=3)
        axes.vlines(bias, low[1], high[1], color=look.colour, lw=0.9, zorder=3)
        # The square is hollow, since others often lie inside it.
        hollow = name == HARDT
        axes.plot(
            bias, accuracy, look.marker, color=look.colour, ms=11 if hollow else 7.5,
            mfc="white" if hollow else look.colour, mec=look.colour if hollow else "white",
            mew=2.0 if hollow else 0.8, zorder=4 if hollow else 5,
        )  # fmt: skip


def _fit_to_points(axes: Axes, found: Sequence[Tradeoff]) -> None:
    """Leave out where a wide θ turns the bias round, far below all that was chosen."""
    points = np.concatenate([values for each in found for values in each.points.values()])
    paths = [each.curves[THRESHOLDS].accuracy for each in found]
    accuracy = np.concatenate([points[:, 1], *paths])
    room = 0.08 * (np.ptp(accuracy) or 0.1)
    axes.set_ylim(accuracy.min() - room, accuracy.max() + room)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlim(-0.02 * points[:, 0].max(), 1.06 * points[:, 0].max())
