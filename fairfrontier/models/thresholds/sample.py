"""Scores gathered batch by batch for a fit: kept while they are few, counted in bins beyond."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fairfrontier.models.thresholds.threshold import (
    BINS,
    ScoreHistogram,
    ThresholdProblem,
    build_problem,
)
from fairfrontier.prepare.table.column import sort_levels
from fairfrontier.runtime.errors import DataError

Solver = Literal["auto", "exact", "histogram"]
Cells = tuple[tuple[str, ...], ...]

# `auto` keeps up to this many scores, some 100 MB; the choice depends on the number of rows alone.
EXACT_ROWS = 2_000_000
# Adding to a histogram costs as much as its bins, however few the rows: add this many at once.
FLUSH_ROWS = 1 << 19
# A histogram of so many groups with labels takes 0.4 GB.
MAX_GROUPS = 200


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Rows that rules are fitted on or judged by; all arrays have shape (n_samples,).

    ``signed`` is f ∈ [−1, 1], float64; ``code`` the group 0, …, n_groups − 1; ``weight`` float64;
    ``y`` the labels 0 and 1, or None.
    """

    signed: np.ndarray
    code: np.ndarray
    weight: np.ndarray
    y: np.ndarray | None
    n_groups: int

    def drop_weightless(self) -> ScoredRows:
        """Return the rows of weight > 0."""
        kept = self.weight > 0
        if kept.all():
            return self
        y = None if self.y is None else self.y[kept]
        return ScoredRows(self.signed[kept], self.code[kept], self.weight[kept], y, self.n_groups)

    def problem(self, merged: np.ndarray | None = None) -> ThresholdProblem:
        """Return the solver's problem; ``merged`` has the new code of each group."""
        if merged is None:
            return build_problem(self.signed, self.code, self.n_groups, self.weight)
        return build_problem(self.signed, merged[self.code], int(merged.max()) + 1, self.weight)

    def labelled(self) -> ThresholdProblem:
        """Return the problem by codes 2 k + y, for `judge_lines`."""
        if self.y is None:
            raise ValueError("rows without labels cannot judge a rule")
        return build_problem(self.signed, 2 * self.code + self.y, 2 * self.n_groups, self.weight)

    def count(self, bins: int) -> ScoreHistogram:
        """Return the scores counted in bins."""
        empty = ScoreHistogram(self.n_groups, bins)
        return empty.add(self.signed, self.code, self.weight, self.y)


@dataclass(frozen=True, eq=False)
class Sample:
    """Everything that a fit of thresholds needs of a table.

    ``cells`` are the groups in ascending order of their levels, ``counts`` (int64) and ``weights``
    (float64) the rows of calibration and validation and their weight, shape (2, n_groups).
    ``validation`` is None where no row was held out.
    """

    cells: Cells
    counts: np.ndarray
    weights: np.ndarray
    calibration: ScoredRows | ScoreHistogram
    validation: ScoredRows | ScoreHistogram | None

    @property
    def exact(self) -> bool:
        """Whether the scores are kept as they are."""
        return isinstance(self.calibration, ScoredRows)


class _Batch(NamedTuple):
    held_out: np.ndarray
    signed: np.ndarray
    code: np.ndarray
    y: np.ndarray
    weight: np.ndarray


