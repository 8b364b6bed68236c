"""Rates of the levels of a group attribute, and their aggregates, from counted cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairfrontier.evaluate.statistic.cell import Cells
from fairfrontier.evaluate.statistic.interval import (
    effective_size,
    resample_counts,
    resample_sums,
    wilson,
)

Direction = Literal["higher", "lower", "zero", "none"]
# Draws times cells held at a time by the bootstrap.
BLOCK = 1 << 20


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
    Rate("selection_rate", "share of rows decided 1", ((0, 1), (1, 1)), (0, 1), "none"),
    Rate("tpr", "share of positive rows decided 1", ((1, 1),), (1,), "higher"),
    Rate("tnr", "share of negative rows decided 0", ((0, 0),), (0,), "higher"),
    Rate("fpr", "share of negative rows decided 1", ((0, 1),), (0,), "lower"),
    Rate("fnr", "share of positive rows decided 0", ((1, 0),), (1,), "lower"),
)
NAMES = tuple(rate.name for rate in RATES)
TNR, TPR = NAMES.index("tnr"), NAMES.index("tpr")
NUMERATOR = np.array([[[float((y, d) in r.of) for d in (0, 1)] for y in (0, 1)] for r in RATES])
DENOMINATOR = np.array([[float(y in r.among) for y in (0, 1)] for r in RATES])


def compute_rates(mass: np.ndarray) -> np.ndarray:
    """Return every rate of every level.

    Parameters
    ----------
    mass : ndarray of float64, shape (..., n_levels, 2, 2)
        Sums by level, label and decision.

    Returns
    -------
    ndarray of float64, shape (..., n_levels, n_rates)
        In the order of ``RATES``; NaN where the denominator is 0.
    """
    above = np.einsum("...kyd,fyd->...kf", mass, NUMERATOR)
    below = np.einsum("...ky,fy->...kf", mass.sum(axis=-1), DENOMINATOR)
    return _divide(above, below)


def _divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    out = np.full(below.shape, np.nan)
    np.divide(above, below, out=out, where=below > 0)
    return out


@dataclass(frozen=True, eq=False)
class RateTable:
    """The rates of all levels of one attribute, with intervals.

    Attributes
    ----------
    value, low, high : ndarray of float64, shape (n_levels, n_rates)
        NaN where not estimable.
    n : ndarray of int64, shape (n_levels, n_rates)
        Rows in the denominator.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray


def tabulate_rates(cells: Cells, minimum: int) -> RateTable:
    """Return the rates of all levels with Wilson intervals.

    The interval takes the size n for whole decisions without weights, and otherwise the
    effective size p(1 − p)/Var p, where Var p = Σ w²(a − p)² / (Σw)² over the rows of the
    denominator and a is a row's share in the numerator.
    """
    n = np.einsum("ky,fy->kf", cells.count, DENOMINATOR).astype(np.int64)
    value = np.where(n >= minimum, compute_rates(cells.mass), np.nan)
    # a − p = Σ_d (N[y, d] − p)·h_d, because h_0 + h_1 = 1.
    offset = NUMERATOR[None] - value[:, :, None, None]
    squares = np.einsum("kfyd,kfye,kyde,fy->kf", offset, offset, cells.square, DENOMINATOR)
    total = np.einsum("kyd,fy->kf", cells.mass, DENOMINATOR)
    weight = np.einsum("kyde,fy->kf", cells.square, DENOMINATOR)
    total, weight = np.maximum(total, 1e-300), np.maximum(weight, 1e-300)
    size = effective_size(value, squares / total**2, total**2 / weight)
    low, high = wilson(value, size)
    return RateTable(value, low, high, n)


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
    high = _maximum(rates)
    return _divide(_minimum(rates), high)


def compute_gap_max(rates: np.ndarray) -> np.ndarray:
    """GapMax = max over y and pairs of levels of |P(ŷ=y | Y=y, a) − P(ŷ=y | Y=y, b)|.

    Parameters
    ----------
    rates : ndarray of float64, shape (..., n_levels, n_rates)
        As ``compute_rates`` gives them.

    Returns
    -------
    ndarray of float64, shape (...)
        With two levels, the paper's max over y of |Gap_y|.

    References
    ----------
    Vargo, Zhang, Yurochkin and Sun, "Individually fair gradient boosting", 2021, section 5.
    """
    return np.asarray(_difference(rates[..., [TNR, TPR]]).max(axis=-1))


def compute_gap_rms(rates: np.ndarray) -> np.ndarray:
    """GapRMS = sqrt(mean over y and pairs of levels of (P(ŷ=y | Y=y, a) − P(ŷ=y | Y=y, b))²).

    Over all pairs of m levels the mean square of the differences is twice the sample variance
    (with m − 1), so the cost is O(m), not O(m²).

    Parameters
    ----------
    rates : ndarray of float64, shape (..., n_levels, n_rates)
        As ``compute_rates`` gives them.

    Returns
    -------
    ndarray of float64, shape (...)
        With two levels, the paper's sqrt(mean over y of Gap_y²).

    References
    ----------
    Vargo, Zhang, Yurochkin and Sun, "Individually fair gradient boosting", 2021, section 5.
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


@dataclass(frozen=True, eq=False)
class Aggregates:
    """Aggregates over the levels of one attribute: by aggregation, one number for each rate.

    Attributes
    ----------
    value : mapping of str to ndarray of float64, shape (n_rates,)
        ``gap_max`` and ``gap_rms`` have shape ().
    draws : mapping of str to ndarray of float64, shape (replicates, n_rates)
        The same of the bootstrap replicates.
    """

    value: dict[str, np.ndarray]
    draws: dict[str, np.ndarray]


def aggregate(cells: Cells, table: RateTable, replicates: int) -> Aggregates:
    """Return every aggregate over the levels that are estimable, with bootstrap replicates.

    Notes
    -----
    O(replicates × cells), whatever the number of rows; see ``resample_counts``. The generator is
    seeded with 0, so the same cells give the same intervals.
    """
    estimable = ~np.isnan(table.value)
    value = _aggregate(table.value)
    rng = np.random.default_rng(0)
    step = max(1, BLOCK // max(cells.mass.size, 1))
    parts: list[dict[str, np.ndarray]] = []
    for start in range(0, replicates, step):
        size = min(step, replicates - start)
        if cells.whole:
            mass = resample_counts(cells.mass, size, rng)
        else:
            mass = resample_sums(cells.mass, cells.square, size, rng)
        parts.append(_aggregate(np.where(estimable, compute_rates(mass), np.nan)))
    draws = {
        name: np.concatenate([np.empty((0, *found.shape)), *(part[name] for part in parts)])
        for name, found in value.items()
    }
    few = estimable.sum(axis=0) < 2
    for name in value:
        scarce = few if value[name].ndim else few[[TNR, TPR]].any()
        value[name] = np.where(scarce, np.nan, value[name])
    return Aggregates(value, draws)


def _aggregate(rates: np.ndarray) -> dict[str, np.ndarray]:
    found = {each.name: each.compute(rates) for each in AGGREGATIONS}
    return {**found, "gap_max": compute_gap_max(rates), "gap_rms": compute_gap_rms(rates)}
