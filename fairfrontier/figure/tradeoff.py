"""Trade-offs by bins of accuracy: the fairest setting at every accuracy, as the papers draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fairfrontier.evaluate.measure.registry import MEASURES
from fairfrontier.figure.accuracy_bin import (
    WIDTH,
    Criterion,
    choose_settings,
    list_criteria,
    tabulate_scene,
)
from fairfrontier.figure.certificate import spread_labels
from fairfrontier.figure.frontier import (
    COLOURS,
    INK,
    MARKERS,
    add_grid,
    choose_looks,
    encode_png,
    name_measure,
    open_figure,
)
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.study.config import split_name
from fairfrontier.study.drawing import Picture, Scene, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAVEAT = (
    "Chosen on the test rows that are shown, as in the paper: "
    "a description of what exists, not a choice to deploy."
)
CAUTION = (
    f"In every bin of {WIDTH:g} of the accuracy on test, of all settings of a row that fall there, "
    "the one is shown that is best on test too, after averaging over the splits. That is how the "
    "paper draws it: it describes which trade-offs exist, and flatters them; to choose a model that"
    " is put to use, take the frontier, which chooses on other rows. Bars are one standard "
    "deviation over the splits, or the 95% interval of a single split. Faint points are the "
    "settings that were not chosen."
)


# Height of a line of text as a share of a panel.
LINE = 0.075


@dataclass(frozen=True, eq=False)
class Bins:
    """What was chosen in the bins by one criterion.

    Attributes
    ----------
    criterion : Criterion
    chosen : dict of str to DataFrame
        Lines of ``tabulate_settings`` by row of the study, each by ascending accuracy.
    """

    criterion: Criterion
    chosen: dict[str, pd.DataFrame]


def refuse_regressions(described: DatasetConfig) -> str | None:
    """Say why a dataset has no accuracy to bin; None where it has."""
    if described.label.task == "regression":
        return f"it bins accuracies, and the label of {described.dataset} has no classes"
    return None


def trace_bins(scene: Scene) -> tuple[pd.DataFrame, tuple[Bins, ...]]:
    """Choose the settings of every bin by every criterion of the study.

    Returns
    -------
    table : DataFrame
        All settings of the frontier's block; see ``tabulate_settings``.
    bins : tuple of Bins
        One per criterion, in the order of ``list_criteria``.

    Raises
    ------
    DataError
        When no setting was measured on test.
    """
    frontier = scene.study.frontier
    table = tabulate_scene(scene)
    methods = [each for each in scene.study.methods if each in table.index.get_level_values(0)]
    return table, tuple(
        Bins(
            each,
            {method: choose_settings(table, method, frontier.accuracy, each) for method in methods},
        )
        for each in list_criteria(frontier)
    )


@figure(
    "criteria_by_accuracy",
    title="What each criterion gives up, at every accuracy",
    what="A column for each criterion. Above: the models of the study's first row that are best by "
    "it, and all their measures; of shares that should be 1 the distance to 1 is shown, so that "
    "less is fairer in every line. Below: the criterion itself, of all rows. " + CAUTION,
    supports=refuse_regressions,
)
def draw_criteria(scene: Scene) -> Picture:
    """Draw BuDRO's Figure 2: measures of the models that are best by each criterion."""
    table, bins = trace_bins(scene)
    first = next(iter(bins[0].chosen))
    # A criterion by which no setting was measured has nothing to show.
    bins = tuple(each for each in bins if not each.chosen[first].empty) or bins[:1]
    fairness = scene.study.frontier.fairness
    looks = {
        name: (COLOURS[-1 - i % len(COLOURS)], MARKERS[-1 - i % len(MARKERS)])
        for i, name in enumerate(fairness)
    }
    with open_figure(3.3 * len(bins) + 1.9, 7.2, w_pad=0.06, h_pad=0.09) as picture:
        panels = picture.subplots(2, len(bins), squeeze=False, sharex="row")
        top = max(_find_top(each.chosen[first], fairness) for each in bins)
        for (above, below), each in zip(panels.T, bins, strict=True):
            chosen = each.chosen[first]
            _draw_measures(above, chosen, scene.study.frontier.accuracy, looks)
            above.set_ylim(0, top)
            above.set_title(name_criterion(each.criterion), fontsize=10.5, fontweight="bold",
                            loc="left")  # fmt: skip
            _draw_rows(below, scene, table, each, each.criterion.measures)
        panels[0, 0].set_ylabel(f"{first}, best by the above:\nall measures, fairer ↓")
        _name_ends(panels[0, -1], bins[-1].chosen[first], fairness, looks)
        _caption(picture, scene, table, bins[0])
        return Picture(encode_png(picture), _describe(scene, bins, (first,)))


