"""Accuracy parity over memberships: how far apart the accuracies of overlapping groups are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfrontier.metrics.measure.registry import Audit, MeasureRow, measure
from fairfrontier.metrics.statistic.interval import (
    bound_length,
    draw_noise,
    effective_size,
    estimate_variance,
)
from fairfrontier.metrics.statistic.rate import (
    Outcomes,
    count_outcomes,
    divide_right,
    find_memberships,
    read_codes,
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

    def measure(self, memberships: np.ndarray, *, balanced: bool) -> MeasureRow:
        """Return a spread with its interval, and how many rows have one of the memberships.

        It is that of accuracy, or of the mean rate of the classes. Errors of memberships that
        share rows are correlated.
        """
        belongs = self.belongs[memberships]
        n = int(self.outcomes.count[belongs.any(axis=0)].sum())
        if len(belongs) < 2:
            return MeasureRow("", np.nan, n)
        classes = [self.label == k for k in np.unique(self.label)] if balanced else [True]
        rate, covariance = np.zeros(len(belongs)), np.zeros((len(belongs), len(belongs)))
        size = np.inf
        for own in classes:
            among = belongs & own
            mass = among @ self.outcomes.mass
            share, total = divide_right(mass), mass.sum(axis=1)
            offset = np.stack([-share, 1.0 - share], axis=1)
            both = np.einsum("ac,bc,cde->abde", among, among, self.outcomes.square)
            own_covariance = np.einsum("ad,be,abde->ab", offset, offset, both)
            own_covariance /= total[:, None] * total
            rows = total**2 / np.einsum("aade->a", both)
            variance = np.diag(own_covariance)
            size_of = effective_size(share, variance, rows, among @ self.outcomes.count)
            least = estimate_variance(share, size_of)
            own_covariance += np.diag(np.maximum(least - variance, 0.0))
            rate += share / len(classes)
            covariance += own_covariance / len(classes) ** 2
            size = min(size, float(rows.min()))
        value, vector = np.linalg.eigh(covariance)
        noise = draw_noise(np.sqrt(np.maximum(value, 0.0))) @ vector.T
        point = (rate - rate.mean()) / np.sqrt(len(rate))
        noise = (noise - noise.mean(axis=1, keepdims=True)) / np.sqrt(len(rate))
        return MeasureRow("", float(np.std(rate)), n, *bound_length(point, noise, size))


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
    left out; fewer than two: not estimable.

    Notes
    -----
    O(n m log n + cells · m²); there are as many cells as combinations of memberships and label that
    occur.
    """
    members = _count(audit)
    yield members.measure(members.known, balanced=False)


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
    yield members.measure(members.complete, balanced=True)


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
