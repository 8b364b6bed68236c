"""How far each group falls behind all rows, by the groups as seen and by the true ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure
from fairfrontier.evaluate.statistic.cell import Cells, count_cells
from fairfrontier.evaluate.statistic.interval import newcombe
from fairfrontier.evaluate.statistic.rate import DENOMINATOR, NAMES, tabulate_rates

WANG = (
    "Wang, Guo, Narasimhan, Cotter, Gupta and Jordan, Robust optimization for fairness with "
    "noisy protected groups, 2020, section 7"
)


def measure_distance(audit: Audit, rate: str, sign: float, true: bool) -> Iterator[MeasureRow]:
    """Yield sign · (the rate of all rows − the rate of the level) for every level.

    With s the level's share of the rate's denominator, rate(all) − rate(level) is (1 − s) times
    the difference between the other rows and the level, and its interval is Newcombe's of that
    difference, times 1 − s. A level with too few rows, or with all of them, is not estimable.
    """
    cells = _read_cells(audit, true)
    position = NAMES.index(rate)
    for attribute, table in cells.items():
        if not attribute:
            continue
        minimum = audit.minimum
        own = tabulate_rates(table, minimum)
        others = tabulate_rates(_leave_out(table), minimum)
        mass = np.einsum("kyd,y->k", table.mass, DENOMINATOR[position])
        for code, level in enumerate(table.levels):
            rest = 1.0 - mass[code] / max(float(mass.sum()), 1e-300)
            pair = np.array(
                [
                    [getattr(each, name)[code, position] for each in (others, own)]
                    for name in ("value", "low", "high")
                ]
            )
            value = sign * rest * (pair[0, 0] - pair[0, 1])
            ends = [sign * rest * each for each in newcombe(*pair)]
            n = int(own.n[code, position])
            yield MeasureRow(f"{attribute}={level}", float(value), n, min(ends), max(ends))


def _read_cells(audit: Audit, true: bool) -> Mapping[str, Cells]:
    if not true:
        return audit.cells
    groups = audit.part.true_groups
    assert groups is not None  # noqa: S101 - measures that need them are asked with them
    return count_cells(audit.prediction, replace(audit.part, groups=groups))


def _leave_out(cells: Cells) -> Cells:
    """Return, in the place of each level, all rows but its own."""
    return replace(
        cells,
        count=cells.count.sum(axis=0) - cells.count,
        mass=cells.mass.sum(axis=0) - cells.mass,
        square=cells.square.sum(axis=0) - cells.square,
    )


for kind, true in (("level", False), ("true group", True)):
    prefix, noisy = ("true_", ", where groups are noisy") if true else ("", "")
    for name, what, rate, sign in (
        ("tpr_shortfall", f"true positive rate of all rows less that of the {kind}", "tpr", 1.0),
        ("fpr_excess", f"false positive rate of the {kind} less that of all rows", "fpr", -1.0),
    ):
        measure(
            f"{prefix}{name}",
            what=f"{what}{noisy}",
            needs=("decision", "true_group" if true else "group"),
            direction="lower",
            reference=WANG,
        )(partial(measure_distance, rate=rate, sign=sign, true=true))
