"""Parity by group: scores of the groups, and the gaps that parity leaves inside other groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairfrontier.evaluate.statistic.interval import newcombe
from fairfrontier.figure.frontier import COLOURS, GREY, INK, add_grid, encode_png, open_figure
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.reproduce.figure.classifier import (
    THRESHOLDS,
    Classifier,
    ClassifierRow,
    list_classifiers,
    refuse_dataset,
    require_row,
)
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.drawing import Picture, Scene, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "parity_by_group"
BINS = 40
EVERYONE = "everyone"
# Between the stages of one level, as a share of the distance between levels.
STEP = 0.24
GROUP_COLOURS = COLOURS[:2]
# Unmodified, parity on one attribute, parity on the cross product: hollow to filled.
STAGES = ((GREY, "o", "white"), (COLOURS[4], "s", COLOURS[4]), (COLOURS[2], "D", COLOURS[2]))


@dataclass(frozen=True)
class Pair:
    """What is compared inside what.

    Attributes
    ----------
    outer : str
        The attribute of the study's thresholds: sex.
    inner : str
        The attribute that is crossed with it: race.
    low, high : str
        The levels of ``outer`` whose rates differ most without a post-processor: the gap is the
        rate of ``high`` less that of ``low``.
    within : tuple of str
        The levels of ``inner``, those with most test rows first.
    """

    outer: str
    inner: str
    low: str
    high: str
    within: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Gaps:
    """The gaps of one classifier.

    Attributes
    ----------
    label : str
        The unmodified classifier.
    share : ndarray of float64, shape (2, BINS)
        Shares of the test rows of ``low`` and ``high`` by score P(Y=1|x), in equal bins of [0, 1].
    rate : ndarray of float64, shape (2,)
        Shares of their rows that the unmodified classifier decides 1.
    value, below, above : ndarray of float64, shape (3, 1 + n_levels)
        The gap and its 95% interval: before, after parity on ``outer``, after parity on the cross
        product; of everyone, then inside each level. Means over the splits, of the intervals'
        ends too; NaN where a group has too few test rows to be measured.
    """

    label: str
    share: np.ndarray
    rate: np.ndarray
    value: np.ndarray
    below: np.ndarray
    above: np.ndarray


# (label, setting, seed, group) -> value, n, low, high
Rates = Mapping[tuple[str, str, int, str], tuple[float, int, float, float]]


def refuse_one_attribute(described: DatasetConfig) -> str | None:
    """Say why gaps of one attribute cannot be shown inside another; None where they can."""
    plain = [name for name, group in described.groups.items() if not group.cross]
    reason = refuse_dataset(described)
    if reason is None and len(plain) < 2:
        return f"it crosses two attributes, and {described.dataset} has {len(plain)}"
    return reason


@figure(
    NAME,
    title="Scores and gaps by group",
    what="Top: how the unmodified classifiers score the test rows of each group. Below: the gap "
    "between the groups, among everyone and inside each level of the other attribute, as the "
    "classifiers are, after parity between the groups, and after parity between the groups "
    "crossed with the other attribute. Means over the splits; bars are the 95% interval of one "
    "split's test rows, which is wide where a group has few.",
    supports=refuse_one_attribute,
)
def draw_parity(scene: Scene) -> Picture:
    """Draw a column for each classifier."""
    pair, counts, gaps = measure_gaps(scene)
    positive = list_classifiers(scene, NAME)[0].positive(scene.home)
    return Picture(_draw(pair, counts, gaps, positive), _describe(pair, gaps, positive))


def measure_gaps(scene: Scene) -> tuple[Pair, np.ndarray, tuple[Gaps, ...]]:
    """Return what is compared, the mean test rows behind it, and the gaps of every classifier.

    Returns
    -------
    pair : Pair
    counts : ndarray of float64, shape (2, 1 + n_levels)
        Test rows of ``low`` and ``high``: of everyone, then inside each level of ``inner``.
    gaps : tuple of Gaps
        One for each classifier.

    Raises
    ------
    ConfigError
        When the study lacks a row that the figure shows.
    """
    classifiers = list_classifiers(scene, NAME)
    outer, inner = _find_attributes(classifiers)
    stages = [
        (
            each.base,
            require_row(each, NAME, THRESHOLDS, (outer,)),
            require_row(each, NAME, THRESHOLDS, (outer, inner)),
        )
        for each in classifiers
    ]
    rates = _index_rates(scene)
    attributes = classifiers[0].base.split(scene.home).train.attributes
    pair = _choose_pair(classifiers, rates, outer, inner, attributes)
    crossed = [
        [
            _name_cell(attributes, {outer: level, inner: each} if each else {outer: level})
            for each in (None, *pair.within)
        ]
        for level in (pair.low, pair.high)
    ]
    rows = [
        [[rates.get((*_key(row), seed, cell), _NOTHING)[1] for cell in cells] for cells in crossed]
        for row in (each.base for each in classifiers)
        for seed in row.fits
    ]
    gaps = tuple(
        _measure_classifier(scene, each, three, rates, crossed, pair)
        for each, three in zip(classifiers, stages, strict=True)
    )
    return pair, np.mean(rows, axis=0), gaps


_NOTHING = (np.nan, 0, np.nan, np.nan)


def _key(row: ClassifierRow) -> tuple[str, str]:
    return row.label, row.setting


def _find_attributes(classifiers: Sequence[Classifier]) -> tuple[str, str]:
    """Return the attribute of thresholds on one, and what another row crosses it with."""
    rows = [
        row
        for each in classifiers
        for row in each.processed
        if (row.then or {})["method"] == THRESHOLDS
    ]
    alone = [row.attributes[0] for row in rows if len(row.attributes) == 1]
    if not alone:
        raise ConfigError(
            f"{NAME} shows parity on one attribute, and no row of the study has that.",
            f"Add a row with then: {{method: {THRESHOLDS}, attributes: NAME}}.",
        )
    outer = alone[0]
    for row in rows:
        if len(row.attributes) == 2 and outer in row.attributes:
            return outer, next(each for each in row.attributes if each != outer)
    raise ConfigError(
        f"{NAME} shows parity on {outer} crossed with another attribute, and no row of the study "
        "has that.",
        f"Add a row with then: {{method: {THRESHOLDS}, attributes: [[{outer}, NAME]]}}.",
    )


def _index_rates(scene: Scene) -> Rates:
    """Return the selection rates on test, with their intervals."""
    points = scene.points
    points = points[(points["part"] == "test") & (points["measure"] == "selection_rate")]
    names = zip(points["method"], points["setting"], points["seed"], points["group"], strict=True)
    values = zip(points["value"], points["n"], points["low"], points["high"], strict=True)
    return dict(zip(names, values, strict=True))


def _name_cell(attributes: Mapping[str, tuple[str, ...]], chosen: Mapping[str, str]) -> str:
    """Return how points.parquet names a level, or a combination of two."""
    names = [name for name in attributes if name in chosen]
    return f"{'×'.join(names)}={'×'.join(chosen[name] for name in names)}"


def _choose_pair(
    classifiers: Sequence[Classifier],
    rates: Rates,
    outer: str,
    inner: str,
    attributes: Mapping[str, tuple[str, ...]],
) -> Pair:
    """Choose the levels of ``outer`` furthest apart, and order those of ``inner`` by rows."""

    def mean(name: str, level: str, place: int) -> float:
        cell = _name_cell(attributes, {name: level})
        found = [
            rates.get((*_key(each.base), seed, cell), _NOTHING)[place]
            for each in classifiers
            for seed in each.base.fits
        ]
        return float(np.mean(found))

    rate = {level: mean(outer, level, 0) for level in attributes[outer]}
    present = {level: value for level, value in rate.items() if not np.isnan(value)}
    size = {level: mean(inner, level, 1) for level in attributes[inner]}
    return Pair(
        outer=outer,
        inner=inner,
        low=min(present, key=lambda level: present[level]),
        high=max(present, key=lambda level: present[level]),
        within=tuple(sorted((each for each in size if size[each] > 0), key=lambda x: -size[x])),
    )


def _measure_classifier(
    scene: Scene,
    classifier: Classifier,
    stages: Sequence[ClassifierRow],
    rates: Rates,
    crossed: Sequence[Sequence[str]],
    pair: Pair,
) -> Gaps:
    found = np.array(
        [
            [
                [_gap(rates, row, seed, low, high) for low, high in zip(*crossed, strict=True)]
                for seed in row.fits
            ]
            for row in stages
        ]
    )
    # Groups of very few rows are not measured, on some splits or on all.
    measured = np.isfinite(found)
    total = np.where(measured, found, 0.0).sum(axis=1)
    times = measured.sum(axis=1)
    mean = np.divide(total, times, out=np.full(total.shape, np.nan), where=times > 0)
    value, below, above = np.moveaxis(mean, -1, 0)
    base = classifier.base
    decided = [[rates[*_key(base), seed, cells[0]][0] for cells in crossed] for seed in base.fits]
    share = _count_scores(scene, classifier, pair)
    return Gaps(classifier.label, share, np.mean(decided, axis=0), value, below, above)


def _gap(
    rates: Rates, row: ClassifierRow, seed: int, low: str, high: str
) -> tuple[float, float, float]:
    """Return the rate of ``high`` less that of ``low`` on one split, with its interval."""
    cells = [rates.get((*_key(row), seed, cell), _NOTHING) for cell in (high, low)]
    value, _, below, above = np.array(cells, dtype=np.float64).T
    return (float(value[0] - value[1]), *newcombe(value, below, above))


def _count_scores(scene: Scene, classifier: Classifier, pair: Pair) -> np.ndarray:
    """Return the mean share of each group's test rows by score."""
    shares = []
    for stored in classifier.base.fits.values():
        rows = stored.scored("test", (pair.outer,), scene.home)
        share = []
        for level in (pair.low, pair.high):
            score = rows.score[rows.code == rows.levels.index(level)]
            share.append(np.histogram(score, BINS, (-1, 1))[0] / max(1, score.size))
        shares.append(share)
    return np.asarray(np.mean(shares, axis=0))


