"""Parquet and CSV files that may be larger than memory, as a stream of batches of rows."""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, cast
from zipfile import BadZipFile, ZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from fairfrontier.prepare.config.source import Source
from fairfrontier.prepare.source.archive import (
    ZIP_START,
    most_unpacked,
    name_member,
    open_member,
    refuse_growth,
)
from fairfrontier.prepare.table.batch_column import BatchColumn
from fairfrontier.prepare.table.header import Header, find_header, read_start
from fairfrontier.prepare.table.parquet import PlainParquet, count_bytes, memory_error
from fairfrontier.prepare.table.sniff import Known, find_source, read_typed
from fairfrontier.prepare.table.table import (
    check_header,
    clean_text,
    list_parquet,
    make_frame,
    refuse_missing,
    text_errors,
    text_options,
    tidy_text,
    unpack,
)
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.recall import Stamp, stamp
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.text_file import is_plain

BATCH_ROWS = 1 << 17
BLOCK_BYTES = 1 << 22
PLAIN = "If it is right, write it as a plain CSV file."


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive rows of a table.

    ``used`` maps the columns to the options that name them, ``start`` is the number of the first
    row, and ``share`` says how much of the table has been read, from 0 to 1. Where rows were left
    out, ``places`` are those of the others, counted from ``start``.
    """

    raw: pa.RecordBatch
    used: Mapping[str, str]
    path: Path
    start: int
    share: float
    places: np.ndarray | None = None

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as they are read, indexed by their numbers in the table.

        DataError where cells are neither text, numbers nor times.
        """
        for name in self.raw.schema.names:
            # What is only kept may be anything.
            if self.used[name] != "keep":
                self.column(name).refuse_bytes()
        frame = make_frame(self.raw)
        return frame.set_axis(pd.RangeIndex(self.start, self.start + len(frame)))

    def column(self, name: str) -> BatchColumn:
        """Return a column by its name."""
        cells, option = self.raw.column(name), self.used[name]
        return BatchColumn(cells, name, option, self.path, self.start, self.places)

    def keep(self, rows: np.ndarray) -> Batch:
        """Return the batch with some of its rows, bool of shape (n,)."""
        return replace(self, raw=self.raw.filter(pa.array(rows)), places=np.flatnonzero(rows))


def list_files(path: Path) -> list[Path]:
    """Return the files of a table: itself, or a folder's Parquet files in order of name."""
    if path.is_dir():
        files = list_parquet(path)
        if not files:
            raise ConfigError(
                f"{path} is a folder without Parquet files.",
                "Name a file, or a folder of *.parquet.",
            )
        return files
    if not is_plain(path):
        raise refuse_missing(path)
    return [path]


def digest_table(path: Path) -> str:
    """Return the sha256 of a file; for a folder, that of the digests of its files."""
    digests = [hash_file(file) for file in list_files(path)]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def stamp_table(path: Path) -> dict[Path, Stamp]:
    """Return the files of a table with what changes when they are written; see `check_stamps`."""
    return {file: stamp(file) for file in list_files(path)}


def check_stamps(path: Path, stamps: Mapping[Path, Stamp]) -> None:
    """Raise a DataError when a table has changed since `stamp_table`."""
    if stamp_table(path) != stamps:
        raise DataError(
            f"{path} changed while it was read.", "Run again when no other program writes to it."
        )


def name_used(columns: object, options: Sequence[str]) -> dict[str, str]:
    """Return column -> the first of the options that names it; options are attributes."""
    used: dict[str, str] = {}
    for option in options:
        value = getattr(columns, option)
        for column in (value,) if isinstance(value, str) else value or ():
            used.setdefault(column, option)
    return used


def check_table(path: Path, used: Mapping[str, str], source: Source | None = None) -> list[Path]:
    """Return the files of a table, all of which have the used columns; no row is read.

    ``used`` maps columns to the options that name them. How text is written is found out, by
    ``source``, that of a study, where it may be written so. A ConfigError says what is not there.
    """
    files = list_files(path)
    for file in files:
        names = read_names(file, source, used)
        check_header(names, file)
        for column, option in used.items():
            if column not in names:
                raise ConfigError(
                    f"{file} has no column {column!r} (--{option}).", nearest(column, names)
                )
    return files


