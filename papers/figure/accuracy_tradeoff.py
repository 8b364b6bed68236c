"""Trade-offs by bins of accuracy: the fairest setting at every accuracy, as in the papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fairfrontier.figure.certificate import refuse_regressions, spread_labels
from fairfrontier.figure.frontier import (
    COLOURS,
    HEADING,
    INK,
    MARKERS,
    Looks,
    add_grid,
    add_legend,
    choose_looks,
    encode_png,
    greater_is_better,
    make_key,
    name_measure,
    open_figure,
)
from fairfrontier.metrics.measure.registry import MEASURES, split_name
from fairfrontier.study.drawing import Picture, Scene, figure
from papers.figure.accuracy_bin import (
    WIDTH,
    Criterion,
    choose_settings,
    list_criteria,
    tabulate_scene,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAVEAT = (
    "Chosen on the test rows that are shown, as in the paper: "
    "a description of what exists, not a choice to deploy."
)
CAUTION = (
    f"In every bin of {WIDTH:g} of the accuracy on test, of all settings of a row that fall there, "
    "the one is shown that is best on test too, after averaging over the splits. The paper draws "
    "it this way: it describes which trade-offs exist, and flatters them; to choose a model to "
    "deploy, use the frontier, which chooses on other rows. Bars are one standard deviation over "
    "the splits, or the 95% interval of a single split. Faint points are the settings that were "
    "not chosen."
)
# Height of a line of text as a share of a panel.
LINE = 0.075


@dataclass(frozen=True, eq=False)
class Bins:
    """What a criterion chose: rows of `tabulate_settings` by method, by ascending accuracy."""

    criterion: Criterion
    chosen: dict[str, pd.DataFrame]


def trace_bins(scene: Scene) -> tuple[pd.DataFrame, tuple[Bins, ...]]:
    """Return all settings of the frontier, and those that each criterion chooses in the bins."""
    frontier = scene.study.frontier
    table = tabulate_scene(scene)
    methods = [name for name in scene.study.methods if name in table.index.get_level_values(0)]
    return table, tuple(
        Bins(by, {name: choose_settings(table, name, frontier.accuracy, by) for name in methods})
        for by in list_criteria(frontier)
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
    # Criteria by which no setting was measured have nothing to show.
    bins = tuple(column for column in bins if not column.chosen[first].empty) or bins[:1]
    accuracy, fairness = scene.study.frontier.accuracy, scene.study.frontier.fairness
    looks = {
        name: (COLOURS[-1 - i % len(COLOURS)], MARKERS[-1 - i % len(MARKERS)])
        for i, name in enumerate(fairness)
    }
    with open_figure(3.3 * len(bins) + 1.9, 7.2, w_pad=0.06, h_pad=0.09) as picture:
        panels = picture.subplots(2, len(bins), squeeze=False, sharex="row")
        top = max(_find_top(column.chosen[first], fairness) for column in bins)
        for (above, below), column in zip(panels.T, bins, strict=True):
            _draw_measures(above, column.chosen[first], accuracy, looks)
            above.set_ylim(0, top)
            above.set_title(name_criterion(column.criterion), **HEADING)
            _draw_rows(below, accuracy, table, column, column.criterion)
        panels[0, 0].set_ylabel(f"{first}, best by the above:\nall measures, fairer ↓")
        _name_ends(panels[0, -1], bins[-1].chosen[first], looks)
        _caption(picture, scene, table, bins[0])
        return Picture(encode_png(picture), _describe(accuracy, bins, (first,)))


@figure(
    "methods_by_accuracy",
    title="Methods at every accuracy",
    what="The settings of every row that are best by the first fairness measure of the study, with "
    "that measure and the others. " + CAUTION,
    supports=refuse_regressions,
)
def draw_methods(scene: Scene) -> Picture:
    """Draw BuDRO's Figure 3: measures of every row's models that are best by the first of them."""
    table, bins = trace_bins(scene)
    accuracy, fairness = scene.study.frontier.accuracy, scene.study.frontier.fairness
    # A measure that the study names twice is two criteria.
    first = next(column for column in bins if column.criterion == fairness[:1])
    with open_figure(4.6 * len(fairness), 5.0, w_pad=0.1, h_pad=0.09) as picture:
        panels = picture.subplots(1, len(fairness), squeeze=False)[0]
        for axes, name in zip(panels, fairness, strict=True):
            _draw_rows(axes, accuracy, table, first, (name,))
            axes.set_title(name_measure(name), **HEADING)
        _caption(picture, scene, table, first, f"All: best {name_criterion(first.criterion)}.")
        return Picture(encode_png(picture), _describe(accuracy, (first,), tuple(first.chosen)))


def name_criterion(criterion: Criterion) -> str:
    """Return a criterion's name for readers."""
    if len(criterion) == 1:
        return name_measure(criterion[0])
    kinds = {split_name(name)[0] for name in criterion}
    groups = " and ".join(split_name(name)[1].replace("_", " ") for name in criterion)
    return f"Mean of {' and '.join(sorted(name_measure(kind) for kind in kinds))}, {groups}"


def name_harm(name: str) -> str:
    """Return the name of what `find_harm` returns: "1 − Consistency", or the measure's own."""
    return f"1 − {name_measure(name)}" if greater_is_better(name) else name_measure(name)