@figure(
    "methods_by_accuracy",
    title="Methods at every accuracy",
    what="The settings of every row that are best by the first fairness measure of the study, with "
    "that measure and the others. " + CAUTION,
    supports=refuse_regressions,
)
def draw_methods(scene: Scene) -> Picture:
    """Draw BuDRO's Figure 3: every row's measures, of what is best by the first of them."""
    table, bins = trace_bins(scene)
    frontier = scene.study.frontier
    # A measure that the study names twice is two criteria.
    found = next(each for each in bins if each.criterion.measures == frontier.fairness[:1])
    with open_figure(4.6 * len(frontier.fairness), 5.0, w_pad=0.1, h_pad=0.09) as picture:
        panels = picture.subplots(1, len(frontier.fairness), squeeze=False)[0]
        for axes, name in zip(panels, frontier.fairness, strict=True):
            _draw_rows(axes, scene, table, found, (name,))
            axes.set_title(name_measure(name), fontsize=10.5, fontweight="bold", loc="left")
        _caption(picture, scene, table, found, f"All: best {name_criterion(found.criterion)}.")
        return Picture(encode_png(picture), _describe(scene, (found,), tuple(found.chosen)))


def name_criterion(criterion: Criterion) -> str:
    """Return a criterion's name for readers."""
    if len(criterion.measures) == 1:
        return name_measure(criterion.measures[0])
    kinds = {split_name(each)[0] for each in criterion.measures}
    groups = " and ".join(split_name(each)[1].replace("_", " ") for each in criterion.measures)
    return f"Mean of {' and '.join(sorted(name_measure(each) for each in kinds))}, {groups}"


def name_harm(name: str) -> str:
    """Return the name of what ``find_harm`` gives: of a gap its own, of a share 1 less it."""
    shown = name_measure(name)
    return f"1 − {shown}" if MEASURES.find(split_name(name)[0]).direction == "higher" else shown


def find_harm(name: str, values: pd.Series) -> np.ndarray:
    """Return a measure so that less is better: 1 − v where more is, |v| where 0 is, else v."""
    found = np.asarray(values, dtype=np.float64)
    match MEASURES.find(split_name(name)[0]).direction:
        case "higher":
            return 1.0 - found
        case "zero":
            return np.abs(found)
    return found


def _find_top(chosen: pd.DataFrame, fairness: Sequence[str]) -> float:
    """Return where the axis of several measures ends."""
    # A measure that no setting has is all NaN.
    harms = np.concatenate([find_harm(each, chosen["value", each]) for each in fairness])
    return 1.1 * float(np.max(harms, initial=0.0, where=~np.isnan(harms))) or 1.0


def _draw_measures(
    axes: Axes, chosen: pd.DataFrame, accuracy: str, looks: dict[str, tuple[str, str]]
) -> None:
    """Draw all measures of the chosen settings, less fairer."""
    x = chosen["value", accuracy].to_numpy()
    for name, (colour, marker) in looks.items():
        y = find_harm(name, chosen["value", name])
        ends = [find_harm(name, chosen[side, name]) for side in ("low", "high")]
        axes.vlines(x, np.minimum(*ends), np.maximum(*ends), color=colour, lw=0.9, alpha=0.5)
        axes.plot(x, y, color=colour, marker=marker, ms=4.5, lw=1.2)
    _grid(axes)


