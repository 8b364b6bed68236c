"""The cells of a column: marks of missing ones, numbers, levels, units and days."""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fairfrontier.prepare.level import TRUTH, WHOLE_NUMBER, level_text
from fairfrontier.runtime.errors import DataError

if TYPE_CHECKING:
    from fairfrontier.prepare.config.section import Births, Source

_log = logging.getLogger(__name__)
MISSING_LEVEL = "missing"
# Trees compute with single precision, to which larger numbers are infinite.
LARGEST = float(np.finfo(np.float32).max)
# From here on one float64 stands for several whole numbers.
MERGED = 2.0**53
# Objects of which those that are equal have one level; else True is 1, and noon in Rome 11 UTC.
DISTINCT = ("string", "bytes", "boolean", "decimal", "date", "empty")
# Cells from which on those that are alike are read once.
MANY = 1000
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity)$"

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


def is_number(column: pd.Series) -> bool:
    """Return whether all cells are real numbers by their type."""
    types = pd.api.types
    is_other = types.is_bool_dtype(column) or types.is_complex_dtype(column)
    return types.is_numeric_dtype(column) and not is_other


def are_merged(numbers: pd.Series) -> bool:
    """Return whether whole numbers, given as float64, may each stand for several."""
    return bool((numbers.abs() >= MERGED).any())


def encode_levels(column: pd.Series, where: str = "The table") -> tuple[np.ndarray, pd.Index]:
    """Return the codes, int64, of the levels that occur, −1 for a missing cell, and the levels.

    Levels are text: 2, 2.0 and "2.0" are all "2", TRUE and true are True. Text loses the blanks at
    its ends, and empty text is missing. What a cell becomes depends on no other one. Bytes are read
    as UTF-8; bytes that are not, lists, records and floats of 2⁵³ or more raise a DataError that
    begins with ``where``.
    """
    is_mixed = column.dtype == object and pd.api.types.infer_dtype(column) not in DISTINCT
    try:
        if is_mixed or len(column) < MANY:
            places, cells = np.arange(len(column)), column.astype(object).tolist()
        else:
            places, values = pd.factorize(column)
            if isinstance(values.dtype, pd.StringDtype) and values.dtype.storage == "pyarrow":
                codes, levels = pd.factorize(_trim(pd.Series(values)))
                return np.append(codes, -1)[places], levels
            cells = values.astype(object).tolist()
        texts = [_read_level(cell) for cell in cells]
        if any(isinstance(cell, float) and MERGED <= abs(cell) < math.inf for cell in cells):
            raise DataError(
                f"{where}: column {column.name!r} holds floats of 2^53 or more as levels, and each "
                "may stand for several whole numbers.",
                "Write it as whole numbers or as text; where it is used as a number too, under "
                "another name.",
            )
    except (TypeError, UnicodeDecodeError) as error:
        held = (
            "lists or records" if isinstance(error, TypeError) else "bytes that are no UTF-8 text"
        )
        raise DataError(
            f"{where}: column {column.name!r} holds {held}, and one number or text in each cell is "
            "expected.",
            "Write what you need of them as columns of their own.",
        ) from None
    numbers = {text: code for code, text in enumerate(dict.fromkeys(filter(None, texts)))}
    found = np.array([*(numbers.get(text, -1) for text in texts), -1], dtype=np.int64)
    return found[places], pd.Index(list(numbers), dtype="str")


def as_levels(column: pd.Series, where: str = "The table") -> pd.Series:
    """Return a column as level text; see `encode_levels`."""
    codes, levels = encode_levels(column, where)
    cells = levels.array.take(codes, allow_fill=True)
    return pd.Series(cells, column.index, dtype="str", name=column.name)


def _trim(texts: pd.Series) -> pd.Series:
    text = texts.str.strip().astype("str")
    if (truth := text.str.match(TRUTH.pattern, na=False)).any():
        text = text.mask(truth, text.str.capitalize())
    # To compile the pattern takes longer than to look at most columns.
    if text.str.contains(".0", regex=False).any():
        text = text.str.replace(WHOLE_NUMBER.pattern, r"\1", regex=True)
    return text.mask(text == "")


