"""How a table that nobody has described is written: its format, separator, header and marks."""

from __future__ import annotations

import codecs
import io
import itertools
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import pandas as pd
import pyarrow as pa

from fairfrontier.prepare.config.source import MISSING_MARKERS, Source
from fairfrontier.prepare.source.archive import SPREADSHEET, ZIP_START, most_unpacked, refuse_growth
from fairfrontier.prepare.table.frame import to_arrow, write_parquet
from fairfrontier.prepare.table.header import LINES, START_BYTES, Row, cut_rows, decode_start
from fairfrontier.prepare.table.notation import (
    ALWAYS_MISSING,
    MARKS,
    are_numbers,
    find_marks,
    read_mixed,
)
from fairfrontier.prepare.table.parquet import memory_error
from fairfrontier.prepare.table.table import (
    check_header,
    list_parquet,
    read_parquet,
    read_table,
    read_text,
    refuse_missing,
    tidy_typed,
    unpack,
)
from fairfrontier.prepare.table.width import check_width
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.text_file import is_plain

# Lines of a title above the header.
TITLE_LINES = 10
SEPARATORS = (",", ";", "\t", "|")
# Share of the lines that must have the same number of cells.
REGULAR = 0.95
SHEETS = (".xlsx", ".xlsm", ".xls", ".ods")
SUFFIXES = re.compile(
    r"(\.(csv|tsv|tab|txt|data|dat|parquet|feather|arrow|xlsx?|xlsm|ods))?(\.(gz|zip))?$", re.I
)
FEATHER = (b"ARROW1", b"FEA1")
WIDTH: int = Source.model_fields["width"].default
# A sheet is made a rectangle: more cells than it has bytes were never written.
LEAST_CELLS = 2**22
# Parts of an .xlsx that openpyxl does not read for a sheet's cells.
UNREAD = (
    "xl/calcChain.xml",
    "xl/charts/",
    "xl/comments",
    "xl/drawings/",
    "xl/embeddings/",
    "xl/externalLinks/",
    "xl/media/",
    "xl/model/",
    "xl/pivotCache/",
    "xl/vbaProject.bin",
)
# A short tag takes openpyxl a thousand times the memory, until the row or shared text that it is
# in ends. Other tags than those of plain cells stay; styles of cells are at most 65,490.
PART_BYTES, PART_TAGS = 2**22, 2**18
# Excel has no more rows.
ROWS = 2**20


