"""Scores by group as randomised thresholds take them: sorted once, or counted in bins.

Scores may also be counted in bins of width δ = 2/bins over [−1, 1], by group: one pass, in bounded
memory, mergeable. The exact solver then runs on the bins' centres. −1 and 1 have separate bins, so
that saturated scores are not moved, and no score moves by more than δ/2. Hence, with m the mean of
h on the scores and m̃ on the centres, m(t + δ/2) ≤ m̃(t) ≤ m(t − δ/2), from which follow, for a
width γ > 0,

    |t̃ − t| ≤ δ/2    where the root t is unique,    and    |m̃(t̃) − m(t̃)| ≤ δ/(2γ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace, segment_sum, to_numpy

Array = Any

# Rates that differ by less are equal: running sums of 10⁷ scores carry about as much rounding.
TOLERANCE = 1e-12
BINS = 1 << 16


@dataclass(frozen=True, eq=False)
class Segment:
    """The scores of one group in ascending order, float64, shape (n,), with their running sums.

    ``mass``, ``moment`` and ``square`` are the sums of w, w f and w f² over the lowest 0, …, n
    scores, float64, shape (n + 1,).
    """

    score: Array
    mass: Array
    moment: Array
    square: Array

    @property
    def total(self) -> float:
        """Weight of the group."""
        return float(self.mass[-1])

    def on_host(self) -> Segment:
        """Return the segment as NumPy arrays."""
        return Segment(*map(to_numpy, (self.score, self.mass, self.moment, self.square)))

    @cached_property
    def share(self) -> Segment:
        """The segment as NumPy arrays, its weights divided by their total."""
        host = self.on_host()
        total = host.mass[-1] or 1.0
        return Segment(host.score, host.mass / total, host.moment / total, host.square / total)


@dataclass(frozen=True, eq=False)
class ThresholdProblem:
    """Scores by group code, sorted once for every width and rate."""

    segments: tuple[Segment, ...]

    @property
    def total(self) -> float:
        """Weight of all rows."""
        return sum(segment.total for segment in self.segments)

    def weigh(self, gain: tuple[float, float]) -> float:
        """Return the weight of rows by codes 2 k + y, where label y counts ``gain[y]`` times."""
        return sum(gain[code % 2] * segment.total for code, segment in enumerate(self.segments))


def merge_runs(runs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the distinct numbers of K ascending arrays, ascending; O(n log K).

    A stable sort finds the runs and merges them; np.unique would sort all anew.
    """
    merged = np.sort(np.concatenate(runs), kind="stable")
    distinct = np.append(True, merged[1:] != merged[:-1])
    return np.asarray(merged[distinct[: merged.size]])


def build_problem(
    score: Array, code: Array, n_groups: int, weight: Array | None = None
) -> ThresholdProblem:
    """Sort the scores of every group, on the backend of ``score``.

    ``score`` is f ∈ [−1, 1] without NaN (float32 is sorted as such and summed as float64), ``code``
    the group 0, …, n_groups − 1, ``weight`` ≥ 0. O(n log n) time, at most 9 numbers a row. Without
    weights, or with equal ones, only
    scores are sorted, about five times as fast as finding an order.
    """
    xp = array_namespace(score)
    n_samples = int(score.shape[0])
    unit = 1.0
    if weight is not None and n_samples and float(xp.min(weight)) == float(xp.max(weight)):
        unit, weight = float(weight[0]), None
    stops = [n_samples]
    if n_groups > 1:
        # NumPy sorts codes of one or two bytes by radix, in O(n).
        small = xp.uint8 if n_groups <= 2**8 else xp.uint16 if n_groups <= 2**16 else xp.int64
        code = xp.astype(code, small)
        order = xp.argsort(code, stable=True)
        score = xp.take(score, order)
        weight = None if weight is None else xp.take(weight, order)
        sizes = [int(xp.count_nonzero(code == group)) for group in range(n_groups)]
        stops = np.cumsum(sizes).tolist()
    segments = []
    for start, stop in zip([0, *stops[:-1]], stops, strict=True):
        scores = score[start:stop]
        if weight is None:
            segments.append(build_segment(xp.sort(scores, stable=False), None, unit))
        else:
            rising = xp.argsort(scores, stable=False)
            weights = xp.take(weight[start:stop], rising)
            segments.append(build_segment(xp.take(scores, rising), weights))
    return ThresholdProblem(tuple(segments))