def _name_stages(pair: Pair) -> tuple[str, str, str]:
    return "unmodified", f"parity on {pair.outer}", f"parity on {pair.outer} × {pair.inner}"


def _describe(pair: Pair, gaps: Sequence[Gaps], positive: str) -> str:
    """Return the picture in words."""
    told = []
    for each in gaps:
        largest = [
            f"{name} {values[0]:+.3f} among everyone, at most {np.nanmax(np.abs(values[1:])):.3f} "
            f"inside a level of {pair.inner}"
            for name, values in zip(_name_stages(pair), each.value, strict=True)
        ]
        told.append(f"{each.label}: {'; '.join(largest)}")
    return (
        f"Histograms of each classifier's scores by {pair.outer}; below, the share decided "
        f"{positive} of {pair.high} less that of {pair.low}. " + ". ".join(told) + "."
    )


def _draw(pair: Pair, counts: np.ndarray, gaps: Sequence[Gaps], positive: str) -> bytes:
    levels = (EVERYONE, *pair.within)
    size = 2.45 * len(gaps) + 1.9, 2.9 + 0.52 * len(levels)
    with open_figure(*size, w_pad=0.06, h_pad=0.08, hspace=0.05) as picture:
        panels = picture.subplots(
            2,
            len(gaps),
            squeeze=False,
            sharey="row",
            sharex="row",
            height_ratios=[1.7, 0.52 * len(levels)],
        )
        for (above, below), each in zip(panels.T, gaps, strict=True):
            above.set_title(each.label, fontsize=10.5, fontweight="bold", loc="left")
            _draw_scores(above, each, pair, positive)
            _draw_gaps(below, each)
        panels[0, 0].set_ylabel("share of the group's rows")
        panels[1, 0].set_yticks(
            range(len(levels)),
            [
                f"{level}\n{low:,.0f} {pair.low}, {high:,.0f} {pair.high}"
                for level, (low, high) in zip(levels, counts.T, strict=True)
            ],
            fontsize=8.5,
        )
        panels[1, 0].invert_yaxis()
        for axes in panels[0]:
            axes.set_xlabel(f"score: P({positive})", fontsize=9)
        picture.supxlabel(
            f"gap in the share decided {positive}: {pair.high} minus {pair.low}, percentage points",
            fontsize=9.5,
        )
        _name_stages_beside(panels[1, 0], gaps, pair)
        return encode_png(picture)


