"""Group measures: every rate × every aggregation over the levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fairfrontier.metrics.measure.registry import Audit, MeasureRow, measure
from fairfrontier.metrics.statistic.interval import (
    bound_difference,
    bound_extreme,
    bound_mean_difference,
    bound_ratio,
    bound_root_mean_square,
    effective_size,
    newcombe,
    wilson,
)
from fairfrontier.metrics.statistic.rate import (
    AGGREGATIONS,
    RATES,
    TNR,
    TPR,
    Outcomes,
    average_known,
    count_outcomes,
    divide,
    divide_right,
    read_codes,
)
from fairfrontier.models.prediction import task_of

# Gaps between groups in the true positive rate of each of several classes.

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


BUDRO = "Vargo, Zhang, Yurochkin and Sun, Individually fair gradient boosting, 2021, section 5"
HARDT = "Hardt, Price and Srebro, Equality of opportunity in supervised learning, 2016"
FELDMAN = "Feldman et al., Certifying and removing disparate impact, 2015 (the four-fifths rule)"


def measure_levels(audit: Audit, position: int) -> Iterator[MeasureRow]:
    """Yield one rate for the whole part and for every level of every attribute and pair."""
    for attribute, cells in audit.cells.items():
        table = audit.rates[attribute]
        numbers = (array[:, position] for array in (table.value, table.n, table.low, table.high))
        for level, value, n, low, high in zip(cells.levels, *numbers, strict=True):
            group = f"{attribute}={level}" if attribute else ""
            yield MeasureRow(group, float(value), int(n), float(low), float(high))


def measure_aggregate(audit: Audit, position: int, aggregation: str) -> Iterator[MeasureRow]:
    """Yield one aggregate of one rate for every attribute and pair.

    A signed gap is for attributes with two levels and has Newcombe's interval; the others' hold for
    any number of levels, see `bound_difference`, `bound_ratio` and `bound_extreme`.
    """
    for attribute, aggregates in audit.aggregates.items():
        if aggregation == "gap" and len(audit.part.attributes.get(attribute, ())) != 2:
            continue
        table, value = audit.rates[attribute], float(aggregates[aggregation][position])
        shares, size = table.value[:, [position]], table.size[:, [position]]
        limits = partial(wilson, shares, size)
        if np.isnan(value):
            low, high = np.nan, np.nan
        elif aggregation == "gap":
            ends = (array[:, position] for array in (table.value, table.low, table.high))
            low, high = newcombe(*ends)
        elif aggregation in BOUNDS:
            low, high = BOUNDS[aggregation](shares, limits)
        else:
            low, high = bound_extreme(limits, shares.shape, largest=aggregation == "max")
        n, left_out = int(table.n[:, position].sum()), count_left_out(audit, attribute, [position])
        yield MeasureRow(attribute, value, n, low, high, left_out)


def count_left_out(audit: Audit, attribute: str, positions: Sequence[int]) -> int:
    """Return how many levels have rows, and too few to be compared in one of the rates."""
    scarce = np.isnan(audit.rates[attribute].value[:, positions]).any(axis=1)
    return int((scarce & (audit.cells[attribute].count.sum(axis=1) > 0)).sum())


BOUNDS = {"difference": bound_difference, "ratio": bound_ratio}


@measure(
    "gap_max",
    what="largest difference between two levels in true positive or true negative rate",
    needs=("decision", "group"),
    direction="lower",
    reference=BUDRO,
)
def measure_gap_max(audit: Audit) -> Iterator[MeasureRow]:
    """Yield GapMax for every attribute and pair; see `compute_gap_max`."""
    return _measure_both(
        audit, "gap_max", lambda value, size: bound_difference(value, partial(wilson, value, size))
    )


@measure(
    "gap_rms",
    what="root mean square of the differences between levels in the true rates of the classes",
    needs=("decision", "group"),
    task=("binary", "multiclass"),
    direction="lower",
    reference=BUDRO,
)
def measure_gap_rms(audit: Audit) -> Iterator[MeasureRow]:
    """Yield GapRMS for every attribute and pair; see `compute_gap_rms`.

    With more than two classes for every attribute; see `compute_class_gap_rms`.
    """
    if task_of(audit.part) == "multiclass":
        return measure_class_gaps(audit, compute_class_gap_rms)
    return _measure_both(audit, "gap_rms", bound_root_mean_square)


def _measure_both(
    audit: Audit, name: str, bound: Callable[[np.ndarray, np.ndarray], tuple[float, float]]
) -> Iterator[MeasureRow]:
    """Yield an aggregate of both rates P(ŷ=y | Y=y) with its interval."""
    for attribute, aggregates in audit.aggregates.items():
        value, table = float(aggregates[name]), audit.rates[attribute]
        both = [each[:, [TNR, TPR]] for each in (table.value, table.size)]
        interval = (np.nan, np.nan) if np.isnan(value) else bound(*both)
        n, left_out = (
            int(table.n[:, [TNR, TPR]].sum()),
            count_left_out(audit, attribute, [TNR, TPR]),
        )
        yield MeasureRow(attribute, value, n, *interval, left_out)


for position, rate in enumerate(RATES):
    measure(
        rate.name,
        what=f"{rate.what}, overall and by level",
        task=("binary", "multiclass") if rate.name == "accuracy" else ("binary",),
        direction=rate.direction,
        reference=HARDT if rate.name == "tpr" else "",
    )(partial(measure_levels, position=position))
    for each in AGGREGATIONS:
        measure(
            f"{rate.name}_{each.name}",
            what=f"{rate.what}: {each.what}",
            needs=("decision", "group"),
            task=("binary", "multiclass") if rate.name == "accuracy" else ("binary",),
            direction=each.direction or rate.direction,
            reference=FELDMAN if each.name == "ratio" else "",
        )(partial(measure_aggregate, position=position, aggregation=each.name))
