"""Near-optimal debiasing from counts: one pass over the scores, in bounded memory, mergeable.

Scores are counted in bins of width δ = 2/bins over [−1, 1], by group; the exact solver then runs on
the bins' centres. −1 and 1 have bins of their own, so that what a saturated net piles up there is
not moved at all, and no score is moved by more than δ/2. Hence, with m the mean of h on the scores
and m̃ on the centres, m(t + δ/2) ≤ m̃(t) ≤ m(t − δ/2), from which follow

    |t̃ − t| ≤ δ/2    where the root t is unique,    and    |m̃(t̃) − m(t̃)| ≤ δ/(2γ).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace, segment_sum
from fairfrontier.train.postprocess.rule import ThresholdRule
from fairfrontier.train.postprocess.threshold import (
    ThresholdProblem,
    Thresholds,
    build_segment,
    solve_exact,
)

Array = Any

BINS = 1 << 16


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """How much weight each group has in each bin of the scores.

    Attributes
    ----------
    n_groups, bins : int
        Groups, and bins of equal width over (−1, 1); two more hold −1 and 1.
    rows : int
        Rows that were added.
    mass : float64 array of shape (n_groups, bins + 2), or None while there are no rows
        Weight.
    positive : float64 array of shape (n_groups, bins + 2), or None where no labels came
        Weight of the rows with y = 1.

    Notes
    -----
    16 bytes per group and bin: 1 MiB a group at 65,536 bins with labels. Whole-number weights are
    summed exactly, so that batches, their order and their distribution change nothing; other
    weights are summed in the order of the batches.
    """

    n_groups: int
    bins: int
    rows: int = 0
    mass: Array | None = None
    positive: Array | None = None

    @classmethod
    def empty(cls, n_groups: int, bins: int = BINS) -> ScoreHistogram:
        """Return a histogram without rows."""
        if n_groups < 1 or bins < 1:
            raise ValueError(f"a histogram of {n_groups} groups and {bins} bins")
        return cls(n_groups, bins)

    @property
    def resolution(self) -> float:
        """δ, the width of a bin."""
        return 2.0 / self.bins

    def add(
        self, signed: Array, code: Array, weight: Array | None = None, y: Array | None = None
    ) -> ScoreHistogram:
        """Return this histogram with a batch of rows added.

        Parameters
        ----------
        signed : array of float, shape (n,)
            f ∈ [−1, 1].
        code : array of integers, shape (n,)
            Group codes in 0, …, n_groups − 1.
        weight : array of float, shape (n,), optional
            Case weights ≥ 0; ones by default.
        y : array of integers, shape (n,), optional
            Labels 0 and 1, in every batch or in none.

        Raises
        ------
        ValueError
            When a code is out of range, or labels come in some batches only.

        Notes
        -----
        O(n + K bins); on a backend without ``bincount`` O(n log n).
        """
        xp = array_namespace(signed)
        n = int(signed.shape[0])
        if n == 0:
            return self
        if int(xp.min(code)) < 0 or int(xp.max(code)) >= self.n_groups:
            raise ValueError(f"codes lie outside 0, …, {self.n_groups - 1}")
        score = xp.astype(signed, xp.float64)
        inner = xp.astype(xp.floor((score + 1.0) * (self.bins / 2)), xp.int64)
        place = xp.clip(inner, 0, self.bins - 1) + 1
        place = xp.where(score <= -1.0, 0, xp.where(score >= 1.0, self.bins + 1, place))
        cell = xp.astype(code, xp.int64) * (self.bins + 2) + place
        weights = (
            xp.ones((n,), dtype=xp.float64, device=device(score))
            if weight is None
            else xp.astype(weight, xp.float64)
        )
        batch = replace(self, rows=n, mass=self._count(weights, cell), positive=None)
        if y is not None:
            labelled = xp.where(y > 0, weights, xp.zeros_like(weights))
            batch = replace(batch, positive=self._count(labelled, cell))
        return self.merge(batch)

    def merge(self, other: ScoreHistogram) -> ScoreHistogram:
        """Return the histogram of the rows of both.

        Raises
        ------
        ValueError
            When groups or bins differ, or only one of the two has labels.
        """
        if (self.n_groups, self.bins) != (other.n_groups, other.bins):
            raise ValueError("histograms of other groups or bins cannot be merged")
        if self.mass is None or other.mass is None:
            return other if self.mass is None else self
        if (self.positive is None) != (other.positive is None):
            raise ValueError("labels come with every batch or with none")
        return replace(
            self,
            rows=self.rows + other.rows,
            mass=self.mass + other.mass,
            positive=None if self.positive is None else self.positive + other.positive,
        )

    def totals(self) -> Array:
        """Return the weight of each group, float64, shape (n_groups,)."""
        mass = self._held()
        return array_namespace(mass).sum(mass, axis=1)

    def base_rate(self) -> float:
        """Return E[y] over all rows; NaN without labels."""
        if self.positive is None:
            return float("nan")
        xp = array_namespace(self.positive)
        return float(xp.sum(self.positive)) / float(xp.sum(self._held()))

    def problem(self) -> ThresholdProblem:
        """Return the exact solver's problem on the centres of the bins."""
        return self._build([self._held()])

    def labelled(self) -> ThresholdProblem:
        """Return the problem by codes 2 k + y, of which `expect_accuracy` makes the accuracy.

        Raises
        ------
        ValueError
            When no labels came.
        """
        if self.positive is None:
            raise ValueError("no labels were added")
        return self._build([self._held() - self.positive, self.positive])

    def solve(
        self, width: float, rate: float, budget: float = 0.0
    ) -> tuple[ThresholdRule, Thresholds]:
        """Solve for one width and rate; see the bounds above.

        Parameters
        ----------
        width : float
            γ > 0: at 0 the bound on parity is void, and a coin at a score needs the scores.
        rate : float
            ρ in [0, 1].
        budget : float
            ε ≥ 0.

        Returns
        -------
        rule : ThresholdRule
            For the scores themselves, not for bins.
        result : Thresholds
            Rates and objective as the centres of the bins give them.

        Raises
        ------
        ValueError
            At width 0, or without rows.
        """
        if width <= 0:
            raise ValueError("a histogram solves for positive widths")
        result = solve_exact(self.problem(), width, rate, budget)
        return result.rule, result

    def _held(self) -> Array:
        if self.mass is None:
            raise ValueError("the histogram has no rows")
        return self.mass

    def _count(self, weights: Array, cell: Array) -> Array:
        xp = array_namespace(weights)
        shape = (self.n_groups, self.bins + 2)
        return xp.reshape(segment_sum(weights, cell, shape[0] * shape[1]), shape)

    def _build(self, tables: list[Array]) -> ThresholdProblem:
        xp = array_namespace(tables[0])
        centres = (np.arange(self.bins) + 0.5) * self.resolution - 1.0
        place = xp.asarray(np.concatenate([[-1.0], centres, [1.0]]), device=device(tables[0]))
        return ThresholdProblem(
            tuple(
                build_segment(place, table[group, :])
                for group in range(self.n_groups)
                for table in tables
            )
        )