def _draw_scores(axes: Axes, gaps: Gaps, pair: Pair, positive: str) -> None:
    edges = np.linspace(0, 1, BINS + 1)
    axes.axvline(0.5, color=INK, lw=0.8, ls=(0, (3, 3)))
    for place, (colour, share, level, rate) in enumerate(
        zip(GROUP_COLOURS, gaps.share, (pair.low, pair.high), gaps.rate, strict=True)
    ):
        axes.stairs(share, edges, fill=True, color=colour, alpha=0.25)
        axes.stairs(share, edges, color=colour, lw=1.3)
        axes.text(
            0.99, 0.84 - 0.13 * place, f"{level}: {rate:.0%}", color=colour, fontsize=9,
            fontweight="bold", ha="right", transform=axes.transAxes,
        )  # fmt: skip
    axes.text(0.99, 0.97, f"decided {positive}", fontsize=8.5, ha="right", transform=axes.transAxes)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "", ".5", "", "1"])


def _draw_gaps(axes: Axes, gaps: Gaps) -> None:
    axes.axvline(0, color=INK, lw=0.8)
    places = np.arange(gaps.value.shape[1])
    for stage, (colour, mark, face) in enumerate(STAGES):
        at = places + STEP * (stage - 1)
        value = 100 * gaps.value[stage]
        axes.hlines(at, 100 * gaps.below[stage], 100 * gaps.above[stage], color=colour, lw=1.3)
        axes.plot(value, at, ls="none", marker=mark, color=colour, mfc=face, ms=5.5, mew=1.4)
    for place in np.flatnonzero(np.isnan(gaps.value).all(axis=0)).tolist():
        axes.text(0, place, " too few rows", fontsize=8, color=GREY, va="center")
    axes.axhline(0.5, color=GREY, lw=0.6)
    add_grid(axes, "x")
    axes.tick_params(axis="y", length=0)


def _name_stages_beside(axes: Axes, gaps: Sequence[Gaps], pair: Pair) -> None:
    """Name the stages where the first panel shows everyone, each on the side with more room."""
    least = min(float(np.nanmin(each.below)) for each in gaps)
    most = max(float(np.nanmax(each.above)) for each in gaps)
    for stage, name in enumerate(_name_stages(pair)):
        below, above = gaps[0].below[stage, 0], gaps[0].above[stage, 0]
        leftwards = below - least > most - above
        axes.annotate(
            name,
            (100 * (below if leftwards else above), STEP * (stage - 1)),
            xytext=(-7 if leftwards else 7, 0),
            textcoords="offset points",
            ha="right" if leftwards else "left",
            va="center",
            fontsize=8.5,
            # The line at 0 must not cross the words.
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
        )
