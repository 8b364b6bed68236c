"""Loss against disparity: what regressions lose for parity, beside the best baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fairfrontier.evaluate.measure.loss import REACH
from fairfrontier.evaluate.measure.registry import MEASURES
from fairfrontier.figure.frontier import (
    GREY,
    INK,
    add_grid,
    choose_looks,
    encode_png,
    name_measure,
    open_figure,
)
from fairfrontier.figure.paired_loss import ROW_LOSSES, pair_losses
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import split_name
from fairfrontier.study.drawing import Picture, Scene, figure
from fairfrontier.study.envelope import find_envelope
from fairfrontier.study.frontier import list_fits, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "loss_disparity"


@dataclass(frozen=True, eq=False)
class Trail:
    """A row of the study: a curve of settings, or a baseline of one.

    Attributes
    ----------
    label : str
        As the study has it.
    settings : tuple of str
        Canonical JSON of the settings, by ascending disparity on the part that chose them.
    loss, disparity : DataFrame
        Columns value, low, high: on test, means over the seeds, with 95% intervals of one split.
        The loss is less that of the best baseline, and its interval that of the difference.
    chosen_loss, chosen_disparity : ndarray of float64, shape (n_settings,)
        On the part that chose them; the loss as it is.
    """

    label: str
    settings: tuple[str, ...]
    loss: pd.DataFrame
    disparity: pd.DataFrame
    chosen_loss: np.ndarray
    chosen_disparity: np.ndarray


@dataclass(frozen=True, eq=False)
class Losses:
    """What the figure shows.

    Attributes
    ----------
    measure, against : str
        The loss and the disparity, as the study names them.
    chosen_on : str
        The part on which settings were chosen.
    best : str
        The baseline of the least loss on test.
    least : float
        That loss.
    curves, baselines : tuple of Trail
        Rows of several settings, those of their lower convex envelope; and rows of one.
    """

    measure: str
    against: str
    chosen_on: str
    best: str
    least: float
    curves: tuple[Trail, ...]
    baselines: tuple[Trail, ...]


def _refuse(described: DatasetConfig) -> str | None:
    if described.label.task != "multiclass":
        return None
    return f"it shows predictions that are numbers, and {described.dataset} has several classes"


@figure(
    NAME,
    title="Loss against disparity",
    what="Left: the loss on test less that of the best baseline, against the disparity on test, of "
    "the settings on each row's lower convex envelope; bands and bars are 95% intervals of one "
    "split's test rows (two standard errors of the difference, row by row, and the "
    "Kolmogorov-Smirnov bound). Right: "
    "the envelopes on the rows that chose them, with all other settings faint. A point between "
    "two neighbours of a curve is attained by drawing between the two.",
    supports=_refuse,
)
def draw_losses(scene: Scene) -> Picture:
    """Draw the losses of the study's frontier against its first fairness measure."""
    found = trace_losses(scene)
    return Picture(_draw(found, _tabulate(scene, found.chosen_on)), _describe(found))


def trace_losses(scene: Scene) -> Losses:
    """Find every row's envelope on the part that chooses, and what it comes to on test.

    Parameters
    ----------
    scene : Scene
        Its study names the loss as ``frontier.accuracy`` and the disparity as the first of
        ``frontier.fairness``; ``select_on`` is the part that chooses. Values are those of the
        points; the intervals of differences come from the stored scores.

    Returns
    -------
    Losses
        Rows with several settings are curves and others baselines, in the study's order.

    Raises
    ------
    ConfigError
        When the first is no loss of rows, of the second less is not better, or no row has a single
        setting.

    Notes
    -----
    Test rows choose nothing but the baseline: the curve goes through the test points of all
    settings on the envelope of ``select_on``, where the authors' code takes the envelope of these
    again.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression: quantitative definitions and reduction-based
    algorithms. ICML 2019, Figures 1 and 2.
    """
    frontier = scene.study.frontier
    if frontier.accuracy not in ROW_LOSSES:
        raise ConfigError(
            f"{scene.study.study}: {NAME} shows a loss of rows, and frontier.accuracy is "
            f"{frontier.accuracy!r}.",
            f"Choose among: {', '.join(ROW_LOSSES)}.",
        )
    if MEASURES.find(split_name(frontier.fairness[0])[0]).direction != "lower":
        raise ConfigError(
            f"{scene.study.study}: {NAME} shows a measure of which less is better, and the first "
            f"of frontier.fairness is {frontier.fairness[0]!r}.",
            "Write disparity:ATTRIBUTE, for example.",
        )
    test, chosen = (_tabulate(scene, part) for part in ("test", scene.study.select_on))
    labels = list(dict.fromkeys(test.index.get_level_values("method")))
    trails = {label: _follow(label, chosen.loc[label], test.loc[label]) for label in labels}
    sole = [label for label in labels if len(test.loc[label]) == 1]
    losses = {label: trails[label].loss["value"].iloc[0] for label in sole}
    losses = {label: value for label, value in losses.items() if np.isfinite(value)}
    if not losses:
        raise ConfigError(
            f"{scene.study.study}: {NAME} compares losses with the best baseline, and no row of "
            "one setting has a loss.",
            "Add a row like `least-squares: {method: linear_regression}`.",
        )
    best = min(losses, key=lambda label: losses[label])
    _pair(scene, best, trails)
    return Losses(
        measure=frontier.accuracy,
        against=frontier.fairness[0],
        chosen_on=scene.study.select_on,
        best=best,
        least=float(losses[best]),
        curves=tuple(trails[label] for label in labels if label not in sole),
        baselines=tuple(trails[label] for label in labels if label in losses),
    )


