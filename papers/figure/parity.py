"""Parity by group: scores of the groups, and the gaps that parity leaves within other groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fairfrontier.figure.frontier import COLOURS, GREY, INK, add_grid, encode_png, open_figure
from fairfrontier.metrics.statistic.interval import newcombe
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.drawing import Picture, Scene, figure
from papers.figure.classifier import (
    THRESHOLDS,
    Classifier,
    ClassifierRow,
    list_classifiers,
    refuse_dataset,
    require_row,
    score_part,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "parity_by_group"
BINS = 40
EVERYONE = "everyone"
# Distance of the stages of one level, as a share of that between levels.
STEP = 0.24
GROUP_COLOURS = COLOURS[:2]
# Unmodified, parity on one attribute, parity on the cross product: hollow to filled.
STAGES = ((GREY, "o", "white"), (COLOURS[4], "s", COLOURS[4]), (COLOURS[2], "D", COLOURS[2]))


@dataclass(frozen=True)
class Pair:
    """The levels ``low`` and ``high`` of ``outer`` that are compared within levels of ``inner``.

    Their rates differ most without a post-processor, and gaps are the rate of ``high`` minus that
    of ``low``; the levels ``within`` come by descending number of test rows.
    """

    outer: str
    inner: str
    low: str
    high: str
    within: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Gaps:
    """The gaps of one classifier.

    ``share``, shape (2, BINS), are the shares of the test rows of ``low`` and ``high`` by score
    P(Y=1|x), in equal bins of [0, 1], and ``rate``, shape (2,), the shares that the unmodified
    classifier decides 1. ``value``, ``below`` and ``above``, shape (3, 1 + n_levels), are the gap
    and its 95% interval before post-processing, after parity on ``outer`` and after parity on the
    cross product, among everyone and within each level: means over the splits, NaN where a group
    has too few test rows.
    """

    label: str
    share: np.ndarray
    rate: np.ndarray
    value: np.ndarray
    below: np.ndarray
    above: np.ndarray


def refuse_one_attribute(dataset: DatasetConfig) -> str | None:
    """Return why gaps of one attribute cannot be shown within another; None where they can."""
    plain = [name for name, group in dataset.groups.items() if not group.cross]
    reason = refuse_dataset(dataset)
    if reason is None and len(plain) < 2:
        return f"it crosses two attributes, and {dataset.dataset} has {len(plain)}"
    return reason


@figure(
    NAME,
    title="Scores and gaps by group",
    what="Top: the scores that the unmodified classifiers give the test rows of each group. Below: "
    "the gap between the groups, among everyone and within each level of the other attribute, of "
    "the unmodified classifiers, after parity between the groups, and after parity between the "
    "groups crossed with the other attribute. Means over the splits; bars are the 95% interval of "
    "one split's test rows, which is wide where a group has few.",
    supports=refuse_one_attribute,
)
def draw_parity(scene: Scene) -> Picture:
    """Draw a column for each classifier."""
    pair, counts, gaps = measure_gaps(scene)
    positive = list_classifiers(scene, NAME)[0].positive(scene.home)
    return Picture(_draw(pair, counts, gaps, positive), _describe(pair, gaps, positive))


def measure_gaps(scene: Scene) -> tuple[Pair, np.ndarray, tuple[Gaps, ...]]:
    """Return the groups compared, their mean test rows, and the gaps of every classifier.

    The rows, shape (2, 1 + n_levels), are those of ``low`` and ``high``: of everyone, then within
    each level of ``inner``. A ConfigError names a row that the study lacks.
    """
    classifiers = list_classifiers(scene, NAME)
    outer, inner = _find_attributes(classifiers)
    stages = [
        (
            classifier.base,
            require_row(classifier, NAME, THRESHOLDS, (outer,)),
            require_row(classifier, NAME, THRESHOLDS, (outer, inner)),
        )
        for classifier in classifiers
    ]
    points = scene.points
    points = points[(points["part"] == "test") & (points["measure"] == "selection_rate")]
    rates = points.set_index(["method", "setting", "seed", "group"])[["value", "n", "low", "high"]]
    attributes = classifiers[0].base.first.split(scene.home).train.attributes
    pair = _choose_pair(classifiers, rates, outer, inner, attributes)
    cells = [
        [
            _name_cell(attributes, {outer: level, **({inner: within} if within else {})})
            for within in (None, *pair.within)
        ]
        for level in (pair.low, pair.high)
    ]
    counts = [_look_up(rates, row, cells)[..., 1] for row, _, _ in stages]
    gaps = tuple(_measure_classifier(scene, rows, rates, cells, pair) for rows in stages)
    return pair, np.concatenate(counts).mean(axis=0), gaps


def _look_up(rates: pd.DataFrame, row: ClassifierRow, cells: Sequence[Any]) -> np.ndarray:
    """Return value, n, low and high of cells on every split, shape (n_seeds, *cells, 4)."""
    names = np.ravel(cells).tolist()
    keys = [(row.label, row.setting, seed, name) for seed in row.fits for name in names]
    values = rates.reindex(keys).fillna({"n": 0}).to_numpy(dtype=np.float64)
    return values.reshape(len(row.fits), *np.shape(cells), 4)


def _find_attributes(classifiers: Sequence[Classifier]) -> tuple[str, str]:
    """Return the attribute of thresholds on one, and the one that another row crosses it with."""
    rows = [
        row
        for classifier in classifiers
        for row in classifier.processed
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
            return outer, next(name for name in row.attributes if name != outer)
    raise ConfigError(
        f"{NAME} shows parity on {outer} crossed with another attribute, and no row of the study "
        "has that.",
        f"Add a row with then: {{method: {THRESHOLDS}, attributes: [[{outer}, NAME]]}}.",
    )


def _name_cell(attributes: Mapping[str, tuple[str, ...]], levels: Mapping[str, str]) -> str:
    """Return the name in points.parquet of a level, or of a combination of two."""
    names = [name for name in attributes if name in levels]
    return f"{'×'.join(names)}={'×'.join(levels[name] for name in names)}"


def _choose_pair(
    classifiers: Sequence[Classifier],
    rates: pd.DataFrame,
    outer: str,
    inner: str,
    attributes: Mapping[str, tuple[str, ...]],
) -> Pair:
    """Choose the levels of ``outer`` whose rates differ most, and order those of ``inner``."""

    def average(name: str, column: int) -> np.ndarray:
        cells = [_name_cell(attributes, {name: level}) for level in attributes[name]]
        tables = [_look_up(rates, classifier.base, cells) for classifier in classifiers]
        return np.asarray(np.concatenate(tables)[..., column].mean(axis=0))

    rate, size = average(outer, 0), average(inner, 1)
    order = [level for level in np.argsort(-size, kind="stable").tolist() if size[level] > 0]
    return Pair(
        outer,
        inner,
        low=attributes[outer][int(np.nanargmin(rate))],
        high=attributes[outer][int(np.nanargmax(rate))],
        within=tuple(attributes[inner][level] for level in order),
    )


def _measure_classifier(
    scene: Scene,
    stages: Sequence[ClassifierRow],
    rates: pd.DataFrame,
    cells: Sequence[Sequence[str]],
    pair: Pair,
) -> Gaps:
    tables = [_look_up(rates, row, cells) for row in stages]
    gaps = np.array(
        [[[_subtract(cell) for cell in np.moveaxis(t, 1, 0)] for t in table] for table in tables]
    )
    # Groups with very few rows have no rate, on some splits or on all.
    measured = np.isfinite(gaps)
    total = np.where(measured, gaps, 0.0).sum(axis=1)
    times = measured.sum(axis=1)
    mean = np.divide(total, times, out=np.full(total.shape, np.nan), where=times > 0)
    value, below, above = np.moveaxis(mean, -1, 0)
    share = _count_scores(scene, stages[0], pair)
    rate = np.mean(tables[0][:, :, 0, 0], axis=0)
    return Gaps(stages[0].label, share, rate, value, below, above)


def _subtract(rates: np.ndarray) -> tuple[float, float, float]:
    """Return the second of two rates minus the first, with its interval."""
    value, _, low, high = rates[::-1].T
    return (float(value[0] - value[1]), *newcombe(value, low, high))


def _count_scores(scene: Scene, base: ClassifierRow, pair: Pair) -> np.ndarray:
    """Return the mean share of each group's test rows by score."""
    shares = []
    for stored in base.fits.values():
        rows = score_part(stored, "test", (pair.outer,), scene.home)
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
    parts = []
    for classifier in gaps:
        largest = [
            f"{name} {values[0]:+.3f} among everyone, at most {np.nanmax(np.abs(values[1:])):.3f} "
            f"within a level of {pair.inner}"
            for name, values in zip(_name_stages(pair), classifier.value, strict=True)
        ]
        parts.append(f"{classifier.label}: {'; '.join(largest)}")
    return (
        f"Histograms of each classifier's scores by {pair.outer}; below, the share decided "
        f"{positive} of {pair.high} minus that of {pair.low}. " + ". ".join(parts) + "."
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
        for (above, below), classifier in zip(panels.T, gaps, strict=True):
            above.set_title(classifier.label, fontsize=10.5, fontweight="bold", loc="left")
            _draw_scores(above, classifier, pair, positive)
            _draw_gaps(below, classifier)
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
    for i, (colour, share, level, rate) in enumerate(
        zip(GROUP_COLOURS, gaps.share, (pair.low, pair.high), gaps.rate, strict=True)
    ):
        axes.stairs(share, edges, fill=True, color=colour, alpha=0.25)
        axes.stairs(share, edges, color=colour, lw=1.3)
        axes.text(
            0.99, 0.84 - 0.13 * i, f"{level}: {rate:.0%}", color=colour, fontsize=9,
            fontweight="bold", ha="right", transform=axes.transAxes,
        )  # fmt: skip
    axes.text(0.99, 0.97, f"decided {positive}", fontsize=8.5, ha="right", transform=axes.transAxes)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "", ".5", "", "1"])


