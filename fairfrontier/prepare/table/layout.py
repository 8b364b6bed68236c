"""How a table that nobody has described is written: its separator, header, marks and numbers."""

from __future__ import annotations

import codecs
import io
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.prepare.config.section import MISSING_MARKERS, Source
from fairfrontier.prepare.table.column import (
    BRACKETS,
    OPEN,
    OPEN_END,
    find_doubtful,
    number_pattern,
    read_amount,
)
from fairfrontier.prepare.table.text import (
    LINES,
    START_BYTES,
    Row,
    check_names,
    cut_rows,
    decode_start,
    find_header,
    read_text,
    refuse_empty,
    refuse_foreign,
)
from fairfrontier.runtime.config import parse

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
    likely = known.separator if known is not None else find_suffixed(path)
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


def find_suffixed(path: Path) -> str:
    """Return the separator that a file's name stands for."""
    return "\t" if path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab")) else ","


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

    In a table with types (``typed``) no mark is known, and numbers that are text have a unit.
    """
    marked = () if typed else MARKS
    missing: set[str] = set()
    wins: Counter[tuple[str, str]] = Counter()
    # In 1,234 the comma is a decimal one where semicolons separate cells, as a rule.
    order = NUMBERS if separator == ";" else (NUMBERS[2], *NUMBERS[:2], *NUMBERS[3:])
    pointed, words = False, set[str]()
    patterns = [(marks, re.compile(number_pattern(*marks))) for marks in order]
    units: dict[str, str] = {}
    for name in frame.columns:
        # Arrow's arrays are slow to go through.
        cells = dict.fromkeys(frame[name].dropna().unique().astype(object))
        missing.update(cell for cell in ALWAYS_MISSING if cell in cells)
        others = [cell for cell in cells if cell not in marked]
        if not others:
            continue
        numeric = bool(pd.to_numeric(pd.Series(others, dtype="str"), errors="coerce").notna().all())
        if not numeric:
            written = [marks for marks, each in patterns if all(map(each.fullmatch, others))]
            if written and typed:
                units[name] = BRACKETS
            if not written and (unit := find_unit(others)):
                bare = [read_amount(cell, unit) for cell in others]
                # What Python reads says nothing of marks.
                numeric = all(map(_is_float, bare))
                written = (
                    []
                    if numeric
                    else [marks for marks, each in patterns if all(map(each.fullmatch, bare))]
                )
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
    pattern = re.compile("|".join(_patterns()))
    return bool(present) and all(pattern.fullmatch(cell) or _is_float(cell) for cell in present)


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _patterns() -> Sequence[str]:
    return [number_pattern(decimal, thousands) for decimal, thousands in NUMBERS]


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
