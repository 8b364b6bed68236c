"""Reading raw tables: files in, one frame of text and numbers out, with a digest."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.source import Source, SourceFile, is_address
from fairfrontier.prepare.source.archive import (
    TIMES,
    most_unpacked,
    refuse_growth,
    ungzip_table,
    unzip_table,
)
from fairfrontier.prepare.table.cell import clean_cells, find_doubtful, mask_numbers, rewrite_typed
from fairfrontier.prepare.table.column import (
    are_merged,
    join_dummies,
    keep_rows,
    list_numbers,
    make_columns,
    tidy,
)
from fairfrontier.prepare.table.header import Header, find_header, read_start
from fairfrontier.prepare.table.parquet import PlainParquet, parquet_errors
from fairfrontier.prepare.table.vote import count_votes, join_votes
from fairfrontier.prepare.table.width import check_rows, check_width
from fairfrontier.runtime.errors import ConfigError, DataError, nearest, repeated
from fairfrontier.runtime.home import SHIPPED, read_path
from fairfrontier.runtime.recall import note_file
from fairfrontier.runtime.text_file import is_plain

if TYPE_CHECKING:
    import pyarrow as pa

PART_COLUMN = "part"
NULLABLE = {"int64": pd.Int64Dtype(), "uint64": pd.UInt64Dtype()}
WILD = re.compile(r"[*?\[]")
# First bytes of what people take for a CSV file.
FOREIGN = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"PAR1": "a Parquet file",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet",
    b"%PDF": "a PDF document",
    b"SQLite": "an SQLite database",
    b"<!DOCTYPE": "a web page",
    b"<html": "a web page",
}


@dataclass(frozen=True, eq=False)
class Table:
    """A raw table, indexed by row number, and the sha256 of each of its files."""

    frame: pd.DataFrame
    digests: tuple[str, ...]


def resolve(path: str, home: Path, folder: Path) -> Path:
    """Return a source file: absolute, below the project, beside the YAML, or in the package."""
    # An absolute path is the same below every root.
    candidates = dict.fromkeys(root / read_path(path) for root in (home, folder, SHIPPED))
    for candidate in candidates:
        if candidate.exists():
            return candidate
    mend = nearest_file(next(iter(candidates)))
    raise ConfigError(
        f"source.path: there is no file {path} (looked at {', '.join(map(str, candidates))}).",
        # A folder's entire content would not help.
        mend if mend.startswith("Did you mean") else "Put it there, or correct the path.",
    )


def nearest_file(path: Path) -> str:
    """Return the sentence that offers the file nearest to a missing one; "" without any."""
    siblings = [file.name for file in path.parent.glob("*")] if path.parent.is_dir() else []
    return nearest(path.name, siblings) if siblings else ""


def refuse_missing(path: Path) -> ConfigError:
    """Return the error for a path that is no plain file."""
    if os.path.lexists(path):
        return ConfigError(f"{path} is a pipe, a device or a broken link.", "Give a file.")
    return ConfigError(f"There is no file {path}.", nearest_file(path) or "Check the path.")


def list_parquet(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder in order of name."""
    return sorted(folder.glob("*.parquet"))


def list_files(file: SourceFile, source: Source, home: Path, folder: Path) -> list[Path]:
    """Return the files behind one path, in order of name.

    They are the file itself, a folder's Parquet files, or what a pattern such as ``2026-*.parquet``
    matches; of an address, copies of the objects there.
    """
    if is_address(str(file.path)):
        # Arrow's stores take a tenth of a second to import.
        from fairfrontier.prepare.source.object_store import fetch_objects

        return fetch_objects(str(file.path), home, parquet=source.format == "parquet")
    roots = dict.fromkeys((home, folder, SHIPPED))
    literal = any((root / read_path(str(file.path))).exists() for root in roots)
    if WILD.search(str(file.path)) and not literal:
        return _match(str(file.path), tuple(roots))
    path = resolve(str(file.path), home, folder)
    if is_plain(path):
        return [path]
    if not path.is_dir():
        # A device, a pipe or a file of the kernel may never end.
        raise ConfigError(f"source.path: {path} is no file.", "Name a file or a folder.")
    note_file(path)
    files = list_parquet(path) if source.format == "parquet" else []
    if not files:
        raise ConfigError(
            f"source.path: {path} is a folder without Parquet files.",
            "Name a file, or a folder of *.parquet with format: parquet.",
        )
    return files


