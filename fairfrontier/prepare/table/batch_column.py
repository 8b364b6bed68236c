"""A column of a batch of rows as numbers, levels or 0 and 1; what cannot be read names its row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairfrontier.prepare.config.section import level_text
from fairfrontier.prepare.table.column import MISSING_LEVEL
from fairfrontier.runtime.errors import DataError

# A column with more levels is no protected attribute, but a number or a name.
MAX_LEVELS = 1000
ZERO, ONE = ("0", "False", "false"), ("1", "True", "true")


@dataclass(frozen=True, eq=False)
class BatchColumn:
    """One column of consecutive rows of a table.

    Attributes
    ----------
    values : pyarrow.Array
        As read.
    name : str
    option : str
        The option that names it, for the mend.
    path : Path
        Of the table, for the fault.
    start : int
        Number of the first row, for the fault.
    """

    values: pa.Array
    name: str
    option: str
    path: Path
    start: int = 0

    def present(self) -> pa.Array:
        """Return the cells without a dictionary and without blanks around text.

        Raises
        ------
        DataError
            When one is missing, or text of blanks alone.
        """
        column = _decode(self.values)
        if is_text(column.type):
            column = pc.if_else(pc.equal(column, ""), None, column)
        if column.null_count:
            row = column.is_null().index(True).as_py()
            raise DataError(
                f"{self.path}: column {self.name!r} is missing in row {self.start + row}.",
                "Fill it in, or leave the row out.",
            )
        return column

    def numbers(self) -> np.ndarray:
        """Return the cells as finite float64.

        Raises
        ------
        DataError
            When one is missing, infinite or no number.
        """
        column = self.present()
        if not is_text(column.type):
            if not (
                pa.types.is_floating(column.type)
                or pa.types.is_integer(column.type)
                or pa.types.is_decimal(column.type)
            ):
                raise DataError(
                    f"{self.path}: column {self.name!r} holds {column.type}, which are no numbers.",
                    "Name a column of numbers.",
                )
            numbers = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(False))
        else:
            try:
                numbers = np.asarray(column.cast(pa.float64()).to_numpy(False))
            except pa.ArrowInvalid:
                row = next(i for i, text in enumerate(column.to_pylist()) if not _is_number(text))
                raise DataError(
                    f"{self.path}: column {self.name!r} holds {column[row].as_py()!r} in row "
                    f"{self.start + row}, which is no number.",
                    "Correct it, or name a column of numbers.",
                ) from None
        finite = np.isfinite(numbers)
        if not finite.all():
            row = int((~finite).argmax())
            raise DataError(
                f"{self.path}: column {self.name!r} holds {numbers[row]:g} in row "
                f"{self.start + row}.",
                "Every row needs a finite number: correct it, or leave the row out.",
            )
        return numbers

    def weights(self) -> np.ndarray:
        """Return the cells as case weights ≥ 0, float64.

        Raises
        ------
        DataError
            When one is missing, no number or negative.
        """
        weight = self.numbers()
        if weight.size and weight.min() < 0:
            row = int((weight < 0).argmax())
            raise DataError(
                f"{self.path}: column {self.name!r} holds {weight[row]:g} in row "
                f"{self.start + row}, and a weight is not negative.",
                f"Correct it, or leave --{self.option} out.",
            )
        return weight

    def levels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return the codes, int64, and the levels; missing cells are a level.

        Raises
        ------
        DataError
            When there are more than ``MAX_LEVELS``, or cells are lists or records.
        """
        if pa.types.is_nested(self.values.type):
            raise DataError(
                f"{self.path}: column {self.name!r} holds {self.values.type}, which is no level.",
                "Name a column of text or numbers.",
            )
        encoded = pc.dictionary_encode(_decode(self.values))
        values = encoded.dictionary.to_pylist()
        if len(values) > MAX_LEVELS:
            raise DataError(
                f"{self.path}: column {self.name!r} has more than {MAX_LEVELS} levels, too many "
                f"for --{self.option}.",
                "Name a column with few levels: put numbers into ranges first.",
            )
        texts = [str(level_text(value)) for value in values] + [MISSING_LEVEL]
        levels = tuple(dict.fromkeys(texts))
        place = np.array([levels.index(text) for text in texts], dtype=np.int64)
        indices = encoded.indices.fill_null(len(values)).to_numpy(False)
        return place[np.asarray(indices)], levels

    def binary(self, one: str | None, option: str, seen: set[str] | None = None) -> np.ndarray:
        """Return the cells as 0 and 1, float64.

        Parameters
        ----------
        one : str or None
            The level that means 1, every other one meaning 0. Without it cells are 0 and 1, or
            false and true.
        option : str
            The option that says so, for the mend.
        seen : set of str, optional
            Gets the levels that occur.

        Raises
        ------
        DataError
            When a cell is missing, or neither 0 nor 1.
        """
        self.present()
        codes, levels = self.levels()
        if seen is not None:
            seen.update(levels[code] for code in np.unique(codes))
        if one is not None:
            meaning = {level: float(level == one) for level in levels}
        else:
            meaning = dict.fromkeys(ZERO, 0.0) | dict.fromkeys(ONE, 1.0)
        meanings = np.array([meaning.get(level, np.nan) for level in levels])
        found = np.asarray(meanings[codes])
        unknown = np.isnan(found)
        if unknown.any():
            row = int(unknown.argmax())
            raise DataError(
                f"{self.path}: column {self.name!r} holds {levels[codes[row]]!r} in row "
                f"{self.start + row}, which is neither 0 nor 1.",
                f"Name the level that means 1 with --{option}.",
            )
        return found


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type of Arrow's is text."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _decode(column: pa.Array) -> pa.Array:
    """Return a column without its dictionary, without NaN and, where it is text, without blanks."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column.type):
        return pc.utf8_trim_whitespace(column.cast(pa.string()))
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return pc.if_else(pc.is_nan(column), None, column)
    return column
