"""Tables of scores, groups and labels that may be larger than memory: read batch by batch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairfrontier.prepare.table.batch_column import BatchColumn, is_text
from fairfrontier.prepare.table.stream import list_files, read_batches, read_names
from fairfrontier.prepare.table.table import check_header
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.store import hash_file

Scale = Literal["probability", "margin", "signed"]
BOUNDS = {"probability": (0.0, 1.0), "margin": (-np.inf, np.inf), "signed": (-1.0, 1.0)}
# What read_scores forgives, for rounding.
SLACK = 1e-9
BATCH_ROWS = 1 << 17
_WHOLE = r"^(0|-?[1-9][0-9]*)$"
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class ScoreColumns:
    """Which column holds what.

    Attributes
    ----------
    scores : str
        Scores of a trained model, on ``scale``.
    groups : tuple of str
        Protected attributes; the combinations of their levels are the groups.
    labels : str or None
        True outcomes: 0 and 1, false and true, or any levels where ``positive`` is given.
    positive : str or None
        The level of ``labels`` that means 1; every other one means 0.
    weights : str or None
        Case weights ≥ 0.
    ids : str or None
        Row ids, whole numbers or text; the row number, from 0, by default.
    scale : {"probability", "margin", "signed"}
        Scores in [0, 1], log odds, or [−1, 1].
    """

    scores: str
    groups: tuple[str, ...]
    labels: str | None = None
    positive: str | None = None
    weights: str | None = None
    ids: str | None = None
    scale: Scale = "probability"

    def used(self) -> dict[str, str]:
        """Return column -> the option that names it."""
        named = {self.scores: "scores", **dict.fromkeys(self.groups, "groups")}
        for option in ("labels", "weights", "ids"):
            column = getattr(self, option)
            if column is not None:
                named.setdefault(column, option)
        return named


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
        What the draws of a row belong to; see `number_ids`.
    names : pyarrow.Array
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
    names: pa.Array
    share: float

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.score.shape[0])


class ScoreTable:
    """A Parquet file, a folder of them, or a CSV file (plain or gzip), read in batches.

    Parameters
    ----------
    path : Path
        Text is UTF-8 with a header line, separated by commas, or by tabs in a ``.tsv``.
    columns : ScoreColumns
        Which column holds what; the others are not read.
    batch_rows : int, optional
        Rows of Parquet in a batch at most, ``BATCH_ROWS`` by default; text comes in blocks of
        some 4 MiB.

    Raises
    ------
    ConfigError
        When the file or a column is not there.
    DataError
        When the file is neither Parquet nor CSV.

    Notes
    -----
    Memory is bounded by a batch times the used columns, whatever the number of rows. Levels are
    written as everywhere here: 2, 2.0 and "2" are one level, and a missing cell is the level
    ``missing``.
    """

    def __init__(self, path: Path, columns: ScoreColumns, batch_rows: int | None = None) -> None:
        self.path = path
        self.columns = columns
        self._batch_rows = batch_rows or BATCH_ROWS
        self._files = list_files(path)
        for file in self._files:
            check_columns(file, columns.used())

    def digest(self) -> str:
        """Return the sha256 of the file; of the digests of its files for a folder."""
        digests = [hash_file(file) for file in self._files]
        if len(digests) == 1:
            return digests[0]
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def batches(self) -> Iterator[ScoreBatch]:
        """Yield all rows in their order.

        Raises
        ------
        DataError
            For a cell that cannot be used, with its column and its row (from 0); for a file that
            is damaged or holds no rows.
        ConfigError
            When no label is ``positive``.
        """
        start = 0
        seen: set[str] = set()
        wanted = list(self.columns.used())
        for raw, share in read_batches(self._files, wanted, self._batch_rows):
            if raw.num_rows:
                yield self._convert(raw, start, share, seen)
                start += raw.num_rows
        if not start:
            raise DataError(f"{self.path} holds no rows.", "Check that the file is complete.")
        positive = self.columns.positive
        if positive is not None and positive not in seen:
            raise ConfigError(
                f"{self.path}: column {self.columns.labels!r} never is {positive!r} (--positive).",
                nearest(positive, seen),
            )

    def _convert(self, raw: pa.RecordBatch, start: int, share: float, seen: set[str]) -> ScoreBatch:
        columns = self.columns
        score = self._column(raw, columns.scores, start).numbers()
        low, high = BOUNDS[columns.scale]
        outside = (score < low - SLACK) | (score > high + SLACK)
        if outside.any():
            row = int(outside.argmax())
            raise DataError(
                f"{self.path}: column {columns.scores!r} holds {score[row]:g} in row "
                f"{start + row}, and a {columns.scale} score lies in {low:g} to {high:g}.",
                "Say what the scores are with --scale: probability, margin or signed.",
            )
        cell, levels = cross([self._column(raw, name, start).levels() for name in columns.groups])
        weight = np.ones(raw.num_rows)
        if columns.weights is not None:
            weight = self._column(raw, columns.weights, start).weights()
        names = pa.array(np.arange(start, start + raw.num_rows))
        ids = names.to_numpy().view(np.uint64)
        if columns.ids is not None:
            names = self._column(raw, columns.ids, start).present()
            names, ids = number_ids(names, columns.ids, self.path, start)
        label = None
        if columns.labels is not None:
            label = self._column(raw, columns.labels, start).binary(
                columns.positive, "positive", seen
            )
        return ScoreBatch(start, score, cell, levels, label, weight, ids, names, share)

    def _column(self, raw: pa.RecordBatch, name: str, start: int) -> BatchColumn:
        return BatchColumn(raw.column(name), name, self.columns.used()[name], self.path, start)


def check_columns(file: Path, used: Mapping[str, str]) -> None:
    """Raise a ConfigError when a file lacks one of the columns, which map to their options."""
    names = read_names(file)
    check_header(names, file)
    for column, option in used.items():
        if column not in names:
            mend = nearest(column, names)
            if len(names) == 1 and re.search("[;\t|]", names[0]):
                mend = "Separate its columns by commas, or by tabs in a file named .tsv."
            raise ConfigError(f"{file} has no column {column!r} (--{option}).", mend)


def cross(
    columns: Sequence[tuple[np.ndarray, tuple[str, ...]]],
) -> tuple[np.ndarray, tuple[tuple[str, ...], ...]]:
    """Return the codes of the combinations of several columns, and those that occur.

    Parameters
    ----------
    columns : sequence of (ndarray of int64 of shape (n,), tuple of str)
        Codes and levels of each column.

    Returns
    -------
    ndarray of int64, shape (n,), and tuple of tuple of str
    """
    joint = np.zeros(columns[0][0].shape[0], dtype=np.int64)
    for codes, levels in columns:
        joint = joint * len(levels) + codes
    present, code = np.unique(joint, return_inverse=True)
    combinations = []
    for cell in present.tolist():
        combination: tuple[str, ...] = ()
        for _, levels in reversed(columns):
            cell, position = divmod(cell, len(levels))
            combination = (levels[position], *combination)
        combinations.append(combination)
    return np.asarray(code, dtype=np.int64).reshape(-1), tuple(combinations)


def number_ids(
    names: pa.Array, column: str, path: Path, start: int = 0
) -> tuple[pa.Array, np.ndarray]:
    """Return ids as they are kept, and the 64-bit words that the draws of their rows belong to.

    A whole number, or its decimal text, is that number modulo 2⁶⁴; any other text is the first
    eight bytes of the sha256 of its UTF-8, the lowest first.

    Raises
    ------
    DataError
        When ids are neither whole numbers nor text.
    """
    kind = names.type
    if pa.types.is_integer(kind):
        signed = pa.int64() if pa.types.is_signed_integer(kind) else pa.uint64()
        return names, np.asarray(names.cast(signed).to_numpy(False)).view(np.uint64)
    if pa.types.is_floating(kind):
        numbers = np.asarray(names.cast(pa.float64()).to_numpy(False))
        wrong = ~(np.abs(numbers) < 2.0**53) | (numbers != np.floor(numbers))
        if not wrong.any():
            return pa.array(numbers.astype(np.int64)), numbers.astype(np.int64).view(np.uint64)
        raise DataError(
            f"{path}: column {column!r} holds {numbers[int(wrong.argmax())]!r} in row "
            f"{start + int(wrong.argmax())}, and an id is a whole number or text.",
            "Name another column with --ids, or leave it out to use the row number.",
        )
    if not is_text(kind):
        raise DataError(
            f"{path}: column {column!r} holds {kind}, and ids are whole numbers or text.",
            "Name another column with --ids, or leave it out to use the row number.",
        )
    short = pc.and_(pc.match_substring_regex(names, _WHOLE), pc.less(pc.utf8_length(names), 18))
    if pc.all(short).as_py():
        return names, np.asarray(names.cast(pa.int64()).to_numpy(False)).view(np.uint64)
    return names, np.array([_number_id(text) for text in names.to_pylist()], dtype=np.uint64)


def _number_id(text: str) -> int:
    if re.fullmatch(_WHOLE, text):
        return int(text) & _MASK
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
