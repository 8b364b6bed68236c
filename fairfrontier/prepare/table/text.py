"""Text tables: where their rows begin, the names of their columns, and rows as blocks of text."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from zipfile import ZipFile, is_zipfile

import pandas as pd
import pyarrow as pa
from pyarrow import csv as arrow_csv

from fairfrontier.prepare.config.section import MISSING_MARKERS, Source
from fairfrontier.prepare.source.archive import (
    GZIP_START,
    TIMES,
    ZIP_START,
    most_unpacked,
    name_member,
    open_member,
    refuse_growth,
)
from fairfrontier.prepare.table.column import (
    BRACKETS,
    OPEN,
    OPEN_END,
    Cells,
    find_doubtful,
    number_pattern,
    read_amount,
    read_column,
)
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import DataError, repeated

BATCH_ROWS = 1 << 17
BLOCK_BYTES = 1 << 22
# Rows that are looked at, and where they are.
LINES, START_BYTES = 200, 1 << 20
# Of a row. Lists of more would fill the memory, and no table has so many.
MOST_CELLS = 1 << 20
BOM = "\ufeff"
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
# A text, opened anew, and the file that it lies in, whose position is read.
Opener = Callable[[], AbstractContextManager[tuple[IO[bytes], IO[bytes]]]]


class Row(NamedTuple):
    """A row: its stripped cells, the lines above it as pandas counts, the length to its end."""

    cells: list[str]
    above: int
    end: int

    @property
    def filled(self) -> list[str]:
        """The cells up to the last one that is not empty."""
        return self.cells[: max((n for n, cell in enumerate(self.cells, 1) if cell), default=0)]


@dataclass(frozen=True)
class Header:
    """The columns of a text table.

    Attributes
    ----------
    names : tuple of str
        Of every cell of a row. Columns without a name are called as pandas calls them.
    padding : frozenset of str
        Those of them that nobody named, and that are empty where the table begins: no columns, but
        what a spreadsheet or a separator at the end of each row leaves. No row may fill them.
    above : int
        Lines above the first row, as pandas counts them.
    start : int
        Bytes above it.
    loose : bool
        Whether Arrow does not read the rows: there are blanks between or around their cells.
    """

    names: tuple[str, ...]
    padding: frozenset[str] = frozenset()
    above: int = 0
    start: int = 0
    loose: bool = False

    @property
    def columns(self) -> list[str]:
        """The names without padding."""
        return [name for name in self.names if name not in self.padding]


class _Unpacked(gzip.GzipFile):
    """The text of a gzip file, until it is more than ``most`` bytes."""

    most = 0

    def read(self, size: int | None = -1) -> bytes:
        text = super().read(self.most + 1 if size is None or size < 0 else size)
        if self.tell() > self.most:
            raise refuse_growth(Path(self.name), self.most)
        return text


@contextmanager
def open_text(path: Path, times: int = TIMES) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield the text of a file, out of gzip or a zip of one file, and the file itself.

    Either may grow to ``times`` its size, or to 64 MiB.
    """
    most = most_unpacked(path.stat().st_size, times)
    with path.open("rb") as file:
        start = file.read(len(ZIP_START))
        file.seek(0)
        if start == ZIP_START:
            if not is_zipfile(file):
                refuse_foreign(start, path)
            with ZipFile(file) as archive:
                name = name_member(archive, path, most)
                if name is None:
                    refuse_foreign(start, path)
                with open_member(archive, str(name), path) as member:
                    yield member, file
        elif start.startswith(GZIP_START):
            text = _Unpacked(path, fileobj=file)
            text.most = most
            yield cast("IO[bytes]", text), file
        else:
            yield file, file


def refuse_foreign(start: bytes, path: Path) -> None:
    """Raise a DataError for a file that is no text."""
    text = start[:512].lstrip()
    for mark, what in FOREIGN.items():
        if text[: len(mark)].lower() == mark.lower():
            raise DataError(
                f"{path} is not a text table: it looks like {what}.",
                "Save it as CSV, or set source.format to what it is.",
            )
    if b"\x00" in start[:65536]:
        raise DataError(
            f"{path} is not a text table: it holds binary data.",
            "Save it as CSV in UTF-8, or set source.format to what it is.",
        )