def _read_level(cell: Any) -> str:
    """Return a cell as a level; "" for a missing one."""
    # What has no hash is a list or a record.
    hash(cell)
    if cell is None or cell is pd.NA or cell is pd.NaT or cell != cell:
        return ""
    return str(level_text(cell.decode() if isinstance(cell, bytes) else cell))


def parse_numbers(column: pd.Series) -> pd.Series:
    """Return a column as float64, rounded as IEEE 754 says; NaN where a cell is no number.

    Truth values, dates, durations and complex numbers are none, whatever pandas makes of them.
    """
    if is_number(column):
        return column.astype(np.float64)
    text = column.astype(object) if isinstance(column.dtype, pd.CategoricalDtype) else column
    if text.dtype == object or getattr(text.dtype, "storage", "") == "python":
        text = text.astype(object).map(_write_number)
    elif not isinstance(text.dtype, pd.StringDtype):
        return pd.Series(np.nan, column.index, dtype=np.float64, name=column.name)
    cells = pa.array(text, pa.string(), from_pandas=True)
    cells = pc.utf8_trim_whitespace(cells)
    try:
        numbers = cells.cast(pa.float64())
    except pa.ArrowInvalid:
        known = pc.match_substring_regex(cells, NUMBER)
        numbers = pc.if_else(known, cells, None).cast(pa.float64())
    return pd.Series(numbers.to_numpy(zero_copy_only=False), column.index, name=column.name)


def _write_number(cell: Any) -> str | None:
    # To Python a truth value is a whole number, and so is a duration to NumPy.
    if isinstance(cell, bool | np.timedelta64) or not isinstance(
        cell, str | bytes | Real | Decimal
    ):
        return None
    if isinstance(cell, str | bytes):
        text = cell if isinstance(cell, bytes) else cell.encode(errors="replace")
        return text.decode(errors="replace")
    if isinstance(cell, int | Decimal):
        return str(cell)
    return repr(float(cell)) if isinstance(cell, Real) else None


def show_cell(cell: Any) -> str:
    """Return a cell as messages show it."""
    if isinstance(cell, float):
        return f"{cell:g}"
    return repr(cell) if isinstance(cell, str) else str(cell)


def read_column(column: pd.Series, source: Source) -> pd.Series:
    """Return a raw column as the source says: numbers as float64, else text; marks are missing."""
    if str(column.dtype).startswith(("string_view", "binary_view", "decimal32", "decimal64")):
        # Types of Arrow's for which pandas lacks functions.
        cells = pa.array(column).to_pandas()
        column = pd.Series(cells.array, column.index, name=column.name)
    if column.name in source.ages:
        # Days may be times.
        column = as_levels(column)
    if source.format == "parquet":
        if is_number(column):
            numbers = column.astype(np.float64)
            whole = pd.api.types.is_integer_dtype(column) and are_merged(numbers)
            numbers = column if whole else numbers
            marked = equal_marks(column, source)
            return numbers.mask(marked) if marked.any() else numbers
        try:
            levels = as_levels(column)
        except DataError:
            # Most columns of wide tables are not used; those that are will be refused then.
            return column
        marked = levels.isin(source.missing).to_numpy() | equal_marks(levels, source)
        read = rewrite_named(levels.mask(marked), source)
        return rewrite_numbers(read, source) if column.name in source.units else read
    is_text = isinstance(column.dtype, pd.StringDtype) and len(column) > MANY
    if not is_text or 2 * column[:MANY].nunique() > MANY:
        return clean_typed(column, source)
    # Cells that are alike are read once.
    codes, texts = pd.factorize(column)
    made = clean_typed(pd.Series(texts, dtype=column.dtype, name=column.name), source)
    return pd.Series(made.array.take(codes, allow_fill=True), column.index, name=column.name)


