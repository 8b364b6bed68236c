"""Parquet and CSV files that may be larger than memory, as a stream of batches of rows."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from fairfrontier.prepare.config.source import Source
from fairfrontier.prepare.source.archive import most_unpacked, refuse_growth
from fairfrontier.prepare.table.batch_column import BatchColumn
from fairfrontier.prepare.table.parquet import PlainParquet, memory_error
from fairfrontier.prepare.table.table import (
    check_header,
    list_parquet,
    make_frame,
    refuse_missing,
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

    ``used`` maps columns to the options that name them. Text is written as ``source`` says, by
    default in UTF-8 with the separator that the file's name stands for. A ConfigError says what is
    not there.
    """
    files = list_files(path)
    for file in files:
        names = read_names(file, source)
        check_header(names, file)
        for column, option in used.items():
            if column not in names:
                mend = nearest(column, names)
                if len(names) == 1 and re.search("[;\t|]", names[0]):
                    mend = "Separate its columns by commas, or by tabs in a file named .tsv."
                raise ConfigError(f"{file} has no column {column!r} (--{option}).", mend)
    return files


def read_names(path: Path, source: Source | None = None) -> list[str]:
    """Return the names of a file's columns; those of text without blanks around them."""
    with _explain(path):
        if _is_parquet(path):
            with _open_parquet(path) as opened:
                return list(opened.schema.names)
        return list(_read_header(path, source))


def read_rows(
    path: Path, used: Mapping[str, str], rows: int, source: Source | None = None
) -> Iterator[Batch]:
    """Yield the used columns of a table in batches that hold rows.

    A batch has at most ``rows`` rows, of text also those of a block of ``BLOCK_BYTES`` alone. Every
    cell of text is text, and an empty one is missing. A table without rows raises a DataError.
    """
    files = check_table(path, used, source)
    total = sum(file.stat().st_size for file in files) or 1
    done = start = 0
    for file in files:
        for raw, position in _read_file(file, list(used), rows, source):
            for first in range(0, raw.num_rows, rows):
                part = raw.slice(first, rows)
                yield Batch(part, used, path, start, (done + position) / total)
                start += part.num_rows
        done += file.stat().st_size
    if not start:
        raise DataError(f"{path} holds no rows.", "Check that the file is complete.")


def _read_file(
    path: Path, wanted: Sequence[str], rows: int, source: Source | None
) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield batches, and how many bytes of the file were read for them."""
    with _explain(path):
        if not _is_parquet(path):
            yield from _read_text(path, wanted, source)
            return
        with _open_parquet(path) as opened:
            # As text a cell takes two bytes or more.
            opened.check_cells(2, wanted)
            size, count, read = path.stat().st_size, opened.metadata.num_rows or 1, 0
            for batch in opened.file.iter_batches(rows, columns=list(wanted)):
                read += batch.num_rows
                yield opened.decode(batch), size * read / count


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
)


class _Unpacked(gzip.GzipFile):
    """The text of a gzip file, until it is more than tables grow to."""

    def read(self, size: int | None = -1) -> bytes:
        most = most_unpacked(Path(self.name).stat().st_size)
        if self.tell() > most:
            raise refuse_growth(Path(self.name), most, PLAIN)
        return super().read(size)


@contextmanager
def _open_text(path: Path) -> Iterator[tuple[pa.NativeFile, IO[bytes]]]:
    """Yield the text of a file, unzipped, and the file itself, whose position is read."""
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        text = _Unpacked(path, fileobj=file) if zipped else file
        yield pa.PythonFile(text, mode="r"), file


def _parse_options(path: Path, source: Source | None) -> csv.ParseOptions:
    tabs = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    separator = "\t" if tabs else ","
    if source is not None and source.format == "csv" and source.separator != ",":
        separator = source.separator
    return csv.ParseOptions(delimiter=separator, newlines_in_values=True)


def _find_encoding(source: Source | None) -> str:
    return (source.encoding if source is not None else None) or "utf8"


def _read_header(path: Path, source: Source | None) -> dict[str, str]:
    """Return stripped column name -> name as written."""
    with _open_text(path) as (stream, _):
        start = bytes(stream.read(1 << 20))
    unpack(start, path)
    if not start.strip():
        raise DataError(f"{path} is empty.", "Check that the file is complete.")
    # The header line, without what may be cut off behind it.
    line = start.splitlines(keepends=True)[0]
    options = csv.ReadOptions(use_threads=False, encoding=_find_encoding(source))
    names = csv.read_csv(io.BytesIO(line), options, _parse_options(path, source)).column_names
    check_header([name.strip() for name in names], path)
    return {name.strip(): name for name in names}


def _read_text(
    path: Path, wanted: Sequence[str], source: Source | None
) -> Iterator[tuple[pa.RecordBatch, int]]:
    names = _read_header(path, source)
    written = [names[name] for name in wanted]
    with _open_text(path) as (stream, file):
        reader = csv.open_csv(
            stream,
            # With one thread errors name the row.
            csv.ReadOptions(
                block_size=BLOCK_BYTES, use_threads=False, encoding=_find_encoding(source)
            ),
            _parse_options(path, source),
            csv.ConvertOptions(
                include_columns=written,
                column_types=dict.fromkeys(written, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        for batch in reader:
            yield batch.rename_columns(list(wanted)), file.tell()


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
