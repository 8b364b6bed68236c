"""Shared parts of the conditional criteria: rows, and solutions with their certificates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device, is_numpy_namespace

from fairfrontier.runtime.arrays import array_namespace, segment_sum, to_numpy
from fairfrontier.train.postprocess.line import Line
from fairfrontier.train.postprocess.rule import RampRule, conjugate

Array = Any

# Violations below this count as met, and so do gaps below this share of 1 + the largest multiplier.
ACCURACY = 1e-9
# Rows that are measured at once on the host: what is made of them stays in its cache.
BLOCK = 1 << 15


@dataclass(frozen=True, eq=False)
class Solution:
    """The optimum under a conditional criterion, with its certificate.

    Attributes
    ----------
    rule : RampRule
        By cell: a group, under covariance 2 · subgroup + member.
    rate : ndarray of float64, shape (n_cells,)
        E[h | cell] on the fitted rows; NaN in a cell without rows.
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
    rate: np.ndarray
    multiplier: np.ndarray
    reached: np.ndarray
    violation: np.ndarray
    objective: float
    gap: float
    converged: bool

    def describe(self) -> dict[str, Any]:
        """Return the plain facts that a fitted estimator keeps."""
        return {
            "rates": self.rate.tolist(),
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
    table = np.array([(line.centre, line.level, line.slope) for line in lines], dtype=np.float64)
    rule = RampRule(*(np.ascontiguousarray(column) for column in table.T))
    measured = _measure(rows, rule, cells, features, multiplier, width, cut)
    per_group = len(lines) // rows.n_groups
    mass = measured.mass.reshape(-1, per_group).sum(axis=1)
    rate, reached = np.full(len(lines), np.nan), np.full(scales.shape, np.nan)
    np.divide(measured.chosen, measured.mass, out=rate, where=measured.mass > 0)
    np.divide(measured.pulls.T / mass[:, None], scales, out=reached, where=scales > 0)
    distance = np.nan_to_num(np.abs(reached - np.asarray(targets)))
    violation = np.maximum(distance - half, 0.0).max(axis=1)
    bound = half + np.array([line.relaxed for line in lines[::per_group]])
    price = scales * (multiplier * np.asarray(targets) + np.abs(multiplier) * bound[:, None])
    dual = -float(measured.conjugate) - float(mass @ price.sum(axis=1))
    primal = float(measured.objective)
    objective, gap = primal / mass.sum(), (primal - dual) / mass.sum()
    closed = abs(gap) <= ACCURACY * (1.0 + np.abs(multiplier).max())
    single = scales.shape[1] == 1
    return Solution(
        rule=rule,
        rate=rate,
        multiplier=multiplier[:, 0] if single else multiplier,
        reached=reached[:, 0] if single else reached,
        violation=violation,
        objective=float(objective),
        gap=float(gap),
        converged=bool(closed and violation.max() <= ACCURACY),
    )


class _Measured(NamedTuple):
    """Sums over rows: by cell, by feature and group, and of all.

    They are Σ w h, Σ w, Σ w z_j h, Σ w ξ_γ(g − Σ m_j z_j) and Σ w [(γ/2) h² − h g].
    """

    chosen: np.ndarray
    mass: np.ndarray
    pulls: np.ndarray
    conjugate: np.ndarray
    objective: np.ndarray


def _measure(
    rows: CodedScores,
    rule: RampRule,
    cells: Array,
    features: Sequence[Array],
    multiplier: np.ndarray,
    width: float,
    cut: float,
) -> _Measured:
    """Return the sums that certify a rule, block by block on the host."""
    xp, where = array_namespace(rows.score), device(rows.score)
    factors = [xp.asarray(np.ascontiguousarray(column), device=where) for column in multiplier.T]
    n_cells, n_rows = len(rule.centre), int(rows.score.shape[0])
    size = BLOCK if is_numpy_namespace(xp) else n_rows
    totals: list[Any] = []
    for start in range(0, n_rows, size):
        block = slice(start, start + size)
        code, cell, weight = rows.code[block], cells[block], rows.weight[block]
        gain = excess = rows.score[block] - cut
        h = rule.probability(rows.score[block], cell)
        chosen, pulls = weight * h, []
        for feature, factor in zip(features, factors, strict=True):
            z = feature[block]
            pulls.append(segment_sum(chosen * z, code, rows.n_groups))
            excess = excess - xp.take(factor, code) * z
        sums = [
            segment_sum(chosen, cell, n_cells),
            segment_sum(weight, cell, n_cells),
            xp.stack(pulls),
            xp.sum(weight * conjugate(excess, width)),
            xp.sum(chosen * (width / 2.0 * h - gain)),
        ]
        totals = [one + two for one, two in zip(totals, sums, strict=True)] if totals else sums
    return _Measured(*map(to_numpy, totals))