def _draw_gaps(axes: Axes, gaps: Gaps) -> None:
    axes.axvline(0, color=INK, lw=0.8)
    levels = np.arange(gaps.value.shape[1])
    for stage, (colour, mark, face) in enumerate(STAGES):
        at = levels + STEP * (stage - 1)
        value = 100 * gaps.value[stage]
        axes.hlines(at, 100 * gaps.below[stage], 100 * gaps.above[stage], color=colour, lw=1.3)
        axes.plot(value, at, ls="none", marker=mark, color=colour, mfc=face, ms=5.5, mew=1.4)
    for level in np.flatnonzero(np.isnan(gaps.value).all(axis=0)).tolist():
        axes.text(0, level, " too few rows", fontsize=8, color=GREY, va="center")
    axes.axhline(0.5, color=GREY, lw=0.6)
    add_grid(axes, "x")
    axes.tick_params(axis="y", length=0)


def label_point(
    axes: Axes, text: str, point: tuple[float, float], offset: float, **style: Any
) -> None:
    """Write a text beside a point, to its left by a negative offset in points."""
    side: Any = {"ha": "left" if offset > 0 else "right", "va": "center"}
    axes.annotate(text, point, (offset, 0), textcoords="offset points", **side, **style)


def _name_stages_beside(axes: Axes, gaps: Sequence[Gaps], pair: Pair) -> None:
    """Label the stages of everyone in the first panel, on the side with more room."""
    least = min(float(np.nanmin(classifier.below)) for classifier in gaps)
    most = max(float(np.nanmax(classifier.above)) for classifier in gaps)
    for stage, name in enumerate(_name_stages(pair)):
        below, above = gaps[0].below[stage, 0], gaps[0].above[stage, 0]
        leftwards = below - least > most - above
        point = (100 * (below if leftwards else above), STEP * (stage - 1))
        # The line at 0 must not cross the label.
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
        label_point(axes, name, point, -7 if leftwards else 7, fontsize=8.5, bbox=box)