def find_harm(name: str, values: pd.Series) -> np.ndarray:
    """Return a measure so that less is better: 1 − v where more is, |v| where 0 is, else v."""
    harm = np.asarray(values, dtype=np.float64)
    match MEASURES.find(split_name(name)[0]).direction:
        case "higher":
            return 1.0 - harm
        case "zero":
            return np.abs(harm)
    return harm


def _find_top(chosen: pd.DataFrame, fairness: Sequence[str]) -> float:
    """Return where the axis of several measures ends."""
    # Measures that no setting has are all NaN.
    harms = np.concatenate([find_harm(name, chosen["value", name]) for name in fairness])
    return 1.1 * float(np.max(harms, initial=0.0, where=~np.isnan(harms))) or 1.0


def _draw_measures(axes: Axes, chosen: pd.DataFrame, accuracy: str, looks: Looks) -> None:
    """Draw all measures of the chosen settings as harms."""
    x = chosen["value", accuracy].to_numpy()
    for name, (colour, marker) in looks.items():
        y, *ends = (find_harm(name, chosen[side, name]) for side in ("value", "low", "high"))
        axes.vlines(x, np.minimum(*ends), np.maximum(*ends), color=colour, lw=0.9, alpha=0.5)
        axes.plot(x, y, color=colour, marker=marker, ms=4.5, lw=1.2)
    add_grid(axes)
    axes.locator_params(axis="x", nbins=5)


def _name_ends(axes: Axes, chosen: pd.DataFrame, looks: Looks) -> None:
    """Write the measures' names beside the last panel, at the heights where their lines end."""
    if chosen.empty:
        return
    drawn = [name for name in looks if chosen["value", name].notna().any()]
    ends = [find_harm(name, chosen["value", name].dropna())[-1] for name in drawn]
    heights = np.array(ends) / axes.get_ylim()[1]
    beside: Any = {"fontsize": 9, "va": "center", "transform": axes.transAxes}
    for name, y in zip(drawn, spread_labels(heights, LINE), strict=True):
        axes.text(1.04, y, name_harm(name), color=looks[name][0], **beside)


def _draw_rows(
    axes: Axes, accuracy: str, table: pd.DataFrame, bins: Bins, measures: Criterion
) -> None:
    """Draw the mean of some measures for every row: chosen settings joined, the others faint."""
    looks = choose_looks(bins.chosen)
    for method, chosen in bins.chosen.items():
        colour, marker = looks[method]
        own = table.loc[[method]]
        x, y = own["value", accuracy], average(own, measures)
        axes.plot(x, y, marker, color=colour, ms=2.5, alpha=0.35, ls="none", zorder=1)
        x = chosen["value", accuracy]
        # No interval was estimated of a mean of several.
        if len(measures) == 1:
            low, high = chosen["low", measures[0]], chosen["high", measures[0]]
            axes.vlines(x, low, high, color=colour, lw=0.9, alpha=0.45, zorder=2)
        axes.plot(x, average(chosen, measures), color=colour, marker=marker, ms=5, lw=1.2, zorder=3)
    label_tradeoff(axes, accuracy, measures[0])


def label_tradeoff(axes: Axes, accuracy: str, fairness: str) -> None:
    """Label a panel of a fairness measure against the accuracy."""
    axes.set_ylabel("fairer ↑" if greater_is_better(fairness) else "fairer ↓")
    axes.set_xlabel(name_measure(accuracy))
    add_grid(axes)
    axes.locator_params(axis="x", nbins=5)


def average(table: pd.DataFrame, measures: Criterion) -> np.ndarray:
    """Return a single measure as it is, or the mean of several as harms."""
    if len(measures) == 1:
        return np.asarray(table["value", measures[0]], dtype=np.float64)
    harms = [find_harm(name, table["value", name]) for name in measures]
    return np.asarray(np.mean(harms, axis=0))


def _caption(picture: Figure, scene: Scene, table: pd.DataFrame, bins: Bins, how: str = "") -> None:
    """Say above the panels what was chosen and how, and below them which row is which."""
    splits = int(table["n_seeds", ""].max())
    rows = f"{scene.study.rows:,}" if scene.study.rows else "all"
    counts = f"{splits} split{'s' if splits > 1 else ''}, {rows} training rows"
    lines = [f"Bins of {WIDTH:g}. {CAVEAT}", f"{how} {counts}, {len(table)} settings.".strip()]
    picture.suptitle("\n".join(lines), fontsize=9.5, color=INK, x=0.012, ha="left")
    keys = [
        make_key(method, color=colour, marker=marker, ms=6, lw=1.2)
        for method, (colour, marker) in choose_looks(bins.chosen).items()
    ]
    add_legend(picture, keys, 6)


def _describe(accuracy: str, bins: Sequence[Bins], methods: Sequence[str]) -> str:
    """Return the picture in words."""
    parts = []
    for column in bins:
        for method in methods:
            chosen = column.chosen[method]
            if chosen.empty:
                continue
            y = average(chosen, column.criterion)
            x = chosen["value", accuracy].to_numpy()
            parts.append(
                f"{name_criterion(column.criterion)}, {method}: {y[0]:.3f} at {x[0]:.3f} to "
                f"{y[-1]:.3f} at {x[-1]:.3f} in {len(chosen)} bins"
            )
    return f"{CAVEAT} Against {name_measure(accuracy).lower()}. {'; '.join(parts)}."