def walk_files(source: Source, home: Path, folder: Path) -> Iterator[tuple[SourceFile, Path]]:
    """Yield the files of a table in their order; ConfigError for one that is listed twice."""
    seen: set[Path] = set()
    for file in source.path:
        for path in list_files(file, source, home, folder):
            if (real := path.resolve()) in seen:
                raise ConfigError(
                    f"source.path: {path} is listed twice, so that its rows would be, too.",
                    "List every file once, by its name or by a pattern.",
                )
            seen.add(real)
            yield file, path


def _match(pattern: str, roots: Sequence[Path]) -> list[Path]:
    """Return the files that a pattern matches below the first root where there are any."""
    for root in roots:
        path = root / read_path(pattern)
        # What stands before the first part with a wildcard is a folder.
        depth = next(at for at, part in enumerate(path.parts) if WILD.search(part))
        base = Path(*path.parts[:depth])
        note_file(base)
        if any("**" in part and part != "**" for part in path.parts[depth:]):
            # Python 3.13 takes it for *, earlier ones refuse it.
            raise ConfigError(
                f"source.path: {pattern} is no pattern.", "Write ** as a whole folder."
            )
        if files := [file for file in _walk(base, path.parts[depth:]) if is_plain(file)]:
            return files
    raise ConfigError(
        f"source.path: no file matches {pattern} (looked below {', '.join(map(str, roots))}).",
        "Put files there, or correct the pattern.",
    )


def _walk(base: Path, parts: Sequence[str]) -> list[Path]:
    """Return what the parts of a pattern match below a folder, in order.

    For every part a folder is looked into once, whatever paths and links lead to it: their number
    may be exponential.
    """
    found = [base]
    for part in parts:
        folders: dict[Path, Path] = {}
        waiting = sorted(found)
        for folder in waiting:
            # Folders may vanish meanwhile, and those of the kernel raise anything.
            with suppress(OSError):
                if folder.is_dir() and (real := folder.resolve()) not in folders:
                    folders[real] = folder
                    if part == "**":
                        waiting += [each for each in folder.glob("*") if not each.is_symlink()]
        if part == "**":
            found = list(folders.values())
        else:
            found = []
            for folder in folders.values():
                with suppress(OSError):
                    found += folder.glob(part)
    return sorted(found)


def check_digest(path: Path, digest: str, expected: str | None) -> None:
    """Raise a DataError when a file is not the one the YAML was written for."""
    if expected is not None and digest != expected:
        raise DataError(
            f"{path} has sha256 {digest[:12]}…, and its dataset expects {expected[:12]}….",
            "Fetch the file again, or correct source.sha256 if it was changed on purpose.",
        )


def read_table(source: Source, home: Path, folder: Path) -> Table:
    """Read all files of a source as one table, with the column that is voted on.

    Cells of text formats stay text (columns used as numbers are converted later), Parquet columns
    stay numbers; what is not a number becomes level text. Paths are looked up below ``home``, then
    below ``folder``. O(bytes) time; the text of one file and the frame are in memory at once.

    Raises
    ------
    ConfigError
        When a file is not found, or listed twice.
    DataError
        When a file has another digest or format, no rows, repeated column names, or other columns
        than the files before it.
    """
    frames: list[pd.DataFrame] = []
    digests: list[str] = []
    for file, path in walk_files(source, home, folder):
        raw = _read_bytes(path)
        digest = hashlib.sha256(raw).hexdigest()
        check_digest(path, digest, file.sha256 or source.sha256)
        if source.format == "parquet":
            frame = read_parquet(raw, path, source)
        else:
            frame = read_text(raw, path, source, file.skip_rows)
        if file.part is not None:
            check_part(frame.columns, path)
            frame[PART_COLUMN] = file.part
        frames.append(frame)
        check_same(list(frame.columns), list(frames[0].columns), path)
        digests.append(digest)
    frame = _join(frames)
    if frame.empty:
        raise DataError(f"{source.path[0].path} holds no rows.", "Check that the file is complete.")
    if source.votes is not None and source.ballots is not None:
        ballots = read_table(source.ballots, home, folder)
        frame = join_votes(frame, count_votes(ballots.frame, source.votes), source.votes)
        digests.extend(ballots.digests)
    frame = join_dummies(frame, source, folder)
    return Table(frame=frame, digests=tuple(digests))