def mark_missing(rows: pa.RecordBatch, source: Source) -> pa.RecordBatch:
    """Return rows of a table with types in which the cells that hold a mark are missing."""
    numbers, _ = _find_marks(source.missing, source.decimal, source.thousands)
    columns = []
    for cells in rows.columns:
        levels = cells.dictionary if pa.types.is_dictionary(cells.type) else cells
        if levels.type in (pa.string(), pa.large_string(), pa.string_view()):
            # Of views Arrow computes little.
            text = levels.cast(pa.large_string())
            cells, levels = (text, text) if levels is cells else (cells, text)
            marks = pa.array(source.missing, pa.large_string())
            marked = pc.is_in(pc.utf8_trim_whitespace(levels), marks)
        else:
            marked = pa.repeat(False, len(levels))
        if numbers:
            equal = equal_marks(levels.to_pandas(), source)
            marked = pc.or_(marked, pa.array(equal))
        if pc.any(marked).as_py():
            if levels is not cells:
                places = pc.if_else(marked.take(cells.indices), None, cells.indices)
                cells = pa.DictionaryArray.from_arrays(places, levels)
            else:
                cells = pc.if_else(marked, None, cells)
        columns.append(cells)
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def unique_levels(column: pd.Series) -> tuple[str, ...]:
    """Return the sorted levels that occur in a column."""
    return sort_levels(as_levels(column).dropna().unique())


def sort_levels(levels: Iterable[str]) -> tuple[str, ...]:
    """Sort levels: as numbers where all are numbers, else as text; NaN comes last."""

    def rank(level: str) -> tuple[bool, float, str]:
        number = float(level)
        # NaN compares with nothing: the order would be that of the set, another in every process.
        return (True, 0.0, level) if math.isnan(number) else (False, number, level)

    unsorted = list(levels)
    try:
        return tuple(sorted(unsorted, key=rank))
    except ValueError:
        return tuple(sorted(unsorted))


def fold_level(level: str) -> str:
    """Return what levels have in common that differ by case and blanks alone."""
    return " ".join(level.split()).casefold()


def find_spellings(levels: Iterable[str]) -> dict[str, list[str]]:
    """Return the first of levels that differ by case and blanks alone -> all of them."""
    found: dict[str, list[str]] = {}
    for level in levels:
        found.setdefault(fold_level(level), []).append(level)
    return {same[0]: same for same in found.values() if len(same) > 1}


