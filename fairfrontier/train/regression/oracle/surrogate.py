"""Differentiable functions in place of the costs: their convex envelope, or the smoothed costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.train.regression.grid import level_values

Array = Any

# Scores between these are looked up; beyond them functions are straight lines.
LOW, HIGH = -0.5, 1.5
# Table points per grid step.
FINE = 8


@dataclass(frozen=True, eq=False)
class Surrogate:
    """One differentiable function of a score for each cell.

    ``slope`` is its derivative at equally spaced points of [-.5, 1.5], shape (n_cells, n_points);
    linear between them, constant beyond. ``value`` is its integral from the first point.
    """

    slope: Array
    value: Array

    def evaluate(self, cell: Array, score: Array) -> tuple[Array, Array]:
        """Return the function of each row's cell at its score, and its derivative there."""
        xp = array_namespace(score)
        n_points = self.slope.shape[1]
        step = (HIGH - LOW) / (n_points - 1)
        position = xp.clip((score - LOW) / step, 0.0, float(n_points - 1))
        left = xp.floor(xp.clip(position, 0.0, float(n_points - 2)))
        part, beyond = position - left, score - (LOW + step * position)
        entry = cell * n_points + xp.astype(left, xp.int64)
        slopes = xp.reshape(self.slope, (-1,))
        before, after = xp.take(slopes, entry), xp.take(slopes, entry + 1)
        slope = before + (after - before) * part
        start = xp.take(xp.reshape(self.value, (-1,)), entry)
        value = start + step * part * (before + slope) / 2.0 + beyond * slope
        return value, slope


def find_chords(total: Array) -> Array:
    """Return the slopes between neighbouring points of costs, shape (n_cells, N).

    ``total``, shape (n_cells, N + 1), is g_λ at the levels' points min{(k + ½)/N, 1}.
    """
    point = level_values(total.shape[1] - 1, total)
    return (total[:, 1:] - total[:, :-1]) / (point[1:] - point[:-1])[None, :]


def find_hull(total: Array) -> Array:
    """Return the slopes of the largest convex function below each cell's costs, shape (n_cells, N).

    s_k = max_{i ≤ k} min_{j > k} (g_j − g_i) / (v_j − v_i)

    They ascend: the isotonic regression of the slopes of ``find_chords``. O(n_cells · N²) time,
    O(n_cells · N) memory, no loop over cells.
    """
    xp = array_namespace(total)
    n_grid = total.shape[1] - 1
    point = level_values(n_grid, total)
    least = xp.full_like(total[:, 1:], xp.inf)
    slopes = []
    for k in range(n_grid - 1, -1, -1):
        gap = (point[k + 1] - point[: k + 1])[None, :]
        chord = (total[:, k + 1 : k + 2] - total[:, : k + 1]) / gap
        least = xp.minimum(least[:, : k + 1], chord)
        slopes.append(xp.max(least, axis=1))
    return xp.flip(xp.stack(slopes, axis=1), axis=1)


def smooth(slope: Array, width: float, *, clipped: bool) -> Surrogate:
    """Return the piecewise linear functions of given slopes, convolved with a logistic density.

    s(u) = s_0 + Σ_k (s_k − s_{k−1}) σ((u − v_k) / width),   v_k = min{(k + ½)/N, 1}

    ``slope`` has shape (n_cells, N), between v_k and v_{k+1}. The standard deviation of the density
    is 1.81 times ``width``. If ``clipped``, the functions are constant below v_0 and above v_N, as
    costs of clipped predictions are; else the first and the last slope continue, which keeps a
    convex function convex. O(n_cells · N) for a table of 2 · 8 · N + 1 points.
    """
    xp = array_namespace(slope)
    n_grid = slope.shape[1]
    zero = xp.zeros_like(slope[:, :1])
    first, last = (zero, zero) if clipped else (slope[:, :1], slope[:, -1:])
    padded = xp.concat([first, slope, last], axis=1)
    step = 1.0 / (FINE * n_grid)
    count = round((HIGH - LOW) / step) + 1
    fine = LOW + step * xp.arange(count, dtype=slope.dtype, device=device(slope))
    far = (fine[None, :] - level_values(n_grid, slope)[:, None]) / (2.0 * width)
    table = padded[:, :1] + (padded[:, 1:] - padded[:, :-1]) @ ((1.0 + xp.tanh(far)) / 2.0)
    area = step * (table[:, 1:] + table[:, :-1]) / 2.0
    return Surrogate(table, xp.concat([zero, xp.cumulative_sum(area, axis=1)], axis=1))
