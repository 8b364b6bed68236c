"""Trade-offs along the strength: what methods that sweep ρ give up for versions that agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fairfrontier.figure.certificate import refuse_regressions
from fairfrontier.figure.frontier import (
    HEADING,
    INK,
    add_legend,
    choose_looks,
    encode_png,
    make_key,
    name_measure,
    open_figure,
)
from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.drawing import Picture, Scene, figure
from papers.figure.accuracy_bin import tabulate_scene
from papers.figure.accuracy_tradeoff import label_tradeoff

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "strength_tradeoff"
ALONG = "strength"


@dataclass(frozen=True, eq=False)
class Path:
    """A row of the study: its ascending strengths, and rows of `tabulate_settings` in that order.

    Rows that do not sweep the strength have an empty array.
    """

    label: str
    strength: np.ndarray
    table: pd.DataFrame


def refuse_sets(described: DatasetConfig) -> str | None:
    """Return why a dataset has no versions that could agree; None where it has."""
    if described.set_names or described.label.task == "regression":
        return refuse_regressions(described)
    return (
        f"it shows whether versions of a row agree, and {described.dataset} declares no "
        "counterfactuals"
    )


def list_agreements(fairness: Sequence[str]) -> tuple[str, ...]:
    """Return the measures of counterfactual sets among those of a study."""
    sets = {"counterfactuals", "counterfactual_score"}
    return tuple(name for name in fairness if MEASURES.find(split_name(name)[0]).needs & sets)


def trace_strengths(scene: Scene) -> tuple[Path, ...]:
    """Return the measured rows of the study's frontier, means over the splits on test.

    Raises
    ------
    ConfigError
        When no row sweeps the strength, or one has two settings of the same strength.
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
        settings = own.index.get_level_values("setting")
        values = [json.loads(setting).get(ALONG) for setting in settings]
        strength = np.array([np.nan if value is None else float(value) for value in values])
        if np.isnan(strength).any() or len(own) < 2:
            paths.append(Path(label, np.empty(0), own))
            continue
        if len(set(strength)) < len(strength):
            raise ConfigError(
                f"{study.study}: {NAME} shows one model for each strength, and the row {label!r} "
                "has several.",
                "Give each of its settings a separate row.",
            )
        order = np.argsort(strength)
        paths.append(Path(label, strength[order], own.iloc[order]))
    if not any(path.strength.size for path in paths):
        raise ConfigError(
            f"{study.study}: {NAME} follows rows along their {ALONG}, and no row sweeps it.",
            f"List several numbers: {ALONG}: [1, 5, 20], for example.",
        )
    return tuple(paths)


def find_agreements(study: StudyConfig) -> tuple[str, ...]:
    """Return a study's measures of counterfactual sets; ConfigError where it has none."""
    names = list_agreements(study.frontier.fairness)
    if not names:
        raise ConfigError(
            f"{study.study}: {NAME} shows whether versions agree, and frontier.fairness "
            "names no measure of that.",
            "Add consistency:SET, a counterfactual set of the dataset.",
        )
    return names


@figure(
    NAME,
    title="Accuracy against agreement, as the strength grows",
    what="Each line is a row of the study at several strengths ρ, which are written beside its "
    "points; rows without strengths are points alone. Means over the splits on test rows; bars are "
    "one standard deviation over the splits, or the 95% interval of a single split.",
    supports=refuse_sets,
    needs=find_agreements,
)
def draw_strengths(scene: Scene) -> Picture:
    """Draw SenSeI's Figures 2 and 4: a panel for each measure of a counterfactual set.

    Raises
    ------
    ConfigError
        When the study names no such measure, or as `trace_strengths`.
    """
    frontier = scene.study.frontier
    names = find_agreements(scene.study)
    paths = trace_strengths(scene)
    chosen = choose_looks(path.label for path in paths)
    looks: dict[str, dict[str, Any]] = {}
    for path in paths:
        colour, marker = chosen[path.label]
        looks[path.label] = {"color": colour, "marker": marker, "mfc": "white", "ls": "none"}
        if path.strength.size:
            looks[path.label] |= {"mfc": colour, "ls": "-"}
    with open_figure(4.9 * len(names), 4.9, w_pad=0.1, h_pad=0.09) as picture:
        panels = picture.subplots(1, len(names), squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            _draw_panel(axes, paths, frontier.accuracy, name, looks)
            axes.set_title(name_measure(name), **HEADING)
        splits = max(int(path.table["n_seeds", ""].max()) for path in paths)
        bars = "one standard deviation" if splits > 1 else "95% intervals"
        title = f"Numbers are strengths ρ. {splits} split{'s' if splits > 1 else ''}, bars: {bars}."
        picture.suptitle(title, fontsize=9.5, color=INK, x=0.012, ha="left")
        keys = [make_key(label, **look) for label, look in looks.items()]
        add_legend(picture, keys, 4 * len(names))
        return Picture(encode_png(picture), _describe(paths, frontier.accuracy, names))


def _draw_panel(
    axes: Axes, paths: Sequence[Path], accuracy: str, name: str, looks: dict[str, dict[str, Any]]
) -> None:
    """Draw one measure of every row against the accuracy."""
    above = False
    for path in paths:
        look = looks[path.label]
        swept = path.strength.size > 0
        # Strengths are written above one line, below the next, and so on.
        above ^= swept
        x, y = (path.table["value", measure].to_numpy() for measure in (accuracy, name))
        for measure, draw, across in ((accuracy, axes.hlines, y), (name, axes.vlines, x)):
            low, high = (path.table[end, measure].to_numpy() for end in ("low", "high"))
            draw(across, low, high, color=look["color"], lw=0.8, alpha=0.4, zorder=1)
        axes.plot(x, y, ms=5.5 if swept else 8, lw=1.3, mew=1.4, zorder=3, **look)
        beside: Any = {"xytext": (5, 4), "ha": "left"}
        if not above:
            beside = {"xytext": (-5, -10), "ha": "right"}
        beside |= {"textcoords": "offset points", "color": look["color"], "fontsize": 8}
        for strength, right, up in zip(path.strength, x, y, strict=False):
            axes.annotate(f"{strength:g}", (right, up), zorder=4, **beside)
    label_tradeoff(axes, accuracy, name)


def _describe(paths: Sequence[Path], accuracy: str, names: Sequence[str]) -> str:
    """Return the picture in words."""
    parts = []
    for name in names:
        for path in paths:
            known = path.table["value", name].notna().to_numpy()
            x, y = (path.table["value", measure].to_numpy()[known] for measure in (accuracy, name))
            if not known.any():
                values = "not measured"
            elif path.strength.size:
                strength = path.strength[known]
                values = (
                    f"{y[0]:.3f} at ρ = {strength[0]:g} to {y[-1]:.3f} at ρ = {strength[-1]:g}, "
                    f"accuracy {x[0]:.3f} to {x[-1]:.3f}"
                )
            else:
                values = ", ".join(f"{b:.3f} at {a:.3f}" for a, b in zip(x, y, strict=True))
            parts.append(f"{name_measure(name)}, {path.label}: {values}")
    return f"Against {name_measure(accuracy).lower()}. {'; '.join(parts)}."
