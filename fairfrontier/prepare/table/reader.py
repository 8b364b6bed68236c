"""The one reader: any file or frame as blocks of rows, which are Arrow's record batches."""

from __future__ import annotations

import hashlib
import io
import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import pyarrow as pa

from fairfrontier.prepare.config.section import MISSING_MARKERS, Source, SourceFile, is_address
from fairfrontier.prepare.source.archive import GZIP_START, ZIP_START, most_unpacked, refuse_growth
from fairfrontier.prepare.table.column import Cells, mark_missing, read_column
from fairfrontier.prepare.table.frame import PlainParquet, count_bytes, make_frame, read_typed
from fairfrontier.prepare.table.text import (
    ALWAYS_MISSING,
    BATCH_ROWS,
    Header,
    check_names,
    cut_text,
    find_header,
    find_keys,
    open_text,
    read_start,
    read_text,
)
from fairfrontier.runtime.cached import Stamp, note_file, stamp
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError, DataError, nearest, refuse_unknown
from fairfrontier.runtime.home import SHIPPED, read_path
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.text_file import is_plain

WILD = re.compile(r"[*?\[]")


def resolve(path: str, home: Path, folder: Path) -> Path:
    """Return a source file: absolute, below the project, beside the YAML, or in the package."""
    # An absolute path is the same below every root.
    candidates = dict.fromkeys(root / read_path(path) for root in (home, folder, SHIPPED))
    for candidate in candidates:
        if candidate.exists():
            return candidate
    mend = nearest_file(next(iter(candidates)))
    if not mend.startswith("Did you mean"):
        # A folder's entire content would not help.
        mend = "Put it there, from where notes say, or correct the path."
    raise ConfigError(
        f"source.path: there is no file {path} (looked at {', '.join(map(str, candidates))}).", mend
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


def list_sources(file: SourceFile, source: Source, home: Path, folder: Path) -> list[Path]:
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
        return _match(str(file.path), [*roots])
    path = resolve(str(file.path), home, folder)
    if path.is_dir():
        note_file(path)
        if source.format != "parquet":
            raise ConfigError(
                f"source.path: {path} is a folder.", "Name files, or set format: parquet."
            )
    return list_files(path)


def walk_files(source: Source, home: Path, folder: Path) -> Iterator[tuple[SourceFile, Path]]:
    """Yield the files of a table in their order; ConfigError for one that is listed twice."""
    seen: set[Path] = set()
    for file in source.path:
        for path in list_sources(file, source, home, folder):
            if (real := path.resolve()) in seen:
                raise ConfigError(
                    f"source.path: {path} is listed twice, so that its rows would be, too.",
                    "List every file once, by its name or by a pattern.",
                )
            seen.add(real)
            yield file, path


def check_digest(path: Path, digest: str, expected: str | None) -> None:
    """Raise a DataError when a file is not the one the YAML was written for."""
    if expected is not None and digest != expected:
        raise DataError(
            f"{path} has sha256 {digest[:12]}…, and its dataset expects {expected[:12]}….",
            "Fetch the file again, or correct source.sha256 if it was changed on purpose.",
        )


def _match(pattern: str, roots: list[Path]) -> list[Path]:
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
        found = sorted({*base.glob("/".join(path.parts[depth:]))})
        if files := [file for file in found if is_plain(file)]:
            return files
    raise ConfigError(
        f"source.path: no file matches {pattern} (looked below {', '.join(map(str, roots))}).",
        "Put files there, from where notes say, or correct the pattern.",
    )


PART_COLUMN = "part"
# Of text; of Parquet a row group is one.
BLOCK_BYTES = 64 * 2**20
PLAIN = "If it is right, write it as a plain CSV file."
# What Arrow, pandas and decompressors raise about damaged files. A KeyError is a time zone that
# there is not; a date beyond year 9999 raises Python's own errors.
DAMAGE = (
    pa.ArrowException,
    pd.errors.ParserError,
    pd.errors.ParserWarning,
    OSError,
    EOFError,
    KeyError,
    ValueError,
    OverflowError,
    NotImplementedError,
    zlib.error,
    BadZipFile,
)


@contextmanager
def reading(path: Path, source: Source | None = None) -> Iterator[None]:
    """Turn what libraries raise about a damaged file into a DataError."""
    what = "table" if source is None else f"{source.format} table"
    try:
        yield
    except MemoryError:
        raise DataError(
            f"{path} takes more memory than there is.", "Divide it into files of fewer rows."
        ) from None
    except PermissionError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}.", "Change its permissions."
        ) from None
    except DAMAGE as error:
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
            raise DataError(
                f"{path} is not {(source and source.encoding) or 'UTF-8'} text.",
                "Save it in UTF-8, or set source.encoding: cp1252, for example.",
            ) from None
        lines = str(error).strip().splitlines() or ["it is cut"]
        reason = lines[-1 if isinstance(error, pd.errors.ParserError) else 0]
        reason = reason.removeprefix("Error tokenizing data. C error: ")[:200].rstrip(". ")
        raise DataError(
            f"{path} is not a {what} that can be read: {reason}.",
            "Check that it is complete, its format and separator, and that all rows have the same "
            "number of cells.",
        ) from None


