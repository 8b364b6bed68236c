"""Shared parts of the conditional criteria: rows, and solutions with their certificates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace, segment_sum, to_numpy
from fairfrontier.train.postprocess.line import Line
from fairfrontier.train.postprocess.rule import RampRule, conjugate

Array = Any

# Violations below this count as met, and so do gaps below this share of 1 + the largest multiplier.
ACCURACY = 1e-9


@dataclass(frozen=True, eq=False)
class Solution:
    """The optimum under a conditional criterion, with its certificate.

    Attributes
    ----------
    rule : RampRule
        By group; under covariance by 2 · subgroup + member.
    multiplier : ndarray of float64, shape (n_groups,) or (n_groups, 2)
        w_k, or (a_k, b_k) under equalised odds.
    reached : ndarray of float64, as ``multiplier``
        The bounded quantity on the fitted rows: covariance, estimated true positive rate, or true
        and false positive rate. NaN where a group has none.
    violation : ndarray of float64, shape (n_groups,)
        Largest distance of ``reached`` from its bounds; 0 up to rounding where they can be met.
    objective : float
        Σ w [(γ/2) h² − h g] / Σ w, with g the gain of decision 1.
    gap : float
        ``objective`` minus the Lagrangian dual at ``multiplier``, 0 up to rounding; with relaxed
        bounds for groups that cannot meet the original ones.
    converged : bool
        Whether every group meets its bounds and the gap is closed, both up to rounding.
    """

    rule: RampRule
    multiplier: np.ndarray
    reached: np.ndarray
    violation: np.ndarray
    objective: float
    gap: float
    converged: bool

    def describe(self) -> dict[str, Any]:
        """Return the plain facts that a fitted estimator keeps."""
        return {
            "objective": self.objective,
            "duality_gap": self.gap,
            "reached": self.reached.tolist(),
            "violation": self.violation.tolist(),
            "converged": self.converged,
        }


def cross(member: Array, subgroup: Array) -> Array:
    """Return the codes 2 · subgroup + member, int64."""
    xp = array_namespace(subgroup)
    return 2 * xp.astype(subgroup, xp.int64) + xp.astype(member, xp.int64)


@dataclass(frozen=True, eq=False)
class CodedScores:
    """Rows of weight > 0: float64 scores, int64 codes and float64 weights on one backend."""

    score: Array
    code: Array
    weight: Array
    n_groups: int

    def groups(self) -> Iterator[tuple[Array, Array]]:
        """Yield the positions of each group's rows, and their weights as shares of their sum."""
        xp = array_namespace(self.score)
        for group in range(self.n_groups):
            (rows,) = xp.nonzero(self.code == group)
            weight = xp.take(self.weight, rows)
            yield rows, weight / xp.sum(weight)


def read_rows(
    score: Array, code: Array, n_groups: int, weight: Array | None, *settings: tuple[str, float]
) -> CodedScores:
    """Return the rows of weight > 0.

    ValueError is raised for different lengths, codes out of range, groups without rows, and
    ``settings`` (name, value) that are negative or, for a rate, above 1.
    """
    xp = array_namespace(score)
    for name, value in settings:
        if not (value >= 0 and (value <= 1 or name != "rate")):
            raise ValueError(f"{name} is {value}")
    score, code = xp.astype(score, xp.float64, copy=False), xp.astype(code, xp.int64, copy=False)
    weight = xp.ones_like(score) if weight is None else xp.astype(weight, xp.float64, copy=False)
    kept = weight > 0
    if not bool(xp.all(kept)):
        score, code, weight = score[kept], code[kept], weight[kept]
    rows = CodedScores(score, code, weight, n_groups)
    counts = to_numpy(segment_sum(xp.ones_like(rows.code), rows.code, n_groups))
    if not counts.all():
        raise ValueError(f"no row with weight in the groups {np.flatnonzero(counts == 0).tolist()}")
    return rows


def conclude(
    rows: CodedScores,
    lines: Sequence[Line],
    cells: Array,
    features: Sequence[Array],
    scales: np.ndarray,
    multiplier: np.ndarray,
    *,
    width: float,
    targets: Sequence[float],
    half: float,
    cut: float,
) -> Solution:
    """Return the solution with the quantities measured on all rows.

    The dual value is −E ξ_γ(g − Σ m_j z_j) − Σ_k P(k) Σ_j scale_kj (m_kj τ_j + |m_kj| half_k),
    with g = f − ``cut``.

    Parameters
    ----------
    lines : sequence of Line
        By cell: a group, or a group and membership; ``cells`` is the cell of each row.
    features : sequence of array, shape (n_samples,)
        z_j.
    scales : ndarray of float64, shape (n_groups, n_features)
        Divisors of E[z_j h | k]; 0 where that is not defined.
    multiplier : ndarray of float64, shape (n_groups, n_features)
    targets, half
        The bounds τ_j ± half before any relaxation.
    """
    xp = array_namespace(rows.score)
    table = np.array([(line.centre, line.level, line.slope) for line in lines], dtype=np.float64)
    rule = RampRule(*(np.ascontiguousarray(column) for column in table.T))
    h = rule.probability(rows.score, cells)
    mass = to_numpy(segment_sum(rows.weight, rows.code, rows.n_groups))
    gain = excess = rows.score - cut
    reached = np.full(scales.shape, np.nan)
    for j, z in enumerate(features):
        mean = to_numpy(segment_sum(rows.weight * z * h, rows.code, rows.n_groups)) / mass
        np.divide(mean, scales[:, j], out=reached[:, j], where=scales[:, j] > 0)
        factor = xp.asarray(np.ascontiguousarray(multiplier[:, j]), device=device(rows.score))
        excess = excess - xp.take(factor, rows.code) * z
    distance = np.nan_to_num(np.abs(reached - np.asarray(targets)))
    violation = np.maximum(distance - half, 0.0).max(axis=1)
    per_group = len(lines) // rows.n_groups
    bound = half + np.array([line.relaxed for line in lines[::per_group]])
    price = scales * (multiplier * np.asarray(targets) + np.abs(multiplier) * bound[:, None])
    xi = conjugate(excess, width)
    dual = -float(xp.sum(rows.weight * xi)) - float(mass @ price.sum(axis=1))
    primal = float(xp.sum(rows.weight * (width / 2.0 * h * h - h * gain)))
    objective, gap = primal / mass.sum(), (primal - dual) / mass.sum()
    closed = abs(gap) <= ACCURACY * (1.0 + np.abs(multiplier).max())
    single = scales.shape[1] == 1
    return Solution(
        rule=rule,
        multiplier=multiplier[:, 0] if single else multiplier,
        reached=reached[:, 0] if single else reached,
        violation=violation,
        objective=float(objective),
        gap=float(gap),
        converged=bool(closed and violation.max() <= ACCURACY),
    )