def _join(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of several files as one table; whole numbers stay whole beside others."""
    if len(frames) == 1:
        return frames[0]
    # What `tidy` leaves whole would become float64 beside float64, or int64 beside uint64.
    kept = {
        name: object
        for name in frames[0]
        if len({frame[name].dtype for frame in frames}) > 1
        and any(pd.api.types.is_integer_dtype(frame[name]) for frame in frames)
    }
    return pd.concat([frame.astype(kept) for frame in frames], ignore_index=True)


def check_part(columns: Collection[str], path: Path) -> None:
    """Raise a DataError for a file with a column of the name of that of files' parts."""
    if PART_COLUMN in columns:
        raise DataError(
            f"{path} has a column named {PART_COLUMN}, and source.path gives the file a part.",
            "Give the column another name, or leave out the files' parts.",
        )


def check_same(columns: list[str], first: list[str], path: Path) -> None:
    """Raise a DataError when a file's columns are not those of the first file."""
    if columns != first:
        raise DataError(
            f"The columns of {path} differ from those of the files before it.",
            "Files of one source must have the same columns in the same order.",
        )


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}.", "Check the path.") from None


def unpack(raw: bytes, path: Path, times: int = TIMES) -> bytes:
    """Return the text of a CSV file, out of gzip or a zip of one file; refuse what is no text.

    Either may grow to ``times`` its size, or to 64 MiB.
    """
    for unpack_table in (unzip_table, ungzip_table):
        unpacked = unpack_table(raw, path, most_unpacked(len(raw), times))
        raw = raw if unpacked is None else unpacked
    start = raw[:512].lstrip()
    for mark, what in FOREIGN.items():
        if start[: len(mark)].lower() == mark.lower():
            raise DataError(
                f"{path} is not a text table: it looks like {what}.",
                "Save it as CSV, or set source.format to what it is.",
            )
    if b"\x00" in raw[:65536]:
        raise DataError(
            f"{path} is not a text table: it holds binary data.",
            "Save it as CSV in UTF-8, or set source.format to what it is.",
        )
    return raw


def check_header(names: Sequence[Any], path: Path, width: int | None = None) -> None:
    """Raise a DataError for more than ``width`` columns, and when names occur more than once."""
    if width is not None:
        check_width(len(names), path, width)
    if double := repeated(map(str, names)):
        raise DataError(
            f"{path} has more than one column named {', '.join(map(repr, double))}.",
            "Rename them so that every column has a different name.",
        )


def text_options(source: Source, header: Header) -> dict[str, Any]:
    """Return the options with which pandas (and Dask) read a text table."""
    return {
        "sep": r"\s+" if source.format == "whitespace" else source.separator,
        "encoding": source.encoding or "utf-8",
        "header": None,
        "names": list(header.names),
        "skiprows": header.above,
        "skipinitialspace": True,
        "dtype": str,
        "keep_default_na": False,
        "na_values": [""],
    }


def read_header(stream: IO[bytes], path: Path, source: Source, skip_rows: int = 0) -> Header:
    """Return the columns of a text table; DataError where names repeat or are too many."""
    check_rows(stream, path, source, skip_rows)
    start, _ = read_start(stream, source.separator)
    stream.seek(0)
    header = find_header(start, path, source, skip_rows)
    check_header(header.columns, path, None if source.columns else source.width)
    return header


@contextmanager
def text_errors(path: Path, source: Source) -> Iterator[None]:
    """Turn pandas' errors about a broken text table into a DataError."""
    try:
        yield
    except UnicodeDecodeError:
        raise DataError(
            f"{path} is not {source.encoding or 'UTF-8'} text.",
            "Save it in UTF-8, or set source.encoding: cp1252, for example.",
        ) from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty.", "Check that the file is complete.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path} is a damaged gzip file: {error}.", "Fetch the file again."
        ) from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        detail = str(error).strip().splitlines()[-1]
        detail = detail.removeprefix("Error tokenizing data. C error: ").rstrip(".")
        raise DataError(
            f"{path} is not a regular {source.format} table: {detail}.",
            "Check its separator and that all rows have the same number of cells.",
        ) from None