@dataclass(frozen=True, eq=False)
class Form:
    """How a file is written.

    Of text it has the ``header``, of a Feather file and a sheet ``typed``, what they hold; else it
    is Parquet.
    """

    path: Path
    source: Source
    header: Header | None = None
    typed: pa.Table | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        if self.header is not None:
            return self.header.columns
        if self.typed is not None:
            return list(self.typed.column_names)
        with open_parquet(self.path, self.source) as opened:
            return list(opened.schema.names)

    def cut(self) -> list[Any]:
        """Return pieces that `batches` reads: row groups, parts of a plain text, or all rows."""
        if self.typed is not None:
            return [None]
        with reading(self.path, self.source):
            if self.header is None:
                with open_parquet(self.path, self.source) as opened:
                    return list(range(opened.metadata.num_row_groups)) or [None]
            with self.path.open("rb") as file:
                start = file.read(len(ZIP_START))
            if start == ZIP_START or start.startswith(GZIP_START):
                return [None]
            return list(cut_text(self.path, self.header, BLOCK_BYTES)) or [None]

    def batches(
        self,
        wanted: Sequence[str] | None = None,
        rows: int = BATCH_ROWS,
        piece: Any = None,
        least: int = 8,
    ) -> Iterator[tuple[pa.RecordBatch, float]]:
        """Yield the wanted columns in batches, and the share of the file that was read for them.

        ``piece`` is one of `cut`. A cell of Parquet counts ``least`` bytes or more.
        """
        with reading(self.path, self.source):
            if self.typed is not None:
                for batch in self.typed.select(wanted or self.names).to_batches(rows):
                    yield batch, 1.0
            elif self.header is not None:
                size = self.path.stat().st_size or 1
                opener: Any = partial(open_text, self.path, self.source.unpacked)
                if piece is not None and (piece[0], sum(piece)) != (self.header.start, size):
                    opener = partial(_open_span, self.path, *piece)
                else:
                    piece = None
                length = None if piece is None else piece[1]
                for batch, place in read_text(
                    opener, self.path, self.source, self.header, wanted, length
                ):
                    yield batch, place / size
            else:
                with open_parquet(self.path, self.source) as opened:
                    opened.check_cells(least, wanted)
                    count, read = opened.metadata.num_rows or 1, 0
                    groups = None if piece is None else [piece]
                    for batch in opened.file.iter_batches(rows, groups, wanted):
                        read += batch.num_rows
                        yield opened.decode(batch), read / count

    def read(self, piece: Any = None) -> pd.DataFrame:
        """Return all rows, or those of a piece, as a study has them; see `read_column`."""
        batches = [batch for batch, _ in self.batches(piece=piece)]
        with reading(self.path, self.source):
            if not batches:
                return pd.DataFrame({name: pd.Series(dtype="str") for name in self.names})
            frame = make_frame(pa.Table.from_batches(batches))
            if self.header is not None:
                return frame
            columns = {name: read_column(frame[name], self.source) for name in frame}
            return pd.DataFrame(columns, index=frame.index)


@contextmanager
def _open_span(path: Path, start: int, length: int) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    with path.open("rb") as file:
        file.seek(start)
        text = io.BytesIO(file.read(length))
        yield text, text


def open_parquet(path: Path, source: Source) -> PlainParquet:
    """Open a file; DataError where columns are too many, or named twice."""
    with reading(path, source):
        most = most_unpacked(path.stat().st_size, source.unpacked)
        # Without a small buffer the used columns of a row group would be in memory at once.
        growth = refuse_growth(path, most)
        opened = PlainParquet(path, most, growth, buffer_size=1 << 20, pre_buffer=False)
        check_names(opened.schema.names, path, source.width)
        return opened


