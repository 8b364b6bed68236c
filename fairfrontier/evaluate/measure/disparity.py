"""How far the predictions of groups are distributed from those of all rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fairfrontier.evaluate.measure.loss import REFERENCE
from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure
from fairfrontier.evaluate.statistic.cell import read_codes
from fairfrontier.evaluate.statistic.interval import CONFIDENCE

# Predictions closer than this, relative to 1 or to their size, differ by rounding only.
TIE = 1e-12


def find_distances(
    values: np.ndarray,
    probability: np.ndarray,
    codes: np.ndarray,
    n_levels: int,
    weight: np.ndarray,
) -> np.ndarray:
    """Return how far each level's distribution of predictions is from that of all rows.

    D_a = sup_z |P(f(X) ≥ z | A = a) − P(f(X) ≥ z)| over all real z, for a prediction that is
    f_k(X) with probability p_k: ``values`` of shape (n_samples, n_components) and ``probability``
    of shape (n_components,). It is the Kolmogorov-Smirnov distance of the weighted empirical
    distributions of the n K values, of weights w_i p_k; NaN for a level without weight.

    O(n K log(n K)) for one sort, then O(n K) per level; O(n K) memory.
    """
    size = probability.size
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    mass = (weight[:, None] * probability).ravel()[order]
    row = order // size
    # Only the last of equal values counts.
    gap = np.diff(ordered)
    last = np.append(gap > TIE * np.maximum(1.0, np.abs(ordered[1:])), True)
    overall = np.cumsum(mass)[last] if flat.size else np.zeros(0)
    distance = np.full(n_levels, np.nan)
    for code in range(n_levels):
        share = np.cumsum(np.where(codes[row] == code, mass, 0.0))
        if flat.size and share[-1] > 0:
            distance[code] = np.abs(share[last] / share[-1] - overall / overall[-1]).max()
    return distance


def bound_deviation(weight: np.ndarray) -> float:
    """Return sqrt(log(2/δ)/(2n)), δ = .05, a bound on an empirical distribution's deviation.

    The size n of weighted rows is (Σw)²/Σw².

    References
    ----------
    Massart, "The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality", 1990.
    """
    n = float(np.sum(weight)) ** 2 / float(np.sum(weight**2))
    return float(np.sqrt(np.log(2 / (1 - CONFIDENCE)) / (2 * n)))


@measure(
    "disparity",
    what="largest difference over all z between P(prediction ≥ z) of a level and of all rows; "
    "by level, and the largest of an attribute's levels",
    needs=("score", "group"),
    task=("binary", "regression"),
    direction="lower",
    reference=REFERENCE,
)
def measure_disparity(audit: Audit) -> Iterator[MeasureRow]:
    """Yield max_a sup_z |F_a(z) − F(z)| for every attribute, and the distance of every level.

    For a classifier the scores are compared, not the decisions: a disparity of 0 is parity of
    decisions at every threshold.

    The interval is the paper's, the value ± sqrt(log(2/.05)/(2n)), clipped to [0, 1]; n counts all
    rows for an attribute and the level's rows for a level. A level with fewer rows than the
    audit's minimum is not estimable, and left out of the largest.

    Notes
    -----
    The paper's band holds for one distribution of n rows: for an attribute it is too narrow where
    the farthest level has few of them; see the level's own band. Under parity the value is above 0
    by about the deviation of the smallest level.
    """
    part, weight = audit.part, audit.weight
    values, probability = audit.prediction.outcomes
    for attribute, levels in part.attributes.items():
        codes = read_codes(part, attribute, len(levels))
        distance = find_distances(values, probability, codes, len(levels), weight)
        count = np.bincount(codes, minlength=len(levels))
        distance[count < audit.minimum] = np.nan
        yield _bound(attribute, np.fmax.reduce(distance, initial=np.nan), weight)
        for code, level in enumerate(levels):
            yield _bound(f"{attribute}={level}", distance[code], weight[codes == code])


def _bound(group: str, value: float, weight: np.ndarray) -> MeasureRow:
    """Return a row with the paper's interval."""
    if not np.isfinite(value):
        return MeasureRow(group, np.nan, weight.size)
    value, reach = float(value), bound_deviation(weight)
    return MeasureRow(group, value, weight.size, max(value - reach, 0.0), min(value + reach, 1.0))
