"""Tables that an audit reads: decisions with noisy groups, true beside noisy groups, confusion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fairfrontier.prepare.config.section import level_text
from fairfrontier.prepare.table.batch_column import FILL_IN, BatchColumn
from fairfrontier.prepare.table.column import MISSING_LEVEL, sort_levels
from fairfrontier.prepare.table.stream import (
    BATCH_ROWS,
    Batch,
    check_table,
    name_used,
    read_names,
    read_rows,
)
from fairfrontier.runtime.errors import ConfigError, DataError, nearest, repeated

Share = Callable[[float], None]


@dataclass(frozen=True)
class DecisionColumns:
    """Which column contains what.

    Attributes
    ----------
    labels, group : str
        True outcomes, and noisy groups.
    decisions : str or None
        Decisions: 0 and 1, or any levels where ``accepted`` is given.
    scores : str or None
        In place of decisions: a row is decided 1 from ``threshold`` on; without a threshold the
        scores are the probabilities with which a randomised rule decides 1.
    threshold : float or None
    accepted, positive : str or None
        The level of decisions, and of labels, that means 1; every other one means 0.
    weights : str or None
        Case weights ≥ 0.
    """

    labels: str
    group: str
    decisions: str | None = None
    scores: str | None = None
    threshold: float | None = None
    accepted: str | None = None
    positive: str | None = None
    weights: str | None = None

    def used(self) -> dict[str, str]:
        """Return column -> the option that names it."""
        return name_used(self, ("decisions", "scores", "labels", "group", "weights"))


@dataclass(frozen=True, eq=False)
class DecisionRows:
    """Rows to audit, in an order that does not depend on that of the table.

    Attributes
    ----------
    decision : ndarray of float64, shape (n,)
        Probability that the decision is 1.
    y : ndarray of int64, shape (n,)
        Labels 0 and 1.
    codes : ndarray of int64, shape (n,)
        Codes of ``levels``.
    levels : tuple of str
        The noisy groups, sorted.
    weight : ndarray of float64, shape (n,)
    truth : ndarray of int64, shape (n,), or None
        Codes of the true groups among ``levels``, where noise was injected.
    """

    decision: np.ndarray
    y: np.ndarray
    codes: np.ndarray
    levels: tuple[str, ...]
    weight: np.ndarray
    truth: np.ndarray | None = None

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.y.size)

    def shares(self) -> np.ndarray:
        """Return the share of the weight in each noisy group, P(Ĝ=k), shape (n_levels,)."""
        total = np.bincount(self.codes, self.weight, len(self.levels))
        return np.asarray(total / total.sum())

    def sorted(self) -> DecisionRows:
        """Return the same rows ordered by content, so that sums over them are the same bits."""
        truth = np.zeros_like(self.codes) if self.truth is None else self.truth
        order = np.lexsort((self.weight, self.decision, truth, self.y, self.codes))
        return replace(
            self,
            decision=self.decision[order],
            y=self.y[order],
            codes=self.codes[order],
            weight=self.weight[order],
            truth=None if self.truth is None else truth[order],
        )


@dataclass(frozen=True, eq=False)
class Confusion:
    """P(Ĝ=k | G=j) as written: ``chance`` of shape (n_true, n_noisy), with names of both sides."""

    chance: np.ndarray
    names: tuple[str, ...]
    noisy_names: tuple[str, ...]


def read_decisions(
    path: Path, columns: DecisionColumns, progress: Share | None = None
) -> DecisionRows:
    """Read decisions, labels and noisy groups of a table, as `ScoreTable` takes it.

    ``progress`` is called with the share that has been read. O(n log n) for the order; memory is
    32 bytes a row.

    Raises
    ------
    ConfigError
        When the file or a column does not exist, or no row is ``accepted`` or ``positive``.
    DataError
        For a cell that cannot be used, with its column and row (from 0), and for an empty table.
    """
    decided: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    groups = _Levels()
    seen: dict[str, set[str]] = {"accepted": set(), "positive": set()}
    for batch in _read(path, columns.used(), progress):
        if columns.decisions is not None:
            cells = batch.column(columns.decisions)
            decided.append(cells.binary(columns.accepted, "accepted", seen["accepted"]))
        else:
            decided.append(_decide(batch.column(str(columns.scores)), columns.threshold))
        cells = batch.column(columns.labels)
        labels.append(cells.binary(columns.positive, "positive", seen["positive"]))
        groups.add(batch.column(columns.group))
        if columns.weights is not None:
            weights.append(batch.column(columns.weights).weights())
    for option, column in (("accepted", columns.decisions), ("positive", columns.labels)):
        one = getattr(columns, option)
        if one is not None and column is not None and one not in seen[option]:
            raise ConfigError(
                f"{path}: column {column!r} never is {one!r} (--{option}).",
                nearest(one, seen[option]),
            )
    codes, levels = groups.finish()
    weight = np.concatenate(weights) if weights else np.ones(codes.size)
    if not weight.max() > 0:
        raise DataError(
            f"{path}: all weights in column {columns.weights!r} are 0.",
            "Give a row a positive weight, or leave --weights out.",
        )
    # Only shares matter, and sums of the largest numbers would overflow.
    weight = weight / weight.max()
    y = np.concatenate(labels).astype(np.int64)
    return DecisionRows(np.concatenate(decided), y, codes, levels, weight).sorted()


def read_pairs(
    path: Path, true: str, noisy: str, progress: Share | None = None, option: str = "group"
) -> tuple[tuple[np.ndarray, tuple[str, ...]], tuple[np.ndarray, tuple[str, ...]]]:
    """Return the true and the noisy groups of an auxiliary table: codes and sorted levels of each.

    ``option`` is the one that names the column of noisy groups, for error messages.
    """
    if true == noisy:
        raise ConfigError(
            f"{path}: the column {true!r} is named as the true and as the noisy group.",
            "Name the column of true groups with --true-group.",
        )
    columns = {true: _Levels(), noisy: _Levels()}
    for batch in _read(path, {true: "true-group", noisy: option}, progress):
        for name, levels in columns.items():
            levels.add(batch.column(name))
    return columns[true].finish(), columns[noisy].finish()


def read_confusion(path: Path) -> Confusion:
    """Read a confusion matrix: true groups in rows by name, noisy groups in columns."""
    header = read_names(check_table(path, {})[0])
    if len(header) < 2:
        raise DataError(
            f"{path} has {len(header)} column, where one of true groups and one for each noisy "
            "group are expected.",
            "Separate its columns by commas: the true group, then P(Ĝ=k | G=j) for every k.",
        )
    rows: list[np.ndarray] = []
    names: list[str] = []
    for batch in _read(path, dict.fromkeys(header, "confusion"), None):
        names.extend(str(level_text(x)) for x in batch.column(header[0]).present().to_pylist())
        rows.append(np.column_stack([batch.column(name).numbers() for name in header[1:]]))
    chance = np.concatenate(rows)
    noisy = [str(level_text(name)) for name in header[1:]]
    for kind, levels in (("row", names), ("column", noisy)):
        if double := repeated(levels):
            raise DataError(f"{path} has two {kind}s {double[0]!r}.", "Give each group one.")
    for name, row in zip(names, chance, strict=True):
        if row.min() < 0 or abs(row.sum() - 1) > 1e-6:
            reason = f"sums to {row.sum():g}" if row.min() >= 0 else f"holds {row.min():g}"
            raise DataError(
                f"{path}: row {name!r} {reason}, and the probabilities P(Ĝ=k | G={name}) of all "
                "noisy groups are 0 or more and sum to 1.",
                "Give true groups in rows and noisy groups in columns.",
            )
    # Groups are sorted, whatever their order in the file.
    sorted_names, sorted_noisy = sort_levels(names), sort_levels(noisy)
    cells = np.ix_([*map(names.index, sorted_names)], [*map(noisy.index, sorted_noisy)])
    return Confusion(chance[cells], sorted_names, sorted_noisy)


class _Levels:
    """Codes of a column whose levels are known only at its end."""

    def __init__(self) -> None:
        self._codes: list[np.ndarray] = []
        self._numbers: dict[str, int] = {}

    def add(self, column: BatchColumn) -> None:
        codes, levels = column.levels()
        occurring = {levels[code] for code in np.unique(codes)}
        if occurring & {"", MISSING_LEVEL}:
            # The cells may hold the word itself.
            column.present(
                f"{FILL_IN}; rows of which nothing is known can be a noisy group with a name."
            )
        # Levels of a dictionary that do not occur get no number.
        numbers = [
            self._numbers.setdefault(level, len(self._numbers)) if level in occurring else -1
            for level in levels
        ]
        self._codes.append(np.array(numbers)[codes])

    def finish(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return all codes, int64, of the sorted levels."""
        levels = sort_levels(self._numbers)
        code = np.empty(len(levels), dtype=np.int64)
        code[[self._numbers[level] for level in levels]] = np.arange(len(levels))
        return code[np.concatenate(self._codes)], levels


def _read(path: Path, used: Mapping[str, str], progress: Share | None) -> Iterator[Batch]:
    for batch in read_rows(path, used, BATCH_ROWS):
        yield batch
        if progress is not None:
            progress(batch.share)


def _decide(column: BatchColumn, threshold: float | None) -> np.ndarray:
    score = column.numbers()
    if threshold is not None:
        return (score >= threshold).astype(np.float64)
    column.refuse(
        (score < 0) | (score > 1),
        score,
        ", and a probability of deciding 1 lies in 0 to 1",
        "Give the score from which on a row is decided 1 with --threshold.",
    )
    return score
