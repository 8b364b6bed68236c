"""Columns by what they are to a command: decisions or scores, labels, groups, weights and ids."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from fairfrontier.prepare.split import cross
from fairfrontier.prepare.table.column import (
    FILL_IN,
    MISSING_LEVEL,
    Cells,
    as_levels,
    sort_levels,
    tell_spellings,
)
from fairfrontier.prepare.table.frame import decode, is_number, make_frame
from fairfrontier.prepare.table.reader import (
    Block,
    check_table,
    digest_table,
    read_names,
    read_rows,
    reading,
)
from fairfrontier.prepare.table.text import BATCH_ROWS
from fairfrontier.runtime.errors import ConfigError, DataError, refuse_unknown, repeated

Share = Callable[[float], None]
Scale = Literal["probability", "margin", "signed", "points"]
ANY = (-np.inf, np.inf)
BOUNDS = {"probability": (0.0, 1.0), "margin": ANY, "signed": (-1.0, 1.0), "points": ANY}
# Scores may exceed their bounds by rounding.
SLACK = 1e-9
# Standard errors take sums of the squares of weights and of their products.
MOST_WEIGHT = 1e70
# The level of rows whose group is not known.
UNKNOWN = "unknown"
# Each is a row of an audit, of about 100 bytes.
MOST_PERSONS = 10_000_000


def name_used(columns: object, options: Sequence[str]) -> dict[str, str]:
    """Return column -> the first of the options that names it; options are attributes."""
    used: dict[str, str] = {}
    for option in options:
        value = getattr(columns, option)
        for column in (value,) if isinstance(value, str) else value or ():
            used.setdefault(column, option)
    return used


@dataclass(frozen=True)
class ScoreColumns:
    """Which column contains what.

    Attributes
    ----------
    scores : str
        Scores of a trained model, on ``scale``.
    groups : tuple of str
        Protected attributes; the combinations of their levels are the groups.
    labels : str or None
        True outcomes: 0 and 1, false and true, or any levels where ``positive`` is given.
    positive : tuple of str
        The levels of ``labels`` that mean 1; every other one means 0.
    weights : str or None
        Case weights ≥ 0.
    ids : str or None
        Row ids, whole numbers or text; the row number, from 0, by default.
    scale : {"probability", "margin", "signed", "points"}
        Scores in [0, 1], log odds, [−1, 1], or any numbers of which only the order counts.
    missing : tuple of str or None
        Marks of missing cells of text, in place of the usual ones.
    """

    scores: str
    groups: tuple[str, ...]
    labels: str | None = None
    positive: tuple[str, ...] = ()
    weights: str | None = None
    ids: str | None = None
    scale: Scale = "probability"
    missing: tuple[str, ...] | None = None

    def used(self) -> dict[str, str]:
        """Return column -> the option that names it."""
        return name_used(self, ("scores", "groups", "labels", "weights", "ids"))


@dataclass(frozen=True, eq=False)
class ScoreBatch:
    """Consecutive rows of a table.

    Attributes
    ----------
    start : int
        Number of the first row.
    score : ndarray of float64, shape (n,)
        As written, within the bounds of the scale.
    cell : ndarray of int64, shape (n,)
        Position of each row's combination of levels in ``levels``.
    levels : tuple of tuple of str
        The combinations that occur in this batch, one level for each column of groups.
    label : ndarray of float64, shape (n,), or None
        0 or 1.
    weight : ndarray of float64, shape (n,)
        Ones where no column is named.
    ids : ndarray of uint64, shape (n,)
        The words that seed the draws of each row; see `number_ids`.
    names : ndarray of int64, uint64 or object, shape (n,)
        The ids as written.
    share : float
        How much of the table has been read, from 0 to 1.
    """

    start: int
    score: np.ndarray
    cell: np.ndarray
    levels: tuple[tuple[str, ...], ...]
    label: np.ndarray | None
    weight: np.ndarray
    ids: np.ndarray
    names: np.ndarray
    share: float

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.score.shape[0])


class ScoreTable:
    """A Parquet file, a folder of them, or a CSV file (plain or gzip), read in batches.

    Text is UTF-8 with a header line, separated by commas, or by tabs in a ``.tsv``; only the named
    columns are read. Memory is bounded by a batch times these columns, whatever the number of
    rows. Parquet comes in ``batch_rows`` rows at most, ``BATCH_ROWS`` by default. 2, 2.0 and "2"
    are one level, and a missing cell is the level ``missing``.

    Raises
    ------
    ConfigError
        When the file or a column does not exist.
    DataError
        When the file is neither Parquet nor CSV.
    """

    def __init__(self, path: Path, columns: ScoreColumns, batch_rows: int | None = None) -> None:
        self.path = path
        self.columns = columns
        self._batch_rows = batch_rows or BATCH_ROWS
        # Of levels of labels that were read as 0 beside others, the rows; by their column.
        self.zeros: dict[str, dict[str, int]] = {}
        check_table(path, columns.used())

    def digest(self) -> str:
        """Return the sha256 of the file; of the digests of its files for a folder."""
        return digest_table(self.path)

    def batches(self) -> Iterator[ScoreBatch]:
        """Yield all rows in their order.

        Raises
        ------
        DataError
            For a cell that cannot be used, with its column and its row (from 0); for a file that
            is damaged or empty.
        ConfigError
            When a level of ``positive`` never occurs.
        """
        seen = Counter[str]()
        for batch in read_rows(
            self.path, self.columns.used(), self._batch_rows, missing=self.columns.missing
        ):
            yield self._convert(batch, seen)
        zeros = {
            level: n for level, n in sorted(seen.items()) if level not in self.columns.positive
        }
        if self.columns.positive and len(zeros) > 1:
            self.zeros = {str(self.columns.labels): zeros}
        _check_seen(self.path, self.columns.labels, self.columns.positive, seen, "positive")

    def _convert(self, batch: Block, seen: Counter[str]) -> ScoreBatch:
        columns, n = self.columns, batch.rows.size
        column = batch.column(columns.scores)
        score = column.numbers()
        low, high = BOUNDS[columns.scale]
        column.refuse(
            (score < low - SLACK) | (score > high + SLACK),
            f", and a {columns.scale} score lies in {low:g} to {high:g}",
            "Set the scale of the scores with --scale: points where only their order counts, as of "
            "credit points or deciles; else probability, margin (log odds) or signed.",
        )
        groups = [batch.column(name).levels() for name in columns.groups]
        if math.prod(len(levels) for _, levels in groups) >= 2**63:
            raise ConfigError(
                f"{self.path}: {len(groups)} columns of groups have 2^63 combinations or more.",
                "Name fewer columns with --groups.",
            )
        cell, levels = cross(groups)
        weight = np.ones(n)
        if columns.weights:
            weights = batch.column(columns.weights)
            weight = weights.weights()
            weights.refuse(
                (weight > 0) & ((weight < 1 / MOST_WEIGHT) | (weight > MOST_WEIGHT)),
                ", beyond what variances are computed of",
                f"Divide all weights by one number, to between {1 / MOST_WEIGHT:g} and "
                f"{MOST_WEIGHT:g}.",
            )
        names, ids = batch.rows, batch.rows.view(np.uint64)
        if columns.ids is not None:
            names, ids = batch.column(columns.ids).ids()
        label = None
        if columns.labels is not None:
            label = batch.column(columns.labels).binary(columns.positive, "positive", seen)
        return ScoreBatch(batch.start, score, cell, levels, label, weight, ids, names, batch.share)


def name_cells(cells: Iterable[Sequence[str]], where: str) -> tuple[str, ...]:
    """Return the names of combinations of levels, such as female×Black.

    Raises
    ------
    DataError
        When two of them have one name, as those of a×b and c, and of a and b×c.
    """
    names: dict[str, None] = {}
    for name in map("×".join, cells):
        if name in names:
            raise DataError(
                f"{where}: two combinations of levels are both named {name!r}.",
                "Rename the levels that have a × in them.",
            )
        names[name] = None
    return tuple(names)


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
    ``progress`` is called with the share that has been read. O(n); memory is that of the columns.

    Raises
    ------
    ConfigError
        When the file or a column does not exist, or no row has a level that is named.
    DataError
        For a cell that cannot be used, with its column and row (from 0), for an empty table, and
        for more than ``MOST_PERSONS``.
    """
    block = _read_whole(path, columns.used(), progress, columns.missing)
    facts: dict[str, Any] = {}
    if columns.undecided:
        codes, present = block.column(str(columns.decisions)).levels()
        rows = np.bincount(codes, minlength=len(present)).tolist()
        left_out = {n: rows[present.index(n)] for n in sorted({*columns.undecided} & {*present})}
        _check_seen(path, columns.decisions, columns.undecided, present, "undecided")
        block = block.keep(~np.isin(present, columns.undecided)[codes])
        facts["undecided"] = left_out
    if not block.rows.size:
        raise DataError(f"{path}: no row has a decision.", "Name fewer levels with --undecided.")
    weight = np.ones(block.rows.size)
    if columns.weights is not None:
        weight = block.column(columns.weights).weights()
        if not weight.max() > 0:
            raise DataError(
                f"{path}: all weights in column {columns.weights!r} are 0.",
                "Give a row a positive weight, or leave --weights out.",
            )
    persons = _count_persons(weight, columns, path)
    decision = score = y = None
    if columns.decisions is not None:
        decision = block.column(columns.decisions).binary(columns.accepted, "accepted")
    if columns.scores is not None:
        cells = block.column(columns.scores)
        score = cells.numbers()
        if columns.threshold is not None:
            decision = (score >= columns.threshold).astype(np.float64)
        elif columns.randomised:
            mend = "Give the score from which on a row is decided 1 with --threshold."
            reason = ", and a probability of deciding 1 lies in 0 to 1"
            cells.refuse((score < 0) | (score > 1), reason, mend)
            decision = score
    if columns.labels is not None:
        y = block.column(columns.labels).binary(columns.positive, "positive").astype(np.int64)
    for option, column, ones in (
        ("accepted", columns.decisions, columns.accepted),
        ("positive", columns.labels, columns.positive),
    ):
        if ones and column is not None:
            codes, present = block.column(column).levels()
            _check_seen(path, column, ones, present, option)
            counts = np.bincount(codes, persons, len(present)).astype(np.int64).tolist()
            counted = dict(zip(present, counts, strict=True))
            zeros = {level: counted[level] for level in sort_levels({*present}.difference(ones))}
            if len(zeros) > 1:
                facts.setdefault("zeros", {})[column] = zeros
    found = {name: _find_groups(block.column(name), unknown) for name in columns.groups}
    for name, (_, levels, _) in found.items():
        tell_spellings(name, levels)
    check_unknown(
        unknown or (),
        {level for *_, named in found.values() for level in named},
        {level for _, levels, _ in found.values() for level in levels},
        path,
    )
    if persons is not None:
        facts["table_rows"] = weight.size
    audited = AuditRows(
        decision,
        score,
        y,
        np.stack([codes for codes, *_ in found.values()], axis=1),
        {name: levels for name, (_, levels, _) in found.items()},
        # Only shares matter, and sums of the largest numbers would overflow.
        weight / weight.max() if persons is None else np.ones(weight.size),
        facts,
    )
    return audited if persons is None else audited.take(np.repeat(np.arange(weight.size), persons))


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
    path: Path, column: str | None, wanted: Iterable[str], seen: Collection[str], option: str
) -> None:
    """Raise a ConfigError for a level that an option names and the column never has."""
    refuse_unknown(wanted, seen, f"{path}: column {column!r} never is", f" (--{option})")


