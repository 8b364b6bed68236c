"""Tables that an audit reads: decisions with noisy groups, true beside noisy groups, confusion."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from fairfrontier.prepare.config.section import level_text
from fairfrontier.prepare.table.batch_column import BatchColumn
from fairfrontier.prepare.table.column import MISSING_LEVEL, sort_levels
from fairfrontier.prepare.table.score_table import BATCH_ROWS, check_columns
from fairfrontier.prepare.table.stream import list_files, read_batches, read_names
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.store import hash_file

Share = Callable[[float], None]


@dataclass(frozen=True)
class DecisionColumns:
    """Which column holds what.

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
        named: dict[str, str] = {}
        for option in ("decisions", "scores", "labels", "group", "weights"):
            column = getattr(self, option)
            if column is not None:
                named.setdefault(column, option)
        return named


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
        """Return the same rows in an order of their content: sums are then the same to the bit."""
        truth = np.zeros_like(self.codes) if self.truth is None else self.truth
        order = np.lexsort((self.weight, self.decision, truth, self.y, self.codes))
        return DecisionRows(
            self.decision[order],
            self.y[order],
            self.codes[order],
            self.levels,
            self.weight[order],
            None if self.truth is None else truth[order],
        )


@dataclass(frozen=True, eq=False)
class Confusion:
    """A confusion matrix as written.

    Attributes
    ----------
    chance : ndarray of float64, shape (n_true, n_noisy)
        P(Ĝ=k | G=j).
    names, noisy_names : tuple of str
        Of its rows and columns.
    """

    chance: np.ndarray
    names: tuple[str, ...]
    noisy_names: tuple[str, ...]


