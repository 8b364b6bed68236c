"""The best cuts of groups whose rates lie within a window, for one rate.

    max Σ_k v_k(x_k)   s.t.  max_k x_k − min_k x_k ≤ δ

where x_k is a group's selection rate, true or false positive rate, and v_k(x) the largest gain of
its cuts, or of a draw between two of them, at that rate: along the upper hull of the ROC curve,
concave and piecewise linear. For a window [a, a + δ] every x_k is the maximiser m_k of v_k, moved
into the window; the sum is concave in a and linear between breakpoints (vertices of the hulls,
and vertices less δ), so that a search among them by the sign of its slope finds the optimum.

For any ν with Σ_k ν_k = 0 no rule is better than the dual value

    D(ν) = Σ_k max_x (v_k(x) − ν_k x) + (δ/2) Σ_k |ν_k|,

which the optimum attains with ν_k from the slopes of v_k at x_k.

References
----------
M. Hardt, E. Price, N. Srebro. Equality of opportunity in supervised learning. NIPS 2016, section 4,
for two groups and δ = 0. R. Xian, L. Yin, H. Zhao. Fair and optimal classification via
post-processing. ICML 2023. The search for the window: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fairfrontier.train.postprocess.roc.curve import Criterion, Curve, Gain
from fairfrontier.train.postprocess.threshold import TOLERANCE, merge_runs

# Windows that are tried first for one cut per group: their best bounds which others can be better.
PROBES = 512


class Draw(NamedTuple):
    """Cuts of one group, ascending, and the probabilities with which one of them is used."""

    cuts: np.ndarray
    shares: np.ndarray


class Optimum(NamedTuple):
    """One draw for each group; their gain and an upper bound on that of any draws.

    ``proven`` says whether no allowed choice is better: where draws are excluded, the bound
    includes what they would add.
    """

    draws: list[Draw]
    value: float
    dual_value: float
    proven: bool


class Profile(NamedTuple):
    """v_k: rates, ascending, the gains there, their cuts, and the position of the largest gain."""

    rate: np.ndarray
    gain: np.ndarray
    cut: np.ndarray
    best: int

    def slopes(self, rate: float) -> tuple[float, float]:
        """Return the slopes before and after a rate, infinite at the ends."""
        left = int(np.searchsorted(self.rate, rate - TOLERANCE)) - 1
        right = int(np.searchsorted(self.rate, rate + TOLERANCE, side="right")) - 1
        return (
            self._edge(left) if left >= 0 else np.inf,
            self._edge(right) if right < self.rate.size - 1 else -np.inf,
        )

    def _edge(self, i: int) -> float:
        rise, run = self.gain[i + 1] - self.gain[i], self.rate[i + 1] - self.rate[i]
        return float(rise / run)

    def respond(self, low: float, bound: float) -> tuple[float, float, float]:
        """Return the best rate in the window from ``low``, and how v_k grows with it both ways."""
        mode = float(self.rate[self.best])
        if abs(low - mode) <= TOLERANCE and bound <= TOLERANCE:
            return mode, *self.slopes(mode)
        if low >= mode - TOLERANCE:
            rate = max(low, mode)
            before, after = self.slopes(rate)
            return rate, before if low > mode + TOLERANCE else 0.0, after
        if low + bound <= mode + TOLERANCE:
            rate = min(low + bound, mode)
            before, after = self.slopes(rate)
            return rate, before, after if low + bound < mode - TOLERANCE else 0.0
        return mode, 0.0, 0.0

    def draw(self, rate: float) -> Draw:
        """Return the cuts between which a draw has this rate, and their shares."""
        i = int(np.clip(np.searchsorted(self.rate, rate + TOLERANCE, "right"), 1, self.rate.size))
        i -= 1
        if i == self.rate.size - 1 or rate - self.rate[i] <= TOLERANCE:
            return Draw(self.cut[i : i + 1], np.ones(1))
        share = float((rate - self.rate[i]) / (self.rate[i + 1] - self.rate[i]))
        return Draw(self.cut[i : i + 2], np.array([1.0 - share, share]))


def find_base(curves: Sequence[Curve], gain: Gain) -> list[int]:
    """Return the cut of each group that is best without a constraint; the first among equals."""
    return [int(curve.hull[gain.of(curve, curve.hull).argmax()]) for curve in curves]


def solve_rate(
    curves: Sequence[Curve],
    gain: Gain,
    criterion: Criterion,
    bound: float,
    *,
    base: Sequence[int] | None = None,
    randomized: bool = True,
) -> Optimum:
    """Solve for one rate; ``base`` are cuts from which no group's rate may get worse.

    The selection rate and the true positive rate may then not fall, the false positive rate not
    rise. Groups whose rate is 0/0 take their best cut. O(H log H) for hulls of H vertices; without
    draws O(n log n) for the cuts of the windows that can be best.
    """
    alone = find_base(curves, gain)
    bounded = [k for k, curve in enumerate(curves) if curve.measure(criterion).max() > 0]
    floors = {k: base[k] for k in bounded} if base is not None else {}

    def profile_group(k: int, cuts: np.ndarray) -> Profile:
        if k in floors:
            kept = cuts <= floors[k] if criterion == "predictive_equality" else cuts >= floors[k]
            cuts = cuts[kept]
        return draw_profile(curves[k], cuts, gain, criterion)

    draws = [Draw(np.array([cut]), np.ones(1)) for cut in alone]
    free = sum(float(gain.of(curves[k], slice(alone[k], alone[k] + 1))[0])
               for k in range(len(curves)) if k not in bounded)  # fmt: skip
    if not bounded:
        return Optimum(draws, free + gain.constant, free + gain.constant, proven=True)
    profiles = [_trim(profile_group(k, curves[k].hull)) for k in bounded]
    low, dual = _find_window(profiles, bound)
    rates = [profile.respond(low, bound)[0] for profile in profiles]
    chosen = [profile.draw(rate) for profile, rate in zip(profiles, rates, strict=True)]
    if not randomized:
        cuts = [profile_group(k, np.arange(curves[k].positive.size)) for k in bounded]
        chosen = _find_cuts(cuts, profiles, low, bound)
    for k, draw in zip(bounded, chosen, strict=True):
        draws[k] = draw
    value = gain.constant + free
    value += sum(float(draws[k].shares @ gain.of(curves[k], draws[k].cuts)) for k in bounded)
    return Optimum(draws, value, gain.constant + free + dual, proven=True)


def draw_profile(curve: Curve, cuts: np.ndarray, gain: Gain, criterion: Criterion) -> Profile:
    """Return the profile of some cuts of a curve."""
    worth = gain.of(curve, cuts)
    return Profile(curve.measure(criterion)[cuts], worth, cuts, int(worth.argmax()))


def draw_within(
    curve: Curve, gain: Gain, criterion: Criterion, low: float, high: float, *, randomized: bool
) -> Draw:
    """Return the best draw of one curve with a rate from ``low`` to ``high``.

    Without draws it is the best of the cuts that are nearest to that range.
    """
    if randomized:
        profile = _trim(draw_profile(curve, curve.hull, gain, criterion))
        return profile.draw(profile.respond(low, high - low)[0])
    rate, worth, cuts, _ = draw_profile(curve, np.arange(curve.positive.size), gain, criterion)
    apart = np.maximum(np.maximum(low - rate, rate - high), 0.0)
    near = np.flatnonzero(apart <= apart.min() + TOLERANCE)
    return Draw(cuts[near[[worth[near].argmax()]]], np.ones(1))


def _trim(profile: Profile) -> Profile:
    """Leave out what a group gains at rate 0, or loses at its last one, beyond the best there."""
    first = int(np.searchsorted(profile.rate, profile.rate[0], side="right")) - 1
    last = int(np.searchsorted(profile.rate, profile.rate[-1])) + 1
    if first + 1 >= last:
        # All rates are the same: the best of the cuts.
        first, last = profile.best, profile.best + 1
    kept = slice(first, last)
    gain = profile.gain[kept]
    return Profile(profile.rate[kept], gain, profile.cut[kept], int(gain.argmax()))


def _find_window(profiles: Sequence[Profile], bound: float) -> tuple[float, float]:
    """Return the start of the best window, and the dual value of its slopes."""
    first = max(float(profile.rate[0]) for profile in profiles) - bound
    last = min(float(profile.rate[-1]) for profile in profiles)
    breaks = [np.array([first, last])]
    for rate, _, _, best in profiles:
        breaks += [rate[best:], rate[: best + 1] - bound]
    starts = merge_runs(breaks)
    starts = starts[(starts >= first) & (starts <= last)]
    left, right = 0, starts.size - 1
    while left < right:
        middle = (left + right) // 2
        after = sum(profile.respond(starts[middle], bound)[2] for profile in profiles)
        left, right = (left, middle) if after <= 0 else (middle + 1, right)
    start = float(starts[left])
    steps = np.array([profile.respond(start, bound)[1:] for profile in profiles])
    return start, _bound_above(profiles, bound, steps[:, 0], steps[:, 1])


def _bound_above(
    profiles: Sequence[Profile], bound: float, before: np.ndarray, after: np.ndarray
) -> float:
    """Return D(ν) with ν between the slopes after and before, moved until they add up to 0."""
    price = np.clip(0.0, after, before)
    surplus = float(price.sum())
    for k in range(price.size):
        moved = price[k] - surplus
        moved = max(moved, after[k]) if surplus > 0 else min(moved, before[k])
        surplus += moved - price[k]
        price[k] = moved
    price -= price.mean()
    best = sum(
        float((profile.gain - nu * profile.rate).max())
        for profile, nu in zip(profiles, price, strict=True)
    )
    return best + bound / 2.0 * float(np.abs(price).sum())


def _find_cuts(
    cuts: Sequence[Profile], hulls: Sequence[Profile], start: float, bound: float
) -> list[Draw]:
    """Return the best cuts, one for each group, whose rates lie in a window of the given length.

    Some group's rate is the start of the best window. With draws a window is worth at least as
    much, and that worth is concave in its start: windows are left out where it is below the best
    of some near the optimum.
    """
    first = max(float(profile.rate[0]) for profile in cuts) - bound - TOLERANCE
    final = min(float(profile.rate[-1]) for profile in cuts) + TOLERANCE
    starts = merge_runs([profile.rate for profile in cuts])
    starts = starts[(starts >= first) & (starts <= final)]
    near = int(np.searchsorted(starts, start))
    probed = slice(max(0, near - PROBES), near + PROBES)
    tried = np.unique(np.concatenate([starts[:1], starts[probed], starts[-1:]]))
    least = _judge(cuts, tried, bound)[1].max()

    def worth(i: int) -> float:
        window = (float(starts[i]), bound + 2.0 * TOLERANCE)
        return sum(
            float(np.interp(hull.respond(*window)[0], hull.rate, hull.gain)) for hull in hulls
        )

    slack = least - 1e-12 * max(1.0, abs(least))
    left, right = 0, near
    while left < right:
        middle = (left + right) // 2
        left, right = (left, middle) if worth(middle) >= slack else (middle + 1, right)
    low, (left, right) = left, (near, starts.size)
    while left < right:
        middle = (left + right) // 2
        left, right = (middle + 1, right) if worth(middle) >= slack else (left, middle)
    windows = np.union1d(tried, starts[low:left])
    kept, gains = _judge(cuts, windows, bound)
    return [_pick(profile, float(kept[gains.argmax()]), bound) for profile in cuts]


def find_range(
    rate: np.ndarray, low: np.ndarray, bound: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return first and one past the last of ascending rates in windows [low, low + bound]."""
    first = np.searchsorted(rate, low - TOLERANCE)
    return first, np.searchsorted(rate, low + bound + TOLERANCE, side="right")


