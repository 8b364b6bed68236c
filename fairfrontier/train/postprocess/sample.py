"""Scores gathered batch by batch for a fit: kept while they are few, counted in bins beyond."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fairfrontier.prepare.table.column import sort_levels
from fairfrontier.runtime.errors import DataError
from fairfrontier.train.postprocess.histogram import BINS, ScoreHistogram
from fairfrontier.train.postprocess.threshold import ThresholdProblem, build_problem

Solver = Literal["auto", "exact", "histogram"]
Cells = tuple[tuple[str, ...], ...]

# Up to here `auto` keeps the scores themselves: some 100 MB. It depends on the rows alone.
EXACT_ROWS = 2_000_000
# Adding to a histogram costs as much as its bins, whatever the rows: so many are added at once.
FLUSH_ROWS = 1 << 19
# A histogram of so many groups with labels takes 0.4 GB.
MAX_GROUPS = 200


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Rows that rules are fitted on or judged by, their scores as they are.

    Attributes
    ----------
    signed : ndarray of float64, shape (n_samples,)
        f ∈ [−1, 1].
    code : ndarray of int64, shape (n_samples,)
        Group codes 0, …, n_groups − 1.
    weight : ndarray of float64, shape (n_samples,)
    y : ndarray of int64, shape (n_samples,), or None
        Labels 0 and 1.
    n_groups : int
    """

    signed: np.ndarray
    code: np.ndarray
    weight: np.ndarray
    y: np.ndarray | None
    n_groups: int

    def problem(self, merged: np.ndarray | None = None) -> ThresholdProblem:
        """Return the solver's problem.

        Parameters
        ----------
        merged : ndarray of int64, shape (n_groups,), optional
            New code of each group code: groups with one code become one group.
        """
        if merged is None:
            return build_problem(self.signed, self.code, self.n_groups, self.weight)
        return build_problem(self.signed, merged[self.code], int(merged.max()) + 1, self.weight)

    def labelled(self) -> ThresholdProblem:
        """Return the problem by codes 2 k + y, for `expect_accuracy`."""
        if self.y is None:
            raise ValueError("rows without labels judge no rule")
        return build_problem(self.signed, 2 * self.code + self.y, 2 * self.n_groups, self.weight)

    def count(self, bins: int) -> BinnedScores:
        """Return the scores counted in bins."""
        empty = ScoreHistogram.empty(self.n_groups, bins)
        return BinnedScores(empty.add(self.signed, self.code, self.weight, self.y))


@dataclass(frozen=True, eq=False)
class BinnedScores:
    """The scores of one part, counted in bins; see `ScoreHistogram` for the error."""

    histogram: ScoreHistogram

    def problem(self, merged: np.ndarray | None = None) -> ThresholdProblem:
        """Return the solver's problem; see `ScoredRows.problem`."""
        held = self.histogram
        return (held if merged is None else _regroup(held, merged)).problem()

    def labelled(self) -> ThresholdProblem:
        """Return the problem by codes 2 k + y, for `expect_accuracy`."""
        return self.histogram.labelled()


Scores = ScoredRows | BinnedScores


@dataclass(frozen=True, eq=False)
class Sample:
    """Everything that a fit of thresholds needs of a table.

    Attributes
    ----------
    cells : tuple of tuple of str
        The groups, in ascending order of their levels.
    counts : ndarray of int64, shape (2, n_groups)
        Rows of calibration and of validation by group.
    weights : ndarray of float64, shape (2, n_groups)
        Their weight.
    calibration : ScoredRows or BinnedScores
        What thresholds are fitted on.
    validation : ScoredRows, BinnedScores or None
        What they are chosen on; None where no row was kept back.
    """

    cells: Cells
    counts: np.ndarray
    weights: np.ndarray
    calibration: Scores
    validation: Scores | None

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.cells)

    @property
    def exact(self) -> bool:
        """Whether the scores are kept as they are."""
        return isinstance(self.calibration, ScoredRows)


@dataclass
class _Batch:
    held_out: np.ndarray
    signed: np.ndarray
    code: np.ndarray
    y: np.ndarray
    weight: np.ndarray


