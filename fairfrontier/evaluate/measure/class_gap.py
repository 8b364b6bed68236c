"""Gaps between groups in the true positive rate of each of several classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure
from fairfrontier.evaluate.statistic.cell import read_codes
from fairfrontier.evaluate.statistic.interval import (
    bound_mean_difference,
    bound_root_mean_square,
    effective_size,
)
from fairfrontier.evaluate.statistic.resampling import (
    Outcomes,
    average_known,
    count_outcomes,
    divide,
    divide_right,
)

ROMANOV = "Romanov et al., What's in a name? Reducing bias in bios without access to protected "
ROMANOV += "attributes, 2019; Yurochkin and Sun, SenSeI, 2021"


def compute_class_gap_rms(recall: np.ndarray) -> np.ndarray:
    """Return GapRMS = sqrt(mean over classes and pairs of levels of (TPR_ak − TPR_bk)²).

    ``recall``, shape (..., n_levels, n_classes), has TPR_ak = P(ŷ = k | Y = k, a); NaN where not
    estimable. Classes with two levels or more count alike, whatever their number of levels; NaN
    where there is none.
    """
    return np.asarray(np.sqrt(_average_pairs(recall, _square)))


def compute_class_gap_abs(recall: np.ndarray) -> np.ndarray:
    """Return GapABS = mean over classes and pairs of levels of |TPR_ak − TPR_bk|; as GapRMS."""
    return _average_pairs(recall, _spread)


def _average_pairs(recall: np.ndarray, pairs: Callable[..., np.ndarray]) -> np.ndarray:
    """Return the mean over the classes of the mean over pairs of levels."""
    # Ascending, NaN last, and from the smallest: equal rates then have a gap of exactly 0.
    rates = np.sort(recall, axis=-2)
    rates = np.nan_to_num(rates - rates[..., :1, :], nan=0.0)
    m = (~np.isnan(recall)).sum(axis=-2)
    gap = pairs(rates, np.maximum(m, 2))
    return average_known(np.where(m > 1, gap, np.nan), -1)


def _square(rates: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Return the mean of d² over pairs of m rates: twice their sample variance, in O(m)."""
    total, squares = rates.sum(axis=-2), (rates**2).sum(axis=-2)
    return np.asarray(np.maximum(squares - total**2 / m, 0.0) * 2 / (m - 1))


def _spread(rates: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Return the mean of |d| over pairs of m ascending rates x_i: Σ (2i − m + 1) x_i over pairs."""
    factor = 2.0 * np.arange(rates.shape[-2])[:, None] - m[..., None, :] + 1
    return np.asarray((factor * rates).sum(axis=-2) * 2 / (m * (m - 1)))


@dataclass(frozen=True, eq=False)
class _Recalls:
    """Right and wrong rows of an attribute by level and class."""

    outcomes: Outcomes
    estimable: np.ndarray

    @property
    def kept(self) -> np.ndarray:
        """Classes with enough rows of at least two levels, bool (n_classes,)."""
        return np.asarray(self.estimable.sum(axis=0) > 1)

    def compute(self) -> tuple[np.ndarray, np.ndarray]:
        """Return TPR by level and class, and the rows that it counts as (`effective_size`)."""
        rate = divide_right(self.outcomes.mass)
        offset, mass = np.stack([-rate, 1.0 - rate], axis=-1), self.outcomes.mass.sum(axis=-1)
        square = self.outcomes.square
        variance = divide(np.einsum("cd,ce,cde->c", offset, offset, square), mass**2)
        kish = divide(mass**2, square.sum(axis=(1, 2)))
        size = effective_size(rate, variance, kish, self.outcomes.count)
        kept = self.estimable.ravel()
        rate, size = (np.where(kept, each, np.nan) for each in (rate, size))
        return rate.reshape(self.estimable.shape), size.reshape(self.estimable.shape)


def _count(audit: Audit, attribute: str) -> _Recalls:
    part = audit.part
    shape = (len(part.attributes[attribute]), len(part.classes))
    code = read_codes(part, attribute, shape[0]) * shape[1] + part.y
    outcomes = count_outcomes(code, audit.right, np.asarray(part.weight), shape[0] * shape[1])
    enough = (outcomes.count >= max(audit.minimum, 1)) & (outcomes.mass.sum(axis=1) > 0)
    return _Recalls(outcomes, enough.reshape(shape))


def measure_class_gaps(
    audit: Audit,
    combine: Callable[[np.ndarray], np.ndarray],
    bound: Callable[[np.ndarray, np.ndarray], tuple[float, float]] = bound_root_mean_square,
) -> Iterator[MeasureRow]:
    """Yield a gap for every attribute, with its interval.

    A level with fewer than ``minimum`` rows of a class has no rate of it, and a class of which
    fewer than two levels have one is left out; ``gap_classes_left_out`` counts these. ``n`` counts
    the rows of the rates that take part. O(n).
    """
    for attribute in audit.part.attributes:
        recalls = _count(audit, attribute)
        rate, size = recalls.compute()
        n = int(recalls.outcomes.count[(recalls.estimable & recalls.kept).ravel()].sum())
        some = recalls.outcomes.count.reshape(rate.shape).any(axis=1)
        left_out = int((some & ~(recalls.estimable & recalls.kept).any(axis=1)).sum())
        yield MeasureRow(attribute, float(combine(rate)), n, *bound(rate, size), left_out)


@measure(
    "gap_abs",
    what="mean over the classes of the absolute differences between levels in true positive rate",
    needs=("decision", "group"),
    task=("multiclass",),
    direction="lower",
    reference=ROMANOV,
)
def measure_gap_abs(audit: Audit) -> Iterator[MeasureRow]:
    """Yield GapABS for every attribute; see `compute_class_gap_abs`."""
    bound = partial(bound_mean_difference, largest=False)
    return measure_class_gaps(audit, compute_class_gap_abs, bound)


@measure(
    "gap_classes_left_out",
    what="number of classes with too few rows of a level to have a gap in true positive rate",
    needs=("group",),
    task=("multiclass",),
    reference=ROMANOV,
)
def count_classes_left_out(audit: Audit) -> Iterator[MeasureRow]:
    """Yield, for every attribute, how many classes ``gap_rms`` and ``gap_abs`` leave out."""
    for attribute in audit.part.attributes:
        left_out = int((~_count(audit, attribute).kept).sum())
        yield MeasureRow(attribute, float(left_out), audit.part.n_samples)
