"""Roots of piecewise linear functions of one unknown, many at once."""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace

Array = Any
# A root is found in some four passes from the last step's, in ten from afar.
MOST_PASSES = 100


def find_level(values: Array, count: Array, total: Array, start: Array) -> Array:
    """Return τ with Σ_i c_i (x_i − τ)₊ = z, by Newton's steps from a place near it.

    Parameters
    ----------
    values : array, shape (..., n)
        x.
    count : array, shape (n,)
        c > 0.
    total : array, shape (..., 1)
        z ≥ 0.
    start : array, shape (..., 1)

    Returns
    -------
    array, shape (..., 1)

    Notes
    -----
    The sum is convex and falls with τ: from below steps go up to the root, and from above the first
    one lands below it. Later steps go down by rounding alone, and a small one ends the search; from
    afar rounding is coarse. A row's root does not depend on how long others take.
    """
    xp = array_namespace(values)
    top = xp.max(values, axis=-1, keepdims=True)
    far = top - total / xp.min(count)
    rounding = 4 * xp.finfo(values.dtype).eps
    at, done = start, xp.zeros(start.shape, dtype=xp.bool, device=device(values))
    for number in range(MOST_PASSES):
        excess = xp.maximum(values - at, 0.0)
        slope = (xp.astype(excess > 0, values.dtype) @ count)[..., None]
        value = (excess @ count)[..., None] - total
        safe = xp.where(slope > 0, slope, 1.0)
        # The top is the root where z is 0, or too small to show below it.
        above = at if number else far
        new = xp.where(slope > 0, xp.minimum(at + value / safe, top), above)
        near = rounding * (xp.abs(top) + total / safe)
        found = xp.abs(new - at) <= near
        if number:
            found = found | ((new < at) & (at - new <= 16 * near))
        at = xp.where(done, at, new)
        done = done | found
        if bool(xp.all(done)):
            break
    return at


def find_floor(values: Array, base: Array, count: Array, total: Array, start: Array) -> Array:
    """Return b with Σ_i c_i min{p, (b − x_i)₊} = z, for z ≤ p Σ c.

    Parameters
    ----------
    values : array, shape (M, n)
        x.
    base : array, shape ()
        p > 0.
    count : array, shape (n,)
        c > 0.
    total, start : array, shape (M, 1)

    Returns
    -------
    array, shape (M, 1)

    Notes
    -----
    Newton's steps within a bracket, whose middle replaces those that leave it and every fourth.
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
