"""Consistency: how often all counterfactual versions of a person get the same decision."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure
from fairfrontier.evaluate.measure.version import weigh_versions
from fairfrontier.evaluate.statistic.interval import effective_size, wilson


@measure(
    "consistency",
    what="share of rows that get the same decision in all variants of a counterfactual set",
    needs=("decision", "counterfactuals"),
    task=("binary", "multiclass"),
    direction="higher",
    reference="Yurochkin, Bower and Sun, Training individually fair ML models with SenSR, 2020",
)
def measure_consistency(audit: Audit) -> Iterator[MeasureRow]:
    """Yield one row for each counterfactual set: mean_i [1 − (max_v h_iv − min_v h_iv)].

    h_iv is the probability of deciding 1 for variant v of row i. Under common draws (one uniform
    number a row, whatever the variant) the decisions of all variants agree with exactly the
    probability 1 − (max h − min h); for deterministic rules this is 1 or 0. With more than two
    classes a row counts when the class is the same in all variants. Rows without versions are
    left out where the set says which these are.

    Notes
    -----
    O(n) per variant. A set with one variant is consistent by definition.
    """
    for name, variants in audit.prediction.counterfactuals.items():
        weight = weigh_versions(audit.part, name)
        decisions = [decision for _, decision in variants]
        if not decisions or not weight.sum() > 0:
            yield MeasureRow(name, np.nan, weight.size, np.nan, np.nan)
            continue
        spread = np.maximum.reduce(decisions) - np.minimum.reduce(decisions)
        agreement = 1 - np.minimum(spread, 1.0)
        yield MeasureRow(name, *_weighted_share(agreement, weight))


def _weighted_share(outcome: np.ndarray, weight: np.ndarray) -> tuple[float, int, float, float]:
    """Return weighted mean, rows and Wilson's interval of outcomes between 0 and 1."""
    total = weight.sum()
    value = float(np.sum(weight * outcome) / total)
    variance = np.sum((weight * (outcome - value)) ** 2) / total**2
    size = effective_size(np.asarray(value), variance, total**2 / np.sum(weight**2))
    low, high = wilson(np.asarray(value), size)
    return value, int(outcome.size), float(low), float(high)
