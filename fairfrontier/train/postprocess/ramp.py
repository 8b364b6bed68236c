"""A clipped line of the score for each group: what every conditional criterion is decided by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace, to_numpy
from fairfrontier.train.postprocess.threshold import Segment

Array = Any


@dataclass(frozen=True, eq=False)
class RampRule:
    """A randomised rule h on scores f ∈ [−1, 1] of groups k.

    h = clip(level_k + slope_k (f − centre_k), 0, 1)

    An infinite slope makes a threshold with a coin: h = 1{f > centre_k} + level_k 1{f = centre_k}.

    Attributes
    ----------
    centre, level, slope : ndarray of float64, shape (n_groups,)
        A point of each line and its slope. Steep lines are exact at their centre, which is a score
        that occurs.

    Notes
    -----
    A `ThresholdRule` is the case where all slopes are 1/γ, its centres t_k and its levels 0.
    """

    centre: np.ndarray
    level: np.ndarray
    slope: np.ndarray

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.centre.shape[0])

    def probability(self, signed_score: Array, code: Array) -> Array:
        """Return h, the exact probability of the decision 1, float64, shape (n_samples,).

        Parameters
        ----------
        signed_score : array of float, shape (n_samples,)
            f ∈ [−1, 1].
        code : array of integers, shape (n_samples,)
            Group codes 0, …, n_groups − 1.
        """
        xp = array_namespace(signed_score)
        score = xp.astype(signed_score, xp.float64)

        def place(values: np.ndarray) -> Array:
            return xp.take(xp.asarray(values, device=device(score)), code)

        steep = np.isinf(self.slope)
        offset, level = score - place(self.centre), place(self.level)
        line = xp.clip(level + place(np.where(steep, 0.0, self.slope)) * offset, 0.0, 1.0)
        if not steep.any():
            return line
        above = xp.astype(offset > 0, xp.float64)
        return xp.where(place(steep), xp.where(offset == 0, level, above), line)

    def to_json(self) -> dict[str, Any]:
        """Return plain values by group code; None stands for an infinite slope."""
        return {
            "centres": self.centre.tolist(),
            "levels": self.level.tolist(),
            "slopes": [slope if math.isfinite(slope) else None for slope in self.slope.tolist()],
        }

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> RampRule:
        """Return the rule that ``to_json`` described.

        Raises
        ------
        ValueError
            When the lists differ in length, or hold what is no number.
        """
        slopes = [math.inf if slope is None else slope for slope in described["slopes"]]
        lists = (described["centres"], described["levels"], slopes)
        centre, level, slope = (np.asarray(each, dtype=np.float64) for each in lists)
        if not (centre.ndim == 1 and centre.shape == level.shape == slope.shape):
            raise ValueError("centres, levels and slopes differ in length")
        return cls(centre, level, slope)


@dataclass(frozen=True)
class Line:
    """A group's line, and the multipliers it belongs to.

    Attributes
    ----------
    centre, level, slope : float
        As in `RampRule`.
    multiplier : tuple of float
    relaxed : float
        How much further than the budget the bounds were moved on either side, so that the group
        can meet them.
    """

    centre: float
    level: float
    slope: float
    multiplier: tuple[float, ...]
    relaxed: float = 0.0


def gather(lines: Sequence[Line]) -> RampRule:
    """Return the rule of lines by group code."""
    table = np.array([(each.centre, each.level, each.slope) for each in lines], dtype=np.float64)
    return RampRule(*(np.ascontiguousarray(column) for column in table.T))


class Moments(NamedTuple):
    """Sums over the rows of a group under h = clip(level + slope f, 0, 1).

    Attributes
    ----------
    chosen, pull : float
        Σ w h and Σ w f h.
    mass, moment, square : float
        Σ w, Σ w f and Σ w f² over the rows with 0 < h < 1.
    """

    chosen: float
    pull: float
    mass: float
    moment: float
    square: float


def integrate(segment: Segment, level: float, slope: float) -> Moments:
    """Return the moments of h = clip(level + slope f, 0, 1), from a segment on the host; O(log n).

    Parameters
    ----------
    segment : Segment
        Ascending scores of a group with their running sums, as NumPy arrays.
    level, slope : float
        The line at f = 0, and its slope.
    """
    n = segment.score.size
    if slope == 0:
        first, last, ones = (0, n if 0 < level < 1 else 0, (0, n if level >= 1 else 0))
    else:
        ends = sorted([-level / slope, (1.0 - level) / slope])
        first, last = np.searchsorted(segment.score, ends).tolist()
        ones = (last, n) if slope > 0 else (0, first)

    def add(sums: np.ndarray, start: int, stop: int) -> float:
        return float(sums[stop] - sums[start])

    mass, moment, square = (
        add(each, first, last) for each in (segment.mass, segment.moment, segment.square)
    )
    return Moments(
        add(segment.mass, *ones) + level * mass + slope * moment,
        add(segment.moment, *ones) + level * moment + slope * square,
        mass,
        moment,
        square,
    )


def host_share(segment: Segment) -> Segment:
    """Return a segment on the host, its weights divided by their total."""
    score, mass, moment, square = (
        to_numpy(each) for each in (segment.score, segment.mass, segment.moment, segment.square)
    )
    return Segment(score, mass / mass[-1], moment / mass[-1], square / mass[-1])
