"""Rates of the levels of a group attribute, and their aggregates, from counted cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal

import numpy as np
import pandas as pd

from fairfrontier.metrics.statistic.interval import effective_size, wilson
from fairfrontier.models.prediction import Prediction, task_of
from fairfrontier.prepare.split import Part

# Right and wrong rows counted by cell, shares of them, and bootstrap draws of their sums.


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Sums over the rows of each cell, of which there may be several axes.

    A row of weight w that is right with probability r counts w(1 − r) as wrong and wr as right.
    ``count`` has shape (n_cells,), ``mass`` (n_cells, 2) the sums of what is wrong and right, and
    ``square`` (n_cells, 2, 2) the sums of their products.
    """

    count: np.ndarray
    mass: np.ndarray
    square: np.ndarray


def count_outcomes(
    cell: np.ndarray, right: np.ndarray, weight: np.ndarray, n_cells: int
) -> Outcomes:
    """Count the rows of each cell, 0 to n_cells − 1; ``right`` is the probability of being so."""
    choice = right.astype(np.intp)
    if (choice == right).all() and (weight == 1).all():
        rows = np.bincount(2 * cell + choice, minlength=2 * n_cells).reshape(n_cells, 2)
        square = rows[..., None] * np.eye(2)
        return Outcomes(rows.sum(axis=-1), rows.astype(np.float64), square)
    halves = (weight * (1 - right), weight * right)
    mass = np.stack([np.bincount(cell, half, n_cells) for half in halves], axis=-1)
    square = np.stack(
        [np.stack([np.bincount(cell, a * b, n_cells) for b in halves], axis=-1) for a in halves],
        axis=-1,
    )
    return Outcomes(np.bincount(cell, minlength=n_cells), mass, square)


def divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return quotients; NaN where the denominator is not positive."""
    out = np.full(below.shape, np.nan)
    np.divide(above, below, out=out, where=below > 0)
    return out


def divide_right(mass: np.ndarray) -> np.ndarray:
    """Return the share that is right of sums of shape (..., 2); NaN where there is nothing."""
    return divide(mass[..., 1], mass.sum(axis=-1))


def average_known(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean of what is not NaN along an axis; NaN where nothing is."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def resample_sums(
    mass: np.ndarray, square: np.ndarray, replicates: int, rng: np.random.Generator
) -> np.ndarray:
    """Return bootstrap draws of sums over rows with weights or fractional decisions.

    A row bootstrap with Poisson(1) repetitions gives the sums Σ_i m_i a_i of a group of rows the
    mean Σ a_i (``mass``, shape (..., 2)) and the covariance Σ a_i a_iᵀ (``square``, (..., 2, 2)).
    These are normal draws with the same two moments, independent between groups, clipped at 0, of
    shape (replicates, ..., 2).

    References
    ----------
    Chamandy, Muralidharan, Najmi and Naidu, "Estimating uncertainty for massive data streams",
    2012 (the Poisson bootstrap).
    """
    normals = rng.standard_normal((replicates, *mass.shape))
    # The Cholesky factor of each 2 × 2 matrix by hand: it may be singular.
    first = np.sqrt(square[..., 0, 0])
    below = np.divide(square[..., 0, 1], first, out=np.zeros_like(first), where=first > 0)
    second = np.sqrt(np.maximum(square[..., 1, 1] - below**2, 0.0))
    draws = np.empty_like(normals)
    draws[..., 0] = mass[..., 0] + first * normals[..., 0]
    draws[..., 1] = mass[..., 1] + below * normals[..., 0] + second * normals[..., 1]
    return np.maximum(draws, 0.0)


Direction = Literal["higher", "lower", "zero", "none"]


@dataclass(frozen=True)
class Rate:
    """A share of rows: those in the cells ``of`` among those with the labels ``among``.

    ``of`` lists (label, decision) cells. A row of the denominator with decision probability h
    counts h in the numerator when (y, 1) is listed and 1 − h when (y, 0) is.
    """

    name: str
    what: str
    of: tuple[tuple[int, int], ...]
    among: tuple[int, ...]
    direction: Direction


RATES = (
    Rate("accuracy", "share of decisions that equal the label", ((0, 0), (1, 1)), (0, 1), "higher"),
    # Where the favourable class is 0, those decided 0: see `FAVOURING`.
    Rate("selection_rate", "share of favourable decisions", ((0, 1), (1, 1)), (0, 1), "none"),
    Rate("tpr", "share of positive rows decided 1", ((1, 1),), (1,), "higher"),
    Rate("tnr", "share of negative rows decided 0", ((0, 0),), (0,), "higher"),
    Rate("fpr", "share of negative rows decided 1", ((0, 1),), (0,), "lower"),
    Rate("fnr", "share of positive rows decided 0", ((1, 0),), (1,), "lower"),
)
NAMES = tuple(rate.name for rate in RATES)
TNR, TPR = NAMES.index("tnr"), NAMES.index("tpr")
NUMERATOR = np.array([[[float((y, d) in r.of) for d in (0, 1)] for y in (0, 1)] for r in RATES])
DENOMINATOR = np.array([[float(y in r.among) for y in (0, 1)] for r in RATES])
# The numerators by the class that is favourable: of a selection the decisions change places.
_SELECTION = np.array([[[r.name == "selection_rate"]] for r in RATES])
FAVOURING = (np.where(_SELECTION, NUMERATOR[..., ::-1], NUMERATOR), NUMERATOR)


def compute_rates(mass: np.ndarray, favourable: int = 1) -> np.ndarray:
    """Return every rate of every level from sums of shape (..., n_levels, 2, 2).

    ``favourable`` is the class that is selected. The result has shape (..., n_levels, n_rates); it
    is NaN where the denominator is 0.
    """
    above = np.einsum("...kyd,fyd->...kf", mass, FAVOURING[favourable])
    return divide(above, np.einsum("...ky,fy->...kf", mass.sum(axis=-1), DENOMINATOR))


@dataclass(frozen=True, eq=False)
class RateTable:
    """The rates of all levels of one attribute, with intervals; NaN where not estimable.

    All arrays have shape (n_levels, n_rates); ``n`` counts the rows in the denominators, ``size``
    is what the intervals take them for, see `effective_size`.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray
    size: np.ndarray


