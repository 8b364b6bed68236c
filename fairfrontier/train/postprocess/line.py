"""Lines of a group's score for many candidates at once: their sums, roots and accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fairfrontier.train.postprocess.threshold import TOLERANCE, Segment, ThresholdProblem

# The search for a root ends at this accuracy of the mean, or at neighbouring numbers.
FINEST = 1e-14
MOST_STEPS = 400
BISECTIONS = 60
# On a steeper ramp there are so few rows that they are added one by one.
STEEP = 1e4


@dataclass(frozen=True)
class Line:
    """A group's line h = clip(level + slope (f − centre), 0, 1), with its multipliers.

    ``relaxed`` is the amount by which the bounds were widened so that the group can meet them.
    """

    centre: float
    level: float
    slope: float
    multiplier: tuple[float, ...]
    relaxed: float = 0.0


class Lines(NamedTuple):
    """The lines of one group for G candidates: float64 of shape (G,), multipliers (G, J)."""

    centre: np.ndarray
    level: np.ndarray
    slope: np.ndarray
    multiplier: np.ndarray
    relaxed: np.ndarray

    def pick(self, candidate: int) -> Line:
        """Return the line of one candidate."""
        centre, level, slope, multiplier, relaxed = (each[candidate].tolist() for each in self)
        return Line(centre, level, slope, tuple(multiplier), relaxed)


class Moments(NamedTuple):
    """Sums over the rows of a group under h = clip(level + slope f, 0, 1), shape (G,).

    ``chosen`` and ``pull`` are Σ w h and Σ w f h; ``mass``, ``moment`` and ``square`` are Σ w,
    Σ w f and Σ w f² over the rows with 0 < h < 1.
    """

    chosen: np.ndarray
    pull: np.ndarray
    mass: np.ndarray
    moment: np.ndarray
    square: np.ndarray


class Stack:
    """NumPy segments of K groups, for lines of shape (K, G)."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.whole = np.stack([_sum_all(segment) for segment in segments], axis=1)
        self._ends = self._sums = np.zeros(0)

    def sum_below(self, ends: np.ndarray) -> np.ndarray:
        """Return Σ w, Σ w f and Σ w f² of the scores below ends (K, 2, G), (3, K, 2, G).

        Most lines of a search for roots are settled: only ends that moved are looked up again.
        """
        if self._ends.size != ends.size:
            self._ends, self._sums = np.full(ends.size, np.nan), np.empty((3, ends.size))
        before, self._ends = self._ends, ends.reshape(-1)
        moved = np.flatnonzero(self._ends != before)
        size = ends.size // len(self.segments)
        stops = np.searchsorted(moved, size * np.arange(len(self.segments) + 1)).tolist()
        for segment, span in zip(self.segments, pairwise(stops), strict=True):
            places = moved[slice(*span)]
            if places.size:
                self._sums[:, places] = _sum_below(segment, self._ends[places])
        return self._sums.reshape(3, *ends.shape)


def _sum_below(segment: Segment, ends: np.ndarray) -> np.ndarray:
    """Return Σ w, Σ w f and Σ w f² of a group's scores below some ends, with an axis in front."""
    found = segment.score.searchsorted(ends)
    return np.array([segment.mass[found], segment.moment[found], segment.square[found]])


def _sum_all(segment: Segment) -> np.ndarray:
    """Return the same sums of all its scores, (3,)."""
    return np.array([segment.mass[-1], segment.moment[-1], segment.square[-1]])


def integrate(segment: Segment | Stack, level: np.ndarray, slope: np.ndarray) -> Moments:
    """Return the moments of lines, (G,) or (K, G), from NumPy segments; O(log n) for each."""
    flat = slope == 0
    steep = np.where(flat, 1.0, slope)
    zero, one = -level / steep, (1.0 - level) / steep
    ends = np.stack([np.minimum(zero, one), np.maximum(zero, one)], axis=-2)
    if isinstance(segment, Stack):
        sums, whole = segment.sum_below(ends), segment.whole
    else:
        sums, whole = _sum_below(segment, ends), _sum_all(segment)
    first, last, whole = sums[..., 0, :], sums[..., 1, :], whole[..., None]
    on, above = last - first, np.where(slope > 0, whole - last, first)
    if flat.any():
        on = np.where(flat, whole * ((level > 0) & (level < 1)), on)
        above = np.where(flat, whole * (level >= 1), above)
    (mass, moment, square), (chosen, pull, _) = on, above
    return Moments(
        chosen + level * mass + slope * moment,
        pull + level * moment + slope * square,
        mass,
        moment,
        square,
    )


