"""Debiasing by other criteria than parity: covariance inside subgroups, and equal opportunity.

    min_{0≤h≤1} (γ/2) E h² − E[h f]   s.t.  E[z h | k] between two bounds, for every group k

for scores f ∈ [−1, 1], an estimate of 2η − 1 with η = P(Y=1|x). Each group is a separate problem,
solved by h = clip((f − w z)/γ, 0, 1): the mean of z h falls as the multiplier w grows, whatever
the signs of z, so w is 0 where that meets the bounds, and else the root nearest to 0 of the mean =
the nearest bound. Between two neighbouring breakpoints f/z or (f − γ)/z the mean is linear, and
Newton's steps end at the root, up to rounding. Each takes O(log n) by running sums of the scores.

With a ``cut``, the score from which on decision 1 pays, f − cut is the gain in place of f.

`odds.solve_odds` has two such constraints per group.

References
----------
I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning models.
NeurIPS 2021, section E.1, equation 15. M. Hardt, E. Price, N. Srebro. Equality of opportunity in
supervised learning. NIPS 2016, definition 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.train.postprocess.criterion import Solution, conclude, cross, read_rows
from fairfrontier.train.postprocess.line import Line, Lines, find_roots, integrate
from fairfrontier.train.postprocess.threshold import (
    TOLERANCE,
    Segment,
    ThresholdProblem,
    build_problem,
)

Array = Any


def solve_covariance(
    score: Array,
    member: Array,
    subgroup: Array,
    n_subgroups: int,
    *,
    width: float,
    budget: float,
    cut: float = 0.0,
    weight: Array | None = None,
    problem: ThresholdProblem | None = None,
    lines: Sequence[Line] | None = None,
) -> Solution:
    """Bound the covariance of the decision and of membership in S inside each subgroup.

        min_h (γ/2) E h² − E[h f]   s.t.  |E[(1_S − ρ_k) h | k]| ≤ ε,   ρ_k = E[1_S | k]      (15)

    so h = clip((f − w_k (1_S − ρ_k))/γ, 0, 1): the threshold is w_k (1 − ρ_k) for members and
    −w_k ρ_k for others. The bound ε is on the covariance itself (the paper has ε here, not ε/2) and
    can always be met. At γ = 0 each threshold may carry a coin, the limit of γ → 0; where a member
    and another row tie at w up to rounding, either may toss it, with the same objective.

    O(n log n) for a sort within each group; at γ = 0 O(n log n + n K). A subgroup without members,
    or of members only, has covariance 0 under any rule. ``problem`` has the sorted scores by code
    2 · subgroup + member, and ``lines`` what `draw_covariance` gave for a width above 0, where they
    are there. ValueError is raised as by `read_rows`.
    """
    rows = read_rows(score, subgroup, n_subgroups, weight, ("width", width), ("budget", budget))
    xp = array_namespace(rows.score)
    inside = member if weight is None else member[weight > 0]
    cells, z = cross(inside, rows.code), xp.astype(inside, xp.float64)
    if width == 0:
        lines = []
    elif lines is None:
        problem = problem or build_problem(rows.score, cells, 2 * n_subgroups, rows.weight)
        drawn = draw_covariance(problem, np.array([width]), budget, cut)
        lines = [each.pick(0) for each in drawn]
    for group, (positions, share) in enumerate(rows.groups()):
        own = xp.take(inside, positions)
        rho = float(xp.sum(xp.where(own, share, xp.zeros_like(share))))
        z = xp.where(rows.code == group, z - rho, z)
        if width > 0:
            continue
        f = xp.take(rows.score, positions)
        centred = xp.where(own, xp.full_like(share, 1.0 - rho), xp.full_like(share, -rho))
        root = _find_threshold(f - cut, centred, share, -budget, budget)
        for cell, pull, coin in ((~own, -rho, root.coins[1]), (own, 1.0 - rho, root.coins[0])):
            threshold = root.value * pull + cut
            line = _draw_threshold(f[cell], centred[cell], root.value, coin, threshold, cut)
            lines = [*lines, line]
    return conclude(
        rows, lines, cells, [z], np.ones((n_subgroups, 1)),
        np.array([line.multiplier for line in lines[::2]]),
        width=width, targets=[0.0], half=budget, cut=cut,
    )  # fmt: skip


def draw_covariance(
    problem: ThresholdProblem, width: np.ndarray, budget: float, cut: float = 0.0
) -> list[Lines]:
    """Return the optimal lines for candidates (G,) of widths > 0, by code 2 · subgroup + member."""
    cells = problem.segments
    pairs = zip(cells[::2], cells[1::2], strict=True)
    return [lines for pair in pairs for lines in _solve_subgroup(pair, width, budget, cut)]


def _solve_subgroup(
    pair: tuple[Segment, Segment], width: np.ndarray, budget: float, cut: float
) -> list[Lines]:
    """Return the lines of a subgroup's others and members."""
    others, members = (segment.total for segment in pair)
    share = (others / (others + members), members / (others + members))
    pulls = (-share[1], share[0])
    hosts = [segment.share for segment in pair]

    def mean(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = np.zeros_like(w), np.zeros_like(w)
        for segment, pull, part in zip(hosts, pulls, share, strict=True):
            seen = integrate(segment, -(w * pull + cut) / width, 1.0 / width)
            value += part * pull * seen.chosen
            slope -= part * pull**2 * seen.mass / width
        return value, slope

    bound = np.full(width.shape, budget)
    root, zeros = find_roots(mean, -bound, bound), np.zeros_like(width)
    return [Lines(root * pull + cut, zeros, 1.0 / width, root[:, None], zeros) for pull in pulls]


def solve_opportunity(
    score: Array,
    code: Array,
    n_groups: int,
    *,
    width: float,
    rate: float,
    budget: float,
    cut: float = 0.0,
    weight: Array | None = None,
    problem: ThresholdProblem | None = None,
    lines: Sequence[Line] | None = None,
) -> Solution:
    """Hold the true positive rates of all groups, as the scores estimate them, near one rate.

        min_h (γ/2) E h² − E[h f]   s.t.  |E[η h | k]/E[η | k] − ρ| ≤ ε/2,   η = (1 + f)/2

    so h = clip((f − w_k (1 + f)/2)/γ, 0, 1): a ramp whose threshold w/(2 − w) and slope
    (1 − w/2)/γ both depend on the group. Ours, after the paper's Appendix E. A group whose scores
    are all −1 has the rate NaN and is not bounded; the others can always meet their bounds. Cost,
    coins at γ = 0, ``lines`` and errors as in `solve_covariance`; see `odds.propose_rates` for ρ.
    """
    settings = (("width", width), ("rate", rate), ("budget", budget))
    rows = read_rows(score, code, n_groups, weight, *settings)
    xp = array_namespace(rows.score)
    if width > 0:
        problem = problem or build_problem(rows.score, rows.code, n_groups, rows.weight)
        scales = mean_eta(problem)
        if lines is None:
            drawn = draw_opportunity(problem, np.array([width]), np.array([rate]), budget, cut)
            lines = [each.pick(0) for each in drawn]
    else:
        lines, scales = [], np.zeros(n_groups)
        for group, (positions, share) in enumerate(rows.groups()):
            f = xp.take(rows.score, positions)
            eta = (1.0 + f) / 2.0
            scales[group] = float(xp.sum(share * eta))
            scale = float(scales[group]) or 1.0
            bounds = (rate - budget / 2, rate + budget / 2)
            root = _find_threshold(f - cut, eta / scale, share, *bounds)
            w = root.value / scale
            threshold = (2.0 * cut + w) / (2.0 - w)
            line = _draw_threshold(f, eta / scale, root.value, root.coins[0], threshold, cut)
            lines.append(replace(line, multiplier=(w,)))
    return conclude(
        rows, lines, rows.code, [(1.0 + rows.score) / 2.0], scales[:, None],
        np.array([line.multiplier for line in lines]),
        width=width, targets=[rate], half=budget / 2, cut=cut,
    )  # fmt: skip


def draw_opportunity(
    problem: ThresholdProblem, width: np.ndarray, rate: np.ndarray, budget: float, cut: float = 0.0
) -> list[Lines]:
    """Return the optimal lines of each group for candidates (G,) of widths > 0 and rates."""
    pairs = zip(problem.segments, mean_eta(problem).tolist(), strict=True)
    return [_solve_group(group.share, p, width, rate, budget / 2, cut) for group, p in pairs]


def _solve_group(
    segment: Segment, scale: float, width: np.ndarray, rate: np.ndarray, half: float, cut: float
) -> Lines:
    """Return the lines of one group, whose E[η] is ``scale``."""

    def mean(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen = integrate(segment, -(w + 2.0 * cut) / (2.0 * width), (1.0 - w / 2.0) / width)
        steep = (seen.mass + 2.0 * seen.moment + seen.square) / (4.0 * width)
        return (seen.chosen + seen.pull) / (2.0 * scale), -steep / scale

    zeros = np.zeros_like(width)
    w = find_roots(mean, rate - half, rate + half) if scale > 0 else zeros
    centre = (2.0 * cut + w) / (2.0 - w)
    return Lines(centre, zeros, (1.0 - w / 2.0) / width, w[:, None], zeros)


def mean_eta(problem: ThresholdProblem) -> np.ndarray:
    """Return E[η | k] of every group."""
    means = [float(segment.moment[-1]) / segment.total for segment in problem.segments]
    return (1.0 + np.array(means)) / 2.0


class _Root(NamedTuple):
    """The multiplier w nearest to 0 that meets a criterion at width 0.

    ``coins`` are for ties with z > 0 and with z < 0.
    """

    value: float
    coins: tuple[float, float] = (0.0, 0.0)


def _find_threshold(f: Array, z: Array, share: Array, low: float, high: float) -> _Root:
    """Return the w nearest to 0 with low ≤ Σ share z h ≤ high, h = 1{f > w z} with coins.

    The mean falls in w: the case of a mean below ``low`` at 0 is the mirror image of the other.
    """
    xp = array_namespace(f)
    start, moving = float(xp.sum(share * z * xp.astype(f > 0, f.dtype))), z != 0
    if start < low - TOLERANCE:
        mirrored = _find_threshold(f, -z, share, -high, -low)
        return _Root(-mirrored.value, mirrored.coins[::-1])
    if start <= high + TOLERANCE or not bool(xp.any(moving)):
        return _Root(0.0)
    return _find_coin(f[moving], z[moving], share[moving], high)


def _find_coin(f: Array, z: Array, share: Array, high: float) -> _Root:
    """Return the root w ≥ 0 at width 0, where the mean falls in steps.

    As w passes the ratio f/z of a row, h falls from 1 to 0 where z > 0, and rises from 0 to 1
    where z < 0; in the limit of γ → 0 all falls come before all rises.
    """
    xp = array_namespace(f)
    ratio, pull, positive = f / z, share * z, z > 0

    def add(chosen: Array) -> float:
        return float(xp.sum(xp.where(chosen, pull, xp.zeros_like(pull))))

    def after(w: float) -> float:
        return add((positive & (ratio > w)) | (~positive & (ratio <= w)))

    breaks = xp.sort(ratio[ratio >= 0])
    w = float(breaks[_search(breaks, after, high + TOLERANCE)])
    tied = ratio == w
    middle = add((positive & (ratio > w)) | (~positive & (ratio < w)))
    gain, loss = add(tied & positive), -add(tied & ~positive)
    if middle <= high + TOLERANCE:
        coins = (min(1.0, max(0.0, high - middle) / gain) if gain > 0 else 0.0, 0.0)
    else:
        coins = (0.0, min(1.0, (middle - high) / loss) if loss > 0 else 0.0)
    return _Root(w, coins)


def _search(breaks: Array, mean: Callable[[float], float], limit: float) -> int:
    """Return the first breakpoint whose mean, which falls, is at most ``limit``, else the last."""
    first, last = 0, int(breaks.shape[0]) - 1
    while first < last:
        middle = (first + last) // 2
        if mean(float(breaks[middle])) <= limit:
            last = middle
        else:
            first = middle + 1
    return first


def _draw_threshold(
    f: Array, z: Array, w: float, coin: float, threshold: float, cut: float
) -> Line:
    """Return the threshold with a coin of rows whose z have one sign.

    Its centre is the score that ties, or else separates the same rows as w z does: rounding in w z
    must not move a row across it.
    """
    xp = array_namespace(f)
    free = z == 0
    ratio = (f - cut) / xp.where(free, xp.ones_like(z), z)
    above = (free & (f > cut)) | ((z > 0) & (ratio > w)) | ((z < 0) & (ratio < w))
    tied = ~free & (ratio == w)
    if bool(xp.any(tied)):
        return Line(float(xp.min(f[tied])), coin, math.inf, (w,))
    floor = float(xp.max(f[~above])) if bool(xp.any(~above)) else -2.0
    ceiling = float(xp.min(f[above])) if bool(xp.any(above)) else 2.0
    centre = threshold if floor <= threshold < ceiling else floor
    return Line(centre, 0.0, math.inf, (w,))
