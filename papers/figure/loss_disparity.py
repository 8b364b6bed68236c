"""Loss against disparity: what regressions lose for parity, compared with the best baseline."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fairfrontier.figure.certificate import StoredModel, list_stored
from fairfrontier.figure.frontier import (
    GREY,
    HEADING,
    INK,
    Looks,
    add_grid,
    add_legend,
    choose_looks,
    encode_png,
    make_key,
    name_measure,
    open_figure,
)
from fairfrontier.metrics.measure.performance import (
    LOSSES,
    compute_absolute,
    compute_square,
    expect_loss,
)
from fairfrontier.metrics.measure.registry import MEASURES, Audit, split_name
from fairfrontier.metrics.statistic.interval import Z
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.drawing import Picture, Scene, figure
from fairfrontier.study.frontier import list_fits, summarise
from papers.curve import find_envelope

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "loss_disparity"
# Measures that are means of rows' losses; rmse is the root of one.
ROW_LOSSES = {
    **{loss.name: loss.compute for loss in LOSSES},
    "mae": compute_absolute,
    "rmse": lambda y, u: 2 * compute_square(y, u),
}
Setting = tuple[str, str]
LineStyles = Mapping[str, str | tuple[float, tuple[float, float]]]


@dataclass(frozen=True, eq=False)
class Trail:
    """A row of the study: a curve of settings, or a baseline with one.

    Settings are canonical JSON, by ascending disparity on the part that chose them, where they have
    ``chosen_loss`` and ``chosen_disparity``. ``loss`` and ``disparity`` have the columns value, low
    and high: means over the seeds on test, with 95% intervals of one split. The loss on test, and
    its interval, is the difference from the best baseline's.
    """

    label: str
    settings: tuple[str, ...]
    loss: pd.DataFrame
    disparity: pd.DataFrame
    chosen_loss: np.ndarray
    chosen_disparity: np.ndarray


@dataclass(frozen=True, eq=False)
class Losses:
    """The loss ``measure`` against the disparity ``against``, of settings chosen on a part.

    ``best`` is the baseline of the least loss on test, which is ``least``. Curves are the rows with
    several settings, reduced to their lower convex envelopes; baselines those with one.
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


def check_measures(study: StudyConfig) -> None:
    """Refuse a study whose measures are no mean of rows' losses and no disparity."""
    frontier = study.frontier
    if frontier.accuracy not in ROW_LOSSES:
        raise ConfigError(
            f"{study.study}: {NAME} shows a loss of rows, and frontier.accuracy is "
            f"{frontier.accuracy!r}.",
            f"Choose among: {', '.join(ROW_LOSSES)}.",
        )
    if MEASURES.find(split_name(frontier.fairness[0])[0]).direction != "lower":
        raise ConfigError(
            f"{study.study}: {NAME} shows a measure of which less is better, and the first of "
            f"frontier.fairness is {frontier.fairness[0]!r}.",
            "Write disparity:ATTRIBUTE, for example.",
        )


@figure(
    NAME,
    title="Loss against disparity",
    what="Left: the loss on test less that of the best baseline, against the disparity on test, of "
    "the settings on each row's lower convex envelope; bands and bars are 95% intervals of one "
    "split's test rows (of the difference row by row, and of the largest distance). Right: "
    "the envelopes on the rows that chose them, with all other settings faint. A point between "
    "two neighbours of a curve is attained by drawing between the two.",
    supports=_refuse,
    needs=check_measures,
)
def draw_losses(scene: Scene) -> Picture:
    """Draw the losses of the study's frontier against its first fairness measure."""
    losses = trace_losses(scene)
    return Picture(_draw(losses, _tabulate(scene, losses.chosen_on)), _describe(losses))


def trace_losses(scene: Scene) -> Losses:
    """Find every row's envelope on the part that chooses, and its values on test.

    The loss is ``frontier.accuracy`` and the disparity the first of ``frontier.fairness``. Test
    rows choose nothing but the baseline: the curve joins the test points of all settings on the
    envelope of ``select_on``, where the authors' code takes the envelope of these again.

    Raises
    ------
    ConfigError
        When the former is not a mean of rows' losses, smaller values of the latter are not better,
        or no row has a single setting.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression: quantitative definitions and reduction-based
    algorithms. ICML 2019, Figures 1 and 2.
    """
    frontier, study = scene.study.frontier, scene.study.study
    check_measures(scene.study)
    test, chosen = (_tabulate(scene, part) for part in ("test", scene.study.select_on))
    labels = list(dict.fromkeys(test.index.get_level_values("method")))
    trails = {label: _follow(label, chosen.loc[label], test.loc[label]) for label in labels}
    single = [label for label in labels if len(test.loc[label]) == 1]
    losses = {label: trails[label].loss["value"].iloc[0] for label in single}
    losses = {label: value for label, value in losses.items() if np.isfinite(value)}
    if not losses:
        raise ConfigError(
            f"{study}: {NAME} compares losses with the best baseline, but no row of one setting "
            "has a loss.",
            "Add a row like `least-squares: {method: linear_regression}`.",
        )
    best = min(losses, key=lambda label: losses[label])
    _subtract_best(scene, best, trails)
    return Losses(
        measure=frontier.accuracy,
        against=frontier.fairness[0],
        chosen_on=scene.study.select_on,
        best=best,
        least=float(losses[best]),
        curves=tuple(trails[label] for label in labels if label not in single),
        baselines=tuple(trails[label] for label in labels if label in losses),
    )