def _tabulate(scene: Scene, part: str) -> pd.DataFrame:
    """Return loss and disparity of a part's settings: rows method, setting in the plan's order."""
    fits = list_fits(scene.plan, "frontier")
    table = summarise(scene.points, fits, part).set_index(["name", "method", "setting"])
    settings = pd.MultiIndex.from_frame(fits[["method", "setting"]].drop_duplicates())
    names = {"loss": scene.study.frontier.accuracy, "disparity": scene.study.frontier.fairness[0]}
    columns = {"value": "value", "own_low": "low", "own_high": "high"}
    found = {
        key: table.loc[[name]].droplevel("name")[list(columns)].rename(columns=columns)
        for key, name in names.items()
        if name in table.index.get_level_values("name")
    }
    if len(found) < len(names):
        raise ConfigError(
            f"{scene.study.study}: the results hold no {names['disparity']} on {part}.",
            "Measure a group that the dataset declares, on a part that its split has.",
        )
    joined = pd.concat(found, axis=1)
    # A method that does not support the split has no points.
    return joined.loc[[each for each in settings if each in joined.index]]


def _follow(label: str, chosen: pd.DataFrame, test: pd.DataFrame) -> Trail:
    """Return a row's settings on the envelope of the part that chooses."""
    loss = chosen["loss", "value"].to_numpy(dtype=np.float64)
    disparity = chosen["disparity", "value"].to_numpy(dtype=np.float64)
    corners = find_envelope(loss, disparity)
    settings = chosen.index[corners]
    return Trail(
        label,
        tuple(settings),
        test.loc[settings, "loss"].copy(),
        test.loc[settings, "disparity"].copy(),
        loss[corners],
        disparity[corners],
    )


def _pair(scene: Scene, best: str, trails: Mapping[str, Trail]) -> None:
    """Turn losses into differences to the best baseline, two standard errors to either side."""
    measure = scene.study.frontier.accuracy
    settings = [(label, each) for label, trail in trails.items() for each in trail.settings]
    errors = pair_losses(scene, measure, (best, trails[best].settings[0]), settings)
    least = float(trails[best].loss["value"].iloc[0])
    for label, trail in trails.items():
        reach = REACH * np.array([errors[label, each] for each in trail.settings])
        value = trail.loss["value"].to_numpy(dtype=np.float64)
        if measure == "rmse":
            low, high = (np.sqrt(np.maximum(value**2 + each, 0.0)) for each in (-reach, reach))
        else:
            low, high = value - reach, value + reach
        for column, each in {"value": value, "low": low, "high": high}.items():
            trail.loss[column] = each - least


def _describe(found: Losses) -> str:
    """Return the picture in words."""
    told = [
        f"{each.label} {each.loss['value'].iloc[0]:+.4f} at {each.disparity['value'].iloc[0]:.3f}"
        for each in found.baselines
    ]
    for each in found.curves:
        ends = [
            f"{loss:+.4f} at {disparity:.3f}"
            for loss, disparity in zip(each.loss["value"], each.disparity["value"], strict=True)
        ]
        told.append(f"{each.label} from {ends[-1]} to {ends[0]}" if ends else f"{each.label} none")
    return (
        f"{name_measure(found.measure)} on test less {found.least:.4f}, that of {found.best}, "
        f"against {name_measure(found.against)}: {'; '.join(told)}."
    )


