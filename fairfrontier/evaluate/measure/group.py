"""Group measures: every rate × every aggregation over the levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from fairfrontier.evaluate.measure.class_gap import compute_class_gap_rms, measure_class_gaps
from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure
from fairfrontier.evaluate.statistic.interval import (
    bound_difference,
    bound_extreme,
    bound_ratio,
    bound_root_mean_square,
    newcombe,
    wilson,
)
from fairfrontier.evaluate.statistic.rate import AGGREGATIONS, RATES, TNR, TPR
from fairfrontier.train.prediction import task_of

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