def find_largest(values: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return max values[first:last] for many ranges that are not empty.

    By a table of the maxima over 1, 2, 4, … neighbours: O(n log n) for n values between the least
    ``first`` and the largest ``last``, and O(1) for a range.
    """
    start = int(first.min())
    table = values[start : int(last.max())]
    level = np.log2(last - first).astype(np.int8)
    order, stops = np.argsort(level, kind="stable"), np.cumsum(np.bincount(level))
    largest = np.empty(first.size)
    for j, (left, right) in enumerate(pairwise([0, *stops.tolist()])):
        if j:
            half = 1 << (j - 1)
            table = np.maximum(table[:-half], table[half:])
        here = order[left:right]
        i, end = first[here] - start, last[here] - start - (1 << j)
        largest[here] = np.maximum(table[i], table[end])
    return largest


def _judge(
    cuts: Sequence[Profile], starts: np.ndarray, bound: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the windows in which every group has a cut, and the sum of their largest gains."""
    ranges: list[tuple[np.ndarray, np.ndarray]] = []
    for profile in cuts:
        first, last = find_range(profile.rate, starts, bound)
        some = first < last
        starts = starts[some]
        ranges = [(one[some], two[some]) for one, two in [*ranges, (first, last)]]
    gains = np.zeros(starts.size)
    for profile, (first, last) in zip(cuts, ranges, strict=True):
        gains += find_largest(profile.gain, first, last)
    return starts, gains


def _pick(profile: Profile, start: float, bound: float) -> Draw:
    """Return the best cut in a window."""
    first, last = find_range(profile.rate, np.array([start]), bound)
    best = int(first[0]) + int(profile.gain[first[0] : last[0]].argmax())
    return Draw(profile.cut[best : best + 1], np.ones(1))