def _name_ends(
    axes: Axes, chosen: pd.DataFrame, fairness: Sequence[str], looks: dict[str, tuple[str, str]]
) -> None:
    """Write the measures' names beside the last panel, at the heights where their lines end."""
    if chosen.empty:
        return
    top = axes.get_ylim()[1]
    drawn = [each for each in fairness if chosen["value", each].notna().any()]
    ends = [find_harm(each, chosen["value", each].dropna())[-1] / top for each in drawn]
    for each, place in zip(drawn, spread_labels(np.array(ends), LINE), strict=True):
        axes.text(
            1.04, place, name_harm(each), color=looks[each][0], fontsize=9, va="center",
            transform=axes.transAxes,
        )  # fmt: skip


def _draw_rows(
    axes: Axes, scene: Scene, table: pd.DataFrame, bins: Bins, measures: Sequence[str]
) -> None:
    """Draw the mean of some measures for every row: chosen settings joined, the others faint."""
    accuracy = scene.study.frontier.accuracy
    looks = choose_looks(bins.chosen)
    for method, chosen in bins.chosen.items():
        colour, marker = looks[method]
        every = table.loc[[method]]
        axes.plot(
            every["value", accuracy], average(every, measures), marker, color=colour, ms=2.5,
            alpha=0.35, ls="none", zorder=1,
        )  # fmt: skip
        x = chosen["value", accuracy].to_numpy()
        if len(measures) == 1:
            # A mean of several has no interval that was estimated.
            axes.vlines(
                x, chosen["low", measures[0]], chosen["high", measures[0]], color=colour, lw=0.9,
                alpha=0.45, zorder=2,
            )  # fmt: skip
        axes.plot(x, average(chosen, measures), color=colour, marker=marker, ms=5, lw=1.2, zorder=3)
    axes.set_ylabel("fairer ↑" if not _falls(measures[0]) else "fairer ↓")
    axes.set_xlabel(name_measure(accuracy))
    _grid(axes)


def average(table: pd.DataFrame, measures: Sequence[str]) -> np.ndarray:
    """Return a measure as it is, or the mean of what several should not be."""
    if len(measures) == 1:
        return np.asarray(table["value", measures[0]], dtype=np.float64)
    harms = [find_harm(each, table["value", each]) for each in measures]
    return np.asarray(np.mean(harms, axis=0))


def _falls(name: str) -> bool:
    return MEASURES.find(split_name(name)[0]).direction != "higher"


def _grid(axes: Axes) -> None:
    add_grid(axes)
    axes.locator_params(axis="x", nbins=5)


def _caption(picture: Figure, scene: Scene, table: pd.DataFrame, bins: Bins, how: str = "") -> None:
    """Say above the panels what was chosen how, and below them which row is which."""
    from matplotlib.lines import Line2D

    splits = int(table["n_seeds", ""].max())
    rows = f"{scene.study.rows:,} training rows" if scene.study.rows else "all training rows"
    told = f"{splits} split{'s' if splits > 1 else ''}, {rows}, {len(table)} settings"
    lines = [f"Bins of {WIDTH:g}. {CAVEAT}", f"{how} {told[0].upper()}{told[1:]}.".strip()]
    picture.suptitle("\n".join(lines), fontsize=9.5, color=INK, x=0.012, ha="left")
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=6, lw=1.2, label=method)
        for method, (colour, marker) in choose_looks(bins.chosen).items()
    ]
    picture.legend(handles=handles, loc="outside lower left", ncols=6, frameon=False)


def _describe(scene: Scene, bins: Sequence[Bins], methods: Sequence[str]) -> str:
    """Return the picture in words."""
    accuracy = scene.study.frontier.accuracy
    told = []
    for each in bins:
        for method in methods:
            chosen = each.chosen[method]
            if chosen.empty:
                continue
            y = average(chosen, each.criterion.measures)
            x = chosen["value", accuracy].to_numpy()
            told.append(
                f"{name_criterion(each.criterion)}, {method}: {y[0]:.3f} at {x[0]:.3f} to "
                f"{y[-1]:.3f} at {x[-1]:.3f} in {len(chosen)} bins"
            )
    return f"{CAVEAT} Against {name_measure(accuracy).lower()}. {'; '.join(told)}."
