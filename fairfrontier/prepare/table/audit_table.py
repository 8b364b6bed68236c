"""Tables that an audit reads: decisions or scores, true beside noisy groups, confusion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fairfrontier.prepare.config.section import level_text
from fairfrontier.prepare.table.batch_column import FILL_IN, BatchColumn
from fairfrontier.prepare.table.column import MISSING_LEVEL, sort_levels, tell_spellings
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
# The level of rows whose group is not known.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class DecisionColumns:
    """Which column contains what.

    Attributes
    ----------
    groups : tuple of str
        Protected attributes.
    labels : str or None
        True outcomes.
    decisions : str or None
        Decisions: 0 and 1, or any levels where ``accepted`` is given.
    scores : str or None
        Without decisions a row is decided 1 from ``threshold`` on; ``randomised`` scores are the
        probabilities with which a rule decides 1.
    threshold : float or None
    randomised : bool
    accepted, positive : str or None
        The level of decisions, and of labels, that means 1; every other one means 0.
    weights : str or None
        Case weights ≥ 0.
    """

    groups: tuple[str, ...]
    labels: str | None = None
    decisions: str | None = None
    scores: str | None = None
    threshold: float | None = None
    randomised: bool = False
    accepted: str | None = None
    positive: str | None = None
    weights: str | None = None

    def used(self) -> dict[str, str]:
        """Return column -> the option that names it."""
        return name_used(self, ("decisions", "scores", "labels", "groups", "weights"))


@dataclass(frozen=True, eq=False)
class AuditRows:
    """Rows to audit.

    Attributes
    ----------
    decision : ndarray of float64, shape (n,), or None
        Probability that the decision is 1.
    score : ndarray of float64, shape (n,), or None
        As written.
    y : ndarray of int64, shape (n,), or None
        Labels 0 and 1.
    codes : ndarray of int64, shape (n, n_attributes)
        Codes of the levels of each attribute.
    attributes : dict of str to tuple of str
        Column of groups -> its levels, sorted.
    weight : ndarray of float64, shape (n,)
        At most 1.
    """

    decision: np.ndarray | None
    score: np.ndarray | None
    y: np.ndarray | None
    codes: np.ndarray
    attributes: dict[str, tuple[str, ...]]
    weight: np.ndarray

    def sorted(self) -> AuditRows:
        """Return the same rows ordered by content, so that sums over them are the same bits."""
        columns = (self.decision, self.score, self.y)
        keys = [self.weight, *(column for column in columns if column is not None), *self.codes.T]
        order = np.lexsort(keys)
        decision, score, y = (None if column is None else column[order] for column in columns)
        return replace(
            self,
            decision=decision,
            score=score,
            y=y,
            codes=self.codes[order],
            weight=self.weight[order],
        )


@dataclass(frozen=True, eq=False)
class DecisionRows:
    """Rows whose groups are noisy, in an order that does not depend on that of the table.

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
    """Read decisions, labels and one column of noisy groups; see `read_audited`.

    No group may be missing. O(n log n) for the order of the rows.
    """
    rows = read_audited(path, columns, progress=progress)
    ((_, levels),) = rows.attributes.items()
    decision, y = np.asarray(rows.decision), np.asarray(rows.y)
    return DecisionRows(decision, y, rows.codes[:, 0], levels, rows.weight).sorted()


def read_audited(
    path: Path,
    columns: DecisionColumns,
    unknown: Sequence[str] | None = None,
    progress: Share | None = None,
) -> AuditRows:
    """Read decisions or scores, groups and, where they are named, labels, as `ScoreTable` does.

    Missing groups, and the levels ``unknown``, are the level `UNKNOWN`; where that is None they are
    refused. ``progress`` is called with the share that has been read. O(n); memory is 8 bytes a row
    for each column.

    Raises
    ------
    ConfigError
        When the file or a column does not exist, or no row is ``accepted`` or ``positive``.
    DataError
        For a cell that cannot be used, with its column and row (from 0), and for an empty table.
    """
    decided: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    groups = {name: _Levels(unknown) for name in columns.groups}
    seen: dict[str, set[str]] = {"accepted": set(), "positive": set()}
    for batch in _read(path, columns.used(), progress):
        if columns.decisions is not None:
            cells = batch.column(columns.decisions)
            decided.append(cells.binary(columns.accepted, "accepted", seen["accepted"]))
        if columns.scores is not None:
            cells = batch.column(columns.scores)
            scores.append(cells.numbers())
            if columns.threshold is not None:
                decided.append((scores[-1] >= columns.threshold).astype(np.float64))
            elif columns.randomised:
                decided.append(_read_probabilities(cells, scores[-1]))
        if columns.labels is not None:
            cells = batch.column(columns.labels)
            labels.append(cells.binary(columns.positive, "positive", seen["positive"]))
        for name, levels in groups.items():
            levels.add(batch.column(name))
        if columns.weights is not None:
            weights.append(batch.column(columns.weights).weights())
    for option, column in (("accepted", columns.decisions), ("positive", columns.labels)):
        one = getattr(columns, option)
        if one is not None and column is not None and one not in seen[option]:
            raise ConfigError(
                f"{path}: column {column!r} never is {one!r} (--{option}).",
                nearest(one, seen[option]),
            )
    finished = {name: levels.finish() for name, levels in groups.items()}
    for name, (_, occurring) in finished.items():
        tell_spellings(name, occurring)
    check_unknown(
        unknown or (),
        {level for levels in groups.values() for level in levels.unknown},
        {level for _, levels in finished.values() for level in levels},
        path,
    )
    codes = np.stack([codes for codes, _ in finished.values()], axis=1)
    weight = np.concatenate(weights) if weights else np.ones(codes.shape[0])
    if not weight.max() > 0:
        raise DataError(
            f"{path}: all weights in column {columns.weights!r} are 0.",
            "Give a row a positive weight, or leave --weights out.",
        )
    return AuditRows(
        np.concatenate(decided) if decided else None,
        np.concatenate(scores) if scores else None,
        np.concatenate(labels).astype(np.int64) if labels else None,
        codes,
        {name: levels for name, (_, levels) in finished.items()},
        # Only shares matter, and sums of the largest numbers would overflow.
        weight / weight.max(),
    )


def check_unknown(
    unknown: Iterable[str], seen: Collection[str], levels: Collection[str], where: Path | str
) -> None:
    """Raise a ConfigError for a level that is to mean unknown, and that no group has."""
    for name in unknown:
        if name not in seen and name != UNKNOWN:
            raise ConfigError(
                f"{where}: no group ever is {name!r} (--unknown).", nearest(name, levels)
            )


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

    def __init__(self, unknown: Sequence[str] | None = None) -> None:
        """Levels that are ``unknown``, or missing, become one; None refuses missing cells."""
        self._codes: list[np.ndarray] = []
        self._numbers: dict[str, int] = {}
        self._unknown = None if unknown is None else {"", MISSING_LEVEL, *unknown}
        # Those of them that occur.
        self.unknown: set[str] = set()

    def add(self, column: BatchColumn) -> None:
        codes, levels = column.levels()
        if self._unknown is not None:
            self.unknown |= {levels[code] for code in np.unique(codes)} & self._unknown
            levels = tuple(UNKNOWN if level in self._unknown else level for level in levels)
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


def _read_probabilities(column: BatchColumn, score: np.ndarray) -> np.ndarray:
    column.refuse(
        (score < 0) | (score > 1),
        score,
        ", and a probability of deciding 1 lies in 0 to 1",
        "Give the score from which on a row is decided 1 with --threshold.",
    )
    return score
