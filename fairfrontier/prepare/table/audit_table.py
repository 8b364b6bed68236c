"""Tables that an audit reads: decisions or scores, true beside noisy groups, confusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
# Each is a row of an audit, of about 100 bytes.
MOST_PERSONS = 10_000_000


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
    accepted, positive : tuple of str
        The levels of decisions, and of labels, that mean 1; every other one means 0.
    undecided : tuple of str
        The levels of decisions that are none: their rows are left out.
    missing : tuple of str or None
        Marks of missing cells of text, in place of the usual ones.
    weights : str or None
        Counts of persons, which are whole numbers, or case weights ≥ 0.
    """

    groups: tuple[str, ...]
    labels: str | None = None
    decisions: str | None = None
    scores: str | None = None
    threshold: float | None = None
    randomised: bool = False
    accepted: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    weights: str | None = None
    missing: tuple[str, ...] | None = None

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
    facts : mapping
        What was made of the table's rows: ``table_rows``, where weights count persons and each is a
        row; ``zeros``, by column, the rows of every level that was read as 0 beside others; rows of
        the ``undecided`` levels, which were left out.
    favourable : {0, 1}
        The class of the decisions that is good for the person.
    """

    decision: np.ndarray | None
    score: np.ndarray | None
    y: np.ndarray | None
    codes: np.ndarray
    attributes: dict[str, tuple[str, ...]]
    weight: np.ndarray
    facts: Mapping[str, Any] = field(default_factory=dict)
    favourable: int = 1

    def favour(self) -> AuditRows:
        """Return the rows with the decisions for the favourable class, and the scores of it."""
        if self.favourable == 1:
            return self
        decision, score = (
            None if column is None else 1.0 - column for column in (self.decision, self.score)
        )
        return replace(self, decision=decision, score=score, favourable=1)

    def take(self, rows: np.ndarray) -> AuditRows:
        """Return rows by their positions, each as often as it is named."""
        decision, score, y = (
            None if column is None else column[rows]
            for column in (self.decision, self.score, self.y)
        )
        return replace(
            self,
            decision=decision,
            score=score,
            y=y,
            codes=self.codes[rows],
            weight=self.weight[rows],
        )

    def sorted(self) -> AuditRows:
        """Return the same rows ordered by content, so that sums over them are the same bits."""
        columns = (self.decision, self.score, self.y)
        keys = [self.weight, *(column for column in columns if column is not None), *self.codes.T]
        return self.take(np.lexsort(keys))


@dataclass(frozen=True, eq=False)
class Confusion:
    """P(Ĝ=k | G=j) as written: ``chance`` of shape (n_true, n_noisy), with names of both sides."""

    chance: np.ndarray
    names: tuple[str, ...]
    noisy_names: tuple[str, ...]


def read_audited(
    path: Path,
    columns: DecisionColumns,
    unknown: Sequence[str] | None = None,
    progress: Share | None = None,
) -> AuditRows:
    """Read decisions or scores, groups and, where they are named, labels, as `ScoreTable` does.

    Missing groups, and the levels ``unknown``, are the level `UNKNOWN`; where that is None they are
    refused. Weights that are all whole numbers count persons, each of whom becomes a row.
    ``progress`` is called with the share that has been read. O(n); memory is 8 bytes a row for each
    column.

    Raises
    ------
    ConfigError
        When the file or a column does not exist, or no row has a level that is named.
    DataError
        For a cell that cannot be used, with its column and row (from 0), for an empty table, and
        for more than ``MOST_PERSONS``.
    """
    decided: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    groups = {name: _Levels(unknown) for name in columns.groups}
    # The columns of which named levels are 1.
    named = {
        option: (str(column), ones, _Levels())
        for option, column, ones in (
            ("accepted", columns.decisions, columns.accepted),
            ("positive", columns.labels, columns.positive),
        )
        if ones
    }
    left_out = Counter[str]()
    for batch in _read(path, columns.used(), progress, columns.missing):
        if columns.undecided:
            codes, present = batch.column(str(columns.decisions)).levels()
            undecided = np.isin(present, columns.undecided)[codes]
            left_out.update(present[code] for code in codes[undecided].tolist())
            batch = batch.keep(~undecided)
        if columns.decisions is not None:
            cells = batch.column(columns.decisions)
            decided.append(cells.binary(columns.accepted, "accepted"))
        if columns.scores is not None:
            cells = batch.column(columns.scores)
            scores.append(cells.numbers())
            if columns.threshold is not None:
                decided.append((scores[-1] >= columns.threshold).astype(np.float64))
            elif columns.randomised:
                decided.append(_read_probabilities(cells, scores[-1]))
        if columns.labels is not None:
            cells = batch.column(columns.labels)
            labels.append(cells.binary(columns.positive, "positive"))
        for column, _, levels in named.values():
            levels.add(batch.column(column))
        for name, levels in groups.items():
            levels.add(batch.column(name))
        if columns.weights is not None:
            weights.append(batch.column(columns.weights).weights())
    if not sum(map(len, groups[columns.groups[0]].codes)):
        raise DataError(f"{path}: no row has a decision.", "Name fewer levels with --undecided.")
    _check_seen(path, columns.decisions, columns.undecided, left_out, left_out, "undecided")
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
    persons = _count_persons(weight, columns, path)
    facts: dict[str, Any] = {"undecided": dict(sorted(left_out.items()))} if left_out else {}
    for option, (column, ones, each) in named.items():
        code, occurring = each.finish()
        _check_seen(path, column, ones, occurring, occurring, option)
        counts = np.bincount(code, persons, len(occurring)).astype(np.int64).tolist()
        zeros = {level: n for level, n in zip(occurring, counts, strict=True) if level not in ones}
        if len(zeros) > 1:
            facts.setdefault("zeros", {})[column] = zeros
    if persons is not None:
        facts["table_rows"] = weight.size
    rows = AuditRows(
        np.concatenate(decided) if decided else None,
        np.concatenate(scores) if scores else None,
        np.concatenate(labels).astype(np.int64) if labels else None,
        codes,
        {name: levels for name, (_, levels) in finished.items()},
        # Only shares matter, and sums of the largest numbers would overflow.
        weight / weight.max() if persons is None else np.ones(weight.size),
        facts,
    )
    return rows if persons is None else rows.take(np.repeat(np.arange(weight.size), persons))


def _count_persons(weight: np.ndarray, columns: DecisionColumns, path: Path) -> np.ndarray | None:
    """Return how many persons each row stands for, int64; None where weights are no counts."""
    if columns.weights is None or (weight != np.floor(weight)).any():
        return None
    if (weight / MOST_PERSONS).sum() > 1:
        raise DataError(
            f"{path}: whole numbers in column {columns.weights!r} count persons, and add up to "
            f"more than {MOST_PERSONS:,}.",
            "Divide them by their mean if they are the case weights of a survey, or count fewer.",
        )
    return weight.astype(np.int64)


def _check_seen(
    path: Path,
    column: str | None,
    wanted: Iterable[str],
    seen: Collection[str],
    known: Iterable[str],
    option: str,
) -> None:
    """Raise a ConfigError for a level that an option names and the column never has."""
    for level in wanted:
        if level not in seen:
            raise ConfigError(
                f"{path}: column {column!r} never is {level!r} (--{option}).", nearest(level, known)
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
        self.codes: list[np.ndarray] = []
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
        self.codes.append(np.array(numbers)[codes])

    def finish(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return all codes, int64, of the sorted levels."""
        levels = sort_levels(self._numbers)
        code = np.empty(len(levels), dtype=np.int64)
        code[[self._numbers[level] for level in levels]] = np.arange(len(levels))
        return code[np.concatenate(self.codes)], levels


def _read(
    path: Path,
    used: Mapping[str, str],
    progress: Share | None,
    missing: Sequence[str] | None = None,
) -> Iterator[Batch]:
    for batch in read_rows(path, used, BATCH_ROWS, missing=missing):
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