def tabulate_rates(cells: Cells, minimum: int) -> RateTable:
    """Return the rates of all levels with Wilson intervals.

    The interval takes the size n for whole decisions without weights, and otherwise the
    effective size p(1 − p)/Var p, where Var p = Σ w²(a − p)² / (Σw)² over the rows of the
    denominator and a is a row's share in the numerator.
    """
    n = np.einsum("ky,fy->kf", cells.count, DENOMINATOR).astype(np.int64)
    value = np.where(n >= minimum, compute_rates(cells.mass, cells.favourable), np.nan)
    # a − p = Σ_d (N[y, d] − p)·h_d, because h_0 + h_1 = 1.
    offset = FAVOURING[cells.favourable][None] - value[:, :, None, None]
    squares = np.einsum("kfyd,kfye,kyde,fy->kf", offset, offset, cells.square, DENOMINATOR)
    total = np.einsum("kyd,fy->kf", cells.mass, DENOMINATOR)
    weight = np.einsum("kyde,fy->kf", cells.square, DENOMINATOR)
    total, weight = np.maximum(total, 1e-300), np.maximum(weight, 1e-300)
    size = effective_size(value, squares / total**2, total**2 / weight, n)
    low, high = wilson(value, size)
    return RateTable(value, low, high, n, size)


def _gap(rates: np.ndarray) -> np.ndarray:
    if rates.shape[-2] != 2:
        return np.full((*rates.shape[:-2], rates.shape[-1]), np.nan)
    return np.asarray(rates[..., 0, :] - rates[..., 1, :])


def _maximum(rates: np.ndarray) -> np.ndarray:
    return np.asarray(np.fmax.reduce(rates, axis=-2, initial=np.nan))


def _minimum(rates: np.ndarray) -> np.ndarray:
    return np.asarray(np.fmin.reduce(rates, axis=-2, initial=np.nan))


def _difference(rates: np.ndarray) -> np.ndarray:
    return np.asarray(_maximum(rates) - _minimum(rates))


def _ratio(rates: np.ndarray) -> np.ndarray:
    return divide(_minimum(rates), _maximum(rates))


def compute_gap_max(rates: np.ndarray) -> np.ndarray:
    """Return GapMax = max over y and pairs of levels of |P(ŷ=y | Y=y, a) − P(ŷ=y | Y=y, b)|.

    ``rates`` are those of `compute_rates`, here and below. With two levels it is the paper's max
    over y of |Gap_y|.

    References
    ----------
    Vargo, Zhang, Yurochkin and Sun, "Individually fair gradient boosting", 2021, section 5.
    """
    return np.asarray(_difference(rates[..., [TNR, TPR]]).max(axis=-1))