def _tabulate(scene: Scene, part: str) -> pd.DataFrame:
    """Return a part's loss and disparity: rows (method, setting) in the plan's order."""
    fits = list_fits(scene.plan, "frontier")
    table = summarise(scene.points, fits, part).set_index(["name", "method", "setting"])
    settings = pd.MultiIndex.from_frame(fits[["method", "setting"]].drop_duplicates())
    names = {"loss": scene.study.frontier.accuracy, "disparity": scene.study.frontier.fairness[0]}
    columns = {"value": "value", "own_low": "low", "own_high": "high"}
    tables = {
        key: table.loc[[name]].droplevel("name")[list(columns)].rename(columns=columns)
        for key, name in names.items()
        if name in table.index.get_level_values("name")
    }
    if len(tables) < len(names):
        raise ConfigError(
            f"{scene.study.study}: the results hold no {names['disparity']} on {part}.",
            "Measure a group that the dataset declares, on a part that its split has.",
        )
    joined = pd.concat(tables, axis=1)
    # Methods that do not support the split have no points.
    return joined.loc[[setting for setting in settings if setting in joined.index]]


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


def _subtract_best(scene: Scene, best: str, trails: Mapping[str, Trail]) -> None:
    """Turn losses into differences from the best baseline, with normal intervals."""
    measure = scene.study.frontier.accuracy
    settings = [(label, setting) for label, trail in trails.items() for setting in trail.settings]
    errors = pair_losses(scene, measure, (best, trails[best].settings[0]), settings)
    least = float(trails[best].loss["value"].iloc[0])
    for label, trail in trails.items():
        reach = Z * np.array([errors[label, setting] for setting in trail.settings])
        value = trail.loss["value"].to_numpy(dtype=np.float64)
        if measure == "rmse":
            low, high = (np.sqrt(np.maximum(value**2 + side, 0.0)) for side in (-reach, reach))
        else:
            low, high = value - reach, value + reach
        for column, values in {"value": value, "low": low, "high": high}.items():
            trail.loss[column] = values - least


def pair_losses(
    scene: Scene, measure: str, base: Setting, settings: Collection[Setting]
) -> Mapping[Setting, float]:
    """Estimate the standard errors of the differences between mean losses on test and the base's.

    With d_i the difference of row i's expected losses and v_i = w_i / Σ_j w_j, an error is
    sqrt(Σ_i v_i² (d_i − d̄)²), d̄ = Σ_i v_i d_i, averaged over the seeds that have both. Good models
    err on the same rows, so that it is smaller than the error of either loss. ``rmse`` compares
    squared errors. Settings (label, canonical JSON) without predictions get NaN.
    """
    wanted = {base, *settings}
    by_seed: dict[int, dict[Setting, StoredModel]] = {}
    for model in list_stored(
        scene, lambda group, member: (group.method, canonical_json(member.setting)) in wanted
    ):
        by_seed.setdefault(model.member.seed, {})[model.row] = model
    errors: dict[Setting, list[float]] = {setting: [] for setting in settings}
    for _, models in sorted(by_seed.items()):
        start = _read_losses(scene, measure, models[base]) if base in models else None
        for setting in settings if start is not None else ():
            other = _read_losses(scene, measure, models[setting]) if setting in models else None
            if start is not None and other is not None:
                difference, share = other[0] - start[0], start[1] / start[1].sum()
                spread = share * (difference - share @ difference)
                errors[setting].append(float(np.sqrt(np.sum(spread**2))))
    return {setting: float(np.mean(own)) if own else np.nan for setting, own in errors.items()}