def check_unknown(
    unknown: Iterable[str], seen: Collection[str], levels: Collection[str], where: Path | str
) -> None:
    """Raise a ConfigError for a level that is to mean unknown, and that no group has."""
    known = {*seen, *levels, UNKNOWN}
    refuse_unknown(unknown, known, f"{where}: no group ever is", " (--unknown)")


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
    block = _read_whole(path, {true: "true-group", noisy: option}, progress)
    (codes, names, _), (seen, levels, _) = (
        _find_groups(block.column(name), None) for name in (true, noisy)
    )
    return (codes, names), (seen, levels)


def read_confusion(path: Path) -> Confusion:
    """Read a confusion matrix: true groups in rows by name, noisy groups in columns."""
    header = read_names(check_table(path, {})[0])
    if len(header) < 2:
        raise DataError(
            f"{path} has {len(header)} column, where one of true groups and one for each noisy "
            "group are expected.",
            "Separate its columns by commas: the true group, then P(Ĝ=k | G=j) for every k.",
        )
    block = _read_whole(path, dict.fromkeys(header, "confusion"))
    codes, found = block.column(header[0]).present()
    names: list[str] = found[codes].tolist()
    chance = np.column_stack([block.column(name).numbers() for name in header[1:]])
    noisy = as_levels(pd.Series(header[1:], dtype="str")).tolist()
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