def _compile_tags(start: str, inner: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the patterns of a tag that is neither, with what it holds, and of one that starts."""
    prefix = r"(?:[\w.-]+:)?"
    other = rf"<(?![/?!]|{prefix}(?:{start}|{inner})[\s/>])[^<]*"
    return re.compile(other.encode()), re.compile(rf"<{prefix}{start}[\s/>]".encode())


# Those that may be large.
LARGE = {
    re.compile(r"xl/worksheets/[^/]+\.xml"): _compile_tags("row", "c|v|is|t|f"),
    re.compile(r"xl/sharedStrings\.xml"): _compile_tags("si", "t"),
}


@dataclass(frozen=True, eq=False)
class RawTable:
    """A table as the loader will read it.

    ``keys`` are those of ``source`` in a dataset's YAML, without the path. ``parquet`` are the
    bytes of a file to write where the loader cannot read the original. ``name`` is the file's.
    ``numbered`` says that there is no header.
    """

    name: str
    frame: pd.DataFrame
    keys: dict[str, Any] = field(default_factory=dict)
    skip_rows: int = 0
    path: Path | None = None
    parquet: bytes | None = None
    numbered: bool = False


class Known(NamedTuple):
    """What a study's source says of text: rows that come later may be written otherwise."""

    text: bool
    separator: str
    encoding: str | None
    columns: Sequence[str] | None
    notation: bool
    units: frozenset[str]

    @classmethod
    def of(cls, source: Source) -> Self:
        """Return what a source says, of the notation of numbers and of columns' ``units`` too."""
        notation = source.decimal is not None or source.thousands is not None
        text = source.format != "parquet"
        units = frozenset(source.units)
        return cls(text, source.separator, source.encoding, source.columns, notation, units)


def read_raw(table: Path | Any, name: str | None = None) -> RawTable:
    """Read a file, or a frame of pandas, polars or Arrow, as the loader will.

    Raises
    ------
    ConfigError
        When there is no such file, or a library for its format is missing.
    DataError
        When it is not a table.
    """
    if not isinstance(table, Path):
        return _keep_arrow(to_arrow(table), name or "table", Path(name or "table"))
    named = SUFFIXES.sub("", table.name)
    if table.is_dir():
        if not list_parquet(table):
            raise ConfigError(
                f"{table} is a folder without Parquet files.", "Name a file, or a folder of them."
            )
        return _read_parquet(table, named)
    if not is_plain(table):
        raise refuse_missing(table)
    try:
        raw = table.read_bytes()
    except OSError as error:
        raise DataError(f"{table} cannot be read: {error.strerror}.", "Check it.") from None
    if raw.startswith(b"PAR1"):
        return _read_parquet(table, named)
    if (typed := read_typed(table)) is not None:
        return _keep_arrow(typed, named, table, len(raw) if raw.startswith(FEATHER) else None)
    return _read_text(raw, table, named)


def read_typed(path: Path) -> pa.Table | None:
    """Return what a Feather file holds, or the first sheet of a spreadsheet; None for others."""
    with path.open("rb") as file:
        start = file.read(len(FEATHER[0]))
    sheet = path.suffix.lower() in SHEETS
    if not (sheet or start.startswith((*FEATHER, ZIP_START))):
        return None
    raw = path.read_bytes()
    if start.startswith(FEATHER):
        return _read_feather(raw, path)
    return to_arrow(_read_sheet(raw, path)) if sheet or SPREADSHEET.encode() in raw else None


def _read_parquet(path: Path, name: str) -> RawTable:
    source = Source(path=str(path), format="parquet")
    frame = read_table(source, path.parent, path.parent).frame
    return _read_amounts(RawTable(name, frame, {"format": "parquet"}, path=path))


def _read_amounts(raw: RawTable) -> RawTable:
    """Return a table of Parquet with amounts that are text as numbers."""
    frame: pd.DataFrame = raw.frame.select_dtypes(include="str")
    found = {key: value for key, value in find_marks(frame, typed=True).items() if key != "missing"}
    if "units" not in found:
        return raw
    keys = raw.keys | found
    read = tidy_typed(raw.frame, parse(Source, {"path": "t.parquet", **keys}, raw.name))
    return replace(raw, frame=read, keys=keys)


def _read_feather(raw: bytes, path: Path) -> pa.Table:
    from pyarrow import feather

    try:
        table = feather.read_table(io.BytesIO(raw))
        check_header(table.column_names, path, WIDTH)
        # Offsets of a damaged one may lead anywhere.
        table.validate(full=True)
        return table
    except MemoryError:
        raise memory_error(path) from None
    # A ValueError is a name that is no UTF-8.
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(
            f"{path} is not a Feather file that can be read: {reason}.", "Write it again."
        ) from None


def _read_sheet(raw: bytes, path: Path) -> pd.DataFrame:
    """Return the first sheet of a spreadsheet; pandas needs a library of its own for it."""
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(raw)) as archive:
        most = most_unpacked(len(raw))
        if sum(member.file_size for member in archive.infolist()) > most:
            raise refuse_growth(path, most, "Save the sheet as CSV.")
    try:
        if zipfile.is_zipfile(io.BytesIO(raw)):
            raw = _check_sheet(raw, path)
        cells = pd.read_excel(
            io.BytesIO(raw),
            header=None,
            keep_default_na=False,
            na_values=["", *MISSING_MARKERS, *ALWAYS_MISSING],
        )
        return _name_cells(cells, path)
    except DataError:
        raise
    except ImportError as error:
        library = next(iter(re.findall(r"openpyxl|xlrd|odfpy", str(error))), "openpyxl")
        wanted = "'fairfrontier[excel]'" if library == "openpyxl" else library
        raise ConfigError(
            f"{path} is a spreadsheet, and {library} is not installed.",
            f"Install it (pip install {wanted}), or save the sheet as CSV.",
        ) from None
    # Its readers raise whatever a damaged file makes them meet.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path} is not a spreadsheet that can be read: {reason[:200].rstrip('.')}.",
            "Save the sheet as CSV.",
        ) from None