def read_text(raw: bytes, path: Path, source: Source, skip_rows: int = 0) -> pd.DataFrame:
    """Parse CSV or whitespace-separated bytes; every cell stays text, missing ones become NaN."""
    raw = unpack(raw, path, source.unpacked)
    with text_errors(path, source):
        header = read_header(io.BytesIO(raw), path, source, skip_rows)
        frame = pd.read_csv(io.BytesIO(raw), **text_options(source, header))
    return tidy_text(frame, path, source, header)


def tidy_text(frame: pd.DataFrame, path: Path, source: Source, header: Header) -> pd.DataFrame:
    """Return the table without padding and blanks around cells, and with numbers as Python's."""
    if not isinstance(frame.index, pd.RangeIndex):
        raise DataError(
            f"The rows of {path} have more cells than its header has names.",
            "Name every column, and take separators off the ends of rows.",
        )
    for name in header.padding:
        if frame[name].notna().any():
            row = frame.index[frame[name].notna()][0]
            raise DataError(
                f"{path} holds {frame[name][row]!r} in row {row}, in a column without a name that "
                "is empty above.",
                "Name the column, or correct the separators and quotes of that row.",
            )
    return pd.DataFrame(
        {name: clean_text(frame[name], path, source) for name in header.columns}, index=frame.index
    )


def clean_text(column: pd.Series, path: Path, source: Source) -> pd.Series:
    """Return a column as `clean_cells` does; DataError for a number that may be two."""
    doubtful = column[find_doubtful(column, source)]
    if len(doubtful):
        raise DataError(
            f"{path}: column {column.name!r} holds {doubtful.iloc[0]!r} in row "
            f"{doubtful.index[0]}, which is a thousand times as much if the point stands between "
            "thousands, and source.decimal is a comma.",
            "Set source.thousands: '.' if it does; else write the cells with a comma.",
        )
    return clean_cells(column, source)


def type_rows(frame: pd.DataFrame, config: DatasetConfig, file: Path | str) -> pd.DataFrame:
    """Return the rows of a raw table that are kept, with typed columns."""
    numbers = {name: mask_numbers(frame[name], config.source) for name in list_numbers(config)}
    return make_columns(keep_rows(frame.assign(**numbers), config, file), config, file)


def read_parquet(raw: bytes, path: Path, source: Source) -> pd.DataFrame:
    """Parse Parquet bytes."""
    with parquet_errors(path), open_parquet(io.BytesIO(raw), path, len(raw), source) as opened:
        return tidy_typed(make_frame(opened.decode(opened.file.read())), source)


def tidy_typed(frame: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Return a table of Parquet as `tidy` does, with what the source says of columns by name."""
    tidied = tidy(frame)
    named = {*source.units, *source.ages, *source.spellings}
    return tidied.assign(
        **{name: rewrite_typed(tidied[name], source) for name in tidied if name in named}
    )


def open_parquet(file: Path | IO[bytes], path: Path, size: int, source: Source) -> PlainParquet:
    """Open a file of so many bytes; DataError where columns or cells are too many."""
    most = most_unpacked(size, source.unpacked)
    opened = PlainParquet(file, most, refuse_growth(path, most))
    check_header(opened.schema.names, path, source.width)
    opened.check_cells(8)
    return opened


def make_frame(table: pa.Table | pa.RecordBatch) -> pd.DataFrame:
    """Return what was read of a file as a frame.

    Of whole numbers beside missing cells pandas makes floats, but not of those that it would merge.
    """
    import pyarrow.types as types

    # Metadata of pandas would hide a column that was its index.
    frame = cast(pd.DataFrame, table.to_pandas(ignore_metadata=True))
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if types.is_integer(column.type) and column.null_count and are_merged(frame[name]):
            frame[name] = column.to_pandas(types_mapper=lambda kind: NULLABLE[str(kind)])
    return frame
