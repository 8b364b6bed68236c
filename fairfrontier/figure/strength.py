"""Trade-offs along the strength: what methods that sweep ρ give up for versions that agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fairfrontier.evaluate.measure.registry import MEASURES
from fairfrontier.figure.accuracy_bin import tabulate_scene
from fairfrontier.figure.frontier import (
    INK,
    add_grid,
    choose_looks,
    encode_png,
    name_measure,
    open_figure,
)
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import split_name
from fairfrontier.study.drawing import Picture, Scene, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "strength_tradeoff"
ALONG = "strength"


@dataclass(frozen=True, eq=False)
class Path:
    """A row of the study as the figure shows it.

    Attributes
    ----------
    label : str
        The row.
    strength : ndarray of float64, shape (n_settings,)
        ρ, ascending; empty for rows that do not sweep it.
    table : DataFrame
        Lines of ``tabulate_settings``, in the order of ``strength``.
    """

    label: str
    strength: np.ndarray
    table: pd.DataFrame


def refuse_sets(described: DatasetConfig) -> str | None:
    """Say why a dataset has no versions that could agree; None where it has."""
    if described.label.task == "regression":
        return f"it shows decisions, and the label of {described.dataset} has no classes"
    if not described.set_names:
        return (
            f"it shows whether versions of a row agree, and {described.dataset} declares no "
            "counterfactuals"
        )
    return None


def list_agreements(fairness: Sequence[str]) -> tuple[str, ...]:
    """Return the measures of counterfactual sets among those of a study."""
    sets = {"counterfactuals", "counterfactual_score"}
    return tuple(each for each in fairness if MEASURES.find(split_name(each)[0]).needs & sets)


def trace_strengths(scene: Scene) -> tuple[Path, ...]:
    """Return the rows of the study's frontier with their means over the splits, on test.

    Returns
    -------
    tuple of Path
        In the order of the study; of rows that were measured.

    Raises
    ------
    ConfigError
        When no row sweeps the strength, or one has two settings of one strength.
    DataError
        When nothing was measured on test.
    """
    study = scene.study
    table = tabulate_scene(scene)
    paths = []
    for label in study.methods:
        if label not in table.index.get_level_values("method"):
            continue
        own = table.loc[[label]]
        found = [json.loads(each).get(ALONG) for each in own.index.get_level_values("setting")]
        strength = np.array([np.nan if each is None else float(each) for each in found])
        if np.isnan(strength).any() or len(own) < 2:
            paths.append(Path(label, np.empty(0), own))
            continue
        if len(set(strength)) < len(strength):
            raise ConfigError(
                f"{study.study}: {NAME} shows one model for each strength, and the row {label!r} "
                "has several.",
                "Give each of its settings a row of its own.",
            )
        order = np.argsort(strength)
        paths.append(Path(label, strength[order], own.iloc[order]))
    if not any(each.strength.size for each in paths):
        raise ConfigError(
            f"{study.study}: {NAME} follows rows along their {ALONG}, and no row sweeps it.",
            f"List several numbers: {ALONG}: [1, 5, 20], for example.",
        )
    return tuple(paths)


@figure(
    NAME,
    title="Accuracy against agreement, as the strength grows",
    what="Each line is a row of the study at several strengths ρ, which stand beside its points; "
    "rows without strengths are points alone. Means over the splits on test rows; bars are one "
    "standard deviation over the splits, or the 95% interval of a single split.",
    supports=refuse_sets,
)
def draw_strengths(scene: Scene) -> Picture:
    """Draw SenSeI's Figures 2 and 4: a panel for each measure of a counterfactual set.

    Raises
    ------
    ConfigError
        When the study names no such measure, or no row sweeps the strength.
    DataError
        When nothing was measured on test.
    """
    frontier = scene.study.frontier
    names = list_agreements(frontier.fairness)
    if not names:
        raise ConfigError(
            f"{scene.study.study}: {NAME} shows whether versions agree, and frontier.fairness "
            "names no measure of that.",
            "Add consistency:SET, a counterfactual set of the dataset.",
        )
    paths = trace_strengths(scene)
    with open_figure(4.9 * len(names), 4.9, w_pad=0.1, h_pad=0.09) as picture:
        panels = picture.subplots(1, len(names), squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            _draw(axes, paths, frontier.accuracy, name)
        _caption(picture, paths, 4 * len(names))
        return Picture(encode_png(picture), _describe(paths, frontier.accuracy, names))


def _draw(axes: Axes, paths: Sequence[Path], accuracy: str, name: str) -> None:
    """Draw one measure of every row against the accuracy."""
    looks = choose_looks(each.label for each in paths)
    # Strengths of one line stand above it, of the next below, and so on.
    above = {each.label: i % 2 == 0 for i, each in enumerate(p for p in paths if p.strength.size)}
    for path in paths:
        colour, marker = looks[path.label]
        x, y = (path.table["value", each].to_numpy() for each in (accuracy, name))
        for side, values in (("x", accuracy), ("y", name)):
            low, high = (path.table[end, values].to_numpy() for end in ("low", "high"))
            draw, across = (axes.hlines, y) if side == "x" else (axes.vlines, x)
            draw(across, low, high, color=colour, lw=0.8, alpha=0.4, zorder=1)
        swept = path.strength.size > 0
        axes.plot(
            x, y, color=colour, marker=marker, ms=5.5 if swept else 8, lw=1.3,
            ls="-" if swept else "none", mfc=colour if swept else "white", mew=1.4, zorder=3,
        )  # fmt: skip
        for strength, right, up in zip(path.strength, x, y, strict=False):
            axes.annotate(
                f"{strength:g}", (right, up), xytext=(5, 4) if above[path.label] else (-5, -10),
                ha="left" if above[path.label] else "right", textcoords="offset points",
                color=colour, fontsize=8, zorder=4,
            )  # fmt: skip
    better = MEASURES.find(split_name(name)[0]).direction
    axes.set_title(name_measure(name), fontsize=10.5, fontweight="bold", loc="left")
    axes.set_ylabel("fairer ↑" if better == "higher" else "fairer ↓")
    axes.set_xlabel(name_measure(accuracy))
    add_grid(axes)
    axes.locator_params(axis="x", nbins=5)


def _caption(picture: Figure, paths: Sequence[Path], columns: int) -> None:
    """Say above the panels what is shown, and below them which row is which."""
    from matplotlib.lines import Line2D

    splits = max(int(each.table["n_seeds", ""].max()) for each in paths)
    bars = "one standard deviation" if splits > 1 else "95% intervals"
    told = f"Numbers are strengths ρ. {splits} split{'s' if splits > 1 else ''}, bars: {bars}."
    picture.suptitle(told, fontsize=9.5, color=INK, x=0.012, ha="left")
    looks = choose_looks(each.label for each in paths)
    handles = [
        Line2D(
            [], [], color=looks[each.label][0], marker=looks[each.label][1],
            ls="-" if each.strength.size else "none",
            mfc=looks[each.label][0] if each.strength.size else "white", label=each.label,
        )
        for each in paths
    ]  # fmt: skip
    picture.legend(handles=handles, loc="outside lower left", ncols=columns, frameon=False)


def _describe(paths: Sequence[Path], accuracy: str, names: Sequence[str]) -> str:
    """Return the picture in words."""
    told = []
    for name in names:
        for path in paths:
            known = path.table["value", name].notna().to_numpy()
            x, y = (path.table["value", each].to_numpy()[known] for each in (accuracy, name))
            if not known.any():
                told.append(f"{name_measure(name)}, {path.label}: not measured")
            elif path.strength.size:
                strength = path.strength[known]
                told.append(
                    f"{name_measure(name)}, {path.label}: {y[0]:.3f} at ρ = {strength[0]:g} "
                    f"to {y[-1]:.3f} at ρ = {strength[-1]:g}, accuracy {x[0]:.3f} to {x[-1]:.3f}"
                )
            else:
                shown = ", ".join(f"{b:.3f} at {a:.3f}" for a, b in zip(x, y, strict=True))
                told.append(f"{name_measure(name)}, {path.label}: {shown}")
    return f"Against {name_measure(accuracy).lower()}. {'; '.join(told)}."