def _name_cells(cells: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the table in the cells of a sheet: below its title, without columns of nothing."""
    texts = cells[:LINES].astype(object).where(cells[:LINES].notna(), "").map(str).values.tolist()
    regular = _find_regular([Row(list(map(str.strip, row)), 0, 0) for row in texts])
    first = regular[1] if regular else 0
    frame = cells[first + 1 :].reset_index(drop=True).infer_objects().apply(read_mixed)
    named = [text.strip() for text in texts[first]] if texts else []
    kept = [place for place, name in enumerate(named) if name or frame[place].notna().any()]
    names = [named[place] or f"Unnamed: {place}" for place in kept]
    check_header(names, path, WIDTH)
    return frame[kept].set_axis(names, axis=1)


def _check_sheet(raw: bytes, path: Path) -> bytes:
    """Return a spreadsheet without large parts that are not read.

    Raises a DataError for others that take much more than their cells do, and for a first sheet of
    too many columns, cells or characters. Cells count up to the last in use, and a text that many
    cells share for each of them.
    """
    limit = most_unpacked(len(raw))
    kept = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as archive, zipfile.ZipFile(kept, "w") as copy:
        most = max(LEAST_CELLS, sum(member.file_size for member in archive.infolist()))
        if SPREADSHEET not in archive.namelist():
            return raw
        for name in dict.fromkeys(archive.namelist()):
            part = archive.read(name)
            if _is_light(name, part):
                copy.writestr(name, part)
            # What names it all the same does not find it.
            elif not name.startswith(UNREAD):
                raise DataError(
                    f"{path} has more in {name!r} than a table needs.", "Save the sheet as CSV."
                )
    from openpyxl import load_workbook

    book = load_workbook(kept, read_only=True, data_only=True, keep_links=False)
    with closing(book):
        sheet = book.worksheets[0]
        # What it says of itself may be anything.
        sheet.reset_dimensions()
        widest, characters = 1, 0
        for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
            widest = max(widest, len(row))
            check_width(widest, path, WIDTH, more=True)
            if number * widest > most:
                raise DataError(
                    f"{path} has more than {most:,} cells, nearly all of them empty.",
                    "Delete what is far from the table, or save the sheet as CSV.",
                )
            characters += sum(len(cell) for cell in row if isinstance(cell, str))
            if characters > limit:
                raise refuse_growth(path, limit, "Save the sheet as CSV.")
    return kept.getvalue()


def _is_light(name: str, part: bytes) -> bool:
    """Return whether a part of a workbook takes little beside rows of cells and shared texts."""
    # Entities, which stand for any number of tags.
    if b"<!DOCTYPE" in part or "<!DOCTYPE".encode("utf-16-le") in part:
        return False
    for large, (other, start) in LARGE.items():
        if large.fullmatch(name):
            found = itertools.islice(other.finditer(part), PART_TAGS + 1)
            lengths = [tag.end() - tag.start() for tag in found]
            ends = [0, *(tag.start() for tag in start.finditer(part)), len(part)]
            return (
                len(ends) - 2 <= ROWS
                and len(lengths) <= PART_TAGS
                and sum(lengths) <= PART_BYTES
                and all(part.count(b"<", *each) <= PART_TAGS for each in itertools.pairwise(ends))
            )
    return len(part) <= PART_BYTES and part.count(b"<") <= PART_TAGS


def _keep_arrow(table: Any, name: str, path: Path, size: int | None = None) -> RawTable:
    """Return a table, of a file of ``size`` bytes, that is written as Parquet, and read again."""
    check_header(table.column_names, path, WIDTH)
    written = io.BytesIO()
    write_parquet(table, written, path, size)
    source = Source(path=str(path), format="parquet")
    frame = read_parquet(written.getvalue(), path, source)
    raw = RawTable(name, frame, {"format": "parquet"}, parquet=written.getvalue())
    return _read_amounts(raw)


def _read_text(raw: bytes, path: Path, name: str) -> RawTable:
    text = unpack(raw, path)
    keys, skipped = find_layout(text, path)

    def read() -> pd.DataFrame:
        return read_text(text, path, parse(Source, {"path": str(path), **keys}, path), skipped)

    frame = read()
    if frame.empty:
        raise DataError(f"{path} holds no rows.", "Check that the file is complete.")
    if marks := find_marks(frame, keys.get("separator", keys.get("format", ","))):
        if "missing" in marks:
            marks["missing"] = [*MISSING_MARKERS, *marks["missing"]]
        keys |= marks
        frame = read()
    numbered = keys.get("columns", ())[:1] == ["column1"]
    return RawTable(name, frame, keys, skipped, path, numbered=numbered)


def find_layout(
    text: bytes,
    path: Path,
    known: Known | None = None,
    named: Collection[str] = (),
    *,
    cut: bool = False,
) -> tuple[dict[str, Any], int]:
    """Return the keys of ``source`` that say how a text is cut into cells, and lines to be skipped.

    Where several would do, they are those of ``known``; a row that has all ``named`` is a header.
    A text that is ``cut`` may end anywhere.
    """
    keys: dict[str, Any] = {}
    if encoding := _find_encoding(text, known, cut=cut):
        keys["encoding"] = encoding
    # The last line may be cut.
    start = decode_start(text if cut else text[:START_BYTES], encoding)
    if not start.strip():
        raise DataError(f"{path} is empty.", "Check that the file is complete.")
    likely = known.separator if known is not None else find_suffixed(path)
    separator, rows, skipped = _find_separator(start, likely)
    check_width(max(map(len, rows), default=0), path, WIDTH, more=True)
    if separator is None:
        keys["format"] = "whitespace"
    elif separator != ",":
        keys["separator"] = separator
    if not rows:
        raise DataError(
            f"{path} begins with a cell of more than 128 KiB.", "Check its separators and quotes."
        )
    headed = _has_header(rows) or (bool(named) and {*named} <= {*rows[0]})
    if headed and separator is None:
        keys["columns"], skipped = rows[0], skipped + 1
    elif not headed:
        columns = [] if known is None else list(known.columns or ())
        numbered = [f"column{number}" for number in range(1, len(rows[0]) + 1)]
        keys["columns"] = columns if len(columns) == len(rows[0]) else numbered
    return keys, skipped


def find_source(
    start: bytes,
    path: Path,
    known: Known | None = None,
    named: Collection[str] = (),
    *,
    cut: bool = False,
) -> tuple[Source, int]:
    """Return how a text table is written by its start, and the lines above its header.

    With ``known``, of a study whose rows come from other files as well, what is missing
    is left to it, and how numbers are written where it says so.
    """
    keys, skipped = find_layout(start, path, known, named, cut=cut)
    source = parse(Source, {"path": str(path), "width": WIDTH, **keys}, path)
    if cut and len(rows := [*cut_rows(start.decode("latin-1"), source.separator)]) > 1:
        start = start[: rows[-2].end]
    marks = find_marks(
        read_text(start, path, source, skipped), keys.get("separator", keys.get("format", ","))
    )
    missing = (*MISSING_MARKERS, *ALWAYS_MISSING, *marks.pop("missing", ()))
    if known is not None and known.text:
        missing, marks = (), {} if known.notation else marks
    if known is not None and "units" in marks:
        # A study's own are left to its encoder.
        own = {} if known.text else marks["units"]
        marks = {**marks, "units": {k: unit for k, unit in own.items() if k not in known.units}}
    return source.model_copy(update={**marks, "missing": tuple(dict.fromkeys(missing))}), skipped


def find_suffixed(path: Path) -> str:
    """Return the separator that a file's name stands for."""
    return "\t" if path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab")) else ","


def _find_encoding(text: bytes, known: Known | None = None, *, cut: bool = False) -> str | None:
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
        if regular := _find_regular(rows):
            width, first = regular
            cells = [row.cells for row in rows[first:]]
            found.append((-first, mark == likely != ",", width, mark, cells, rows[first].above))
    if not found:
        split = [line.split() for line in text.splitlines()[:LINES]]
        rows = [Row(row, 0, 0) for row in split if row]
        if regular := _find_regular(rows):
            width, first = regular
            found.append((-first, False, width, None, [row.cells for row in rows[first:]], first))
    if not found:
        rows = list(itertools.islice(cut_rows(text, likely), LINES))
        return likely, [row.cells for row in rows], 0
    # Decimal commas make cells too, but not in the header.
    *_, separator, cells, skipped = max(found, key=lambda each: each[:3])
    return separator, cells, skipped


def _find_regular(rows: list[Row]) -> tuple[int, int] | None:
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