def check_names(names: Sequence[Any], path: Path, width: int | None = None) -> None:
    """Raise a DataError for more than ``width`` columns, and when names occur more than once."""
    if width is not None and len(names) > width:
        raise DataError(
            f"{path} has {len(names):,} columns, and source.width is {width:,}.",
            "Leave some out, or raise source.width in the dataset's YAML.",
        )
    if double := repeated(map(str, names)):
        raise DataError(
            f"{path} has more than one column named {', '.join(map(repr, double))}.",
            "Rename them so that every column has a different name.",
        )


def decode_start(start: bytes, encoding: str | None) -> str:
    """Return the text where a table begins; bytes that are none of it are kept as surrogates."""
    return start.decode(encoding or "utf-8", "surrogateescape").removeprefix(BOM)


def cut_rows(text: str, separator: str) -> Iterator[Row]:
    """Yield the rows of a text that are not blank."""
    length = [0]

    def count(lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            length[0] += len(line)
            if line.count(separator) > MOST_CELLS:
                return
            yield line

    lines = count(io.StringIO(text, newline=""))
    try:
        for above, row in enumerate(csv.reader(lines, delimiter=separator, skipinitialspace=True)):
            if len(row) > 1 or any(map(str.strip, row)):
                yield Row([cell.strip() for cell in row], above, length[0])
    except csv.Error:
        pass  # a cell of more than 128 KiB: what was read is enough


def read_start(stream: IO[bytes], separator: str = ",") -> tuple[bytes, bool]:
    """Return the first rows of a table, and whether there are more; the stream is left there."""
    start, size = b"", START_BYTES
    while more := stream.read(size):
        # Of blank lines there may be any number.
        kept = more.rstrip(b"\r\n")
        start += kept + b"\n" if len(kept) < len(more) else more
        rows = cut_rows(start.decode("latin-1"), separator)
        if not kept or len(list(islice(rows, 3))) == 3:
            return start, len(more) == size
        size = 3 * len(start)
    return start, False


def refuse_empty(text: str, path: Path) -> DataError:
    """Return the error for a text in which no row was found."""
    if not text.strip():
        return DataError(f"{path} is empty.", "Check that the file is complete.")
    return DataError(
        f"{path} begins with a cell of more than 128 KiB, or a row of more than {MOST_CELLS:,}.",
        "Check its separators and quotes.",
    )


def find_header(start: bytes, path: Path, source: Source, skip_rows: int = 0) -> Header:
    """Return the columns of a table by its first rows; DataError where ``columns`` do not fit."""
    refuse_foreign(start, path)
    if source.format == "whitespace":
        lines = decode_start(start, source.encoding).splitlines(keepends=True)
        above = sum(len(line.encode(errors="surrogateescape")) for line in lines[:skip_rows])
        first = next(filter(None, map(str.split, lines[skip_rows:])), [])
        check_names(range(len(first)), path, source.width)
        _check_named(len(first), source, path)
        return Header(tuple(source.columns or ()), frozenset(), skip_rows, above, loose=True)
    text = decode_start(start, source.encoding)
    above, found = skip_rows, list(islice(cut_rows(text, source.separator), LINES))
    rows = [row for row in found if row.above >= skip_rows]
    if not rows:
        raise refuse_empty(text, path)
    check_names(range(max(len(row.cells) for row in rows)), path, source.width)
    end = max((row.end for row in found if row.above < skip_rows), default=0)
    if source.columns is None:
        above, end = rows[0].above + 1, rows[0].end
        names, least, rows = rows[0].cells, len(rows[0].filled), rows[1:]
    else:
        names, least = list(source.columns), len(source.columns)
        if len(rows[0].cells) < least or len(rows[0].filled) > least:
            _check_named(len(rows[0].cells), source, path)
    # Longer ones are refused, with their number, by who reads them.
    rows = [row for row in rows if len(row.filled) <= len(names)]
    width = max(least, max((len(row.cells) for row in rows), default=len(names)))
    empty = set(range(width)).difference(
        *({n for n, cell in enumerate(row.cells) if cell} for row in rows)
    )
    names = [*names, *[""] * width][:width]
    padding = frozenset(f"Unnamed: {n}" for n in empty if not names[n])
    named = tuple(name or f"Unnamed: {n}" for n, name in enumerate(names))
    # A byte-order mark is of the start, and not of the text.
    bytes_above = len(text[:end].encode(source.encoding or "utf-8", "surrogateescape"))
    bytes_above += len(BOM.encode()) if source.encoding is None and start[:3] == BOM.encode() else 0
    start[:bytes_above].decode(source.encoding or "utf-8")
    # Arrow takes blanks before a quote for a cell's own.
    quoted = rb"(?:^|%b) +\"" % re.escape(source.separator.encode())
    loose = re.search(quoted, start, re.MULTILINE) is not None
    header = Header(named, padding, above, bytes_above, loose)
    check_names(header.columns, path)
    return header


def _check_named(count: int, source: Source, path: Path) -> None:
    named = len(source.columns or ())
    if count != named:
        raise DataError(
            f"{path} has {count} columns, and source.columns names {named}.",
            "Name every column of the file, in its order.",
        )


def read_text(
    opener: Opener,
    path: Path,
    source: Source,
    header: Header,
    wanted: Sequence[str] | None = None,
    size: int | None = None,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the wanted columns in blocks of text, with the position in the file.

    Cells have no marks of missing ones, and numbers are as Python's. With ``size`` the text that
    is opened is so many bytes of it, from the first row on or from a later one. Arrow reads what it
    can, and pandas what is less regular.
    """
    wanted = header.columns if wanted is None else wanted
    done = 0
    if not header.loose:
        with opener() as (text, file):
            text.read(0 if size else header.start)
            try:
                for batch in _parse(text, wanted, source, header):
                    yield _clean(batch.to_pandas(), done, path, source), file.tell()
                    done += batch.num_rows
                return
            except pa.ArrowInvalid as error:
                if "Empty CSV file" in str(error):
                    return
                # What pandas reads, or says better.
                if not re.search("columns, got|conversion error to null", str(error)):
                    raise
    with opener() as (text, file):
        for frame in pd.read_csv(
            text,
            sep=r"\s+" if source.format == "whitespace" else source.separator,
            encoding=source.encoding or "utf-8",
            header=None,
            skipinitialspace=True,
            dtype=str,
            keep_default_na=False,
            na_values=[""],
            chunksize=BATCH_ROWS,
            skiprows=0 if size else header.above,
            names=[*header.names],
        ):
            _check_padding(frame, path, header)
            rows = frame.loc[frame.index >= done, list(wanted)]
            yield _clean(rows, done, path, source), file.tell()


def _parse(
    text: IO[bytes], wanted: Sequence[str], source: Source, header: Header
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted columns of a text that begins with its first row, as text."""
    padding = sorted(header.padding)
    reader = arrow_csv.open_csv(
        pa.PythonFile(text, mode="r"),
        # With one thread errors name the row.
        arrow_csv.ReadOptions(
            block_size=BLOCK_BYTES,
            use_threads=False,
            encoding=source.encoding or "utf8",
            column_names=header.names,
        ),
        arrow_csv.ParseOptions(delimiter=source.separator, newlines_in_values=True),
        arrow_csv.ConvertOptions(
            include_columns=[*wanted, *padding],
            column_types=dict.fromkeys(wanted, pa.string()) | dict.fromkeys(padding, pa.null()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    for batch in reader:
        yield batch.select(list(wanted))


def _check_padding(frame: pd.DataFrame, path: Path, header: Header) -> None:
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


def _clean(frame: pd.DataFrame, start: int, path: Path, source: Source) -> pa.RecordBatch:
    """Return rows of text as the source says; DataError for a number that may be two."""
    columns = {}
    for name in frame:
        column = frame[name].set_axis(pd.RangeIndex(start, start + len(frame)))
        Cells(column, "", path).refuse(
            find_doubtful(column, source),
            ", which is a thousand times as much if the point stands between thousands, and "
            "source.decimal is a comma",
            "Set source.thousands: '.' if it does; else write the cells with a comma.",
        )
        cells = pa.array(read_column(frame[name], source), pa.string(), from_pandas=True)
        columns[name] = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    return pa.RecordBatch.from_pydict(columns)


def cut_text(path: Path, header: Header, size: int) -> list[tuple[int, int]]:
    """Return where the blocks of a plain text begin, and their lengths: about ``size`` bytes each.

    A block ends with a line, outside of quotes as far as can be told by their number.
    """
    spans, start = [], header.start
    with path.open("rb") as file:
        file.seek(start)
        position, quotes = start, 0
        while more := file.read(size):
            # The last end of a line before which quotes are even.
            quotes += more.count(b'"')
            end = more.rfind(b"\n")
            for _ in range(LINES):
                if end < 0 or (quotes - more.count(b'"', end)) % 2 == 0:
                    break
                end = more.rfind(b"\n", 0, end)
            else:
                end = -1
            if end >= 0:
                spans.append((start, position + end + 1 - start))
                start = position + end + 1
            position += len(more)
    if position > start:
        spans.append((start, position - start))
    return spans


# How a table that nobody has described is written: its separator, header, marks and numbers.

# Text that stands for nothing else than a missing cell, and what may in a column of numbers.
ALWAYS_MISSING = ("?", "#N/A", "#NA", "#N/A N/A", "<NA>", "n/a", "N.A.", "n.a.", "-nan", "-NaN")
MARKS = (*ALWAYS_MISSING, "-", "--", ".", "na", "None", "none", "nil", "missing")
# (decimal, thousands) other than Python's own.
NUMBERS = ((",", ""), (",", "."), (".", ","), (",", " "), (".", " "), (".", "'"))
# Currencies and shares, which stand on either side of a number; any word may stand behind one.
SYMBOL = (
    r"[$€£¥₹₽₩₺₫₱₪%‰]|[A-Z]{1,3}\$|USD|EUR|GBP|CHF|JPY|CNY|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL"
    r"|MXN|INR|ZAR|TRY|Rs\.?|kr\.?|Fr\.?|zł"
)
DIGITS = r"[0-9.,][0-9.,'’\s]*?"
WRITTEN = re.compile(
    rf"\(?[+-]?\s*(?P<before>{SYMBOL})?\s*[+-]?(?P<open>\()?(?P<number>{DIGITS})"
    rf"\s*(?P<behind>{SYMBOL}|(?<=\s)[^\W\d_]{{1,10}}\.?)?\)?"
)
# More numbers than a code has.
CODES = 12
# Lines of a title above the header.
TITLE_LINES = 10
SEPARATORS = (",", ";", "\t", "|")
# Share of the lines that must have the same number of cells.
REGULAR = 0.95
WIDTH: int = Source.model_fields["width"].default


def find_keys(
    text: bytes,
    path: Path,
    known: Source | None = None,
    named: Collection[str] = (),
    *,
    cut: bool = False,
) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """Return how a text is written: two sets of keys of ``source``, and lines to be skipped.

    The first are of how it is cut into cells, as `find_layout` finds them, the second of marks and
    numbers in these.
    """
    keys, skipped = find_layout(text, path, known, named, cut=cut)
    source = parse(Source, {"path": str(path), "width": WIDTH, **keys}, path)
    if cut and len(rows := [*cut_rows(text.decode("latin-1"), source.separator)]) > 1:
        text = text[: rows[-2].end]
    header = find_header(text, path, source, skipped)

    def open_start() -> Any:
        return nullcontext((stream := io.BytesIO(text), stream))

    blocks = [rows.to_pandas() for rows, _ in read_text(open_start, path, source, header)]
    if not blocks:
        return keys, skipped, {}
    separator = keys.get("separator", keys.get("format", ","))
    return keys, skipped, find_marks(pd.concat(blocks, ignore_index=True), separator)


def find_layout(
    text: bytes,
    path: Path,
    known: Source | None = None,
    named: Collection[str] = (),
    *,
    cut: bool = False,
) -> tuple[dict[str, Any], int]:
    """Return the keys of ``source`` that say how a text is cut into cells, and lines to be skipped.

    Where several would do, they are those of ``known``, a study's source; a row that has all
    ``named`` is a header. A text that is ``cut`` may end anywhere.
    """
    refuse_foreign(text, path)
    keys: dict[str, Any] = {}
    if encoding := _find_encoding(text, known, cut=cut):
        keys["encoding"] = encoding
    # The last line may be cut.
    start = decode_start(text if cut else text[:START_BYTES], encoding)
    tabs = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    likely = known.separator if known is not None else "\t" if tabs else ","
    separator, rows, skipped = _find_separator(start, likely)
    check_names(range(max(map(len, rows), default=0)), path, WIDTH)
    if separator is None:
        keys["format"] = "whitespace"
    elif separator != ",":
        keys["separator"] = separator
    if not rows:
        raise refuse_empty(start, path)
    headed = _has_header(rows) or (bool(named) and {*named} <= {*rows[0]})
    if headed and separator is None:
        keys["columns"], skipped = rows[0], skipped + 1
    elif not headed:
        columns = [] if known is None else list(known.columns or ())
        numbered = [f"column{number}" for number in range(1, len(rows[0]) + 1)]
        keys["columns"] = columns if len(columns) == len(rows[0]) else numbered
    return keys, skipped


def _find_encoding(text: bytes, known: Source | None = None, *, cut: bool = False) -> str | None:
    """Return the code of bytes that are no UTF-8: that of Windows in western Europe, or Latin-1."""
    stated = None if known is None else known.encoding
    if stated is not None and text.isascii():
        return stated
    for encoding in dict.fromkeys(("utf-8", stated or "cp1252", "cp1252")):
        with suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(encoding)().decode(text, final=not cut)
            return None if encoding == "utf-8" else encoding
    return "iso8859-1"


def _find_separator(text: str, likely: str) -> tuple[str | None, list[list[str]], int]:
    """Return the separator, None for blanks, with the rows it makes and the lines above them."""
    found: list[tuple[int, bool, int, str | None, list[list[str]], int]] = []
    for mark in dict.fromkeys((*SEPARATORS, likely)):
        rows = list(itertools.islice(cut_rows(text, mark), LINES))
        if regular := find_regular(rows):
            width, first = regular
            cells = [row.cells for row in rows[first:]]
            found.append((-first, mark == likely != ",", width, mark, cells, rows[first].above))
    if not found:
        split = [line.split() for line in text.splitlines()[:LINES]]
        rows = [Row(row, 0, 0) for row in split if row]
        if regular := find_regular(rows):
            width, first = regular
            found.append((-first, False, width, None, [row.cells for row in rows[first:]], first))
    if not found:
        rows = list(itertools.islice(cut_rows(text, likely), LINES))
        return likely, [row.cells for row in rows], 0
    # Decimal commas make cells too, but not in the header.
    *_, separator, cells, skipped = max(found, key=lambda each: each[:3])
    return separator, cells, skipped


def find_regular(rows: list[Row]) -> tuple[int, int] | None:
    """Return how many cells nearly all rows have, and which is the first of them or their header.

    A header may lack a separator at the ends of other rows; a title fills few of its cells.
    """
    if not rows:
        return None
    width = Counter(len(row.cells) for row in rows).most_common(1)[0][0]
    span = max(len(row.filled) for row in rows if len(row.cells) == width)
    for first, row in enumerate(rows[: TITLE_LINES + 1]):
        filled = len([cell for cell in row.cells if cell])
        named = filled == width - 1 == span - 1 == len(row.cells) > 1
        if len(row.filled) == span or (len(row.cells) == width and 2 * filled >= span) or named:
            regular = [len(other.cells) == width for other in rows[first + 1 :]]
            irregular = regular and sum(regular) < REGULAR * len(regular)
            return None if width < 2 or irregular else (width, first)
    return None


def _has_header(rows: list[list[str]]) -> bool:
    """Return whether the first row names columns, and holds not only numbers where others do."""
    head, body = rows[0], rows[1:]
    if not body:
        return True
    columns = [[row[place] for row in body if place < len(row)] for place in range(len(head))]
    numeric = [are_numbers(cells) for cells in columns]
    if any(numeric):
        # An index that pandas writes has no name.
        none = {*MARKS, *MISSING_MARKERS}
        named = [
            cell
            for place, cell in enumerate(head)
            if numeric[place] and cell not in none and (cell or place == 0)
        ]
        return not named or not all(are_numbers([cell]) for cell in named)
    repeated = sum(cell in cells for cell, cells in zip(head, columns, strict=True))
    return 2 * repeated < len(head)


def find_marks(
    frame: pd.DataFrame, separator: str | None = ",", typed: bool = False
) -> dict[str, Any]:
    """Return the keys of marks for missing cells, decimals, thousands and units, by columns' cells.

    In a table with types (``typed``) numbers that are text have a unit.
    """
    missing: set[str] = set()
    wins: Counter[tuple[str, str]] = Counter()
    # In 1,234 the comma is a decimal one where semicolons separate cells, as a rule.
    order = NUMBERS if separator == ";" else (NUMBERS[2], *NUMBERS[:2], *NUMBERS[3:])
    pointed, words = False, set[str]()
    patterns = [(marks, re.compile(number_pattern(*marks))) for marks in order]
    units: dict[str, str] = {}

    def find_written(cells: Sequence[str]) -> list[tuple[str, str]]:
        return [marks for marks, each in patterns if all(map(each.fullmatch, cells))]

    for name in frame.columns:
        # Arrow's arrays are slow to go through.
        cells = dict.fromkeys(frame[name].dropna().unique().astype(object))
        missing.update(cell for cell in ALWAYS_MISSING if cell in cells)
        others = [cell for cell in cells if cell not in MARKS]
        if not others:
            continue
        numeric = bool(pd.to_numeric(pd.Series(others, dtype="str"), errors="coerce").notna().all())
        if not numeric:
            written = find_written(others)
            if written and typed:
                units[name] = BRACKETS
            if not written and (unit := find_unit(others)):
                bare = [read_amount(cell, unit) for cell in others]
                # What Python reads says nothing of marks.
                numeric = all(map(_is_float, bare))
                written = [] if numeric else find_written(bare)
                if numeric or written:
                    units[name] = unit
            # Marks that suit one column may not suit the next.
            wins.update(written)
            numeric = numeric or bool(written)
        if numeric:
            pointed |= any("." in str(cell) for cell in others)
            missing.update(cell for cell in cells if cell in MARKS)
        else:
            words.update(cell for cell in cells if cell in MARKS)
    # A mark is one in all columns: what may be a level of another one is left to be seen.
    missing -= {word for word in words - {*ALWAYS_MISSING} if word.isalpha()}
    if pointed and wins[(".", ",")]:
        # Beside numbers with points commas are no decimal ones.
        wins = Counter({marks: count for marks, count in wins.items() if marks[0] == "."})
    keys: dict[str, Any] = {"missing": sorted(missing)} if missing else {}
    if wins:
        decimal, thousands = max(order, key=lambda marks: wins[marks])
        # What a decimal comma says of the points of other columns.
        commas = Source(path="t.csv", decimal=",", units=units)
        if (decimal, thousands) == (",", "") and any(
            find_doubtful(frame[name], commas).any() for name in frame.columns
        ):
            thousands = "."
        keys |= {"decimal": ","} if decimal == "," else {}
        keys |= {"thousands": thousands} if thousands else {}
    return keys | ({"units": units} if units else {})


def read_mixed(cells: pd.Series) -> pd.Series:
    """Return a sheet's column of numbers and text as numbers if the text is marks, else as text."""
    if not pd.api.types.infer_dtype(cells, skipna=True).startswith("mixed"):
        return cells
    present = cells.mask(cells.isin(MARKS))
    numbers = pd.to_numeric(present, errors="coerce")
    whole = bool(numbers.notna().equals(present.notna()))
    return numbers if whole else cells.map(str, na_action="ignore")


def are_numbers(cells: Iterable[str]) -> bool:
    """Return whether cells, of which some are no marks, are numbers in any notation."""
    present = [cell for cell in cells if cell and cell not in (*MARKS, *MISSING_MARKERS)]
    pattern = re.compile("|".join(number_pattern(*marks) for marks in NUMBERS))
    return bool(present) and all(pattern.fullmatch(cell) or _is_float(cell) for cell in present)


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def find_unit(cells: Sequence[str]) -> str | None:
    """Return what ``source.units`` says of a column of these cells, which are no plain numbers.

    A unit is one where all but zeros have it: 12% beside 0.12, or $5 beside €5, is no number.
    """
    units: set[str] = set()
    plain = 0
    for cell in cells:
        written = WRITTEN.fullmatch(cell.strip())
        if written is None or (written["before"] and written["behind"]):
            return OPEN if _are_open(cells) else None
        if unit := written["before"] or written["behind"]:
            units.add(unit)
        elif set(cell) & set("123456789"):
            plain += 1
    if not units:
        return BRACKETS
    (unit, *others) = sorted(units)
    if others or plain or (not re.fullmatch(SYMBOL, unit) and len(cells) <= CODES):
        return None
    return unit


def _are_open(cells: Sequence[str]) -> bool:
    """Whether these are many whole numbers, of which few have an open end, as 90+ has."""
    ends = [OPEN_END.fullmatch(cell.strip().casefold()) for cell in cells]
    if not all(ends) or len(cells) <= CODES:
        return False
    few = [end for end in ends if end and (end["before"] or end["behind"])]
    return 0 < len(few) <= 4