def read_decisions(
    path: Path, columns: DecisionColumns, progress: Share | None = None
) -> DecisionRows:
    """Read decisions, labels and noisy groups.

    Parameters
    ----------
    path : Path
        A Parquet file, a folder of them, or a CSV file, plain or gzip.
    columns : DecisionColumns
    progress : callable, optional
        Gets how much has been read, from 0 to 1.

    Raises
    ------
    ConfigError
        When the file or a column is not there, or no row is ``accepted`` or ``positive``.
    DataError
        For a cell that cannot be used, with its column and row (from 0), and for an empty table.

    Notes
    -----
    O(n log n) for the order. Memory is 32 bytes a row.
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
    # Shares alone count, and sums of the largest numbers would overflow.
    weight = weight / weight.max()
    y = np.concatenate(labels).astype(np.int64)
    return DecisionRows(np.concatenate(decided), y, codes, levels, weight).sorted()


def read_pairs(
    path: Path, true: str, noisy: str, progress: Share | None = None, option: str = "group"
) -> tuple[tuple[np.ndarray, tuple[str, ...]], tuple[np.ndarray, tuple[str, ...]]]:
    """Read true and noisy groups of an auxiliary table: codes and sorted levels of each.

    ``option`` is what names the column of noisy groups, for faults.

    Raises
    ------
    ConfigError
        When the file or a column is not there.
    DataError
        When a cell is missing or no level, or there is no row.
    """
    if true == noisy:
        raise ConfigError(
            f"{path}: the column {true!r} is named as the true and as the noisy group.",
            "Name the column of true groups with --true-group.",
        )
    found = {true: _Levels(), noisy: _Levels()}
    for batch in _read(path, {true: "true-group", noisy: option}, progress):
        for name, levels in found.items():
            levels.add(batch.column(name))
    return found[true].finish(), found[noisy].finish()


def read_confusion(path: Path) -> Confusion:
    """Read a confusion matrix: true groups in rows by name, noisy groups in columns.

    Raises
    ------
    ConfigError
        When the file is not there.
    DataError
        When it has no rows or no columns of noisy groups, a group stands twice, a cell is no
        number, or a row is no distribution.
    """
    files = list_files(path)
    header = read_names(files[0])
    check_columns(files[0], {})
    if len(header) < 2:
        raise DataError(
            f"{path} has {len(header)} column, where one of true groups and one for each noisy "
            "group were due.",
            "Separate its columns by commas: the true group, then P(Ĝ=k | G=j) for every k.",
        )
    rows: list[np.ndarray] = []
    named: list[str] = []
    for batch in _read(path, dict.fromkeys(header, "confusion"), None):
        named.extend(
            str(level_text(name)) for name in batch.column(header[0]).present().to_pylist()
        )
        rows.append(np.column_stack([batch.column(each).numbers() for each in header[1:]]))
    chance = np.concatenate(rows)
    noisy = [str(level_text(name)) for name in header[1:]]
    for kind, names in (("row", named), ("column", noisy)):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DataError(f"{path} has two {kind}s {twice[0]!r}.", "Give each group one.")
    for name, row in zip(named, chance, strict=True):
        if row.min() < 0 or abs(row.sum() - 1) > 1e-6:
            told = f"sums to {row.sum():g}" if row.min() >= 0 else f"holds {row.min():g}"
            raise DataError(
                f"{path}: row {name!r} {told}, and the probabilities P(Ĝ=k | G={name}) of all "
                "noisy groups are 0 or more and sum to 1.",
                "Give true groups in rows and noisy groups in columns.",
            )
    # The order of the file is no order of the groups.
    rows_by, columns_by = sort_levels(named), sort_levels(noisy)
    places = np.ix_([named.index(each) for each in rows_by], [noisy.index(e) for e in columns_by])
    return Confusion(chance[places], rows_by, columns_by)


def check_table(path: Path, used: Mapping[str, str]) -> None:
    """Raise a ConfigError when a table or one of its columns is not there; no row is read."""
    for file in list_files(path):
        check_columns(file, used)


def digest_table(path: Path) -> str:
    """Return the sha256 of a file; of the digests of its files for a folder."""
    digests = [hash_file(file) for file in list_files(path)]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class _Batch:
    """Consecutive rows."""

    raw: pa.RecordBatch
    used: Mapping[str, str]
    path: Path
    start: int

    def column(self, name: str) -> BatchColumn:
        return BatchColumn(self.raw.column(name), name, self.used[name], self.path, self.start)


class _Levels:
    """Codes of a column whose levels are known only at its end."""

    def __init__(self) -> None:
        self._codes: list[np.ndarray] = []
        self._places: dict[str, int] = {}

    def add(self, column: BatchColumn) -> None:
        codes, levels = column.levels()
        occurring = {levels[code] for code in np.unique(codes)}
        if "" in occurring or MISSING_LEVEL in occurring:
            lost = [level in ("", MISSING_LEVEL) for level in levels]
            blank = np.array(lost)[codes] & _is_blank(column.values)
            if blank.any():
                raise DataError(
                    f"{column.path}: column {column.name!r} is missing in row "
                    f"{column.start + int(blank.argmax())}.",
                    "Fill it in, or leave the row out; rows of which nothing is known can be a "
                    "noisy group of their own name.",
                )
        # Levels that merely could occur get no code.
        place = np.array(
            [
                self._places.setdefault(x, len(self._places)) if x in occurring else -1
                for x in levels
            ]
        )
        self._codes.append(place[codes])

    def finish(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return all codes, int64, of the sorted levels."""
        levels = sort_levels(self._places)
        place = np.empty(len(levels), dtype=np.int64)
        for code, level in enumerate(levels):
            place[self._places[level]] = code
        return place[np.concatenate(self._codes)], levels


def _is_blank(values: pa.Array) -> np.ndarray:
    """Tell which cells are missing: null, NaN, or text of blanks."""
    return np.array(
        [
            cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())
            for cell in values.to_pylist()
        ]
    )


def _read(path: Path, used: Mapping[str, str], progress: Share | None) -> Iterator[_Batch]:
    """Yield the rows of a table; one without any is an error."""
    files = list_files(path)
    for file in files:
        check_columns(file, used)
    start = 0
    for raw, share in read_batches(files, list(used), BATCH_ROWS):
        if raw.num_rows:
            yield _Batch(raw, used, path, start)
            start += raw.num_rows
        if progress is not None:
            progress(share)
    if not start:
        raise DataError(f"{path} holds no rows.", "Check that the file is complete.")


def _decide(column: BatchColumn, threshold: float | None) -> np.ndarray:
    score = column.numbers()
    if threshold is not None:
        return (score >= threshold).astype(np.float64)
    outside = (score < 0) | (score > 1)
    if outside.any():
        row = int(outside.argmax())
        raise DataError(
            f"{column.path}: column {column.name!r} holds {score[row]:g} in row "
            f"{column.start + row}, and a probability of deciding 1 lies in 0 to 1.",
            "Give the score from which on a row is decided 1 with --threshold.",
        )
    return score