def tell_spellings(name: str, levels: Iterable[str]) -> None:
    """Log that some groups of a column differ by case and blanks alone."""
    if same := find_spellings(levels):
        alike = "; ".join(" = ".join(sorted(each)) for each in same.values())
        _log.warning(
            "%s has levels that differ by case or blanks alone, each a group of its own: %s.",
            name,
            alike,
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
    if not numbers:
        return np.zeros(len(column), dtype=bool)
    equal = np.isin(parse_numbers(column).to_numpy(), list(numbers))
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


# A column with more levels is no protected attribute, but a number or a name.
MAX_LEVELS = 1000
MEANING = {"0": 0.0, "False": 0.0, "1": 1.0, "True": 1.0}
FILL_IN = "Fill it in, or leave the row out"
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_MASK = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class Cells:
    """A column that a command was asked to use; errors name its ``option`` and the row.

    ``column`` is indexed by the numbers of the rows.
    """

    column: pd.Series
    option: str
    path: Path | str

    def error(self, reason: str, mend: str) -> DataError:
        """Return an error about this column; ``reason`` continues "column 'x' "."""
        return DataError(f"{self.path}: column {self.column.name!r} {reason}.", mend)

    def refuse(self, wrong: np.ndarray, reason: str, mend: str) -> None:
        """Raise a DataError about the first cell that is wrong."""
        if wrong.any():
            row = int(wrong.argmax())
            shown = show_cell(self.column.iloc[row])
            raise self.error(f"holds {shown} in row {self.column.index[row]}{reason}", mend)

    def present(self, mend: str = f"{FILL_IN}.") -> tuple[np.ndarray, pd.Index]:
        """Return codes and levels; a missing cell raises a DataError."""
        codes, levels = encode_levels(self.column, f"{self.path}")
        if (absent := codes < 0).any():
            row = self.column.index[int(absent.argmax())]
            raise self.error(f"is missing in row {row}", mend)
        return codes, levels

    def numbers(self) -> np.ndarray:
        """Return the cells as finite float64."""
        numbers = parse_numbers(self.column).to_numpy()
        if (wrong := np.isnan(numbers)).any():
            self.present()
            self.refuse(wrong, ", which is no number", "Correct it, or name a column of numbers.")
        mend = "Every row needs a finite number: correct it, or leave the row out."
        self.refuse(np.isinf(numbers), "", mend)
        return numbers

    def weights(self) -> np.ndarray:
        """Return the cells as case weights ≥ 0, float64."""
        weight = self.numbers()
        mend = f"Correct it, or leave --{self.option} out."
        self.refuse(weight < 0, ", and a weight is not negative", mend)
        return weight

    def levels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return the codes, int64, and the levels that occur; missing cells are a level."""
        codes, levels = encode_levels(self.column, f"{self.path}")
        names = levels.tolist()
        if (codes < 0).any():
            # The cells may hold the word itself.
            names += [] if MISSING_LEVEL in names else [MISSING_LEVEL]
            codes = np.where(codes < 0, names.index(MISSING_LEVEL), codes)
        if len(names) > MAX_LEVELS:
            raise self.error(
                f"has more than {MAX_LEVELS} levels, too many for --{self.option}",
                "Name a column with few levels: put numbers into ranges first.",
            )
        return codes.astype(np.int64), tuple(names)

    def binary(
        self, ones: Collection[str], option: str, seen: Counter[str] | None = None
    ) -> np.ndarray:
        """Return the cells as 0 and 1, float64; the rows of each level are added to ``seen``.

        ``ones`` are the levels that mean 1, every other one meaning 0; without any the cells must
        be 0 and 1, or false and true. ``option`` is the one to set where they are not.
        """
        codes, names = self.present()
        if seen is not None:
            rows = np.bincount(codes, minlength=len(names)).tolist()
            seen.update(dict(zip(names.tolist(), rows, strict=True)))
        meaning = {name: float(name in ones) for name in names} if ones else MEANING
        cells = np.array([meaning.get(name, np.nan) for name in names])[codes]
        mend = f"Name the level that means 1 with --{option}."
        self.refuse(np.isnan(cells), ", which is neither 0 nor 1", mend)
        return np.asarray(cells)

    def ids(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ids as they are written out, and the 64-bit words that seed their rows' draws.

        A whole number, or its decimal text, is that number modulo 2⁶⁴; any other text is the first
        eight bytes of the sha256 of its UTF-8, the lowest first.
        """
        column = self.column.infer_objects()
        mend = f"Name another column with --{self.option}, or leave it out to use the row number."
        self.present()
        if is_number(column):
            if not pd.api.types.is_integer_dtype(column):
                numbers = column.to_numpy(dtype=np.float64)
                wrong = ~(np.abs(numbers) < MERGED) | (numbers != np.floor(numbers))
                self.refuse(wrong, ", and an id is a whole number or text", mend)
                column = pd.Series(numbers.astype(np.int64))
            unsigned = str(column.dtype).lower().startswith("u")
            names = column.to_numpy(dtype=np.uint64 if unsigned else np.int64)
            return names, names.view(np.uint64)
        texts = column.astype(object).map(lambda x: x.decode() if isinstance(x, bytes) else x)
        self.refuse(
            ~texts.map(lambda x: isinstance(x, str)).to_numpy(dtype=bool),
            ", and ids are whole numbers or text",
            mend,
        )
        texts = texts.str.strip()
        names = texts.to_numpy(dtype=object)
        if texts.str.fullmatch(r"0|-?[1-9][0-9]{0,16}").all():
            return names, names.astype(np.int64).view(np.uint64)
        return names, np.array([_number_id(text) for text in names], dtype=np.uint64)


def _number_id(text: str) -> int:
    if _WHOLE.fullmatch(text):
        return int(text) & _MASK
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