def _find_groups(
    column: Cells, unknown: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...], set[str]]:
    """Return the codes, int64, of the sorted levels of a column, and the unknown ones that occur.

    Levels that are ``unknown``, or missing, become one; None refuses missing cells.
    """
    if unknown is None:
        column.present(
            f"{FILL_IN}; rows of which nothing is known can be a noisy group with a name."
        )
    codes, present = column.levels()
    named = set() if unknown is None else {*present} & {MISSING_LEVEL, *unknown}
    names = [UNKNOWN if level in named else level for level in present]
    levels = sort_levels({*names})
    return np.array([levels.index(name) for name in names])[codes], levels, named


def _read_whole(
    path: Path,
    used: Mapping[str, str],
    progress: Share | None = None,
    missing: Sequence[str] | None = None,
) -> Block:
    """Return the used columns of a table as one block."""
    blocks = []
    for block in read_rows(path, used, BATCH_ROWS, missing=missing):
        blocks.append(block.raw)
        if progress is not None:
            progress(block.share)
    with reading(path):
        table = _join(blocks)
    return Block(table, used, path, np.arange(table.num_rows), 1.0)


def _join(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return batches as one table; a folder's files may write a column in types of their own."""
    if all(each.schema.equals(batches[0].schema) for each in batches):
        return pa.Table.from_batches(batches)
    tables = [decode(pa.Table.from_batches([each])) for each in batches]
    for name in batches[0].schema.names:
        kinds = {each.schema.field(name).type for each in tables} - {pa.null()}
        if len(kinds) > 1 and not all(map(is_number, kinds)):
            # A level is the same text in every type.
            tables = [_write_levels(each, name) for each in tables]
    return pa.concat_tables(tables, promote_options="permissive")


def _write_levels(table: pa.Table, name: str) -> pa.Table:
    levels = as_levels(make_frame(table.select([name]))[name])
    cells = pa.array(levels, pa.string(), from_pandas=True)
    return table.set_column(table.schema.get_field_index(name), name, cells)
