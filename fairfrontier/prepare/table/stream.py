"""Parquet and CSV files that may be larger than memory, as a stream of record batches."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from fairfrontier.prepare.table.table import check_header, unpack
from fairfrontier.runtime.errors import ConfigError, DataError, nearest

BLOCK_BYTES = 1 << 22


def list_files(path: Path) -> list[Path]:
    """Return the files of a table: itself, or a folder's Parquet files in order of name.

    Raises
    ------
    ConfigError
        When there is none.
    """
    if path.is_dir():
        found = sorted(path.glob("*.parquet"))
        if not found:
            raise ConfigError(
                f"{path} is a folder without Parquet files.",
                "Name a file, or a folder of *.parquet.",
            )
        return found
    if not path.is_file():
        siblings = [each.name for each in path.parent.glob("*")] if path.parent.is_dir() else []
        raise ConfigError(
            f"There is no file {path}.",
            nearest(path.name, siblings) if siblings else "Check the path.",
        )
    return [path]


def read_names(path: Path) -> list[str]:
    """Return the names of a file's columns; those of text without blanks around them.

    Raises
    ------
    DataError
        When it is neither Parquet nor CSV.
    """
    with _explain(path):
        if _is_parquet(path):
            with _open_parquet(path) as opened:
                return list(opened.schema_arrow.names)
        return list(_read_header(path))


def read_batches(
    files: Sequence[Path], wanted: Sequence[str], rows: int
) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield the wanted columns of all files in pieces, and how much has been read, from 0 to 1.

    Parameters
    ----------
    files : sequence of Path
        Parquet; or CSV, plain or gzip, of which every cell is text, and an empty one missing.
    wanted : sequence of str
        Columns that every file has.
    rows : int
        Of Parquet in a batch, at most; text comes in blocks of ``BLOCK_BYTES``.

    Raises
    ------
    DataError
        When a file is damaged.
    """
    total = sum(file.stat().st_size for file in files) or 1
    done = 0
    for file in files:
        size = file.stat().st_size
        with _explain(file):
            if _is_parquet(file):
                with _open_parquet(file) as opened:
                    count, read = opened.metadata.num_rows or 1, 0
                    for batch in opened.iter_batches(rows, columns=list(wanted)):
                        read += batch.num_rows
                        yield batch, (done + size * read / count) / total
            else:
                for batch, position in _read_text(file, wanted):
                    yield batch, (done + position) / total
        done += size


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _open_parquet(path: Path) -> pq.ParquetFile:
    # Read through a small buffer: else the used columns of a whole row group are held at once.
    return pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)


@contextmanager
def _open_text(path: Path) -> Iterator[tuple[pa.NativeFile, IO[bytes]]]:
    """Yield the text of a file, unzipped, and the file itself, which knows where it stands."""
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        stream = pa.PythonFile(file, mode="r")
        yield (pa.CompressedInputStream(stream, "gzip") if zipped else stream), file


def _parse_options(path: Path) -> csv.ParseOptions:
    tabs = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    return csv.ParseOptions(delimiter="\t" if tabs else ",", newlines_in_values=True)


def _read_header(path: Path) -> dict[str, str]:
    """Return stripped column name -> name as written.

    Raises
    ------
    DataError
        When the file is no text.
    """
    with _open_text(path) as (stream, _):
        start = bytes(stream.read(1 << 20))
    unpack(start, path)
    if not start.strip():
        raise DataError(f"{path} is empty.", "Check that the file is complete.")
    # The header line, without what may be cut off behind it.
    line = start.splitlines(keepends=True)[0]
    options = csv.ReadOptions(use_threads=False)
    names = csv.read_csv(io.BytesIO(line), options, _parse_options(path)).column_names
    check_header([name.strip() for name in names], path)
    return {name.strip(): name for name in names}


def _read_text(path: Path, wanted: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield batches in which every cell is text, and how many bytes of the file were read."""
    names = _read_header(path)
    written = [names[name] for name in wanted]
    with _open_text(path) as (stream, file):
        reader = csv.open_csv(
            stream,
            # One thread: then what is wrong is said with its row.
            csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            _parse_options(path),
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
    """Turn what Arrow says of a damaged file into a DataError."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError) as error:
        if isinstance(error, PermissionError):
            raise DataError(f"{path} cannot be read: {error.strerror}.", "Mend its mode.") from None
        told = str(error).strip().splitlines()[0].rstrip(".")[:200] if str(error) else "it is cut"
        raise DataError(
            f"{path} is not a whole Parquet or CSV file: {told}.",
            "Name a Parquet file, or a CSV file in UTF-8 with the same cells in every row.",
        ) from None