def compute_gap_rms(rates: np.ndarray) -> np.ndarray:
    """Return GapRMS, the root mean square over y and pairs of levels of the same differences.

    Over all pairs of m levels the mean square of the differences is twice the sample variance
    (with m − 1), so the cost is O(m), not O(m²). With two levels it is the paper's sqrt(mean over y
    of Gap_y²); same section.
    """
    both = rates[..., [TNR, TPR]]
    known = ~np.isnan(both)
    m = known.sum(axis=-2)
    mean = np.where(known, both, 0.0).sum(axis=-2) / np.maximum(m, 1)
    squares = np.where(known, (both - mean[..., None, :]) ** 2, 0.0).sum(axis=-2)
    gap = np.where(m > 1, 2 * squares / np.maximum(m - 1, 1), np.nan)
    return np.asarray(np.sqrt(gap.mean(axis=-1)))


@dataclass(frozen=True)
class Aggregation:
    """A number for all levels: ``compute`` maps (..., n_levels, n_rates) to (..., n_rates)."""

    name: str
    what: str
    compute: Callable[[np.ndarray], np.ndarray]
    direction: Direction | None


AGGREGATIONS = (
    Aggregation("gap", "first level minus second (two levels only)", _gap, "zero"),
    Aggregation("difference", "largest minus smallest over the levels", _difference, "lower"),
    Aggregation("ratio", "smallest over largest of the levels", _ratio, "higher"),
    Aggregation("max", "largest over the levels", _maximum, None),
    Aggregation("min", "smallest over the levels", _minimum, None),
)


def aggregate(table: RateTable) -> dict[str, np.ndarray]:
    """Return every aggregate over the levels that are estimable; NaN of fewer than two.

    An aggregation has values of shape (n_rates,); ``gap_max`` and ``gap_rms`` are numbers.
    """
    value = aggregate_rates(table.value)
    few = (~np.isnan(table.value)).sum(axis=0) < 2
    return {
        name: np.where(few if each.ndim else few[[TNR, TPR]].any(), np.nan, each)
        for name, each in value.items()
    }


def aggregate_rates(rates: np.ndarray) -> dict[str, np.ndarray]:
    """Return every aggregate of rates of shape (..., n_levels, n_rates), by name."""
    values = {each.name: each.compute(rates) for each in AGGREGATIONS}
    return {**values, "gap_max": compute_gap_max(rates), "gap_rms": compute_gap_rms(rates)}


# Rows counted by group, label and decision, from which all group measures are computed.

# Beyond this many cells the joint table over all attributes would cost more than the rows.
JOINT_LIMIT = 1 << 16


@dataclass(frozen=True, eq=False)
class Cells(Outcomes):
    """Sums over the rows of each level (of one attribute or cross product), label and decision.

    With weight w and decision h (the probability of deciding 1), a row counts w(1 − h) towards
    the decision 0 and wh towards the decision 1. ``count`` has shape (n_levels, 2), ``mass``
    (n_levels, 2, 2), and ``square[k, y, d, e]`` sums w²·h_d·h_e, with h_0 = 1 − h and h_1 = h.
    ``favourable`` is the decision that is good for the person.
    """

    levels: tuple[str, ...]
    favourable: int = 1


