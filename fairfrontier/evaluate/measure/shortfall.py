"""How far each group falls behind all rows, by the observed groups and by the true ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure
from fairfrontier.evaluate.statistic.cell import Cells, count_cells
from fairfrontier.evaluate.statistic.interval import Z, newcombe
from fairfrontier.evaluate.statistic.rate import DENOMINATOR, NAMES, tabulate_rates

WANG = (
    "Wang, Guo, Narasimhan, Cotter, Gupta and Jordan, Robust optimization for fairness with "
    "noisy protected groups, 2020, section 7"
)


def measure_distance(audit: Audit, rate: str, sign: float, true: bool) -> Iterator[MeasureRow]:
    """Yield sign · (the rate of all rows − the rate of the level) for every level.

    With s the level's share of the rate's denominator, rate(all) − rate(level) is (1 − s) times
    the difference between the other rows and the level, and its interval is Newcombe's of that
    difference, times 1 − s, widened by the normal error of s. A level with too few rows, or with
    all of them, is not estimable.
    """
    cells = audit.cells
    if true and audit.part.true_groups is not None:
        cells = count_cells(audit.prediction, replace(audit.part, groups=audit.part.true_groups))
    position = NAMES.index(rate)
    for attribute, table in cells.items():
        if not attribute:
            continue
        own = tabulate_rates(table, audit.minimum)
        others = tabulate_rates(_leave_out(table), audit.minimum)
        mass = np.einsum("kyd,y->k", table.mass, DENOMINATOR[position])
        squares = np.einsum("kyde,y->k", table.square, DENOMINATOR[position])
        total = max(float(mass.sum()), 1e-300)
        part = mass / total
        error = np.sqrt((1 - part) ** 2 * squares + part**2 * (squares.sum() - squares)) / total
        for code, level in enumerate(table.levels):
            share = sign * (1.0 - part[code])
            at = (code, position)
            value, *ends = (
                np.array([getattr(rates, name)[at] for rates in (others, own)])
                for name in ("value", "low", "high")
            )
            gap = float(value[0] - value[1])
            difference, more = float(share * gap), Z * gap * error[code]
            reach = [np.hypot(share * (end - gap), more) for end in newcombe(value, *ends)]
            low, high = reach if sign > 0 else reach[::-1]
            interval = [difference - low, difference + high]
            group = f"{attribute}={level}"
            yield MeasureRow(group, difference, int(own.n[at]), min(interval), max(interval))


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
