"""What a column of an undescribed table holds, and why it may be of no use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from fairfrontier.prepare.draft.vocabulary import IDENTIFIERS, name_words
from fairfrontier.prepare.table.column import as_levels
from fairfrontier.runtime.errors import DataError

NESTED = "lists or records"
# Each may stand for several codes.
LARGE = "floats of 2^53 or more"
# Text with more levels is no category; neither is text that hardly ever repeats.
MOST_LEVELS = 50
# Words of a cell, on average, from which on text is sentences.
WORDS = 4
# Share of the rows without a value from which on a column is left out.
EMPTY = 0.95
# Share of the levels that are dates from which on a column is one.
DATED = 0.95
DATES = re.compile(
    r"[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}([T ][0-9:.,]+)?(Z| ?[+-][0-9:]{2,6}| ?UTC)?"
    r"|[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([0-9]{4}|[0-9]{2})( [0-9:]+( ?[AaPp][Mm])?)?"
    r"|[0-9]{1,2}[- ][A-Za-z]{3,9}[- ]([0-9]{4}|[0-9]{2})"
)


@dataclass(frozen=True, eq=False)
class Column:
    """A column as the loader has it: numbers as numbers or text, everything else as text."""

    name: str
    cells: pd.Series

    @cached_property
    def missing(self) -> int:
        """Number of rows without a value."""
        return int(self.cells.isna().sum())

    @cached_property
    def numbers(self) -> pd.Series | None:
        """The cells as float64 where all that are there are numbers; codes such as 007 are none."""
        if self.missing == len(self.cells) or pd.api.types.is_bool_dtype(self.cells):
            return None
        numbers = pd.to_numeric(self.cells, errors="coerce")
        if (numbers.isna() & self.cells.notna()).any():
            return None
        if not pd.api.types.is_numeric_dtype(self.cells):
            # Of several files a column may hold numbers and text.
            coded = self.cells.astype("str").str.fullmatch(r"0[0-9]+").eq(True)
            if coded.any():
                return None
        return numbers.astype(np.float64)

    @cached_property
    def counts(self) -> pd.Series:
        """Rows of every level but the missing one, the most frequent first."""
        counts = as_levels(self.cells).value_counts()
        # Levels that are equally frequent come in the order of their names.
        return counts.sort_index().sort_values(ascending=False, kind="stable")

    @property
    def levels(self) -> list[str]:
        """The levels, sorted by name."""
        return sorted(map(str, self.counts.index))

    @property
    def is_continuous(self) -> bool:
        """Whether it holds more numbers than a code has."""
        return self.numbers is not None and self.numbers.nunique() > 12

    @property
    def is_text(self) -> bool:
        """Whether its cells are sentences rather than names or codes."""
        if self.numbers is not None or not isinstance(self.cells.dtype, pd.StringDtype):
            return False
        return bool(self.cells.str.count(r"\S+").mean() >= WORDS)

    def find_fault(self) -> str | None:
        """Return why no model should be given the column, None where it may be a feature."""
        n = len(self.cells)
        try:
            distinct = len(self.counts)
        except DataError:
            return NESTED if self.numbers is None else LARGE
        if distinct == 0:
            return "empty"
        if distinct == 1:
            return f"the same value in every row{' that has one' if self.missing else ''}"
        if self.missing > EMPTY * n:
            return f"missing in {self.missing / n:.0%} of the rows"
        if self._is_date():
            return "a date"
        if self._is_identifier(distinct):
            return "an identifier"
        if self.numbers is not None:
            infinite = int(np.isinf(self.numbers.to_numpy()).sum())
            return f"infinite in {infinite:,} rows" if infinite else None
        if distinct > MOST_LEVELS or 2 * distinct > n - self.missing:
            return f"text with {distinct:,} different values"
        return None

    def _is_date(self) -> bool:
        if pd.api.types.is_numeric_dtype(self.cells):
            return False
        written = pd.Series(self.counts.index, dtype="str")
        return bool(written.str.fullmatch(DATES.pattern).mean() > DATED)

    def _is_identifier(self, distinct: int) -> bool:
        """Return whether it numbers or names rows: by its name, or by counting them."""
        present = len(self.cells) - self.missing
        named = bool(IDENTIFIERS & set(name_words(self.name))) or self.name.startswith("Unnamed: ")
        if self.numbers is None:
            return named and distinct > MOST_LEVELS
        if not (self.numbers.dropna() % 1 == 0).all():
            return False
        if named and 2 * distinct > present:
            return True
        span = self.numbers.max() - self.numbers.min() + 1
        return distinct == present == span and present > MOST_LEVELS


def make_columns(frame: pd.DataFrame) -> dict[str, Column]:
    """Return the columns of a table by name."""
    return {str(name): Column(str(name), frame[name]) for name in frame.columns}
