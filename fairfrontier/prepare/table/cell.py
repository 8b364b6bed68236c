"""Cells of raw tables: marks of missing values, and the notation of numbers."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.source import Source
from fairfrontier.prepare.table.column import is_number, parse_numbers

# Text that is a number and no code, as 09 and 1E3 are; programs write 1e+20 or 1.0E20.
PLAIN_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)?(\.[0-9]*([eE][0-9]+)?)?([eE][+-][0-9]+)?")
# What Python reads as a number where a point stands between thousands.
POINTED = r"[+-]?[0-9]*\.[0-9]*(?:[eE][+-]?[0-9]+)?"
FOREIGN = " in another notation"
# Beside a decimal comma.
DOUBTFUL = r"[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?:,[0-9]*)?"


def find_doubtful(column: pd.Series, source: Source) -> np.ndarray:
    """Return which cells are 1.234 or 1234, since nothing says what their point is; bool, (n,).

    The decimal mark is a comma then, and no point stands between thousands.
    """
    alone = source.decimal == "," and source.thousands != "."
    if not alone or source.format == "parquet" or is_number(column):
        return np.zeros(len(column), dtype=bool)
    text = _take_text(column)
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

    A mark is compared with what the file holds, where a blank behind is part of the cell, and as a
    number with numbers.
    """
    cells = rewrite_numbers(column.str.rstrip(), source)
    return cells.mask(column.isin(["", *source.missing]) | equal_marks(cells, source))


def equal_marks(column: pd.Series, source: Source) -> np.ndarray:
    """Return which cells, read by `rewrite_numbers`, are numbers that equal a mark; bool, (n,)."""
    numbers, exact = _find_marks(source)
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
def _find_marks(source: Source) -> tuple[frozenset[float], frozenset[Any]]:
    """Return the marks that are numbers, as floats and as `_find_value` does."""
    marks = rewrite_numbers(pd.Series(source.missing, dtype="str"), source)
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
    if source.format == "parquet":
        return column
    numbers, _ = _find_marks(source)
    if numbers:
        column = column.mask(parse_numbers(column).isin(numbers))
    if source.thousands == "." and not is_number(column):
        text = _take_text(column)
        column = column.mask(text.str.startswith(" ", na=False), text.str.lstrip() + FOREIGN)
    return column


def number_pattern(decimal: str, thousands: str) -> str:
    """Return the regular expression of numbers written with these marks; "" for no thousands."""
    grouped = rf"[1-9][0-9]{{0,2}}(?:{re.escape(thousands)}[0-9]{{3}})+|" if thousands else ""
    point = re.escape(decimal)
    return rf"[+-]?(?:(?:{grouped}[0-9]+)(?:{point}[0-9]*)?|{point}[0-9]+)"


def rewrite_numbers(column: pd.Series, source: Source) -> pd.Series:
    """Return a column of text in which 1.234,5 is 1234.5, by the marks of the source.

    Where points stand between thousands, 0.82 is a level and no number: it gets a blank in front.
    """
    if source.decimal is None and source.thousands is None:
        return column
    decimal, thousands = source.decimal or ".", source.thousands or ""
    text = column.str.lstrip()
    marked = text.str.fullmatch(number_pattern(decimal, thousands)).eq(True)
    numbers = text[marked].str.replace(thousands, "", regex=False)
    read = column.mask(marked, numbers.str.replace(decimal, ".", regex=False))
    if thousands != ".":
        return read
    return read.mask(text.str.fullmatch(POINTED).eq(True) & ~marked, " " + text)
