"""Curves of bias against accuracy: one panel for each classifier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairfrontier.figure.frontier import (
    COLOURS,
    INK,
    add_grid,
    add_legend,
    add_panels,
    encode_png,
    make_key,
    open_figure,
)
from fairfrontier.study.drawing import Picture, Scene, figure
from papers.figure.classifier import (
    THRESHOLDS,
    Classifier,
    list_classifiers,
    refuse_dataset,
    score_part,
)
from papers.figure.tradeoff import (
    Curve,
    average,
    measure_decision,
    measure_unmodified,
    trace_hardt,
    trace_reject_option,
    trace_thresholds,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "bias_curve"
UNMODIFIED, HARDT, REJECT = "unmodified", "hardt", "reject_option"


class Look(NamedTuple):
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
    """Bias and accuracy of one classifier and its post-processors on test.

    ``points`` has those of the decisions on every split, float64 of shape (n_seeds, 2), under
    ``unmodified`` and the post-processors' names; ``curves`` has mean curves over the splits.
    """

    label: str
    points: Mapping[str, np.ndarray]
    curves: Mapping[str, Curve]


@figure(
    NAME,
    title="Bias against accuracy",
    what="Accuracy on test against bias, the largest minus the smallest share of positive "
    "decisions over the groups, both in expectation and as means over the splits. Large markers "
    "are the decisions of the study's rows, with the range over the splits. Curves sweep the bound "
    "ε of randomised thresholds (at the width and rate chosen on validation), the tolerance of "
    "Hardt et al., and θ of the reject option, dotted beyond the least bias. Where scores tie at "
    "one half, the widest bound decides 0 and the unmodified classifier 1.",
    supports=refuse_dataset,
)
def draw_bias_curve(scene: Scene) -> Picture:
    """Draw a panel for each classifier."""
    classifiers = list_classifiers(scene, NAME)
    tradeoffs = tuple(trace_tradeoff(scene, classifier) for classifier in classifiers)
    positive = classifiers[0].positive(scene.home)
    return Picture(_draw(tradeoffs, positive), _describe(tradeoffs, positive))


def trace_tradeoff(scene: Scene, classifier: Classifier) -> Tradeoff:
    """Measure the decisions of the study's post-processors, and trace the curves they are on.

    0.5 s per split with 10,000 rows a part, nearly all of it in fairlearn.
    """
    thresholds = classifier.thresholds
    attributes = thresholds.attributes
    candidates = {method: classifier.find(method, attributes) for method in LOOKS}
    rows = {name: row for name, row in candidates.items() if row is not None}
    rows = {UNMODIFIED: classifier.base, **rows}
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    curves: dict[str, list[Curve]] = {}
    for seed, base in classifier.base.fits.items():
        calibration, test = (
            score_part(base, part, attributes, scene.home) for part in ("calibration", "test")
        )
        points[UNMODIFIED].append(measure_unmodified(test))
        decisions = {
            name: row.fits[seed].test_scores().decision
            for name, row in rows.items()
            if name != UNMODIFIED
        }
        for name, decision in decisions.items():
            points[name].append(measure_decision(test, decision))
        curve = trace_thresholds(thresholds.fits[seed].model(), calibration, test)
        curves.setdefault(THRESHOLDS, []).append(curve)
        if HARDT in rows:
            processor = rows[HARDT].fits[seed].model()
            curve = trace_hardt(processor, decisions[HARDT], calibration, test)
            curves.setdefault(HARDT, []).append(curve)
        if REJECT in rows:
            curves.setdefault(REJECT, []).append(trace_reject_option(test))
    return Tradeoff(
        classifier.label,
        {name: np.asarray(pairs) for name, pairs in points.items()},
        {name: average(of_splits) for name, of_splits in curves.items()},
    )


def _describe(tradeoffs: Sequence[Tradeoff], positive: str) -> str:
    """Return the picture in words."""
    parts = []
    for tradeoff in tradeoffs:
        means = [
            f"{LOOKS[name].name} {values[:, 0].mean():.3f} and {values[:, 1].mean():.3f}"
            for name, values in tradeoff.points.items()
        ]
        parts.append(f"{tradeoff.label}: {', '.join(means)}")
    return (
        f"Bias, the largest minus the smallest share decided {positive}, and accuracy on test. "
        + ". ".join(parts)
        + "."
    )


def _draw(tradeoffs: Sequence[Tradeoff], positive: str) -> bytes:
    columns = min(2, len(tradeoffs))
    lines = math.ceil(len(tradeoffs) / columns)
    with open_figure(4.9 * columns, 3.1 * lines + 0.7, w_pad=0.08, h_pad=0.08) as picture:
        panels = add_panels(picture, len(tradeoffs), columns, sharex=True, sharey=True)
        for axes, tradeoff in zip(panels, tradeoffs, strict=True):
            _draw_panel(axes, tradeoff)
        _fit_to_points(panels[0], tradeoffs)
        picture.supxlabel(
            f"bias on test: largest minus smallest share decided {positive}, over the groups",
            fontsize=9.5,
        )
        picture.supylabel("accuracy on test", fontsize=9.5)
        shown = [name for name in LOOKS if any(name in other.points for other in tradeoffs)]
        handles = [
            make_key(
                LOOKS[name].name, color=LOOKS[name].colour, marker=LOOKS[name].marker, ms=7,
                mfc="white" if name == HARDT else None, mew=2 if name == HARDT else 1,
                ls="-" if any(name in other.curves for other in tradeoffs) else "none",
            )
            for name in shown
        ]  # fmt: skip
        add_legend(picture, handles, len(handles), loc="outside upper left")
        return encode_png(picture)


def _draw_panel(axes: Axes, tradeoff: Tradeoff) -> None:
    axes.set_title(tradeoff.label, fontsize=10.5, fontweight="bold", loc="left")
    add_grid(axes)
    for name, curve in tradeoff.curves.items():
        width = 2.2 if name == THRESHOLDS else 1.3
        # Beyond the least bias, a larger θ increases it again: dotted.
        turn = int(curve.bias.argmin()) if name == REJECT else len(curve.bias) - 1
        for part, line in ((slice(turn + 1), "-"), (slice(turn, None), ":")):
            axes.plot(
                curve.bias[part], curve.accuracy[part], line, color=LOOKS[name].colour, lw=width
            )
    for name, points in tradeoff.points.items():
        look = LOOKS[name]
        bias, accuracy = points.mean(axis=0)
        low, high = points.min(axis=0), points.max(axis=0)
        axes.hlines(accuracy, low[0], high[0], color=look.colour, lw=0.9, zorder=3)
        axes.vlines(bias, low[1], high[1], color=look.colour, lw=0.9, zorder=3)
        # The square is hollow, since other markers often lie inside it.
        hollow = name == HARDT
        axes.plot(
            bias, accuracy, look.marker, color=look.colour, ms=11 if hollow else 7.5,
            mfc="white" if hollow else look.colour, mec=look.colour if hollow else "white",
            mew=2.0 if hollow else 0.8, zorder=4 if hollow else 5,
        )  # fmt: skip


def _fit_to_points(axes: Axes, tradeoffs: Sequence[Tradeoff]) -> None:
    """Crop the part of the curves beyond the least bias, far below all chosen points."""
    points = np.concatenate([values for other in tradeoffs for values in other.points.values()])
    paths = [tradeoff.curves[THRESHOLDS].accuracy for tradeoff in tradeoffs]
    accuracy = np.concatenate([points[:, 1], *paths])
    room = 0.08 * (np.ptp(accuracy) or 0.1)
    axes.set_ylim(accuracy.min() - room, accuracy.max() + room)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlim(-0.02 * points[:, 0].max(), 1.06 * points[:, 0].max())
