"""Euclidean projections onto the sets that the multipliers and row weights live in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat

from fairfrontier.runtime.arrays import array_namespace

Array = Any

# Newton needs some ten passes; with a bisection at least every fourth the bracket closes in these.
MOST_PASSES = 400
# Shorter rows are sorted: all at once in fewer operations than Newton has.
SHORT = 64
# Columns of so many entries are sorted by exchanges of whole rows.
FEW = 6


def project_simplex(point: Array, total: Array | float = 1.0) -> Array:
    """Project onto the simplex: argmin ‖p − x‖² s.t. p ≥ 0, Σ p = z.

    p_i = (x_i − τ)₊ with the τ that makes the sum z.

    Parameters
    ----------
    point : float array, shape (..., n)
        x, finite.
    total : float or float array, shape (...)
        z ≥ 0.

    Returns
    -------
    float array, shape (..., n)
        In the dtype of ``point``.

    Notes
    -----
    O(n) a pass; Newton on the piecewise linear sum ends on the root of its last piece after some
    ten passes. Only short rows are sorted.

    References
    ----------
    J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra. Efficient projections onto the l1-ball for
    learning in high dimensions. ICML 2008, figure 1. L. Condat. Fast projection onto the simplex
    and the l1 ball. Mathematical Programming 158, 2016.
    """
    return _by_row(_simplex, point, _spread(point, total))


def project_leading_simplex(point: Array) -> Array:
    """Project onto the simplex along the leading axis: ``project_simplex`` for many short columns.

    Parameters
    ----------
    point : float array, shape (m, ...)
        x, finite; m of a few.

    Returns
    -------
    float array, shape (m, ...)

    Notes
    -----
    O(m²) passes over an axis of all columns, which are sorted by exchanges: with few entries a
    column this costs less than a sort of each.
    """
    xp = array_namespace(point)
    m = int(point.shape[0])
    if m > FEW:
        columns = xp.moveaxis(point, 0, -1)
        return xp.moveaxis(project_simplex(columns), -1, 0)
    ordered = [point[place, ...] for place in range(m)]
    for last in range(m - 1, 0, -1):
        for place in range(last):
            one, two = ordered[place], ordered[place + 1]
            ordered[place], ordered[place + 1] = xp.maximum(one, two), xp.minimum(one, two)
    # Seen from the largest, as in _find_top; the s that the first 1, 2, … entries would need.
    top = ordered[0]
    depth = total = 1.0 + 0.0 * top
    for count in range(1, m):
        total = total - (ordered[count] - top)
        depth = xp.minimum(depth, total / (count + 1))
    return xp.maximum(point - (top - depth), 0.0)


def project_capped_simplex(point: Array, radius: Array | float) -> Array:
    """Project onto {λ ≥ 0, Σ λ ≤ R}.

    Parameters
    ----------
    point : float array, shape (..., n)
    radius : float or float array, shape (...)
        R ≥ 0.

    Returns
    -------
    float array, shape (..., n)

    Notes
    -----
    The positive part where its sum stays within R; else the simplex Σ λ = R.
    """
    xp = array_namespace(point)
    cap = _spread(point, radius)
    positive = xp.maximum(point, 0.0)
    within = xp.sum(positive, axis=-1, keepdims=True) <= cap
    return xp.where(within, positive, _by_row(_simplex, point, cap))


def project_l1_ball(point: Array, centre: Array, radius: Array | float) -> Array:
    """Project onto the L1 ball: argmin ‖p − x‖² s.t. ‖p − c‖₁ ≤ r.

    Parameters
    ----------
    point, centre : float array, shape (..., n)
        x and c; ``centre`` may broadcast.
    radius : float or float array, shape (...)
        r ≥ 0.

    Returns
    -------
    float array, shape (..., n)

    References
    ----------
    Duchi et al., Efficient projections onto the l1-ball, ICML 2008, section 4.
    """
    xp = array_namespace(point, centre)
    offset = point - centre
    size = xp.abs(offset)
    cap = _spread(size, radius)
    kept = xp.where(xp.sum(size, axis=-1, keepdims=True) <= cap, size, _by_row(_simplex, size, cap))
    return centre + xp.sign(offset) * kept


def project_l1_simplex(point: Array, centre: Array, radius: Array | float) -> Array:
    """Project onto the L1 ball within the simplex: p ≥ 0, Σ p = 1, ‖p − c‖₁ ≤ r.

    With the centre c in the simplex, gains and losses of a feasible p both sum to at most r/2, and
    where that binds they separate: for some a ≥ b

        p_i − c_i = (x_i − c_i − a)₊ − min{c_i, (c_i − x_i + b)₊},
        Σ (x_i − c_i − a)₊ = r/2,  Σ min{c_i, (c_i − x_i + b)₊} = r/2,

    where (a + b)/2 is the multiplier of the sum and (a − b)/2 that of the ball. When the roots come
    out with a < b, the ball does not bind and the projection onto the simplex is the answer.

    Parameters
    ----------
    point : float array, shape (..., n)
        x, finite.
    centre : float array, shape (..., n)
        c ≥ 0 with Σ c = 1; may broadcast.
    radius : float or float array, shape (...)
        r = 2γ ≥ 0.

    Returns
    -------
    float array, shape (..., n)

    Notes
    -----
    O(n) a pass and some ten passes for each root. Exact up to rounding of x: roots of
    piecewise linear functions, found by Newton within a bracket.

    References
    ----------
    S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta, M. I. Jordan. Robust optimization for
    fairness with noisy protected groups. NeurIPS 2020, equation 10 and algorithm 2, line 6.
    """
    xp = array_namespace(point, centre)
    point, centre = xp.broadcast_arrays(point, centre)
    return _by_row(_l1_simplex, point, centre, _spread(point, radius) / 2)


def _spread(point: Array, value: Array | float) -> Array:
    """Return the value with one entry for each row of the point, shape (..., 1)."""
    xp = array_namespace(point)
    device = array_api_compat.device(point)
    value = xp.asarray(value, dtype=point.dtype, device=device)[..., None]
    return xp.broadcast_to(value, (*point.shape[:-1], 1))


def _by_row(function: Callable[..., Array], *arrays: Array) -> Array:
    """Apply a function of (..., n) arrays, in NumPy one row at a time.

    A row fits into the cache of a core, all rows do not: on the processor this is some five times
    as fast. A device takes all rows at once.
    """
    xp = array_namespace(*arrays)
    lead = arrays[0].shape[:-1]
    short = arrays[0].shape[-1] <= SHORT
    if short or not lead or not array_api_compat.is_numpy_namespace(xp):
        return function(*arrays)
    out = xp.empty(arrays[0].shape, dtype=arrays[0].dtype)
    flat = [xp.reshape(each, (-1, each.shape[-1])) for each in arrays]
    rows = xp.reshape(out, (-1, out.shape[-1]))
    for row in range(rows.shape[0]):
        rows[row] = function(*(each[row] for each in flat))
    return out


def _simplex(x: Array, total: Array) -> Array:
    return _find_top(x, total)[0]


def _l1_simplex(x: Array, centre: Array, half: Array) -> Array:
    xp = array_namespace(x)
    offset = x - centre
    gain, upper = _find_top(offset, half)
    lower = _find_bottom(offset, x, centre, half)
    loss = xp.minimum(xp.maximum(lower - offset, 0.0), centre)
    # The ball holds the whole simplex from r = 2 on.
    free = (upper < lower) | (half >= 1)
    held = xp.maximum(centre + gain - loss, 0.0)
    if not bool(xp.any(free)):
        return held
    return xp.where(free, _simplex(x, xp.ones_like(half)), held)


def _find_top(x: Array, total: Array) -> tuple[Array, Array]:
    """Return (x − τ)₊ with Σ (x − τ)₊ = z, and τ."""
    xp = array_namespace(x)
    n = x.shape[-1]
    top = xp.max(x, axis=-1, keepdims=True)
    # What counts lies within z of the largest: seen from there, rounding is relative to z.
    below = x - top
    if n <= SHORT:
        depth = _sort_depth(below, total)
        return xp.maximum(below + depth, 0.0), top - depth

    def evaluate(at: Array) -> tuple[Array, Array]:
        excess = xp.maximum(below + at, 0.0)
        slope = xp.count_nonzero(excess, axis=-1, keepdims=True)
        return xp.sum(excess, axis=-1, keepdims=True), xp.astype(slope, x.dtype)

    # The largest alone would sum to z at z, all rows together at the other.
    start = xp.minimum(total, (total - xp.sum(below, axis=-1, keepdims=True)) / n)
    depth = _find_root(evaluate, start, xp.zeros_like(total), start, total)
    return xp.maximum(below + depth, 0.0), top - depth


def _sort_depth(below: Array, total: Array) -> Array:
    """Return s with Σ (x + s)₊ = z for short rows x with a maximum of 0, from a sort."""
    xp = array_namespace(below)
    device = array_api_compat.device(below)
    ordered = xp.sort(below, axis=-1, descending=True)
    count = xp.arange(1, below.shape[-1] + 1, dtype=below.dtype, device=device)
    # The s that the first 1, 2, … entries alone would need; it falls while an entry is below 0.
    depth = (total - xp.cumulative_sum(ordered, axis=-1)) / count
    return xp.min(depth, axis=-1, keepdims=True)


def _find_bottom(offset: Array, x: Array, centre: Array, total: Array) -> Array:
    """Return b with Σ min{c, (b − (x − c))₊} = z, for z ≤ Σ c."""
    xp = array_namespace(x)
    held = centre > 0
    if x.ndim == 1:
        # The rows of one group are few: only they can lose.
        offset, x, centre = offset[held], x[held], centre[held]
        held = centre > 0
    infinite = xp.asarray(xp.inf, dtype=x.dtype, device=array_api_compat.device(x))
    low = xp.min(xp.where(held, offset, infinite), axis=-1, keepdims=True)
    high = xp.max(xp.where(held, x, -infinite), axis=-1, keepdims=True)

    def evaluate(at: Array) -> tuple[Array, Array]:
        risen = at - offset
        slope = xp.count_nonzero((risen > 0) & (risen < centre), axis=-1, keepdims=True)
        filled = xp.minimum(xp.maximum(risen, 0.0), centre)
        return xp.sum(filled, axis=-1, keepdims=True), xp.astype(slope, x.dtype)

    start = low + xp.clip(total, 0, 1) * (high - low)
    return _find_root(evaluate, start, low, high, total)


def _find_root(
    evaluate: Callable[[Array], tuple[Array, Array]],
    start: Array,
    low: Array,
    high: Array,
    target: Array,
) -> Array:
    """Return b in [low, high] where an increasing, piecewise linear function reaches the target.

    ``evaluate`` gives value and slope. A Newton step that leaves the bracket, and every fourth
    one, is replaced by its middle.
    """
    xp = array_namespace(start)
    scale = xp.maximum(xp.abs(low), xp.abs(high))
    rounding = 2 * xp.finfo(start.dtype).eps * scale
    at = start
    for number in range(1, MOST_PASSES):
        value, slope = evaluate(at)
        gap = target - value
        low = xp.where(gap >= 0, at, low)
        high = xp.where(gap <= 0, at, high)
        step = gap / xp.where(slope > 0, slope, xp.ones_like(slope))
        new = at + step
        rising = slope > 0
        done = (gap == 0) | (rising & (xp.abs(step) <= rounding)) | (high - low <= rounding)
        if bool(xp.all(done)):
            break
        inside = rising & (new > low) & (new < high)
        if number % 4 == 0:
            inside = inside & (xp.abs(step) <= (high - low) / 4)
        at = xp.where(done, at, xp.where(inside, new, (low + high) / 2))
    return at
