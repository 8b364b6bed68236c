"""The certificate as a picture: the adversarial gap against the budget, a line for each model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import isotonic_regression

from fairfrontier.figure.certified import certify_chosen
from fairfrontier.figure.frontier import (
    COLOURS,
    GREY,
    add_grid,
    encode_png,
    find_swept,
    open_figure,
)
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.study.drawing import Picture, Scene, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Budgets along the axis, beside those that the study asks for.
N_BUDGETS = 12
# Enough for the eye: draws of a band, and distance from the optimum as a share of the gap.
REPLICATES, TOLERANCE = 200, 1e-3
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
TITLES = {"log": "Log loss above the mean, nats", "error": "Share of errors above the mean"}
# Inches: a panel without its names, the width of a letter of a name, and the height of a line.
PANEL, LETTER, LINE = 4.4, 0.075, 0.17


@dataclass(frozen=True, eq=False)
class Line:
    """A model's gap under one loss.

    Attributes
    ----------
    label, method, loss : str
    budget, value, low, high : float64 ndarrays of shape (n_budgets,)
        Ascending budgets, Ĝ(ε), and its 95% bootstrap interval.
    """

    label: str
    method: str
    loss: str
    budget: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def refuse_numbers(described: DatasetConfig) -> str | None:
    """Say why a dataset's models cannot be certified; None where they can."""
    if described.label.task == "regression":
        return f"it is of decisions, and the label of {described.dataset} has no classes"
    return None


@figure(
    "certificate",
    title="What similar rows add to the loss",
    what="The restricted adversarial gap of the chosen models against the budget, on the test rows "
    "of the first split: how much the mean loss grows when every row may be treated as similar "
    "rows are. Lower is fairer. Bands are 95% bootstrap intervals; ticks at the foot are the "
    "study's own budgets.",
    supports=refuse_numbers,
)
def draw_certificate(scene: Scene) -> Picture:
    """Draw a panel for each loss."""
    lines = trace_lines(scene)
    asked = sorted(scene.study.certificate.budgets) if scene.study.certificate else []
    return Picture(_draw(lines, asked), _describe(lines))


def trace_lines(scene: Scene) -> tuple[Line, ...]:
    """Trace the gaps of the chosen models over the range of the study's budgets.

    Raises
    ------
    ConfigError
        When the study certifies nothing.
    StoreError
        When no model of its frontier is in the store.
    """
    if scene.study.certificate is None:
        raise ConfigError(
            f"The study {scene.study.study} asks for the figure 'certificate' and certifies "
            "nothing.",
            "Add certificate: {budgets: [0.01, 0.1]}, for example.",
        )
    asked = scene.study.certificate.budgets
    top = max(asked) or 1.0
    # The gap rises steeply at first, like a root.
    budgets = sorted({*asked, *(top * np.linspace(0, 1, N_BUDGETS) ** 2).tolist()})
    settings: dict[str, list[Mapping[str, Any]]] = {}
    for planned in scene.plan:
        if "frontier" in planned.blocks:
            own = settings.setdefault(planned.group.method, [])
            own.extend(member.setting for member in planned.group.members)
    swept = {method: sorted(find_swept(found)) for method, found in settings.items()}
    lines = []
    for each in certify_chosen(scene, budgets, replicates=REPLICATES, tolerance=TOLERANCE):
        setting = json.loads(each.setting)
        label = " ".join([each.method, *(_tell(key, setting) for key in swept[each.method])])
        for found in each.certificates:
            numbers = [(gap.budget, gap.value, gap.low, gap.high) for gap in found.gaps]
            lines.append(Line(label, each.method, found.loss, *np.array(numbers).T))
    if not lines:
        raise StoreError(
            f"The store holds no certified model of {scene.study.study}.",
            "Run the study first, with methods that support its dataset.",
        )
    return tuple(lines)


def _tell(key: str, setting: Mapping[str, Any]) -> str:
    value = setting.get(key)
    shown = value if isinstance(value, str) else json.dumps(value)
    return f"{key.replace('_', ' ').replace('.', ' ')} {shown}"


