"""Projections onto simplices, and the roots that projections onto balls of rows need."""

from __future__ import annotations

from typing import Any

import array_api_compat

from fairfrontier.runtime.arrays import array_namespace

Array = Any

# Columns of at most this many entries are sorted by exchanges between rows.
FEW = 6
# A root takes about four passes from the last step's, ten from further away.
MOST_PASSES = 100


def project_simplex(point: Array, total: Array | float = 1.0) -> Array:
    """Return argmin ‖p − x‖² s.t. p ≥ 0, Σ p = z, for finite x, shape (..., n), and z ≥ 0.

    p_i = (x_i − τ)₊ with the τ that makes the sum z, in O(n log n), by a sort. J. Duchi,
    S. Shalev-Shwartz, Y. Singer, T. Chandra. Efficient projections onto the l1-ball for learning in
    high dimensions. ICML 2008, figure 1.
    """
    xp = array_namespace(point)
    # Entries that matter are within z of the largest: relative to it, rounding scales with z.
    below = point - xp.max(point, axis=-1, keepdims=True)
    ordered = xp.sort(below, axis=-1, descending=True)
    device = array_api_compat.device(point)
    count = xp.arange(1, point.shape[-1] + 1, dtype=point.dtype, device=device)
    # The s that the first 1, 2, … entries alone would need; it falls while an entry is below 0.
    depth = (_spread(point, total) - xp.cumulative_sum(ordered, axis=-1)) / count
    return xp.maximum(below + xp.min(depth, axis=-1, keepdims=True), 0.0)


def project_leading_simplex(point: Array) -> Array:
    """Project onto the simplex along the leading axis: ``project_simplex`` for many short columns.

    O(m²) passes over an axis of all columns, shape (m, ...), which are sorted by exchanges: with
    few entries per column this costs less than sorting each.
    """
    xp = array_namespace(point)
    m = int(point.shape[0])
    if m > FEW:
        columns = xp.moveaxis(point, 0, -1)
        return xp.moveaxis(project_simplex(columns), -1, 0)
    ordered = [point[index, ...] for index in range(m)]
    for last in range(m - 1, 0, -1):
        for index in range(last):
            one, two = ordered[index], ordered[index + 1]
            ordered[index], ordered[index + 1] = xp.maximum(one, two), xp.minimum(one, two)
    # Relative to the largest, as in project_simplex; the s that the first 1, 2, … entries need.
    top = ordered[0]
    depth = total = 1.0 + 0.0 * top
    for count in range(1, m):
        total = total - (ordered[count] - top)
        depth = xp.minimum(depth, total / (count + 1))
    return xp.maximum(point - (top - depth), 0.0)


def project_capped_simplex(point: Array, radius: Array | float) -> Array:
    """Project onto {λ ≥ 0, Σ λ ≤ R}: the positive part where its sum allows, else Σ λ = R."""
    xp = array_namespace(point)
    cap = _spread(point, radius)
    positive = xp.maximum(point, 0.0)
    within = xp.sum(positive, axis=-1, keepdims=True) <= cap
    return xp.where(within, positive, project_simplex(point, radius))


def _spread(point: Array, value: Array | float) -> Array:
    """Return the value with one entry for each row of the point, shape (..., 1)."""
    xp = array_namespace(point)
    device = array_api_compat.device(point)
    value = xp.asarray(value, dtype=point.dtype, device=device)[..., None]
    return xp.broadcast_to(value, (*point.shape[:-1], 1))


def find_level(values: Array, count: Array, total: Array, start: Array) -> Array:
    """Return τ with Σ_i c_i (x_i − τ)₊ = z, by Newton's method from a point near it.

    x is ``values``, (..., n), c > 0 ``count``, (n,), and z ≥ 0 ``total``, (..., 1); ``start`` and τ
    have shape (..., 1).

    Notes
    -----
    The sum is convex and falls with τ: from below steps go up to the root, and from above the first
    one ends below it. Later steps go down by rounding alone, and a small one ends the search; far
    away rounding is coarse. A row's root does not depend on how long others take.
    """
    xp = array_namespace(values)
    top = xp.max(values, axis=-1, keepdims=True)
    far = top - total / xp.min(count)
    rounding = 4 * xp.finfo(values.dtype).eps
    at, done = start, xp.zeros(start.shape, dtype=xp.bool, device=array_api_compat.device(values))
    for number in range(MOST_PASSES):
        excess = xp.maximum(values - at, 0.0)
        slope = (xp.astype(excess > 0, values.dtype) @ count)[..., None]
        value = (excess @ count)[..., None] - total
        safe = xp.where(slope > 0, slope, 1.0)
        # The top is the root where z is 0, or too small to show below it.
        above = at if number else far
        new = xp.where(slope > 0, xp.minimum(at + value / safe, top), above)
        near = rounding * (xp.abs(top) + total / safe)
        converged = xp.abs(new - at) <= near
        if number:
            converged = converged | ((new < at) & (at - new <= 16 * near))
        at = xp.where(done, at, new)
        done = done | converged
        if bool(xp.all(done)):
            break
    return at


def find_floor(values: Array, base: Array, count: Array, total: Array, start: Array) -> Array:
    """Return b with Σ_i c_i min{p, (b − x_i)₊} = z, for z ≤ p Σ c, shape (M, 1).

    x is ``values``, (M, n), p > 0 ``base``, c > 0 ``count``, (n,), z ``total``. Newton's method
    within a bracket, whose middle replaces steps that leave it, and every fourth step that shrinks
    it too little.
    """
    xp = array_namespace(values)
    low = xp.min(values, axis=-1, keepdims=True)
    high = xp.max(values, axis=-1, keepdims=True) + base
    scale = 2 * xp.finfo(values.dtype).eps * xp.maximum(xp.abs(low), xp.abs(high))
    at = xp.minimum(xp.maximum(start, low), high)
    for number in range(1, MOST_PASSES):
        risen = at - values
        filled = xp.minimum(xp.maximum(risen, 0.0), base)
        open_rows = xp.astype((filled > 0) & (filled < base), values.dtype)
        slope = (open_rows @ count)[..., None]
        gap = total - (filled @ count)[..., None]
        low, high = xp.where(gap >= 0, at, low), xp.where(gap <= 0, at, high)
        rising = slope > 0
        step = gap / xp.where(rising, slope, 1.0)
        done = (gap == 0) | (rising & (xp.abs(step) <= scale)) | (high - low <= scale)
        new = at + step
        inside = rising & (new >= low) & (new <= high)
        if number % 4 == 0:
            inside = inside & (xp.abs(step) <= (high - low) / 4)
        at = xp.where(done, at, xp.where(inside, new, (low + high) / 2))
        if bool(xp.all(done)):
            break
    return at