def build_segment(score: Array, weight: Array | None = None, unit: float = 1.0) -> Segment:
    """Return the running sums of ascending scores, each of the given weight or of ``unit``."""
    xp = array_namespace(score)
    score = xp.astype(score, xp.float64)
    zero = xp.zeros((1,), dtype=xp.float64, device=device(score))

    def accumulate(values: Array) -> Array:
        return xp.concat([zero, xp.cumulative_sum(values)])

    if weight is None:
        count = xp.arange(score.shape[0] + 1, dtype=xp.float64, device=device(score))
        mass, moment = count * unit, accumulate(score) * unit
        return Segment(score, mass, moment, accumulate(score * score) * unit)
    weight = xp.astype(weight, xp.float64)
    moment = weight * score
    return Segment(score, accumulate(weight), accumulate(moment), accumulate(moment * score))


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Weight of each group in each bin of the scores.

    ``bins`` have equal width over (−1, 1); two more hold −1 and 1. ``rows`` is the number of rows
    added. ``mass`` is their weight and ``positive`` the weight of those with y = 1, float64 of
    shape (n_groups, bins + 2); None without rows, and without labels.

    16 bytes per group and bin: 1 MiB a group at 65,536 bins with labels. Whole-number weights are
    summed exactly, so that batches and their order change nothing; other weights are summed in the
    order of the batches.
    """

    n_groups: int
    bins: int
    rows: int = 0
    mass: Array | None = None
    positive: Array | None = None

    def add(
        self, signed: Array, code: Array, weight: Array | None = None, y: Array | None = None
    ) -> ScoreHistogram:
        """Return this histogram with a batch of rows added; O(n + K bins).

        Scores f ∈ [−1, 1], codes, weights ≥ 0 and labels have shape (n,); labels come with every
        batch or with none.
        """
        xp = array_namespace(signed)
        n = int(signed.shape[0])
        if n == 0:
            return self
        score = xp.astype(signed, xp.float64)
        inner = xp.astype(xp.floor((score + 1.0) * (self.bins / 2)), xp.int64)
        column = xp.clip(inner, 0, self.bins - 1) + 1
        column = xp.where(score <= -1.0, 0, xp.where(score >= 1.0, self.bins + 1, column))
        cell = xp.astype(code, xp.int64) * (self.bins + 2) + column
        weights = xp.ones_like(score) if weight is None else xp.astype(weight, xp.float64)
        batch = replace(self, rows=n, mass=self._count(weights, cell), positive=None)
        if y is not None:
            labelled = xp.where(y > 0, weights, xp.zeros_like(weights))
            batch = replace(batch, positive=self._count(labelled, cell))
        return self.merge(batch)

    def merge(self, other: ScoreHistogram) -> ScoreHistogram:
        """Return the histogram of the rows of both, which have the same groups and bins."""
        if self.mass is None or other.mass is None:
            return other if self.mass is None else self
        return replace(
            self,
            rows=self.rows + other.rows,
            mass=self.mass + other.mass,
            positive=None if self.positive is None else self.positive + other.positive,
        )

    def regroup(self, codes: np.ndarray, n_groups: int | None = None) -> ScoreHistogram:
        """Return the histogram with the new code of each group; groups with one code are merged."""
        size = int(codes.max()) + 1 if n_groups is None else n_groups
        if size == self.n_groups and np.array_equal(codes, np.arange(size)):
            return self

        def move(table: np.ndarray | None) -> np.ndarray | None:
            if table is None:
                return None
            moved = np.zeros((size, table.shape[1]))
            for old, new in enumerate(codes.tolist()):
                moved[new] += table[old]
            return moved

        return replace(self, n_groups=size, mass=move(self.mass), positive=move(self.positive))

    def problem(self, merged: np.ndarray | None = None) -> ThresholdProblem:
        """Return the solver's problem on the centres of the bins.

        ``merged`` has the new code of each group; ValueError is raised without rows.
        """
        if merged is not None:
            return self.regroup(merged).problem()
        if self.mass is None:
            raise ValueError("the histogram has no rows")
        return self._build([self.mass])

    def labelled(self) -> ThresholdProblem:
        """Return the problem by codes 2 k + y for `judge_lines`; ValueError without labels."""
        if self.mass is None or self.positive is None:
            raise ValueError("no labels were added")
        return self._build([self.mass - self.positive, self.positive])

    def _count(self, weights: Array, cell: Array) -> Array:
        xp = array_namespace(weights)
        shape = (self.n_groups, self.bins + 2)
        return xp.reshape(segment_sum(weights, cell, shape[0] * shape[1]), shape)

    def _build(self, tables: list[Array]) -> ThresholdProblem:
        xp = array_namespace(tables[0])
        centres = (np.arange(self.bins) + 0.5) * (2.0 / self.bins) - 1.0
        score = xp.asarray(np.concatenate([[-1.0], centres, [1.0]]), device=device(tables[0]))
        return ThresholdProblem(
            tuple(
                build_segment(score, table[group, :])
                for group in range(self.n_groups)
                for table in tables
            )
        )
