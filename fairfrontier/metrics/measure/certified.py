"""Measures of individual fairness that certificates give, one value for each budget."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from fairfrontier.metrics.certificate.adversarial_gap import Loss
from fairfrontier.metrics.certificate.certificate import name_budget
from fairfrontier.metrics.measure.registry import Audit, MeasureRow, Need, measure

SENSEI = "Yurochkin and Sun, SenSeI, ICLR 2021"
VARGO = "Vargo, Zhang, Yurochkin and Sun, Individually fair gradient boosting, ICLR 2021"


@measure(
    "dif",
    what="Largest mean output distance between rows and similar rows, within a budget",
    needs=["certificate"],
    task=["binary", "multiclass"],
    direction="lower",
    reference=SENSEI,
)
def show_certificates(audit: Audit) -> Iterator[MeasureRow]:
    """Yield R̂(h) over the data rows for each budget, between its two bounds."""
    for found in audit.certificates:
        yield MeasureRow(name_budget(found.budget), found.value, found.n, found.value, found.upper)


@measure(
    "dif_box",
    what="Lower bound of the mean output distance to similar rows in the data's range, for nets",
    needs=["box"],
    task=["binary", "multiclass"],
    direction="lower",
    reference=SENSEI,
)
def show_bounds(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the bound for each budget; there is no upper bound."""
    for bound in audit.boxes:
        yield MeasureRow(name_budget(bound.budget), bound.value, bound.n, bound.value, np.nan)


def show_gaps(audit: Audit, loss: Loss) -> Iterator[MeasureRow]:
    """Yield the gap for each budget, with its bootstrap interval."""
    for certificate in audit.gaps:
        for gap in certificate.gaps if certificate.loss == loss else ():
            yield MeasureRow(name_budget(gap.budget), gap.value, gap.n, gap.low, gap.high)


LOSSES: tuple[tuple[str, str, Loss, Need], ...] = (
    ("adversarial_gap", "Log loss", "log", "score"),
    ("adversarial_error_gap", "Share of errors", "error", "decision"),
)
for name, what, kind, need in LOSSES:
    measure(
        name,
        what=f"{what} that similar rows add to the mean in the worst case, within a budget",
        needs=["gap", need],
        task=["binary", "multiclass"],
        direction="lower",
        reference=VARGO,
    )(partial(show_gaps, loss=kind))
