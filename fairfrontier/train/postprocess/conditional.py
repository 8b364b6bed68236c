"""Debiasing by other criteria than parity: covariance inside subgroups, and equal opportunity.

    min_{0≤h≤1} (γ/2) E h² − E[h f]   s.t.  E[z h | k] between two bounds, for every group k

for scores f ∈ [−1, 1], an estimate of 2η − 1 with η = P(Y=1|x). Each group is a separate problem,
solved by h = clip((f − w z)/γ, 0, 1): the mean of z h falls as the multiplier w grows, whatever
the signs of z, so w is 0 where that meets the bounds, and else the root nearest to 0 of the mean =
the nearest bound. It lies between two neighbouring breakpoints f/z or (f − γ)/z, where the mean is
linear: exact up to rounding.

`odds.solve_odds` has two such constraints per group.

References
----------
I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning models.
NeurIPS 2021, section E.1, equation 15. M. Hardt, E. Price, N. Srebro. Equality of opportunity in
supervised learning. NIPS 2016, definition 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.train.postprocess.criterion import Line, Solution, conclude, cross, read_rows
from fairfrontier.train.postprocess.threshold import TOLERANCE

Array = Any


def solve_covariance(
    score: Array,
    member: Array,
    subgroup: Array,
    n_subgroups: int,
    *,
    width: float,
    budget: float,
    weight: Array | None = None,
) -> Solution:
    """Bound the covariance of the decision and of membership in S inside each subgroup.

        min_h (γ/2) E h² − E[h f]   s.t.  |E[(1_S − ρ_k) h | k]| ≤ ε,   ρ_k = E[1_S | k]      (15)

    so h = clip((f − w_k (1_S − ρ_k))/γ, 0, 1): the threshold is w_k (1 − ρ_k) for members and
    −w_k ρ_k for others. The bound ε is on the covariance itself (the paper has ε here, not ε/2) and
    can always be met. At γ = 0 each threshold may carry a coin, the limit of γ → 0; where a member
    and another row tie at w up to rounding, either may toss it, with the same objective.

    O(n log n + n K): a sort of the breakpoints of each group, and one pass over its rows for each
    step of a binary search among them. A subgroup without members, or of members only, has
    covariance 0 under any rule. ValueError is raised as by `read_rows`.
    """
    rows = read_rows(score, subgroup, n_subgroups, weight, ("width", width), ("budget", budget))
    xp = array_namespace(rows.score)
    inside = member if weight is None else member[weight > 0]
    lines, z, iterations = [], xp.astype(inside, xp.float64), 0
    for group, (positions, share) in enumerate(rows.groups()):
        own, f = xp.take(inside, positions), xp.take(rows.score, positions)
        rho = float(xp.sum(xp.where(own, share, xp.zeros_like(share))))
        centred = xp.where(own, xp.full_like(share, 1.0 - rho), xp.full_like(share, -rho))
        root = _find_root(f, centred, share, width, -budget, budget)
        iterations += root.iterations
        for cell, pull, coin in ((~own, -rho, root.coins[1]), (own, 1.0 - rho, root.coins[0])):
            threshold = root.value * pull
            lines.append(_draw_line(f[cell], centred[cell], root.value, coin, width, threshold))
        z = xp.where(rows.code == group, z - rho, z)
    return conclude(
        rows, lines, cross(inside, rows.code), [z], np.ones((n_subgroups, 1)),
        np.array([line.multiplier for line in lines[::2]]),
        width=width, targets=[0.0], half=budget, iterations=iterations,
    )  # fmt: skip


def solve_opportunity(
    score: Array,
    code: Array,
    n_groups: int,
    *,
    width: float,
    rate: float,
    budget: float,
    weight: Array | None = None,
) -> Solution:
    """Hold the true positive rates of all groups, as the scores estimate them, near one rate.

        min_h (γ/2) E h² − E[h f]   s.t.  |E[η h | k]/E[η | k] − ρ| ≤ ε/2,   η = (1 + f)/2

    so h = clip((f − w_k (1 + f)/2)/γ, 0, 1): a ramp whose threshold w/(2 − w) and slope
    (1 − w/2)/γ both depend on the group. Ours, after the paper's Appendix E. A group whose scores
    are all −1 has the rate NaN and is not bounded; the others can always meet their bounds. Cost,
    coins at γ = 0 and errors as in `solve_covariance`; see `odds.propose_rates` for ρ.
    """
    settings = (("width", width), ("rate", rate), ("budget", budget))
    rows = read_rows(score, code, n_groups, weight, *settings)
    xp = array_namespace(rows.score)
    lines, scales, iterations = [], [], 0
    for positions, share in rows.groups():
        f = xp.take(rows.score, positions)
        eta = (1.0 + f) / 2.0
        scales.append([float(xp.sum(share * eta))])
        scale = scales[-1][0] or 1.0
        root = _find_root(f, eta / scale, share, width, rate - budget / 2, rate + budget / 2)
        iterations += root.iterations
        w = root.value / scale
        line = _draw_line(f, eta / scale, root.value, root.coins[0], width, w / (2.0 - w))
        slope = (1.0 - w / 2.0) / width if width > 0 else math.inf
        lines.append(Line(line.centre, line.level, slope, (w,)))
    return conclude(
        rows, lines, rows.code, [(1.0 + rows.score) / 2.0], np.array(scales),
        np.array([line.multiplier for line in lines]),
        width=width, targets=[rate], half=budget / 2, iterations=iterations,
    )  # fmt: skip


class _Root(NamedTuple):
    """The multiplier w nearest to 0 that meets a criterion.

    At width 0 ``coins`` are for ties with z > 0 and with z < 0.
    """

    value: float
    iterations: int
    coins: tuple[float, float] = (0.0, 0.0)


def _find_root(f: Array, z: Array, share: Array, width: float, low: float, high: float) -> _Root:
    """Return the w nearest to 0 with low ≤ Σ share z h ≤ high, h = clip((f − w z)/γ, 0, 1).

    The mean falls in w. Where it is above ``high`` at 0, find the first breakpoint w > 0 with a
    mean within ``high``; the other case is its mirror image.
    """
    xp = array_namespace(f)

    def mean(w: float) -> float:
        h = xp.clip((f - w * z) / width, 0.0, 1.0) if width > 0 else xp.astype(f > 0, f.dtype)
        return float(xp.sum(share * z * h))

    start, moving = mean(0.0), z != 0
    if start < low - TOLERANCE:
        mirrored = _find_root(f, -z, share, width, -high, -low)
        return _Root(-mirrored.value, mirrored.iterations, mirrored.coins[::-1])
    if start <= high + TOLERANCE or not bool(xp.any(moving)):
        return _Root(0.0, 1)
    f, z, share = f[moving], z[moving], share[moving]
    if width == 0:
        return _find_coin(f, z, share, high)
    breaks = xp.concat([f / z, (f - width) / z])
    breaks = xp.sort(breaks[breaks > 0])
    position, iterations = _search(breaks, mean, high + TOLERANCE)
    left = float(breaks[position - 1]) if position else 0.0
    right = float(breaks[position])
    top, bottom = mean(left), mean(right)
    fall = min(1.0, (top - high) / (top - bottom)) if top > bottom else 1.0
    return _Root(left + fall * (right - left), iterations + 3)


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
    position, iterations = _search(breaks, after, high + TOLERANCE)
    w = float(breaks[position])
    tied = ratio == w
    middle = add((positive & (ratio > w)) | (~positive & (ratio < w)))
    gain, loss = add(tied & positive), -add(tied & ~positive)
    if middle <= high + TOLERANCE:
        coins = (min(1.0, max(0.0, high - middle) / gain) if gain > 0 else 0.0, 0.0)
    else:
        coins = (0.0, min(1.0, (middle - high) / loss) if loss > 0 else 0.0)
    return _Root(w, iterations + 2, coins)


def _search(breaks: Array, mean: Callable[[float], float], limit: float) -> tuple[int, int]:
    """Return the first breakpoint whose mean, which falls, is at most ``limit``, else the last.

    The second number counts the means evaluated.
    """
    first, last, count = 0, int(breaks.shape[0]) - 1, 0
    while first < last:
        middle = (first + last) // 2
        count += 1
        if mean(float(breaks[middle])) <= limit:
            last = middle
        else:
            first = middle + 1
    return first, count


def _draw_line(f: Array, z: Array, w: float, coin: float, width: float, threshold: float) -> Line:
    """Return the line of rows whose z have one sign: h = clip((f − w z)/γ, 0, 1) or its limit.

    At width 0 the centre is the score that ties, or else separates the same rows as w z does:
    rounding in w z must not move a row across it.
    """
    if width > 0:
        return Line(threshold, 0.0, 1.0 / width, (w,))
    xp = array_namespace(f)
    free = z == 0
    ratio = f / xp.where(free, xp.ones_like(z), z)
    above = (free & (f > 0)) | ((z > 0) & (ratio > w)) | ((z < 0) & (ratio < w))
    tied = ~free & (ratio == w)
    if bool(xp.any(tied)):
        return Line(float(xp.min(f[tied])), coin, math.inf, (w,))
    floor = float(xp.max(f[~above])) if bool(xp.any(~above)) else -2.0
    ceiling = float(xp.min(f[above])) if bool(xp.any(above)) else 2.0
    centre = threshold if floor <= threshold < ceiling else floor
    return Line(centre, 0.0, math.inf, (w,))