def read_names(path: Path, source: Source | None = None, named: Collection[str] = ()) -> list[str]:
    """Return the names of a file's columns; those of text without blanks around them.

    A first row of numbers that has all those ``named`` is a header.
    """
    with _explain(path):
        if _is_parquet(path):
            with _open_parquet(path) as opened:
                return list(opened.schema.names)
        if (typed := _load_typed(path, stamp(path))) is not None:
            return list(typed.column_names)
        known = None if source is None else Known.of(source)
        return _describe(path, stamp(path), known, frozenset(named)).header.columns


def read_rows(
    path: Path,
    used: Mapping[str, str],
    rows: int,
    source: Source | None = None,
    missing: Sequence[str] | None = None,
) -> Iterator[Batch]:
    """Yield the used columns of a table in batches that hold rows.

    A batch has at most ``rows`` rows, of text also those of a block of ``BLOCK_BYTES`` alone. Every
    cell of text is text, and an empty one is missing, as are those with a mark, by default one of
    those that `init` knows; of a study's ``source`` its reader finds them. A table without rows
    raises a DataError.
    """
    files = check_table(path, used, source)
    total = sum(file.stat().st_size for file in files) or 1
    done = start = 0
    for file in files:
        for raw, position in _read_file(file, list(used), rows, source, missing):
            for first in range(0, raw.num_rows, rows):
                part = raw.slice(first, rows)
                yield Batch(part, used, path, start, (done + position) / total)
                start += part.num_rows
        done += file.stat().st_size
    if not start:
        raise DataError(f"{path} holds no rows.", "Check that the file is complete.")


def _read_file(
    path: Path,
    wanted: Sequence[str],
    rows: int,
    source: Source | None,
    missing: Sequence[str] | None,
) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield batches, and how many bytes of the file were read for them."""
    size = path.stat().st_size
    with _explain(path):
        if not _is_parquet(path):
            if (typed := _load_typed(path, stamp(path))) is not None:
                for batch in typed.select(wanted).to_batches(rows):
                    yield batch, size
                return
            known = None if source is None else Known.of(source)
            form = _describe(path, stamp(path), known, frozenset(wanted))
            if missing is not None:
                marked = form.source.model_copy(update={"missing": tuple(missing)})
                form = replace(form, source=marked)
            yield from _read_text(path, wanted, form)
            return
        with _open_parquet(path) as opened:
            # As text a cell takes two bytes or more.
            opened.check_cells(2, wanted)
            count, read = opened.metadata.num_rows or 1, 0
            for batch in opened.file.iter_batches(rows, columns=list(wanted)):
                read += batch.num_rows
                yield opened.decode(batch), size * read / count


@lru_cache(maxsize=1)
def _load_typed(path: Path, _: Stamp) -> pa.Table | None:
    """Return a table of which no part can be read; None for another one."""
    table = read_typed(path)
    if table is not None and count_bytes(table) > (most := most_unpacked(path.stat().st_size)):
        raise refuse_growth(path, most, PLAIN)
    return table


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _open_parquet(path: Path) -> PlainParquet:
    most = most_unpacked(path.stat().st_size)
    growth = refuse_growth(path, most, PLAIN)
    # Without a small buffer the used columns of a row group would be in memory at once.
    return PlainParquet(path, most, growth, buffer_size=1 << 20, pre_buffer=False)


DAMAGE = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    OSError,
    UnicodeDecodeError,
    EOFError,
    zlib.error,
    BadZipFile,
)


class _Unpacked(gzip.GzipFile):
    """The text of a gzip file, until it is more than tables grow to."""

    def read(self, size: int | None = -1) -> bytes:
        most = most_unpacked(Path(self.name).stat().st_size)
        if self.tell() > most:
            raise refuse_growth(Path(self.name), most, PLAIN)
        return super().read(size)


@contextmanager
def _open_text(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield the text of a file, unpacked, and the file itself, whose position is read."""
    with path.open("rb") as file:
        start = file.read(len(ZIP_START))
        file.seek(0)
        if start == ZIP_START:
            with ZipFile(file) as archive:
                name = name_member(archive, path, most_unpacked(path.stat().st_size))
                with open_member(archive, str(name), path) as member:
                    yield member, file
        else:
            zipped = start[:2] == b"\x1f\x8b"
            yield cast("IO[bytes]", _Unpacked(path, fileobj=file) if zipped else file), file