def find_roots(
    mean: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    low: np.ndarray,
    high: np.ndarray,
    guess: np.ndarray | None = None,
    *,
    exact: bool = True,
) -> np.ndarray:
    """Return the w nearest to 0 at which falling, piecewise linear means are within their bounds.

    ``mean`` takes numbers of the shape of ``low`` and ``high``, and returns values and slopes. A
    NaN is within its bounds. Newton's steps, exact on the root's own piece, are kept between the
    known points on both sides; one that does not halve the distance of the mean from its bound is
    followed by a bisection. A ``guess`` is tried first. Where the mean is flat at its root, the end
    of that piece is found by bisection, if ``exact``.
    """
    point = np.zeros_like(low)
    value, slope = mean(point)
    over, under = value > high + TOLERANCE, value < low - TOLERANCE
    sign, target = np.where(under, -1.0, 1.0), np.where(under, low, high)
    left, right, active = point, np.full_like(point, math.inf), over | under
    before = np.full_like(point, math.inf)
    for step in range(MOST_STEPS):
        surplus = np.where(active, sign * (value - target), 0.0)
        active = active & (np.abs(surplus) > FINEST)
        if not active.any():
            break
        left, right = np.where(surplus > 0, point, left), np.where(surplus < 0, point, right)
        with np.errstate(over="ignore"):
            newton = point - surplus / np.where(slope < 0, slope, -1.0)
        newton = np.where(slope < 0, newton, math.inf)
        inside = (left < newton) & (newton < right) & (np.abs(surplus) <= before / 2.0)
        # After a bisection the next step is Newton's again, however far it led.
        before = np.where(inside, np.abs(surplus), math.inf)
        closed = np.where(inside, newton, (left + right) / 2.0)
        opened = np.minimum(newton, 8.0 * np.maximum(left, 1.0))
        trial = np.where(np.isinf(right), opened, closed)
        if step == 0 and guess is not None:
            trial = np.where(sign * guess > 0, sign * guess, trial)
        active = active & (left < trial) & (trial < right)
        point = np.where(active, trial, point)
        value, slope = mean(sign * point)
    flat = (over | under) & (slope == 0) & exact
    for _ in range(BISECTIONS if flat.any() else 0):
        middle = np.where(flat, (left + point) / 2.0, point)
        short = sign * (mean(sign * middle)[0] - target) > FINEST
        left, point = np.where(short, middle, left), np.where(short, point, middle)
    return np.asarray(sign * point)


def judge_lines(
    labelled: ThresholdProblem, lines: Sequence[Lines], gain: tuple[float, float] = (1.0, 1.0)
) -> tuple[np.ndarray, np.ndarray]:
    """Return expected accuracy, and max − min of E[h | cell], of G candidates, shapes (G,).

    ``labelled`` is built from codes 2 k + y, and ``lines`` are those of its cells k, which all have
    weight; ``gain`` is as in `expect_accuracy`.
    """
    right, rates = np.zeros(lines[0].centre.size), []
    for k, line in enumerate(lines):
        zero, one = (segment.on_host() for segment in labelled.segments[2 * k : 2 * k + 2])
        chosen = [_choose(segment, line) for segment in (zero, one)]
        right += gain[1] * chosen[1] + gain[0] * zero.total - gain[0] * chosen[0]
        rates.append((chosen[0] + chosen[1]) / (zero.total + one.total))
    return right / labelled.weigh(gain), np.ptp(rates, axis=0)


def _choose(segment: Segment, line: Lines) -> np.ndarray:
    """Return Σ w h of G lines."""
    chosen = integrate(segment, line.level - line.slope * line.centre, line.slope).chosen
    for i in np.flatnonzero(np.abs(line.slope) > STEEP).tolist():
        centre, level, slope = line.centre[i], line.level[i], line.slope[i]
        first, last = np.sort([centre - level / slope, centre + (1.0 - level) / slope])
        first, last = np.searchsorted(segment.score, (first, last))
        # One more at both ends: where a ramp ends is known up to rounding.
        first, last = max(0, first - 1), min(segment.score.size, last + 1)
        h = np.clip(level + slope * (segment.score[first:last] - centre), 0.0, 1.0)
        above = segment.mass[-1] - segment.mass[last] if slope > 0 else segment.mass[first]
        chosen[i] = above + h @ np.diff(segment.mass[first : last + 1])
    return chosen
