"""The worst distribution of a group within a total variation ball around its noisy rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import array_api_compat

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.runtime.errors import DataError
from fairfrontier.train.noisy.rate import RateCells, sum_cells

Array = Any
# Dinkelbach's steps reach the next linear piece each time; there are few pieces.
MOST_RATIOS = 200


@dataclass(frozen=True, eq=False)
class BallMaximum:
    """The worst p̃_j of every group of every model, as a change of p̂_j.

    Rows of the noisy group with h below ``cut`` lose all mass, rows at ``cut`` keep the share
    ``kept``, rows above it keep all; the row ``target``, shape (M,), which has the largest h, gains
    what is ``moved``, at most γ_j. ``value`` is max_p̃ Σ_i p̃_i h_i. These are of shape (M, m);
    ``centre`` holds the noisy group at the centre of each ball.
    """

    value: Array
    moved: Array
    cut: Array
    kept: Array
    target: Array
    centre: tuple[int, ...]

    def combine(self, multiplier: Array, h: Array, codes: Array, weight: Array) -> Array:
        """Return Σ_j λ_j p̃_j, the row weights of a gradient, shape (M, n), for λ of shape (M, m).

        ``h``, ``codes`` and ``weight`` are those of the maximum. By the envelope theorem ∇_θ Σ_j
        λ_j max_p̃ Σ_i p̃_i h_i(θ) = Σ_i (Σ_j λ_j p̃_ji) ∇_θ h_i wherever the maximiser is unique;
        elsewhere it is a subgradient of a function that is convex in h.
        """
        xp = array_namespace(h)
        weight = xp.astype(weight, h.dtype)
        total, gain = xp.zeros_like(h), 0.0 * multiplier[:, :1]
        for j, noisy in enumerate(self.centre):
            factor = multiplier[:, j : j + 1]
            own = xp.astype(codes == noisy, h.dtype) * weight
            factor_own = factor / xp.sum(own, axis=-1, keepdims=True)
            cut, kept = self.cut[:, j : j + 1], self.kept[:, j : j + 1]
            share = xp.where(h > cut, factor_own, xp.where(h == cut, factor_own * kept, 0.0))
            total = total + own * share
            gain = gain + factor * self.moved[:, j : j + 1]
        rows = xp.arange(h.shape[-1], dtype=self.target.dtype, device=array_api_compat.device(h))
        return total + xp.where(rows == self.target[:, None], gain, 0.0)


def maximise_over_ball(
    h: Array, codes: Array, level: Array, weight: Array, centre: Sequence[int] | None = None
) -> BallMaximum:
    """Solve the inner problem of distributionally robust constraints, for every group.

    max_p̃ Σ_i p̃_i h_i  s.t.  p̃ ≥ 0, Σ p̃ = 1, ‖p̃ − p̂_j‖₁ ≤ 2γ_j, p̃ ≪ p

    where p̂_j is the distribution on the rows with Ĝ = j. Mass γ_j moves from the rows of Ĝ = j with
    the smallest h to the row with the largest h of all, never from rows that have it already.

    Parameters
    ----------
    h : float array, shape (M, n)
        What each row contributes, per model.
    codes : integer array, shape (n,)
        Noisy groups.
    level : float array, shape (m,) or (M, m)
        γ_j ≥ 0; from 1 on all mass may move.
    weight : float array, shape (n,)
        Case weights ≥ 0; p is supported where they are positive.
    centre : sequence of int, optional
        Noisy group at the centre of each true group's ball; the group's own by default, which
        needs as many noisy groups as true ones (appendix B.4 for other numbers). DataError when no
        row of positive weight has it.

    Notes
    -----
    O(n log n) per model and group, by a sort. Ties
    at the cut share the loss evenly. Exact up to rounding. Wang et al., NeurIPS 2020, equations 3,
    9.
    """
    xp = array_namespace(h)
    centres = _find_centres(centre, level)
    weight = xp.astype(weight, h.dtype)
    members = [(codes == k) & (weight > 0) for k in centres]
    for k, own in zip(centres, members, strict=True):
        _refuse_absent(k, own)
    models = int(h.shape[0])
    level = xp.broadcast_to(xp.astype(level, h.dtype), (models, len(centres)))
    supported = xp.where(weight > 0, h, -xp.inf * xp.ones_like(h))
    target = xp.argmax(supported, axis=-1)
    top = xp.max(supported, axis=-1)
    moves = [
        _move(h[model, :][own], weight[own], level[model, j], top[model])
        for model in range(models)
        for j, own in enumerate(members)
    ]
    value, moved, cut, kept = (
        xp.reshape(xp.stack(arrays), (models, len(centres))) for arrays in zip(*moves, strict=True)
    )
    return BallMaximum(value, moved, cut, kept, target, centres)


def bound_rate_of_cells(
    cells: Array, level: Array, rate: RateCells, centre: Sequence[int] | None = None
) -> tuple[Array, Array]:
    """Return the smallest and largest rate of groups over their balls, for deterministic decisions.

    Mass moves from good to bad rows, or back, and the denominator stays: with a = P(good | Ĝ=j)
    and b = P(bad | Ĝ=j) the rate lies between max(0, a − γ)/(a + b) and min(1, (a + γ)/(a + b)).

    ``cells``, (..., m̂, 4), is from ``count_cells``; ``level``, (..., m), is γ_j; ``centre`` is as
    in ``maximise_over_ball``. Both limits have shape (..., m), NaN where no p̃ in the ball has a row
    of the denominator. For randomised decisions, whose rows differ within a cell,
    ``bound_rate_over_ball`` is exact and this is the looser bound of theorem 1, cut to [0, 1].
    """
    xp = array_namespace(cells)
    centres = _find_centres(centre, level)
    good_all = xp.sum(sum_cells(cells, rate.good), axis=-1)[..., None]
    bad_all = xp.sum(sum_cells(cells, rate.bad), axis=-1)[..., None]
    share = cells / xp.sum(cells, axis=-1, keepdims=True)
    good = xp.stack([sum_cells(share[..., k, :], rate.good) for k in centres], axis=-1)
    bad = xp.stack([sum_cells(share[..., k, :], rate.bad) for k in centres], axis=-1)
    total = good + bad
    among = xp.where(total > 0, total, xp.ones_like(total))
    nan = xp.nan * total
    one = xp.ones_like(total)
    reach = level > 0
    low = xp.where(total > 0, xp.maximum(good - level, 0.0) / among, xp.where(reach, 0 * one, nan))
    high = xp.where(total > 0, xp.minimum((good + level) / among, 1.0), xp.where(reach, one, nan))
    # Without any bad row every rate is 1, and without a good one 0.
    defined = (total > 0) | (reach & (good_all + bad_all > 0))
    low = xp.where(bad_all > 0, low, xp.where(defined, one, nan))
    high = xp.where(good_all > 0, high, xp.where(defined, 0 * one, nan))
    return low, high


def bound_rate_over_ball(
    outcome: Array,
    among: Array,
    codes: Array,
    level: Array,
    weight: Array,
    centre: Sequence[int] | None = None,
) -> tuple[Array, Array]:
    """Return the smallest and largest rate of every group over its ball, for any decisions.

    min and max over p̃ of  Σ_i p̃_i d_i a_i / Σ_i p̃_i d_i

    Parameters
    ----------
    outcome : float array, shape (n,)
        a ∈ [0, 1], how much a row counts in the numerator (the probability of the decision).
    among : bool array, shape (n,)
        d, whether it counts in the denominator.
    codes, level, weight, centre
        As in ``maximise_over_ball``, for one model.

    Returns
    -------
    low, high : float array, shape (m,)
        NaN where no p̃ in the ball has a row of the denominator.

    Notes
    -----
    Dinkelbach's iteration (Management Science 13, 1967): the rate ρ is least when max_p̃ Σ p̃_i d_i
    (ρ − a_i) = 0, and each step lowers ρ to the rate of the maximiser. A few steps of
    ``maximise_over_ball``'s cost.
    """
    low = _least_rate(outcome, among, codes, level, weight, centre)
    high = 1.0 - _least_rate(1.0 - outcome, among, codes, level, weight, centre)
    return low, high


def _least_rate(
    outcome: Array,
    among: Array,
    codes: Array,
    level: Array,
    weight: Array,
    centre: Sequence[int] | None,
) -> Array:
    xp = array_namespace(outcome)
    mass = xp.astype(weight, outcome.dtype)
    counts = xp.astype(among, outcome.dtype)
    outcomes = outcome[among & (mass > 0)]
    rates = []
    for j, k in enumerate(_find_centres(centre, level)):
        own = (codes == k) & (mass > 0)
        _refuse_absent(k, own)
        share = mass[own] / xp.sum(mass[own])
        a, d = outcome[own], counts[own]
        below = xp.sum(share * d)
        if int(outcomes.shape[0]) == 0 or (float(below) == 0 and float(level[j]) <= 0):
            rates.append(xp.nan * below)
            continue
        least = xp.min(outcomes)
        start = xp.sum(share * d * a) / below if float(below) > 0 else least
        rates.append(_divide_least(a, d, share, level[j], least, start))
    return xp.stack(rates)


def _divide_least(
    a: Array, d: Array, share: Array, level: Array, least: Array, rate: Array
) -> Array:
    """Return the least ratio of one group, starting from the ratio ``rate`` of one of its p̃."""
    xp = array_namespace(a)
    for _ in range(MOST_RATIOS):
        values = d * (rate - a)
        top = xp.maximum(rate - least, 0.0 * rate)
        value, moved, cut, kept = _move(values, share, level, top)
        keep = share * xp.where(values > cut, 1.0 + 0.0 * a, xp.where(values == cut, kept, 0.0 * a))
        # The mass goes to a row of the denominator with the least outcome.
        gained = moved if float(rate) > float(least) else 0.0 * moved
        below = xp.sum(keep * d) + gained
        if float(value) <= 0 or float(below) <= 0:
            break
        new = (xp.sum(keep * d * a) + gained * least) / below
        if float(new) >= float(rate):
            break
        rate = new
    return rate


def _move(
    values: Array, mass: Array, level: Array, top: Array
) -> tuple[Array, Array, Array, Array]:
    """Move ``level`` from the least values of one group to a row of value ``top``.

    Returns value, moved, cut and kept, as in `BallMaximum`.
    """
    xp = array_namespace(values)
    n = int(values.shape[0])
    level = xp.clip(level, 0.0, 1.0)
    share = mass / xp.sum(mass)
    order = xp.argsort(values)
    passed = xp.cumulative_sum(xp.take(share, order)) <= level
    cut = values[order[min(int(xp.count_nonzero(passed)), n - 1)]]
    zero = xp.zeros_like(values)
    lost = xp.sum(xp.where(values < cut, share, zero))
    tied = xp.sum(xp.where(values == cut, share, zero))
    kept = xp.clip(1.0 - (level - lost) / tied, 0.0, 1.0)
    kept = xp.where(cut >= top, xp.ones_like(kept), kept)
    moved = lost + tied * (1.0 - kept)
    remaining = xp.where(values > cut, share * values, zero)
    value = xp.sum(remaining) + tied * kept * cut + moved * top
    return value, moved, cut, kept


def _find_centres(centre: Sequence[int] | None, level: Array) -> tuple[int, ...]:
    """Return the noisy group at the centre of every ball: by default the group's own."""
    return tuple(range(int(level.shape[-1]))) if centre is None else tuple(map(int, centre))


def _refuse_absent(group: int, rows: Array) -> None:
    if not bool(array_namespace(rows).any(rows)):
        raise DataError(
            f"No row has the noisy group {group}.",
            "Merge it with another group, or leave it out of the constraints.",
        )