@dataclass(frozen=True, eq=False)
class _Form:
    """How a text table is written; Arrow does not read one that is ``loose``."""

    source: Source
    header: Header
    loose: bool


@lru_cache(maxsize=64)
def _describe(path: Path, _: Stamp, known: Known | None, named: frozenset[str]) -> _Form:
    """Find out how a text table is written, by its first rows."""
    with _open_text(path) as (stream, _file):
        start, cut = read_start(stream)
    unpack(start, path)
    source, skipped = find_source(start, path, known, named, cut=cut)
    header = find_header(start, path, source, skipped)
    check_header(header.columns, path, source.width)
    # Arrow takes blanks before a quote for a cell's own.
    quoted = rb"(?:^|%b) +\"" % re.escape(source.separator.encode())
    loose = source.format == "whitespace" or re.search(quoted, start, re.MULTILINE) is not None
    return _Form(source, header, loose)


def _read_text(
    path: Path, wanted: Sequence[str], form: _Form
) -> Iterator[tuple[pa.RecordBatch, int]]:
    source, header, done = form.source, form.header, 0
    with _open_text(path) as (text, file):
        text.read(header.start)
        try:
            for batch in () if form.loose else _parse(text, wanted, form):
                yield _clean(batch, done, path, source), file.tell()
                done += batch.num_rows
            if not form.loose:
                return
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            # What pandas reads, or says better.
            if not re.search("columns, got|conversion error to null", str(error)):
                raise
    with _open_text(path) as (text, file), text_errors(path, source):
        for frame in pd.read_csv(text, chunksize=BATCH_ROWS, **text_options(source, header)):
            rows = tidy_text(frame, path, source, header)[list(wanted)]
            rows = rows[rows.index >= done]
            fields = [(name, pa.string()) for name in wanted]
            yield (
                pa.RecordBatch.from_pandas(rows, pa.schema(fields), preserve_index=False),
                file.tell(),
            )


def _parse(text: IO[bytes], wanted: Sequence[str], form: _Form) -> Iterator[pa.RecordBatch]:
    """Yield the wanted columns of a text that begins with its first row, as text."""
    source, header = form.source, form.header
    padding = sorted(header.padding)
    reader = csv.open_csv(
        pa.PythonFile(text, mode="r"),
        # With one thread errors name the row.
        csv.ReadOptions(
            block_size=BLOCK_BYTES,
            use_threads=False,
            encoding=source.encoding or "utf8",
            column_names=header.names,
        ),
        csv.ParseOptions(delimiter=source.separator, newlines_in_values=True),
        csv.ConvertOptions(
            include_columns=[*wanted, *padding],
            column_types=dict.fromkeys(wanted, pa.string()) | dict.fromkeys(padding, pa.null()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    for batch in reader:
        yield batch.select(list(wanted))


def _clean(batch: pa.RecordBatch, start: int, path: Path, source: Source) -> pa.RecordBatch:
    """Return rows of text without missing marks, and with numbers as Python's."""
    if not (source.missing or source.decimal or source.thousands or source.units):
        return batch
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        cells = column.to_pandas().rename(name).str.lstrip(" ")
        cells = cells.set_axis(pd.RangeIndex(start, start + len(cells)))
        cleaned = pa.array(clean_text(cells, path, source), pa.string(), from_pandas=True)
        whole = isinstance(cleaned, pa.Array)
        columns.append(cleaned if whole else cleaned.combine_chunks())
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


@contextmanager
def _explain(path: Path) -> Iterator[None]:
    """Turn Arrow's errors about a damaged file into a DataError."""
    try:
        yield
    except MemoryError:
        raise memory_error(path) from None
    except DAMAGE as error:
        if isinstance(error, PermissionError):
            raise DataError(
                f"{path} cannot be read: {error.strerror}.", "Change its permissions."
            ) from None
        reason = str(error).strip().splitlines()[0].rstrip(".")[:200] if str(error) else "it is cut"
        raise DataError(
            f"{path} is not a complete Parquet or CSV file: {reason}.",
            "Name a Parquet file, or a CSV file in UTF-8 with the same cells in every row.",
        ) from None
