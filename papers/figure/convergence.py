"""The learned rule, and how the paper's descent converges to the exact thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairfrontier.figure.frontier import COLOURS, GREY, encode_png, open_figure
from fairfrontier.models.thresholds.ramp import solve_exact
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.drawing import Picture, Scene, figure
from papers.figure.classifier import list_classifiers, refuse_dataset, score_part
from papers.figure.parity import label_point
from papers.rival.threshold_descent import solve_sgd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "convergence"
# Points of the descent that are drawn.
TRACE = 400


@dataclass(frozen=True, eq=False)
class Convergence:
    """One rule, solved by descent and exactly, with γ, ρ and ε of the study's row.

    ``levels`` are the groups that have rows, and ``positive`` the name of the decision 1.
    ``threshold``, shape (n_groups,), is λ − μ of the exact optimum. ``epochs``, shape (n_points,),
    are the steps of the descent in passes over the rows; ``path``, shape (n_points, n_groups), is
    its λ − μ averaged over all steps until then, which it returns, and ``steps``, one row shorter,
    the average over the steps between two of ``epochs``.
    """

    label: str
    positive: str
    levels: tuple[str, ...]
    width: float
    rate: float
    budget: float
    threshold: np.ndarray
    epochs: np.ndarray
    path: np.ndarray
    steps: np.ndarray


@figure(
    NAME,
    title="The rule, and how descent finds it",
    what="Left: the probability of the decision 1 against the score, by group, under the "
    "randomised thresholds of the first classifier on the first split. Right: the same thresholds "
    "λ − μ by the paper's projected stochastic gradient descent, against passes over the "
    "calibration rows: its steps, their average from the start, which it returns, and the exact "
    "optimum.",
    supports=refuse_dataset,
)
def draw_convergence(scene: Scene) -> Picture:
    """Draw the rule of the first classifier's thresholds, and the descent to it."""
    convergence = trace_convergence(scene)
    return Picture(_draw(convergence), _describe(convergence))


def trace_convergence(scene: Scene) -> Convergence:
    """Solve the first classifier's thresholds by descent and exactly, on the first split.

    A ConfigError refuses thresholds without a ramp. 0.2 s for a million steps.
    """
    classifier = list_classifiers(scene, NAME)[0]
    row = classifier.thresholds
    seed, stored = next(iter(row.fits.items()))
    processor = stored.model()
    if not processor.width_ > 0:
        raise ConfigError(
            f"{NAME} shows the ramp of {row.label!r}, whose width is 0.",
            "Leave `width` out, or give one above 0.",
        )
    rows = score_part(classifier.base.fits[seed], "calibration", row.attributes, scene.home)
    rows = rows.calibrated(processor.calibration_)
    present = np.bincount(rows.code, rows.weight, len(rows.levels)) > 0
    width, rate, budget = processor.width_, processor.rate_, processor.budget
    settings = {"width": width, "rate": rate, "budget": budget}
    exact = solve_exact(rows.problem(), **settings)
    descent = solve_sgd(
        rows.score, rows.code, len(rows.levels), weight=rows.weight, trace=TRACE, **settings
    )
    # The running averages times their number of steps are sums of λ − μ.
    epochs = np.concatenate([[0.0], descent.trace_steps / rows.score.size])
    path = np.vstack([np.zeros(int(present.sum())), descent.trace[:, present]])
    return Convergence(
        label=classifier.label,
        positive=classifier.positive(scene.home),
        levels=tuple(np.array(rows.levels)[present].tolist()),
        threshold=exact.rule.threshold[present],
        epochs=epochs,
        path=path,
        steps=np.diff(path * epochs[:, None], axis=0) / np.diff(epochs)[:, None],
        **settings,
    )


def _describe(shown: Convergence) -> str:
    """Return the picture in words."""
    parts = [
        f"{level}: exact {exact:+.4f}, descent {last:+.4f}"
        for level, exact, last in zip(shown.levels, shown.threshold, shown.path[-1], strict=True)
    ]
    return (
        f"Left, {shown.label}: the decision {shown.positive} has probability 0 up to the group's "
        f"threshold, and 1 from {shown.width:g} above it. Right, λ − μ after "
        f"{shown.epochs[-1]:.0f} passes over the rows: {'; '.join(parts)}."
    )


def _draw(shown: Convergence) -> bytes:
    with open_figure(9.6, 3.7, w_pad=0.1, h_pad=0.1, wspace=0.06) as picture:
        left, right = picture.subplots(1, 2)
        _draw_rule(left, shown)
        _draw_descent(right, shown)
        return encode_png(picture)


def _draw_rule(axes: Axes, shown: Convergence) -> None:
    order = np.argsort(shown.threshold)
    for rank, group in enumerate(order):
        threshold, colour = shown.threshold[group], COLOURS[group % len(COLOURS)]
        corners = [-1.0, threshold, threshold + shown.width, 1.0]
        axes.plot(corners, [0, 0, 1, 1], color=colour, lw=2)
        # Labels of neighbouring ramps are at different heights, on the side with more room.
        height = 0.5 + 0.14 * (rank - (len(order) - 1) / 2)
        text = f"{shown.levels[group]}\nt = {threshold:+.3f}".replace("-", "−")
        point = (threshold + shown.width * height, height)
        label_point(axes, text, point, -9 if threshold > 0.5 else 9, color=colour, fontsize=9)
    axes.set_title(f"Rule of {shown.label}", fontsize=10.5, fontweight="bold", loc="left")
    axes.set_title(
        f"γ = {shown.width:g}, ρ = {shown.rate:.3f}, ε = {shown.budget:g}", fontsize=9, loc="right"
    )
    axes.set_xlim(-1, 1)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["−1", "−.5", "0", ".5", "1"])
    axes.set_xlabel(f"score f = 2 P({shown.positive}) − 1")
    axes.set_ylabel(f"probability of deciding {shown.positive}")
    axes.axvline(0, color=GREY, lw=0.8, ls=(0, (3, 3)), zorder=0)


def _draw_descent(axes: Axes, shown: Convergence) -> None:
    for group, level in enumerate(shown.levels):
        colour = COLOURS[group % len(COLOURS)]
        axes.axhline(shown.threshold[group], color=colour, lw=1.1, ls=(0, (5, 3)))
        axes.plot(shown.epochs[1:], shown.steps[:, group], color=colour, lw=0.8, alpha=0.7)
        axes.plot(shown.epochs, shown.path[:, group], color=colour, lw=2)
        text = f"{level}\n{shown.threshold[group]:+.3f}".replace("-", "−")
        point = (shown.epochs[-1], shown.threshold[group])
        label_point(axes, text, point, 6, color=colour, fontsize=9, annotation_clip=False)
    axes.set_xlim(0, shown.epochs[-1])
    axes.set_title("Descent", fontsize=10.5, fontweight="bold", loc="left")
    axes.set_title("thin: steps, thick: their average, dashed: exact", fontsize=9, loc="right")
    axes.set_xlabel("passes over the calibration rows")
    axes.set_ylabel("threshold t = λ − μ")
