"""Gaps between the two levels of one attribute inside every level of another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from fairfrontier.metrics.measure.registry import Audit, MeasureRow, measure
from fairfrontier.metrics.statistic.interval import newcombe
from fairfrontier.metrics.statistic.rate import NAMES

SELECTION = NAMES.index("selection_rate")


@measure(
    "selection_rate_gap_inside",
    what="share of favourable decisions: first level minus second, inside a level of another "
    "attribute",
    needs=("decision", "group"),
    direction="zero",
    reference="Alabdulmohsin and Lucic, A near-optimal algorithm for debiasing trained machine "
    "learning models, 2021, figure 1",
)
def measure_gap_inside(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the signed gap for every attribute of two levels inside every level of every other.

    The group reads ``sex inside race=Black``. The interval is Newcombe's, of two independent
    shares. Where one of the two cells has no row, there is no gap.
    """
    attributes = {name: levels for name, levels in audit.part.attributes.items() if "×" not in name}
    for first, other in permutations(attributes, 2):
        if len(attributes[first]) != 2:
            continue
        turned = f"{first}×{other}" not in audit.cells
        crossed = f"{other}×{first}" if turned else f"{first}×{other}"
        if crossed not in audit.cells:
            continue
        known = {level: code for code, level in enumerate(audit.cells[crossed].levels)}
        table = audit.rates[crossed]
        for level in attributes[other]:
            names = [f"{level}×{own}" if turned else f"{own}×{level}" for own in attributes[first]]
            if not set(names) <= set(known):
                continue
            rows = [known[name] for name in names]
            value, low, high, n = (
                numbers[rows, SELECTION]
                for numbers in (table.value, table.low, table.high, table.n)
            )
            yield MeasureRow(
                f"{first} inside {other}={level}",
                float(value[0] - value[1]),
                int(n.sum()),
                *newcombe(value, low, high),
            )
