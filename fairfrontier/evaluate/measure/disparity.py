"""How far the predictions of groups are distributed from those of all rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fairfrontier.evaluate.measure.loss import REFERENCE
from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure
from fairfrontier.evaluate.statistic.cell import read_codes
from fairfrontier.evaluate.statistic.interval import CONFIDENCE, Z
from fairfrontier.evaluate.statistic.resampling import divide

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


def bound_deviations(
    codes: np.ndarray, n_levels: int, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far `find_distances` may be above and below the true distances, by level.

    With s_a the level's share of the weight, F_a − F is 1 − s_a times the difference between two
    independent distributions, of the level and of the other rows. Let 1/n = 1/n_a + 1/n_rest, both
    of them (Σw)²/Σw². The estimates exceed the truth by at most sqrt(log(2·n_levels/δ)/(2n)), for
    all levels at once with probability 1 − δ = .95; and where a level's true distance is attained,
    it exceeds the estimate by at most z/sqrt(4n), with probability 1 − δ/2.

    References
    ----------
    Massart, "The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality", 1990. Wei and
    Dudley, "Two-sample Dvoretzky-Kiefer-Wolfowitz inequalities", 2012.
    """
    total, squares = (np.bincount(codes, each, n_levels) for each in (weight, weight**2))
    rest = total.sum() - total
    inverse = divide(squares, total**2) + divide(squares.sum() - squares, rest**2)
    share = rest / max(float(total.sum()), 1e-300)
    known = max(int((total > 0).sum()), 1)
    above = share * np.sqrt(np.log(2 * known / (1 - CONFIDENCE)) / 2 * inverse)
    return above, share * Z / 2 * np.sqrt(inverse)


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

    n counts all rows for an attribute and the level's rows for a level. A level with fewer rows
    than the audit's minimum is not estimable, and left out of the largest.

    Notes
    -----
    For the intervals see `bound_deviations`; the paper's band, the value ± sqrt(log(2/.05)/(2n)) of
    all n rows, is too narrow where the farthest level has few of them. Under parity the value is
    above 0 by about the deviation of the smallest level.
    """
    part, weight = audit.part, audit.weight
    values, probability = audit.prediction.outcomes
    for attribute, levels in part.attributes.items():
        codes = read_codes(part, attribute, len(levels))
        distance = find_distances(values, probability, codes, len(levels), weight)
        count = np.bincount(codes, minlength=len(levels))
        distance[count < audit.minimum] = np.nan
        above, below = bound_deviations(codes, len(levels), weight)
        low, high = np.maximum(distance - above, 0.0), np.minimum(distance + below, 1.0)
        ends = (distance, low, high)
        value, least, most = (float(np.fmax.reduce(each, initial=np.nan)) for each in ends)
        left_out = int(((count > 0) & (count < audit.minimum)).sum())
        yield MeasureRow(attribute, value, codes.size, least, most, left_out)
        for code, level in enumerate(levels):
            value, least, most = (float(each[code]) for each in ends)
            yield MeasureRow(f"{attribute}={level}", value, int(count[code]), least, most)