def spread_labels(height: np.ndarray, gap: float) -> np.ndarray:
    """Move labels apart, no further than it takes, and keep them beside the axis.

        min_p Σ_i (p_i − height_i)²   s.t.  p_(i+1) − p_(i) ≥ gap in the order of the heights,
                                            0 ≤ p ≤ 1

    Parameters
    ----------
    height : float64 array of shape (n_labels,)
        Where the labels belong, in shares of the axis.
    gap : float
        Least distance of two. Where there is no room for all, the last ones go above 1.

    Returns
    -------
    float64 ndarray of shape (n_labels,)
        Where they go, in the order given.
    """
    order = np.argsort(height, kind="stable")
    steps = gap * np.arange(len(height))
    placed = np.empty(len(height))
    # A bound on all of an isotonic solution cuts it.
    free = isotonic_regression(height[order] - steps).x
    placed[order] = np.clip(free, 0.0, max(0.0, 1.0 - steps[-1])) + steps
    return placed


def _describe(lines: Sequence[Line]) -> str:
    """Return the picture in words."""
    told = [
        f"{each.label} {each.value[-1]:.3f} ({each.low[-1]:.3f} to {each.high[-1]:.3f})"
        for loss in TITLES
        for each in lines
        if each.loss == loss == lines[0].loss
    ]
    title = TITLES[lines[0].loss]
    return f"Adversarial gap against the budget. {title}, at ε = {lines[0].budget[-1]:g}: " + (
        "; ".join(told) + "."
    )


def _choose_looks(lines: Sequence[Line]) -> dict[str, tuple[str, object]]:
    """Return a colour for every method, and dashes that tell its settings apart."""
    methods = list(dict.fromkeys(each.method for each in lines))
    looks: dict[str, tuple[str, object]] = {}
    for place, method in enumerate(methods):
        labels = dict.fromkeys(each.label for each in lines if each.method == method)
        for number, label in enumerate(labels):
            # Methods beyond the colours begin with other dashes.
            dash = DASHES[(number + place // len(COLOURS)) % len(DASHES)]
            looks[label] = (COLOURS[place % len(COLOURS)], dash)
    return looks


def _draw(lines: Sequence[Line], asked: Sequence[float]) -> bytes:
    losses = [loss for loss in TITLES if any(each.loss == loss for each in lines)]
    looks = _choose_looks(lines)
    width = PANEL + LETTER * max(len(each.label) for each in lines)
    height = max(3.9, 1.1 + LINE * len(looks))
    with open_figure(width * len(losses), height, w_pad=0.12, h_pad=0.08) as picture:
        panels = picture.subplots(1, len(losses), squeeze=False)[0]
        for axes, loss in zip(panels, losses, strict=True):
            _draw_panel(axes, [each for each in lines if each.loss == loss], looks, asked)
            _name_lines(axes, [each for each in lines if each.loss == loss], looks, height - 1.1)
            axes.set_title(TITLES[loss], loc="left", fontsize=10.5, fontweight="bold")
        return encode_png(picture)


def _name_lines(
    axes: Axes, lines: Sequence[Line], looks: dict[str, tuple[str, object]], height: float
) -> None:
    """Write every line's name at its end, and join the two where it had to be moved."""
    top = axes.get_ylim()[1]
    ends = np.array([each.value[-1] / top for each in lines])
    for each, end, place in zip(lines, ends, spread_labels(ends, LINE / height), strict=True):
        colour, dash = looks[each.label]
        axes.plot(
            [1.0, 1.035, 1.06], [end, place, place], color=colour, ls=dash, lw=1.2,
            transform=axes.transAxes, clip_on=False,
        )  # fmt: skip
        axes.text(
            1.07, place, each.label, color=colour, fontsize=8.5, va="center",
            transform=axes.transAxes,
        )  # fmt: skip


def _draw_panel(
    axes: Axes, lines: Sequence[Line], looks: dict[str, tuple[str, object]], asked: Sequence[float]
) -> None:
    for each in lines:
        colour, dash = looks[each.label]
        axes.fill_between(each.budget, each.low, each.high, color=colour, alpha=0.13, lw=0)
        axes.plot(each.budget, each.value, color=colour, ls=dash, lw=1.6)  # type: ignore[arg-type]
    axes.set_xlim(0, lines[0].budget[-1])
    axes.set_ylim(0, 1.04 * max(float(each.high.max()) for each in lines) or 1.0)
    axes.plot(
        asked,
        np.zeros(len(asked)),
        ls="none",
        marker="|",
        color=GREY,
        ms=9,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
    )
    axes.set_xlabel("budget ε: mean fair distance of a move")
    add_grid(axes)
