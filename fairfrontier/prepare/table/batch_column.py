"""A column of a batch of rows as numbers, levels or 0 and 1; errors name the row."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairfrontier.prepare.config.section import level_text
from fairfrontier.prepare.table.column import MISSING_LEVEL, find_merged
from fairfrontier.runtime.errors import DataError

# A column with more levels is no protected attribute, but a number or a name.
MAX_LEVELS = 1000
ZERO, ONE = ("0", "False"), ("1", "True")
FILL_IN = "Fill it in, or leave the row out"


@dataclass(frozen=True, eq=False)
class BatchColumn:
    """One column of consecutive rows of a table, of which ``start`` is the number of the first.

    ``option`` is the command-line option that names the column. Where rows between these were left
    out, ``places`` are theirs, counted from ``start``.
    """

    values: pa.Array
    name: str
    option: str
    path: Path
    start: int = 0
    places: np.ndarray | None = None

    def place(self, row: int) -> int:
        """Return the number in the table of one of these rows."""
        return self.start + (row if self.places is None else int(self.places[row]))

    def error(self, fault: str, mend: str) -> DataError:
        """Return an error about this column; ``fault`` continues "column 'x' "."""
        return DataError(f"{self.path}: column {self.name!r} {fault}.", mend)

    def refuse(self, wrong: np.ndarray, values: np.ndarray, reason: str, mend: str) -> None:
        """Raise a DataError about the first row that is wrong, with its value."""
        if wrong.any():
            row = int(wrong.argmax())
            raise self.error(f"holds {values[row]:g} in row {self.place(row)}{reason}", mend)

    def refuse_bytes(self) -> None:
        """Raise a DataError unless the cells are text, numbers, truth values or times."""
        kind = self.values.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        try:
            if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
                raise pa.ArrowNotImplementedError
            if _is_bytes(kind):
                _decode(self.values).cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise self.error(
                f"holds {kind}, which is neither text nor a number",
                "Write every cell as one text or one number.",
            ) from None

    def present(self, mend: str = f"{FILL_IN}.") -> pa.Array:
        """Return the cells, decoded and stripped of blanks; a missing one raises a DataError."""
        column = _decode(self.values)
        if column.null_count:
            row = column.is_null().index(True).as_py()
            raise self.error(f"is missing in row {self.place(row)}", mend)
        return column

    def numbers(self) -> np.ndarray:
        """Return the cells as finite float64."""
        column = self.present()
        kind = column.type
        if not (is_text(kind) or is_number(kind) or pa.types.is_decimal(kind)):
            raise self.error(f"holds {kind}, which are no numbers", "Name a column of numbers.")
        try:
            cells = column.cast(pa.float64(), safe=is_text(kind))
        except pa.ArrowInvalid:
            # The first cell that cannot be read ends the shortest head that cannot.
            row = bisect_left(range(len(column)), True, key=lambda i: _holds_words(column[: i + 1]))
            raise self.error(
                f"holds {column[row].as_py()!r} in row {self.place(row)}, which is no number",
                "Correct it, or name a column of numbers.",
            ) from None
        numbers = np.asarray(cells.to_numpy(False))
        mend = "Every row needs a finite number: correct it, or leave the row out."
        self.refuse(~np.isfinite(numbers), numbers, "", mend)
        return numbers

    def weights(self) -> np.ndarray:
        """Return the cells as case weights ≥ 0, float64."""
        weight = self.numbers()
        mend = f"Correct it, or leave --{self.option} out."
        self.refuse(weight < 0, weight, ", and a weight is not negative", mend)
        return weight

    def levels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return the codes, int64, and the levels; missing cells are a level."""
        try:
            column = _decode(self.values)
            if _is_bytes(column.type):
                raise pa.ArrowNotImplementedError
            encoded = pc.dictionary_encode(column)
            values = encoded.dictionary.to_pylist()
        # A KeyError is a time zone that there is not, an OverflowError a date.
        except (pa.ArrowNotImplementedError, KeyError, OverflowError):
            kind = self.values.type
            mend = "Name a column of text or numbers."
            raise self.error(f"holds {kind}, which is no level", mend) from None
        if len(values) > MAX_LEVELS:
            raise self.error(
                f"has more than {MAX_LEVELS} levels, too many for --{self.option}",
                "Name a column with few levels: put numbers into ranges first.",
            )
        if find_merged(values):
            raise self.error(
                "holds floats of 2^53 or more, each of which may stand for several levels",
                "Write it as whole numbers or as text.",
            )
        texts = [str(level_text(value)) for value in values] + [MISSING_LEVEL]
        levels = tuple(dict.fromkeys(texts))
        code = np.array([levels.index(text) for text in texts], dtype=np.int64)
        indices = encoded.indices.fill_null(len(values)).to_numpy(False)
        return code[np.asarray(indices)], levels

    def binary(
        self, ones: Collection[str], option: str, seen: Counter[str] | None = None
    ) -> np.ndarray:
        """Return the cells as 0 and 1, float64; the rows of each level are added to ``seen``.

        ``ones`` are the levels that mean 1, every other one meaning 0; without any the cells must
        be 0 and 1, or false and true. ``option`` is the one to set where they are not.
        """
        self.present()
        codes, levels = self.levels()
        if seen is not None:
            present, rows = np.unique(codes, return_counts=True)
            seen.update({levels[code]: int(n) for code, n in zip(present, rows, strict=True)})
        if ones:
            meaning = {level: float(level in ones) for level in levels}
        else:
            meaning = dict.fromkeys(ZERO, 0.0) | dict.fromkeys(ONE, 1.0)
        cells = np.array([meaning.get(level, np.nan) for level in levels])[codes]
        unknown = np.isnan(cells)
        if unknown.any():
            row = int(unknown.argmax())
            raise self.error(
                f"holds {levels[codes[row]]!r} in row {self.place(row)}, which is neither 0 nor 1",
                f"Name the level that means 1 with --{option}.",
            )
        return np.asarray(cells)


def is_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is text."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def is_number(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is that of integers or floating-point numbers."""
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return any(
        check(kind)
        for check in (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )


def _holds_words(cells: pa.Array) -> bool:
    """Return whether any of the cells is no number."""
    try:
        cells.cast(pa.float64())
    except pa.ArrowInvalid:
        return True
    return False


def _decode(column: pa.Array) -> pa.Array:
    """Return a column without its dictionary, NaN and empty text, and text without blanks."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_bytes(column.type):
        # As in a study, bytes are text where they are UTF-8.
        with suppress(pa.ArrowInvalid):
            column = column.cast(pa.string())
    if is_text(column.type):
        text = pc.utf8_trim_whitespace(column.cast(pa.string()))
        return pc.if_else(pc.equal(text, ""), None, text)
    if pa.types.is_decimal32(column.type) or pa.types.is_decimal64(column.type):
        # Arrow counts no levels of these.
        return column.cast(pa.decimal128(column.type.precision, column.type.scale))
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return pc.if_else(pc.is_nan(column), None, column)
    return column