def state_form(path: Path, source: Source, skip_rows: int = 0) -> Form:
    """Return how a file is written by what its source says."""
    if source.format == "parquet":
        return Form(path, source)
    with reading(path, source):
        with open_text(path, source.unpacked) as (stream, _):
            start, _ = read_start(stream, source.separator)
        return Form(path, source, find_header(start, path, source, skip_rows))


def find_form(path: Path, known: Source | None = None, named: Collection[str] = ()) -> Form:
    """Return how a file is written that nobody described, as a study's ``known`` source may be.

    A first row of numbers that has all those ``named`` is a header.
    """
    if not is_plain(path):
        raise refuse_missing(path)
    with reading(path):
        if (typed := _load_typed(path, stamp(path))) is not None:
            return Form(path, _source_of_types(path), typed=typed)
        like = "" if known is None else known.model_dump_json(by_alias=True)
        return _find_form(path, stamp(path), like, frozenset(named))


def _source_of_types(path: Path) -> Source:
    missing = (*MISSING_MARKERS, *ALWAYS_MISSING)
    return Source(path=str(path), format="parquet", missing=missing)


@lru_cache(maxsize=64)
def _find_form(path: Path, _: Stamp, like: str, named: frozenset[str]) -> Form:
    known = Source.model_validate_json(like) if like else None
    with path.open("rb") as file:
        if file.read(4) == b"PAR1":
            return Form(path, _source_of_types(path))
    with open_text(path) as (stream, _file):
        start, cut = read_start(stream)
    keys, skipped, marks = find_keys(start, path, known, named, cut=cut)
    missing = (*MISSING_MARKERS, *ALWAYS_MISSING, *marks.pop("missing", ()))
    if known is not None:
        # What is missing is left to a study, how numbers are written where it says so, and units.
        is_text = known.format != "parquet"
        units = {} if is_text else marks.get("units", {})
        marks = {} if is_text and (known.decimal or known.thousands) else marks
        marks["units"] = {name: unit for name, unit in units.items() if name not in known.units}
        missing = () if is_text else missing
    source = parse(Source, {"path": str(path), **keys}, path)
    source = source.model_copy(update={**marks, "missing": tuple(dict.fromkeys(missing))})
    return Form(path, source, find_header(start, path, source, skipped))


@lru_cache(maxsize=1)
def _load_typed(path: Path, _: Stamp) -> pa.Table | None:
    """Return a table of which no part can be read; None for another one."""
    table = read_typed(path)
    if table is not None and count_bytes(table) > (most := most_unpacked(path.stat().st_size)):
        raise refuse_growth(path, most, PLAIN)
    return table


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a table, which are read when they are needed."""

    form: Form
    place: Any
    part: str | None = None

    def read(self) -> pd.DataFrame:
        """Return the rows, with the column of their file's part."""
        frame = self.form.read(self.place)
        return frame if self.part is None else frame.assign(**{PART_COLUMN: self.part})


@dataclass(frozen=True, eq=False)
class Pieces:
    """A table in pieces, in the order of the rows, with the sha256 of each file."""

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    digests: tuple[str, ...]


def cut_table(source: Source, home: Path, folder: Path, *, whole: bool = False) -> Pieces:
    """Return the pieces of the files of a source: row groups, 64 MiB of text, or ``whole`` files.

    Paths are looked up below ``home``, then below ``folder``.

    Raises
    ------
    ConfigError
        When a file is not found, or listed twice.
    DataError
        When a file has another digest or format, repeated column names, or other columns than the
        files before it.
    """
    pieces: list[Piece] = []
    digests: list[str] = []
    columns: list[str] = []
    for file, path in walk_files(source, home, folder):
        with reading(path, source):
            digests.append(hash_file(path))
        check_digest(path, digests[-1], file.sha256 or source.sha256)
        form = state_form(path, source, file.skip_rows)
        names = form.names
        if columns and names != columns:
            raise DataError(
                f"The columns of {path} differ from those of the files before it.",
                "Files of one source must have the same columns in the same order.",
            )
        if file.part is not None and PART_COLUMN in names:
            raise DataError(
                f"{path} has a column named {PART_COLUMN}, and source.path gives the file a part.",
                "Give the column another name, or leave out the files' parts.",
            )
        columns = names
        pieces += [Piece(form, place, file.part) for place in ([None] if whole else form.cut())]
    if any(file.part for file in source.path):
        columns = [*columns, PART_COLUMN]
    return Pieces(tuple(pieces), tuple(columns), tuple(digests))