def find_memberships(attributes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the attributes that say whether a row belongs: those with the levels yes and no.

    Texts have one for every family of terms that they may mention. A row may belong to several.
    """
    return tuple(name for name, levels in attributes.items() if set(levels) == {"no", "yes"})


def count_cells(prediction: Prediction, part: Part) -> Mapping[str, Cells]:
    """Count the rows of a part for every attribute and every pair of attributes.

    With more than two classes the label becomes 1 and the decision whether the class is right, so
    that the accuracy can be read from the cells.

    The keys are ``""`` (all rows), each attribute, and each pair as ``"sex×race"``. A cross product
    leaves out the combinations that no row has. Two memberships make no pair.

    Cost O(n) whatever the number of attributes: the rows are counted once over the joint index
    of all attributes, and every table is a sum over axes of that. Where the joint table would be
    large (65,536 cells), each pair is counted separately; a pair with more cells than that and
    than rows is left out, since it could not be estimated.
    """
    label, decision = _binary(prediction, part)
    attributes = dict(part.attributes)
    names = list(attributes)
    sizes = [len(levels) for levels in attributes.values()]
    columns = [part.group(name) for name in names]
    memberships = set(find_memberships(attributes))
    pairs = [
        (a, b)
        for a, b in combinations(range(len(sizes)), 2)
        # A cross product is crossed already; memberships are many, and overlap anyway.
        if not any("×" in names[i] for i in (a, b))
        and not {names[a], names[b]} <= memberships
        and 4 * sizes[a] * sizes[b] <= max(JOINT_LIMIT, part.n_samples)
    ]
    wanted: list[tuple[int, ...]] = [(), *((a,) for a in range(len(sizes))), *pairs]
    if 4 * math.prod(sizes) <= JOINT_LIMIT:
        blocks: list[tuple[int, ...]] = [tuple(range(len(sizes)))]
    else:
        blocks = wanted[::-1]
    tables: dict[tuple[int, ...], Outcomes] = {}
    weight = np.asarray(part.weight)
    for block in blocks:
        if block not in tables:
            shape = [sizes[a] for a in block]
            joint = _count([columns[a] for a in block], shape, label, decision, weight)
            for axes in wanted:
                if axes not in tables and set(axes) <= set(block):
                    tables[axes] = _sum_out(joint, block, axes)
    result: dict[str, Cells] = {}
    for axes in wanted:
        table = tables[axes]
        levels = ["×".join(crossed) for crossed in product(*(attributes[names[a]] for a in axes))]
        kept = np.flatnonzero(table.count.sum(axis=1)) if len(axes) == 2 else np.arange(len(levels))
        result["×".join(names[a] for a in axes)] = Cells(
            table.count[kept],
            table.mass[kept],
            table.square[kept],
            tuple(levels[k] for k in kept),
            int(task_of(part) == "multiclass" or part.favourable != 0),
        )
    return result


def _binary(prediction: Prediction, part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Return 0/1 labels and decisions."""
    y = np.asarray(part.y)
    if task_of(part) == "multiclass":
        return np.ones(y.shape[0], dtype=np.int64), (prediction.decision == y).astype(np.float64)
    return y, prediction.decision


def _count(
    columns: list[np.ndarray],
    sizes: list[int],
    label: np.ndarray,
    decision: np.ndarray,
    weight: np.ndarray,
) -> Outcomes:
    """Count rows by the columns, one axis for each, and by label."""
    index = np.zeros(label.shape[0], dtype=np.intp)
    for column, size in zip(columns, sizes, strict=True):
        index *= size
        index += column
    index *= 2
    index += label
    shape = (*sizes, 2)
    flat = count_outcomes(index, decision, weight, math.prod(shape))
    return Outcomes(
        flat.count.reshape(shape), flat.mass.reshape(*shape, 2), flat.square.reshape(*shape, 2, 2)
    )


def _sum_out(joint: Outcomes, block: tuple[int, ...], axes: tuple[int, ...]) -> Outcomes:
    """Sum a joint table over the attributes that are not in ``axes``; flatten those that are."""
    dropped = tuple(position for position, a in enumerate(block) if a not in axes)
    count, mass, square = (
        sums.sum(axis=dropped).reshape(-1, *sums.shape[len(block) :])
        for sums in (joint.count, joint.mass, joint.square)
    )
    return Outcomes(count, mass, square)


# Scores of two classes, counted by group and bin.

# Bins of equal width over [0, 1]; the last one holds 1.
BINS = 20
SUMS = ("n", "negative", "positive", "score", "square")


def count_scores(score: np.ndarray, part: Part) -> pd.DataFrame:
    """Count the rows of a part of two classes by score, in all and for every level.

    Columns ``group`` (``""`` or ``attribute=level``), ``bin``, ``n`` rows, the weights of
    ``negative`` and of ``positive`` labels, and the sums of weighted ``score`` and ``square``
    weight. Bins without rows are left out. O(n) for each attribute.
    """
    y, weight = np.asarray(part.y), np.asarray(part.weight)
    position = np.minimum((score * BINS).astype(np.intp), BINS - 1)
    summed = (None, weight * (1 - y), weight * y, weight * score, weight**2)
    tables = []
    for attribute, levels in {"": ("",), **part.attributes}.items():
        cell = position
        if attribute:
            cell = position + BINS * part.group(attribute)
        counts = [np.bincount(cell, each, BINS * len(levels)) for each in summed]
        kept = np.flatnonzero(counts[0])
        names = [f"{attribute}={level}" if attribute else "" for level in levels]
        table = pd.DataFrame(
            {"group": np.array(names, dtype=object)[kept // BINS], "bin": kept % BINS}
        )
        tables.append(table.assign(**{name: c[kept] for name, c in zip(SUMS, counts, strict=True)}))
    return pd.concat(tables, ignore_index=True)
