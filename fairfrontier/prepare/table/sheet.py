"""Feather files, and spreadsheets, of which the first sheet is read."""

from __future__ import annotations

import io
import itertools
import re
import zipfile
from contextlib import closing, suppress
from pathlib import Path

import pandas as pd
import pyarrow as pa

from fairfrontier.prepare.config.section import MISSING_MARKERS
from fairfrontier.prepare.source.archive import SPREADSHEET, ZIP_START, most_unpacked, refuse_growth
from fairfrontier.prepare.table.frame import to_arrow
from fairfrontier.prepare.table.layout import ALWAYS_MISSING, WIDTH, find_regular, read_mixed
from fairfrontier.prepare.table.text import LINES, Row, check_names
from fairfrontier.runtime.errors import ConfigError, DataError

SHEETS = (".xlsx", ".xlsm", ".xls", ".ods")
FEATHER = (b"ARROW1", b"FEA1")
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


def _read_feather(raw: bytes, path: Path) -> pa.Table:
    from pyarrow import feather

    table = feather.read_table(io.BytesIO(raw))
    check_names(table.column_names, path, WIDTH)
    # Offsets of a damaged one may lead anywhere.
    table.validate(full=True)
    return table


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
    regular = find_regular([Row(list(map(str.strip, row)), 0, 0) for row in texts])
    first = regular[1] if regular else 0
    frame = cells[first + 1 :].reset_index(drop=True).infer_objects().apply(read_mixed)
    named = [text.strip() for text in texts[first]] if texts else []
    kept = [place for place, name in enumerate(named) if name or frame[place].notna().any()]
    names = [named[place] or f"Unnamed: {place}" for place in kept]
    check_names(names, path, WIDTH)
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
            check_names(range(widest), path, WIDTH)
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