class Collector:
    """Gathers batches into a `Sample`; groups are numbered as they appear.

    ``auto`` keeps up to ``EXACT_ROWS`` scores and counts them in ``bins`` beyond; ``where`` is the
    table, for messages. Memory: 33 bytes a row while scores are kept (twice that when they are
    sorted); else ``FLUSH_ROWS`` rows and 32 bytes per group and bin. With whole-number weights the
    sample does not depend on how the rows were split into batches.
    """

    def __init__(self, solver: Solver = "auto", bins: int = BINS, where: str = "The table") -> None:
        self._limit = {"auto": EXACT_ROWS, "exact": None, "histogram": 0}[solver]
        self._bins = bins
        self._where = where
        self._codes: dict[tuple[str, ...], int] = {}
        self._batches: list[_Batch] = []
        self._waiting = 0
        self._rows = 0
        self._histograms: list[ScoreHistogram] = []

    def add(
        self,
        signed: np.ndarray,
        cell: np.ndarray,
        levels: Sequence[tuple[str, ...]],
        y: np.ndarray,
        weight: np.ndarray,
        held_out: np.ndarray,
    ) -> None:
        """Add a batch of n rows; DataError for more than ``MAX_GROUPS`` groups.

        ``cell`` is the position of each row's group in ``levels``, the groups of this batch, and
        ``held_out`` says which rows are for validation. All arrays have shape (n,).
        """
        codes = [self._codes.setdefault(group, len(self._codes)) for group in levels]
        if len(self._codes) > MAX_GROUPS:
            raise DataError(
                f"{self._where} has more than {MAX_GROUPS} groups.",
                "Name fewer columns with --groups, or merge their levels first.",
            )
        code = np.asarray(codes, dtype=np.int64)[cell]
        self._batches.append(_Batch(held_out, signed, code, y.astype(np.int64), weight))
        self._waiting += len(signed)
        self._rows += len(signed)
        if self._limit is not None and self._rows > self._limit and self._waiting >= FLUSH_ROWS:
            self._flush()

    def finish(self) -> Sample:
        """Return the sample of all rows that were added."""
        order = sort_cells(self._codes)
        # Provisional code -> code in ascending order of the levels.
        final = np.empty(len(order), dtype=np.int64)
        for code, cell in enumerate(order):
            final[self._codes[cell]] = code
        if self._limit is not None and self._rows > self._limit:
            self._flush()
        if not self._histograms:
            return self._finish_exact(order, final)
        parts = [histogram.regroup(final) for histogram in self._histograms]
        self._histograms = []
        weights = np.stack(
            [np.zeros(len(order)) if part.mass is None else part.mass.sum(axis=1) for part in parts]
        )
        counts = np.empty_like(self._counts)
        counts[:, final] = self._counts
        return Sample(order, counts, weights, parts[0], parts[1] if parts[1].rows else None)

    def _finish_exact(self, cells: Cells, final: np.ndarray) -> Sample:
        held_out, signed, code, y, weight = self._join()
        code, size = final[code], len(cells)
        parts = [
            ScoredRows(signed[rows], code[rows], weight[rows], y[rows], size)
            for rows in (~held_out, held_out)
        ]
        counts = np.stack([np.bincount(part.code, minlength=size) for part in parts])
        weights = np.stack([np.bincount(part.code, part.weight, size) for part in parts])
        return Sample(cells, counts, weights, parts[0], parts[1] if parts[1].signed.size else None)

    def _join(self, rows: int | None = None) -> _Batch:
        """Remove batches with at least ``rows`` rows, or all, and concatenate them."""
        taken: list[_Batch] = []
        while self._batches and (rows is None or sum(len(batch.code) for batch in taken) < rows):
            taken.append(self._batches.pop(0))
        return _Batch(*(np.concatenate(column) for column in zip(*taken, strict=True)))

    def _flush(self) -> None:
        """Count the waiting rows into the histograms."""
        size = len(self._codes)
        if not self._histograms:
            self._histograms = [ScoreHistogram(size, self._bins) for _ in range(2)]
            self._counts = np.zeros((2, size), dtype=np.int64)
        # Room for groups that appeared since.
        self._histograms = [
            part.regroup(np.arange(part.n_groups), size) for part in self._histograms
        ]
        self._counts = np.pad(self._counts, ((0, 0), (0, size - self._counts.shape[1])))
        while self._batches:
            joined = self._join(FLUSH_ROWS)
            for part, rows in enumerate((~joined.held_out, joined.held_out)):
                code = joined.code[rows]
                self._counts[part] += np.bincount(code, minlength=size)
                self._histograms[part] = self._histograms[part].add(
                    joined.signed[rows], code, joined.weight[rows], joined.y[rows]
                )
        self._waiting = 0


def sort_cells(cells: Iterable[tuple[str, ...]]) -> Cells:
    """Sort combinations of levels, column by column: as numbers where all are numbers."""
    rows = list(cells)
    ranks = [
        {level: rank for rank, level in enumerate(sort_levels(set(column)))}
        for column in zip(*rows, strict=True)
    ]
    return tuple(
        sorted(
            rows, key=lambda cell: [rank[level] for rank, level in zip(ranks, cell, strict=True)]
        )
    )
