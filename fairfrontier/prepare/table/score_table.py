"""Tables of scores, groups and labels that may be larger than memory: read batch by batch."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairfrontier.prepare.table.batch_column import BatchColumn, is_text
from fairfrontier.prepare.table.stream import (
    BATCH_ROWS,
    Batch,
    check_table,
    digest_table,
    name_used,
    read_rows,
)
from fairfrontier.runtime.errors import ConfigError, DataError, nearest

Scale = Literal["probability", "margin", "signed", "points"]
ANY = (-np.inf, np.inf)
BOUNDS = {"probability": (0.0, 1.0), "margin": ANY, "signed": (-1.0, 1.0), "points": ANY}
# Scores may exceed their bounds by rounding.
# Standard errors take sums of the squares of weights and of their products.
MOST_WEIGHT = 1e70
SLACK = 1e-9
_WHOLE = r"^(0|-?[1-9][0-9]*)$"
_MASK = (1 << 64) - 1


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
        for positive in self.columns.positive:
            if positive not in seen:
                raise ConfigError(
                    f"{self.path}: column {self.columns.labels!r} never is {positive!r} "
                    "(--positive).",
                    nearest(positive, seen),
                )

    def _convert(self, batch: Batch, seen: Counter[str]) -> ScoreBatch:
        columns, start, n = self.columns, batch.start, batch.raw.num_rows
        column = batch.column(columns.scores)
        score = column.numbers()
        low, high = BOUNDS[columns.scale]
        column.refuse(
            (score < low - SLACK) | (score > high + SLACK),
            score,
            f", and a {columns.scale} score lies in {low:g} to {high:g}",
            "Set the scale of the scores with --scale: points where only their order counts, as of "
            "credit points or deciles; else probability, margin (log odds) or signed.",
        )
        groups = [batch.column(name).levels() for name in columns.groups]
        if math.prod(len(levels) for _, levels in groups) >= 2**63:
            raise DataError(
                f"{self.path}: {len(groups)} columns of groups have 2^63 combinations or more.",
                "Name fewer columns with --groups, or merge their levels first.",
            )
        cell, levels = cross(groups)
        weight = np.ones(n)
        if columns.weights:
            weights = batch.column(columns.weights)
            weight = weights.weights()
            weights.refuse(
                (weight > 0) & ((weight < 1 / MOST_WEIGHT) | (weight > MOST_WEIGHT)),
                weight,
                ", beyond what variances are computed of",
                f"Divide all weights by one number, to between {1 / MOST_WEIGHT:g} and "
                f"{MOST_WEIGHT:g}.",
            )
        names = pa.array(np.arange(start, start + n))
        ids = names.to_numpy().view(np.uint64)
        if columns.ids is not None:
            names, ids = number_ids(batch.column(columns.ids))
        label = None
        if columns.labels is not None:
            label = batch.column(columns.labels).binary(columns.positive, "positive", seen)
        return ScoreBatch(start, score, cell, levels, label, weight, ids, names, batch.share)


def cross(
    columns: Sequence[tuple[np.ndarray, tuple[str, ...]]],
) -> tuple[np.ndarray, tuple[tuple[str, ...], ...]]:
    """Return the codes, int64, of the combinations of several columns, and those that occur.

    Each column is given by its codes, int64 of shape (n,), and its levels.
    """
    shape = [len(levels) for _, levels in columns]
    joint = np.zeros(columns[0][0].shape[0], dtype=np.int64)
    for codes, levels in columns:
        joint = joint * len(levels) + codes
    present, code = np.unique(joint, return_inverse=True)
    names = [
        np.array(levels, dtype=object)[codes]
        for (_, levels), codes in zip(columns, np.unravel_index(present, shape), strict=True)
    ]
    return np.asarray(code, dtype=np.int64).reshape(-1), tuple(zip(*names, strict=True))


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


def number_ids(column: BatchColumn) -> tuple[pa.Array, np.ndarray]:
    """Return ids as they are written out, and the 64-bit words that seed the draws of their rows.

    A whole number, or its decimal text, is that number modulo 2⁶⁴; any other text is the first
    eight bytes of the sha256 of its UTF-8, the lowest first.
    """
    names = column.present()
    kind = names.type
    mend = f"Name another column with --{column.option}, or leave it out to use the row number."
    if pa.types.is_integer(kind):
        signed = pa.int64() if pa.types.is_signed_integer(kind) else pa.uint64()
        return names, np.asarray(names.cast(signed).to_numpy(False)).view(np.uint64)
    if pa.types.is_floating(kind):
        numbers = np.asarray(names.cast(pa.float64()).to_numpy(False))
        wrong = ~(np.abs(numbers) < 2.0**53) | (numbers != np.floor(numbers))
        column.refuse(wrong, numbers, ", and an id is a whole number or text", mend)
        return pa.array(numbers.astype(np.int64)), numbers.astype(np.int64).view(np.uint64)
    if not is_text(kind):
        raise column.error(f"holds {kind}, and ids are whole numbers or text", mend)
    short = pc.and_(pc.match_substring_regex(names, _WHOLE), pc.less(pc.utf8_length(names), 18))
    if pc.all(short).as_py():
        return names, np.asarray(names.cast(pa.int64()).to_numpy(False)).view(np.uint64)
    return names, np.array([_number_id(text) for text in names.to_pylist()], dtype=np.uint64)


def _number_id(text: str) -> int:
    if re.fullmatch(_WHOLE, text):
        return int(text) & _MASK
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
