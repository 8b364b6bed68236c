"""Rates of the levels of a group attribute, and their aggregates, from counted cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairfrontier.evaluate.statistic.cell import Cells
from fairfrontier.evaluate.statistic.interval import effective_size, wilson
from fairfrontier.evaluate.statistic.resampling import divide

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