def _read_losses(
    scene: Scene, measure: str, model: StoredModel
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the expected losses of a model's test rows and their weights; None without a test."""
    part = model.split(scene.home).test
    if part is None:
        return None
    return expect_loss(Audit(model.test_scores(), part), ROW_LOSSES[measure]), part.weight


def _describe(losses: Losses) -> str:
    """Return the picture in words."""
    parts = []
    for trail in (*losses.baselines, *losses.curves):
        points = [
            f"{loss:+.4f} at {disparity:.3f}"
            for loss, disparity in zip(trail.loss["value"], trail.disparity["value"], strict=True)
        ]
        if trail in losses.baselines:
            parts.append(f"{trail.label} {points[0]}")
        else:
            ends = f"from {points[-1]} to {points[0]}" if points else "none"
            parts.append(f"{trail.label} {ends}")
    return (
        f"{name_measure(losses.measure)} on test less {losses.least:.4f}, that of {losses.best}, "
        f"against {name_measure(losses.against)}: {'; '.join(parts)}."
    )


def _draw(losses: Losses, chosen: pd.DataFrame) -> bytes:
    trails = (*losses.baselines, *losses.curves)
    looks = choose_looks([trail.label for trail in trails])
    styles = _choose_styles(losses.curves, looks)
    with open_figure(9.6, 4.4, w_pad=0.1, h_pad=0.1, wspace=0.06) as picture:
        left, right = picture.subplots(1, 2)
        for axes in (left, right):
            add_grid(axes)
            axes.set_xlabel(name_measure(losses.against))
        _draw_test(left, losses, looks, styles)
        _draw_chosen(right, losses, chosen, looks, styles)
        keys = []
        for trail in trails:
            colour, marker = looks[trail.label]
            look: Any = {"color": colour, "marker": marker, "ls": styles.get(trail.label, "")}
            edge = INK if trail in losses.baselines else colour
            keys.append(make_key(trail.label, ms=6, mec=edge, **look))
        add_legend(picture, keys, min(4, len(keys)))
        return encode_png(picture)


def _choose_styles(curves: Sequence[Trail], looks: Looks) -> LineStyles:
    """Return a line style for every curve: broken where an earlier one has the same colour."""
    colours = [looks[trail.label][0] for trail in curves]
    return {
        trail.label: (0.0, (3.0, 1.5)) if colours[i] in colours[:i] else "-"
        for i, trail in enumerate(curves)
    }


def _draw_test(axes: Axes, losses: Losses, looks: Looks, styles: LineStyles) -> None:
    """Draw the settings' values on test, with the intervals of one split."""
    axes.axhline(0, color=GREY, lw=0.8, ls=(0, (3, 3)), zorder=0)
    for trail in losses.curves:
        colour, marker = looks[trail.label]
        # In the order of test, so that the band does not fold over.
        order = np.argsort(trail.disparity["value"].to_numpy(), kind="stable")
        x = trail.disparity["value"].to_numpy()[order]
        value, low, high = (trail.loss[name].to_numpy()[order] for name in ("value", "low", "high"))
        axes.fill_between(x, low, high, color=colour, alpha=0.16, lw=0, zorder=1)
        look: Any = {"color": colour, "marker": marker, "ls": styles[trail.label]}
        axes.plot(x, value, ms=4, lw=1.8, zorder=3, **look)
    for trail in losses.baselines:
        colour, marker = looks[trail.label]
        loss, disparity = trail.loss.iloc[0], trail.disparity.iloc[0]
        x, y = disparity["value"], loss["value"]
        axes.hlines(y, disparity["low"], disparity["high"], color=INK, lw=0.8, zorder=4)
        axes.vlines(x, loss["low"], loss["high"], color=INK, lw=0.8, zorder=4)
        axes.plot(x, y, marker, color=colour, ms=8, mec=INK, mew=0.9, zorder=5)
    axes.set_ylabel(f"{name_measure(losses.measure)} less {losses.least:.4f}")
    axes.set_title("Test rows", **HEADING)
    axes.set_title(f"less the loss of {losses.best}", fontsize=9, loc="right")


def _draw_chosen(
    axes: Axes, losses: Losses, chosen: pd.DataFrame, looks: Looks, styles: LineStyles
) -> None:
    """Draw the envelopes where they were chosen, and all other settings faint."""
    for trail in (*losses.curves, *losses.baselines):
        colour, marker = looks[trail.label]
        own = chosen.loc[trail.label]
        x, y = own["disparity", "value"], own["loss", "value"]
        axes.plot(x, y, marker, color=colour, ms=3.5, alpha=0.35, zorder=2)
        look: Any = {"ms": 4, "mec": colour, "zorder": 3}
        if trail in losses.baselines:
            look = {"ms": 8, "mec": INK, "zorder": 5}
        look |= {"color": colour, "marker": marker, "ls": styles.get(trail.label, "-")}
        axes.plot(trail.chosen_disparity, trail.chosen_loss, lw=1.8, **look)
    axes.set_ylabel(name_measure(losses.measure))
    axes.set_title(f"{losses.chosen_on} rows".capitalize(), **HEADING)
    axes.set_title("where settings are chosen", fontsize=9, loc="right")
