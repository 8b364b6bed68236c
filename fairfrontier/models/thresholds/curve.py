"""The ROC curves of groups: what every cut of a group's scores chooses, and the upper hulls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from scipy.optimize import isotonic_regression

Named = Literal["accuracy", "balanced_accuracy", "f1"]
Objective = Named | Mapping[Literal["costs"], Mapping[str, float]]
Criterion = Literal[
    "parity", "equal_opportunity", "predictive_equality", "equalized_odds", "average_odds"
]
# The columns of selection rate, true and false positive rate that a criterion bounds.
BOUNDED: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "parity": (0,),
        "equal_opportunity": (1,),
        "predictive_equality": (2,),
        "equalized_odds": (1, 2),
        "average_odds": (1, 2),
    }
)


@dataclass(frozen=True, eq=False)
class Curve:
    """The cuts of one group: cut i chooses the i highest of its m distinct scores.

    Attributes
    ----------
    score : ndarray of float64, shape (m,)
        The distinct scores, descending.
    positive, negative : ndarray of float64, shape (m + 1,)
        Weight of the positives and the negatives that each cut chooses, from 0 to their total.
    hull : ndarray of int64
        Cuts that are vertices of the upper concave hull, from 0 to m.
    turned : int
        How many cuts there are before those, of which cut i chooses the i lowest; see `turn`.
    """

    score: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    hull: np.ndarray
    turned: int = 0

    def rate(self, column: int) -> np.ndarray:
        """Return a rate of every cut, (m + 1,), from 0 to 1; NaN where it is 0/0.

        Column 0 is the rate of all who are chosen, 1 the true and 2 the false positive rate.
        """
        mass = (self.positive + self.negative, self.positive, self.negative)[column]
        return mass / mass[-1] if mass[-1] > 0 else np.full_like(mass, np.nan)

    def threshold(self, cut: int) -> float:
        """Return t such that the cut is 1{score > t}: between scores, ±∞ at the ends.

        One of those that chooses the lowest is 1{score ≤ t}.
        """
        cut = self.score.size - cut if cut < self.turned else cut - self.turned
        if cut == 0:
            return np.inf
        if cut == self.score.size:
            return -np.inf
        high, low = self.score[cut - 1], self.score[cut]
        middle = low + (high - low) / 2.0
        return float(middle if middle < high else low)

    def turn(self) -> Curve:
        """Return the curve with the cuts that choose the lowest scores, too, before its own."""
        falling = [np.diff(each)[::-1] for each in (self.positive, self.negative)]
        lowest = make_curve(-self.score[::-1], *falling)
        positive, negative = (
            np.concatenate(each)
            for each in ((lowest.positive, self.positive), (lowest.negative, self.negative))
        )
        turned, hull = lowest.positive.size, list[int]()
        vertices = np.append(lowest.hull, turned + self.hull)
        for cut in vertices[np.lexsort((positive[vertices], negative[vertices]))].tolist():
            # Andrew's monotone chain: the last vertex goes while it is not above the new edge.
            while len(hull) > 1:
                (x0, y0), (x1, y1) = ((negative[k], positive[k]) for k in hull[-2:])
                rise = (y1 - y0) * (negative[cut] - x0)
                if rise > (positive[cut] - y0) * (x1 - x0):
                    break
                hull.pop()
            hull.append(cut)
        return Curve(self.score, positive, negative, np.array(hull, dtype=np.int64), turned)

    def find_cuts(self, threshold: np.ndarray) -> np.ndarray:
        """Return the cuts that are 1{score > t} for thresholds t."""
        return self.score.size - np.searchsorted(self.score[::-1], threshold, side="right")


@dataclass(frozen=True)
class Gain:
    """What a cut is worth: constant + positive · (chosen positives) − negative · (negatives)."""

    positive: float
    negative: float
    constant: float

    def of(self, curve: Curve, cuts: np.ndarray | slice) -> np.ndarray:
        """Return the gains of some cuts of a curve, without the constant."""
        return self.positive * curve.positive[cuts] - self.negative * curve.negative[cuts]


def build_curves(
    score: np.ndarray,
    y: np.ndarray,
    code: np.ndarray,
    n_groups: int,
    weight: np.ndarray | None = None,
) -> tuple[Curve, ...]:
    """Return the curve of every group; one without weight has the cut 0 alone.

    Parameters
    ----------
    score : ndarray of float, shape (n_samples,)
        Finite, on any scale.
    y : ndarray, shape (n_samples,)
        Labels 0 and 1, or P(Y=1) in [0, 1], which counts as that share of a label.
    code : ndarray of int, shape (n_samples,)
        Groups 0, …, n_groups − 1.
    weight : ndarray of float, shape (n_samples,), optional

    Notes
    -----
    The upper hull of a ROC curve is the isotonic regression of y on the score: its blocks are the
    hull's edges, found by pooling adjacent violators. O(n log n) for a sort within each group,
    O(n) else; 8 numbers a row.

    References
    ----------
    T. Fawcett, A. Niculescu-Mizil. PAV and the ROC convex hull. Machine Learning 68, 2007.
    """
    if weight is not None and not (weight > 0).all():
        score, y, code, weight = (column[weight > 0] for column in (score, y, code, weight))
    # NumPy sorts codes of one or two bytes by radix, in O(n).
    small = np.min_scalar_type(max(n_groups - 1, 0))
    order = np.argsort(code.astype(small), kind="stable")
    stops = np.cumsum(np.bincount(code, minlength=n_groups)).tolist()
    columns = [score, y] if weight is None else [score, y, weight]
    columns = [column[order] for column in columns]
    spans = zip([0, *stops[:-1]], stops, strict=True)
    return tuple(_build_curve(*(column[slice(*span)] for column in columns)) for span in spans)


def _build_curve(score: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> Curve:
    """Return the curve of one group."""
    zero = np.zeros(1)
    if not score.size:
        return Curve(zero[:0], zero, zero, np.zeros(1, dtype=np.int64))
    falling = np.argsort(score)[::-1]
    score, positive = score[falling], y[falling].astype(np.float64)
    mass = np.ones_like(positive) if weight is None else weight[falling].astype(np.float64)
    positive *= mass
    # Equal scores are chosen together. Both classes are summed on their own: a score of one class
    # adds an exact 0 to the other.
    first = np.append(0, np.flatnonzero(score[1:] != score[:-1]) + 1)
    negative = mass - positive
    if first.size < score.size:
        positive, negative = (np.add.reduceat(sums, first) for sums in (positive, negative))
    return make_curve(score[first].astype(np.float64), positive, negative)


def make_curve(score: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> Curve:
    """Return the curve of distinct scores, descending, at which positives and negatives lie."""
    hull = find_hull(positive, negative)
    positive, negative = (np.append(0.0, np.cumsum(sums)) for sums in (positive, negative))
    return Curve(score, positive, negative, hull)


def find_hull(positive: np.ndarray, negative: np.ndarray, *, both: bool = False) -> np.ndarray:
    """Return the cuts on the upper hull, int64, of scores with so many positives and negatives.

    With ``both`` also those on the lower hull.
    """
    share = positive + negative
    if not share.size:
        return np.zeros(1, dtype=np.int64)
    hulls = [
        isotonic_regression(positive / share, weights=share, increasing=increasing).blocks
        for increasing in ((False, True) if both else (False,))
    ]
    return np.unique(np.concatenate(hulls)).astype(np.int64)


def weigh_objective(
    objective: Objective, positive: float, negative: float, theta: float = 0.0
) -> Gain:
    """Return the gain of an objective, larger is better, linear in what is chosen.

    ``positive`` and ``negative`` are the weights of all positives and negatives. Costs are counted
    per row, with a minus. A balanced accuracy without one of the classes is the other's rate. F1 is
    replaced by 2 TP − θ (TP + FP + P), which is above 0 for rules with F1 > θ.
    """
    total = positive + negative
    if objective == "accuracy":
        return Gain(1.0 / total, 1.0 / total, negative / total)
    if objective == "balanced_accuracy":
        both = int(positive > 0) + int(negative > 0)
        return Gain(
            1.0 / positive / both if positive > 0 else 0.0,
            1.0 / negative / both if negative > 0 else 0.0,
            (negative > 0) / both,
        )
    if objective == "f1":
        return Gain(2.0 - theta, theta, -theta * positive)
    costs = objective["costs"]
    miss, alarm = costs["false_negative"], costs["false_positive"]
    return Gain(miss / total, alarm / total, -miss * positive / total)