def _draw(found: Losses, chosen: pd.DataFrame) -> bytes:
    from matplotlib.lines import Line2D

    trails = (*found.baselines, *found.curves)
    looks = choose_looks([each.label for each in trails])
    with open_figure(9.6, 4.4, w_pad=0.1, h_pad=0.1, wspace=0.06) as picture:
        left, right = picture.subplots(1, 2)
        for axes in (left, right):
            add_grid(axes)
            axes.set_xlabel(name_measure(found.against))
        lines = _choose_lines(found.curves, looks)
        _draw_test(left, found, looks, lines)
        _draw_chosen(right, found, chosen, looks, lines)
        keys = [
            Line2D(
                [], [], color=colour, marker=marker, ms=6, ls=lines.get(each.label, ""),
                mec=INK if each in found.baselines else colour, label=each.label,
            )
            for each in trails
            for colour, marker in [looks[each.label]]
        ]  # fmt: skip
        picture.legend(
            handles=keys, loc="outside lower left", ncols=min(4, len(keys)), frameon=False
        )
        return encode_png(picture)


def _choose_lines(
    curves: Sequence[Trail], looks: dict[str, tuple[str, str]]
) -> dict[str, str | tuple[float, tuple[float, float]]]:
    """Return a line style for every curve: broken where another one has its colour already."""
    seen: set[str] = set()
    lines: dict[str, str | tuple[float, tuple[float, float]]] = {}
    for each in curves:
        colour = looks[each.label][0]
        lines[each.label] = (0.0, (3.0, 1.5)) if colour in seen else "-"
        seen.add(colour)
    return lines


def _draw_test(
    axes: Axes,
    found: Losses,
    looks: dict[str, tuple[str, str]],
    lines: Mapping[str, str | tuple[float, tuple[float, float]]],
) -> None:
    """Draw what the settings come to on test, with the intervals of one split."""
    axes.axhline(0, color=GREY, lw=0.8, ls=(0, (3, 3)), zorder=0)
    for each in found.curves:
        colour, marker = looks[each.label]
        # In the order of test, so that the band does not fold.
        order = np.argsort(each.disparity["value"].to_numpy(), kind="stable")
        x = each.disparity["value"].to_numpy()[order]
        value, low, high = (each.loss[name].to_numpy()[order] for name in ("value", "low", "high"))
        axes.fill_between(x, low, high, color=colour, alpha=0.16, lw=0, zorder=1)
        axes.plot(
            x, value, color=colour, marker=marker, ms=4, lw=1.8, ls=lines[each.label], zorder=3
        )
    _draw_baselines(axes, found.baselines, looks)
    axes.set_ylabel(f"{name_measure(found.measure)} less {found.least:.4f}")
    axes.set_title("Test rows", fontsize=10.5, fontweight="bold", loc="left")
    axes.set_title(f"less the loss of {found.best}", fontsize=9, loc="right")


def _draw_baselines(
    axes: Axes, baselines: Sequence[Trail], looks: dict[str, tuple[str, str]]
) -> None:
    for each in baselines:
        colour, marker = looks[each.label]
        loss, disparity = each.loss.iloc[0], each.disparity.iloc[0]
        axes.hlines(loss["value"], disparity["low"], disparity["high"], color=INK, lw=0.8, zorder=4)
        axes.vlines(disparity["value"], loss["low"], loss["high"], color=INK, lw=0.8, zorder=4)
        axes.plot(
            disparity["value"], loss["value"], marker, color=colour, ms=8, mec=INK, mew=0.9,
            zorder=5,
        )  # fmt: skip


def _draw_chosen(
    axes: Axes,
    found: Losses,
    chosen: pd.DataFrame,
    looks: dict[str, tuple[str, str]],
    lines: Mapping[str, str | tuple[float, tuple[float, float]]],
) -> None:
    """Draw the envelopes where they were chosen, and all other settings faintly."""
    for each in (*found.curves, *found.baselines):
        colour, marker = looks[each.label]
        every = chosen.loc[each.label]
        axes.plot(
            every["disparity", "value"], every["loss", "value"], marker, color=colour, ms=3.5,
            alpha=0.35, zorder=2,
        )  # fmt: skip
        sole = each in found.baselines
        axes.plot(
            each.chosen_disparity, each.chosen_loss, color=colour, marker=marker,
            ms=8 if sole else 4, mec=INK if sole else colour, lw=1.8, ls=lines.get(each.label, "-"),
            zorder=5 if sole else 3,
        )  # fmt: skip
    axes.set_ylabel(name_measure(found.measure))
    axes.set_title(f"{found.chosen_on} rows".capitalize(), fontsize=10.5, fontweight="bold",
                   loc="left")  # fmt: skip
    axes.set_title("where settings are chosen", fontsize=9, loc="right")
