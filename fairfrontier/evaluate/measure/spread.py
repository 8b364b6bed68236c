"""Accuracy parity over memberships: how far apart the accuracies of overlapping groups are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure
from fairfrontier.evaluate.statistic.cell import find_memberships, read_codes
from fairfrontier.evaluate.statistic.interval import percentile
from fairfrontier.evaluate.statistic.resampling import (
    Outcomes,
    average_known,
    count_outcomes,
    divide_right,
)

SENSEI = "Yurochkin and Sun, SenSeI, 2021, appendix C; Zafar et al., Fairness beyond disparate "
SENSEI += "treatment and disparate impact, 2017"
MEMBERS: Any = {
    "needs": ("decision", "group", "membership"),
    "task": ("binary", "multiclass"),
    "reference": SENSEI,
}


@dataclass(frozen=True, eq=False)
class _Members:
    """The rows of every membership, counted once by the memberships that they have and by class.

    ``belongs`` has shape (n_memberships, n_cells), ``label`` (n_cells,); ``known`` are the
    memberships with enough rows, ``complete`` those that also have rows of every class.
    """

    outcomes: Outcomes
    belongs: np.ndarray
    label: np.ndarray
    known: np.ndarray
    complete: np.ndarray

    def spread_accuracy(self, mass: np.ndarray) -> np.ndarray:
        """Return the standard deviation of accuracy of sums of shape (..., n_cells, 2)."""
        return _spread(divide_right(self.belongs[self.known] @ mass))

    def spread_balanced(self, mass: np.ndarray) -> np.ndarray:
        """Return that of balanced accuracy: of the mean rate of the classes that a draw has."""
        belongs = self.belongs[self.complete]
        recall = [divide_right((belongs * (self.label == k)) @ mass) for k in np.unique(self.label)]
        return _spread(average_known(np.stack(recall), 0))

    def measure(
        self, spread: Callable[[np.ndarray], np.ndarray], memberships: np.ndarray, replicates: int
    ) -> MeasureRow:
        """Return a spread with its interval, and how many rows have one of the memberships."""
        value = float(spread(self.outcomes.mass))
        n = int(self.outcomes.count[self.belongs[memberships].any(axis=0)].sum())
        return MeasureRow(
            "", value, n, *percentile(value, self.outcomes.resample(replicates, spread))
        )


def _spread(rate: np.ndarray) -> np.ndarray:
    """Return the standard deviation over the last axis; NaN of fewer than two."""
    if rate.shape[-1] < 2:
        return np.full(rate.shape[:-1], np.nan)
    return np.asarray(np.std(rate, axis=-1))


def _count(audit: Audit) -> _Members:
    part = audit.part
    member = np.stack(
        [
            read_codes(part, name, 2) == list(part.attributes[name]).index("yes")
            for name in find_memberships(part.attributes)
        ]
    )
    table = np.vstack([member, part.y]).astype(np.int64)
    cells, code = np.unique(table, axis=1, return_inverse=True)
    weight = np.asarray(part.weight)
    outcomes = count_outcomes(code.ravel(), audit.right, weight, cells.shape[1])
    belongs, label = cells[:-1].astype(bool), cells[-1]
    # Rows without weight have no accuracy.
    weighs = outcomes.mass.sum(axis=1) > 0
    known = (belongs @ outcomes.count >= max(audit.minimum, 1)) & (belongs & weighs).any(axis=1)
    having = np.stack([(belongs & weighs & (label == k)).any(axis=1) for k in np.unique(label)])
    return _Members(outcomes, belongs, label, known, known & having.all(axis=0))


@measure(
    "accuracy_spread",
    what="standard deviation of the accuracy over the attributes with the levels yes and no",
    direction="lower",
    **MEMBERS,
)
def measure_accuracy_spread(audit: Audit) -> Iterator[MeasureRow]:
    """Yield sd_a P(ŷ = Y | a = yes) over the memberships a of the part.

    A membership is an attribute with the levels yes and no, as texts have for every family of
    terms that they may mention; a row may belong to several of them. The standard deviation is
    NumPy's, over m memberships and not m − 1. Memberships with fewer than ``minimum`` rows are
    left out; fewer than two: not estimable. The interval is the percentile one of a bootstrap of
    rows, counted by all their memberships at once, so that overlaps are kept.

    Notes
    -----
    O(n m log n), and O(cells · m) for each replicate; there are as many cells as combinations of
    memberships, label and decision that occur.
    """
    members = _count(audit)
    yield members.measure(members.spread_accuracy, members.known, audit.replicates)


@measure(
    "balanced_accuracy_spread",
    what="standard deviation of balanced accuracy over the attributes with the levels yes and no",
    direction="lower",
    **MEMBERS,
)
def measure_balanced_accuracy_spread(audit: Audit) -> Iterator[MeasureRow]:
    """Yield sd_a mean_k P(ŷ = k | Y = k, a = yes); see `measure_accuracy_spread`.

    Memberships without a row of one of the classes are left out too; ``memberships_left_out``
    counts them.
    """
    members = _count(audit)
    yield members.measure(members.spread_balanced, members.complete, audit.replicates)


@measure(
    "memberships_left_out",
    what="number of attributes with the levels yes and no that have too few rows, or lack a class",
    needs=("group", "membership"),
    task=("binary", "multiclass"),
    reference=SENSEI,
)
def count_memberships_left_out(audit: Audit) -> Iterator[MeasureRow]:
    """Yield how many memberships ``balanced_accuracy_spread`` leaves out."""
    left_out = int((~_count(audit).complete).sum())
    yield MeasureRow("", float(left_out), audit.part.n_samples)