class Collector:
    """Gathers batches into a `Sample`; groups are found as they come.

    Parameters
    ----------
    solver : {"auto", "exact", "histogram"}
        ``auto`` keeps the scores up to ``EXACT_ROWS`` rows and counts them in bins beyond.
    bins : int
        Of a histogram.
    where : str
        The table, for messages.

    Notes
    -----
    Memory: 33 bytes a row while scores are kept (twice that when they are sorted); else
    ``FLUSH_ROWS`` rows and 32 bytes per group and bin. With whole-number weights the sample does
    not depend on how the rows came in batches.
    """

    def __init__(self, solver: Solver = "auto", bins: int = BINS, where: str = "The table") -> None:
        self._limit = {"auto": EXACT_ROWS, "exact": None, "histogram": 0}[solver]
        self._bins = bins
        self._where = where
        self._places: dict[tuple[str, ...], int] = {}
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
        """Add a batch of rows.

        Parameters
        ----------
        signed, y, weight : ndarray, shape (n,)
            Scores f ∈ [−1, 1], labels 0 and 1, case weights.
        cell : ndarray of int64, shape (n,)
            Position of each row's group in ``levels``.
        levels : sequence of tuple of str
            The groups of this batch.
        held_out : ndarray of bool, shape (n,)
            Whether a row is for validation.

        Raises
        ------
        DataError
            When there are more than ``MAX_GROUPS`` groups.
        """
        places = [self._places.setdefault(each, len(self._places)) for each in levels]
        if len(self._places) > MAX_GROUPS:
            raise DataError(
                f"{self._where} has more than {MAX_GROUPS} groups.",
                "Name fewer columns with --groups, or merge their levels first.",
            )
        code = np.asarray(places, dtype=np.int64)[cell]
        self._batches.append(_Batch(held_out, signed, code, y.astype(np.int64), weight))
        self._waiting += len(signed)
        self._rows += len(signed)
        if self._limit is not None and self._rows > self._limit and self._waiting >= FLUSH_ROWS:
            self._flush()

    def finish(self) -> Sample:
        """Return the sample of all rows that were added."""
        order = sort_cells(self._places)
        # Provisional code -> code in ascending order of the levels.
        final = np.empty(len(order), dtype=np.int64)
        for code, cell in enumerate(order):
            final[self._places[cell]] = code
        if self._limit is not None and self._rows > self._limit:
            self._flush()
        if not self._histograms:
            return self._finish_exact(order, final)
        held = [_regroup(each, final) for each in self._histograms]
        self._histograms = []
        weights = np.stack([np.zeros(len(order)) if h.mass is None else h.totals() for h in held])
        validation = BinnedScores(held[1]) if held[1].rows else None
        counts = np.empty_like(self._counts)
        counts[:, final] = self._counts
        return Sample(order, counts, weights, BinnedScores(held[0]), validation)

    def _finish_exact(self, cells: Cells, final: np.ndarray) -> Sample:
        whole = self._join()
        code = final[whole.code]
        parts = []
        for inside in (~whole.held_out, whole.held_out):
            signed, y, weight = (each[inside] for each in (whole.signed, whole.y, whole.weight))
            parts.append(ScoredRows(signed, code[inside], weight, y, len(cells)))
        size = len(cells)
        counts = np.stack([np.bincount(each.code, minlength=size) for each in parts])
        weights = np.stack([np.bincount(each.code, each.weight, size) for each in parts])
        return Sample(cells, counts, weights, parts[0], parts[1] if parts[1].signed.size else None)

    def _join(self, rows: int | None = None) -> _Batch:
        """Take batches with at least so many rows, or all, and put them together."""
        taken: list[_Batch] = []
        while self._batches and (rows is None or sum(len(each.code) for each in taken) < rows):
            taken.append(self._batches.pop(0))
        names = ("held_out", "signed", "code", "y", "weight")
        return _Batch(*(np.concatenate([getattr(b, name) for b in taken]) for name in names))

    def _flush(self) -> None:
        """Count what is kept into the histograms."""
        size = len(self._places)
        if not self._histograms:
            self._histograms = [ScoreHistogram.empty(size, self._bins) for _ in range(2)]
            self._counts = np.zeros((2, size), dtype=np.int64)
        # Room for groups that have come since.
        self._histograms = [
            _regroup(each, np.arange(each.n_groups), size) for each in self._histograms
        ]
        self._counts = np.pad(self._counts, ((0, 0), (0, size - self._counts.shape[1])))
        while self._batches:
            joined = self._join(FLUSH_ROWS)
            for part, inside in enumerate((~joined.held_out, joined.held_out)):
                code = joined.code[inside]
                self._counts[part] += np.bincount(code, minlength=size)
                self._histograms[part] = self._histograms[part].add(
                    joined.signed[inside], code, joined.weight[inside], joined.y[inside]
                )
        self._waiting = 0


def sort_cells(cells: Iterable[tuple[str, ...]]) -> Cells:
    """Sort combinations of levels, column by column: as numbers where all are numbers."""
    found = list(cells)
    ranks = [
        {level: rank for rank, level in enumerate(sort_levels(set(column)))}
        for column in zip(*found, strict=True)
    ]
    return tuple(
        sorted(
            found, key=lambda cell: [rank[level] for rank, level in zip(ranks, cell, strict=True)]
        )
    )


def _regroup(
    histogram: ScoreHistogram, codes: np.ndarray, n_groups: int | None = None
) -> ScoreHistogram:
    """Return the histogram with new group codes; what gets one code is added up."""
    size = int(codes.max()) + 1 if n_groups is None else n_groups
    if size == histogram.n_groups and np.array_equal(codes, np.arange(size)):
        return histogram

    def move(table: np.ndarray | None) -> np.ndarray | None:
        if table is None:
            return None
        moved = np.zeros((size, table.shape[1]))
        for old, new in enumerate(codes.tolist()):
            moved[new] += table[old]
        return moved

    mass, positive = move(histogram.mass), move(histogram.positive)
    return replace(histogram, n_groups=size, mass=mass, positive=positive)