def join_frames(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of several frames as one; whole numbers stay whole beside others."""
    if len(frames) == 1:
        return frames[0]
    # What `read_column` leaves whole would become float64 beside float64, or int64 beside uint64.
    kept = {
        name: object
        for name in frames[0]
        if len({frame[name].dtype for frame in frames}) > 1
        and any(pd.api.types.is_integer_dtype(frame[name]) for frame in frames)
    }
    return pd.concat([frame.astype(kept) for frame in frames], ignore_index=True)


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of a table, or some of them.

    ``used`` maps the columns to the options that name them, ``rows`` are the numbers of the rows,
    and ``share`` says how much of the table has been read, from 0 to 1.
    """

    raw: pa.RecordBatch | pa.Table
    used: Mapping[str, str]
    path: Path
    rows: np.ndarray
    share: float

    @property
    def start(self) -> int:
        """The number of the first row."""
        return int(self.rows[0]) if self.rows.size else 0

    @property
    def frame(self) -> pd.DataFrame:
        """The columns that are not only kept, indexed by the numbers of the rows."""
        names = [name for name in self.raw.schema.names if self.used[name] != "keep"]
        with reading(self.path):
            frame = make_frame(self.raw.select(names))
        return frame.set_axis(pd.Index(self.rows))

    def column(self, name: str) -> Cells:
        """Return a column by its name."""
        with reading(self.path):
            cells = make_frame(self.raw.select([name]))[name].set_axis(pd.Index(self.rows))
        return Cells(cells, self.used[name], self.path)

    def keep(self, rows: np.ndarray) -> Block:
        """Return the block with some of its rows, bool of shape (n,)."""
        return replace(self, raw=self.raw.filter(pa.array(rows)), rows=self.rows[rows])


def read_rows(
    path: Path,
    used: Mapping[str, str],
    rows: int,
    source: Source | None = None,
    missing: Sequence[str] | None = None,
) -> Iterator[Block]:
    """Yield the used columns of a table in blocks that hold rows, one of which is in memory.

    A block has at most ``rows`` rows. Every cell of text is text, and an empty one is missing, as
    are those with a mark, by default one of those that `init` knows; of a study's ``source`` its
    reader finds them. A table without rows raises a DataError.
    """
    files = check_table(path, used, source)
    total = sum(file.stat().st_size for file in files) or 1
    done = start = 0
    for file in files:
        form = find_form(file, source, used)
        if missing is not None:
            marked = form.source.model_copy(update={"missing": tuple(missing)})
            form = replace(form, source=marked)
        size = file.stat().st_size
        for raw, share in form.batches(list(used), rows, least=2):
            if form.header is None and source is None:
                with reading(file):
                    raw = mark_missing(raw, form.source)
            for first in range(0, raw.num_rows, rows):
                part = raw.slice(first, rows)
                numbers = np.arange(start, start + part.num_rows)
                yield Block(part, used, path, numbers, (done + share * size) / total)
                start += part.num_rows
        done += size
    if not start:
        raise DataError(f"{path} holds no rows.", "Check that the file is complete.")


def list_files(path: Path) -> list[Path]:
    """Return the files of a table: itself, or a folder's Parquet files in order of name."""
    if path.is_dir():
        files = sorted(path.glob("*.parquet"))
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


def check_table(path: Path, used: Mapping[str, str], source: Source | None = None) -> list[Path]:
    """Return the files of a table, all of which have the used columns; no row is read.

    ``used`` maps columns to the options that name them. How text is written is found out, by
    ``source``, that of a study, where it may be written so. A ConfigError says what is not there.
    """
    files = list_files(path)
    for file in files:
        names = read_names(file, source, used)
        for column, option in used.items():
            refuse_unknown([column], names, f"{file} has no column", f" (--{option})")
    return files


def read_names(path: Path, source: Source | None = None, named: Collection[str] = ()) -> list[str]:
    """Return the names of a file's columns; see `find_form`."""
    return find_form(path, source, named).names
