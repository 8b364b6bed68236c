"""Cells of raw tables: marks of missing values, and the notation of numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.source import Births, Source
from fairfrontier.prepare.table.column import fold_level, is_number, parse_numbers

# Text that is a number and no code, as 09 and 1E3 are; programs write 1e+20 or 1.0E20.
PLAIN_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)?(\.[0-9]*([eE][0-9]+)?)?([eE][+-][0-9]+)?")
# What Python reads as a number where a point stands between thousands.
POINTED = r"[+-]?[0-9]*\.[0-9]*(?:[eE][+-]?[0-9]+)?"
FOREIGN = " in another notation"
# Beside a decimal comma.
DOUBTFUL = r"[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?:,[0-9]*)?"

# Of ``source.units``: numbers in brackets, and whole numbers with open ends.
BRACKETS, OPEN = "()", "+"
# Digits and the marks between them, which `rewrite_numbers` reads.
AMOUNT = re.compile(r"\((?P<within>[0-9.,][0-9.,'\u2019\s]*)\)|[+-]?[0-9.,][0-9.,'\u2019\s]*")
OPEN_END = re.compile(
    r"(?P<before>>=?|<=?|[\u2264\u2265]|over|above|more than|older than|under|below|less than"
    r"|younger than)?\s*(?P<number>[0-9]{1,15})\s*(?:years?\s*)?(?P<behind>\+|plus|(?:and|or) "
    r"(?:over|older|above|more)|(?:und|oder) (?:\u00e4lter|mehr)|(?:et|ou) plus|[yo] m\u00e1s"
    r"|ou mais)?"
)


def find_doubtful(column: pd.Series, source: Source) -> np.ndarray:
    """Return which cells are 1.234 or 1234, since nothing says what their point is; bool, (n,).

    The decimal mark is a comma then, and no point stands between thousands.
    """
    alone = source.decimal == "," and source.thousands != "."
    if not alone or source.format == "parquet" or is_number(column):
        return np.zeros(len(column), dtype=bool)
    text = rewrite_named(_take_text(column), source)
    doubtful = text.str.strip().str.fullmatch(DOUBTFUL, na=False) & ~text.isin(source.missing)
    return doubtful.to_numpy(dtype=bool)


def _take_text(column: pd.Series) -> pd.Series:
    """Return the cells of a column that are text; others are empty."""
    if isinstance(column.dtype, pd.StringDtype):
        return column
    text = column.astype(object).map(lambda cell: cell if isinstance(cell, str) else "")
    return text.astype("str")


def clean_cells(column: pd.Series, source: Source) -> pd.Series:
    """Return a column of text without marked cells and blanks behind, numbers as Python's.

    A mark is compared with what the file holds, with blanks behind it and without, and as a number
    with numbers.
    """
    text = column.str.rstrip()
    cells, marks = rewrite_numbers(rewrite_named(text, source), source), ["", *source.missing]
    return cells.mask(column.isin(marks) | text.isin(marks) | equal_marks(cells, source))


def equal_marks(column: pd.Series, source: Source) -> np.ndarray:
    """Return which cells, read by `rewrite_numbers`, are numbers that equal a mark; bool, (n,)."""
    numbers, exact = _find_marks(source.missing, source.decimal, source.thousands)
    equal = np.zeros(len(column), dtype=bool)
    if not numbers:
        return equal
    cells = parse_numbers(column).to_numpy()
    for number in numbers:
        equal |= np.isclose(cells, number)
    # Most of them are alike; but True is no 1.
    look = lru_cache(typed=True)(
        lambda cell: cell in numbers if isinstance(cell, float) else _is_marked(cell, exact)
    )
    equal[equal] = [look(cell) for cell in column[equal].astype(object)]
    return equal


@lru_cache
def _find_marks(
    missing: tuple[str, ...], decimal: str | None, thousands: str | None
) -> tuple[frozenset[float], frozenset[Any]]:
    """Return the marks that are numbers, as floats and as `_find_value` does."""
    marks = _rewrite(pd.Series(missing, dtype="str"), decimal or ".", thousands or "")
    numbers = parse_numbers(marks)
    return frozenset(numbers.dropna()), frozenset(map(_find_value, marks[numbers.notna()]))


def _is_marked(cell: Any, marks: Collection[Any]) -> bool:
    """Whether a cell equals a mark; 09 and 1E3 of text are codes, which do not equal 9 and 1000."""
    text = cell.decode() if isinstance(cell, bytes) else str(cell)
    is_code = isinstance(cell, bytes | str) and not PLAIN_NUMBER.fullmatch(text)
    return not is_code and _find_value(text) in marks


def _find_value(text: str) -> Any:
    """Return a whole number exactly, since one float64 may stand for several, others as floats."""
    with suppress(InvalidOperation):
        number = Decimal(text)
        return number if number == number.to_integral_value() else float(number)
    return text


def clean_typed(column: pd.Series, source: Source) -> pd.Series:
    """Return a column of a frame as `clean_cells` returns its text, with numbers as they are.

    A number that equals a mark is missing, however it was written.
    """
    if is_number(column) and not equal_marks(column, source).any():
        return column
    if not isinstance(column.dtype, pd.StringDtype):
        # Whole numbers beside missing cells would become floats.
        column = column.astype(object)
        if pd.api.types.infer_dtype(column, skipna=True) in ("string", "empty"):
            # Storage by Arrow would refuse what is no Unicode.
            column = column.astype(pd.StringDtype("python", na_value=np.nan))
    if isinstance(column.dtype, pd.StringDtype):
        return clean_cells(column.str.lstrip(" "), source)
    cells = column.copy()
    text = cells.map(lambda cell: isinstance(cell, str)).to_numpy(dtype=bool)
    other = cells[~text]
    marked = equal_marks(other, source) | (other.notna() & other.map(str).isin(source.missing))
    cells[~text] = other.mask(marked).to_numpy()
    cells[text] = clean_cells(cells[text].str.lstrip(" "), source).to_numpy(dtype=object)
    return cells


def mask_numbers(column: pd.Series, source: Source) -> pd.Series:
    """Return a column that is used as numbers, in which no text is a code, without marked cells.

    What `rewrite_numbers` found in another notation is no number any more.
    """
    if source.format == "parquet" and not source.units:
        return column
    numbers, _ = _find_marks(source.missing, source.decimal, source.thousands)
    if numbers:
        column = column.mask(parse_numbers(column).isin(numbers))
    if source.thousands == "." and not is_number(column):
        text = _take_text(column)
        column = column.mask(text.str.startswith(" ", na=False), text.str.lstrip() + FOREIGN)
    return column


# Thousands are kept apart by blanks that do not break, too.
ALIKE = {" ": "[ \u00a0\u202f]", "'": "['\u2019]"}


def number_pattern(decimal: str, thousands: str) -> str:
    """Return the regular expression of numbers written with these marks; "" for no thousands."""
    mark = ALIKE.get(thousands, re.escape(thousands))
    grouped = rf"[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+|" if thousands else ""
    point = re.escape(decimal)
    return rf"[+-]?(?:(?:{grouped}[0-9]+)(?:{point}[0-9]*)?|{point}[0-9]+)"


def rewrite_numbers(column: pd.Series, source: Source) -> pd.Series:
    """Return a column of text in which 1.234,5 is 1234.5, by the marks of the source.

    Where points stand between thousands, 0.82 is a level and no number: it gets a blank in front.
    """
    if source.decimal is None and source.thousands is None:
        return column
    return _rewrite(column, source.decimal or ".", source.thousands or "")


def _rewrite(column: pd.Series, decimal: str, thousands: str) -> pd.Series:
    text = column.str.lstrip()
    marked = text.str.fullmatch(number_pattern(decimal, thousands)).eq(True)
    between = ALIKE.get(thousands, re.escape(thousands))
    numbers = text[marked].str.replace(between, "", regex=True) if thousands else text[marked]
    read = column.mask(marked, numbers.str.replace(decimal, ".", regex=False))
    if thousands != ".":
        return read
    return read.mask(text.str.fullmatch(POINTED).eq(True) & ~marked, " " + text)


def rewrite_typed(column: pd.Series, source: Source) -> pd.Series:
    """Return a column of Parquet, as `tidy` leaves it, as the source says of it by name."""
    if not isinstance(column.dtype, pd.StringDtype):
        return column
    read = rewrite_named(column, source)
    return rewrite_numbers(read, source) if column.name in source.units else read


def rewrite_named(column: pd.Series, source: Source) -> pd.Series:
    """Return a column of text as the source says of it by name: numbers, ages or levels.

    What is none of these, as a number without its unit, is no number any more.
    """
    name = str(column.name).strip()
    read: Callable[[str], str]
    if unit := source.units.get(name):
        read = partial(read_amount, unit=unit)
    elif births := source.ages.get(name):
        read = partial(_count_years, births=births)
    elif levels := source.spellings.get(name):
        known = {fold_level(level): level for level in levels}
        read = lambda cell: known.get(fold_level(cell), cell)  # noqa: E731
    else:
        return column
    cells = {cell: read(cell) for cell in column.dropna().unique()}
    return column.astype(object).map(cells).astype(column.dtype)


def read_amount(cell: str, unit: str) -> str:
    """Return an amount without its unit and with a sign in the place of brackets: ($5) is -5."""
    if unit == OPEN:
        return _read_open(cell)
    bare, found = cell.strip(), True
    if unit != BRACKETS:
        mark = re.escape(unit)
        bare, before = re.subn(rf"^(\(?[+-]?)\s*{mark}\s*", r"\1", bare)
        bare, behind = re.subn(rf"\s*{mark}\s*(\)?)$", r"\1", bare)
        found = before + behind == 1
    amount = AMOUNT.fullmatch(bare)
    if amount is None or not (found or set(bare) <= set("+-0.,")):
        return cell + FOREIGN if any(map(str.isdigit, cell)) else cell
    return f"-{amount['within']}" if amount["within"] else bare


def _read_open(cell: str) -> str:
    ends = OPEN_END.fullmatch(cell.strip().casefold())
    if ends is None:
        return cell
    number = int(ends["number"])
    if ends["before"] in (">", "over", "above", "more than", "older than"):
        number += 1
    elif ends["before"] in ("<", "under", "below", "less than", "younger than"):
        number -= 1
    return str(number)


def _count_years(cell: str, births: Births) -> str:
    born = read_day(cell, births.format) or read_day(cell, None)
    if born is None or born > births.at:
        return cell + FOREIGN
    years = births.at.year - born.year
    return str(years - ((births.at.month, births.at.day) < (born.month, born.day)))


def read_day(cell: str, written: str | None) -> date | None:
    """Return a day as it is written, by default as 1967-01-31, whatever time is behind it."""
    text, codes = (cell.strip(), written) if written else (cell.strip()[:10], "%Y-%m-%d")
    with suppress(ValueError):
        return datetime.strptime(text, codes).date()
    return None
