"""What a column of an undescribed table holds, and why it may be of no use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from fairfrontier.prepare.draft.vocabulary import IDENTIFIERS, name_words
from fairfrontier.prepare.table.column import as_levels
from fairfrontier.runtime.errors import DataError

NESTED, DATE, IDENTIFIER = "lists or records", "a date", "an identifier"
SAME = "the same value in every row"
# Each may stand for several codes.
LARGE = "floats of 2^53 or more"
# Text with more levels is no category; neither is text that hardly ever repeats.
MOST_LEVELS = 50
# Words of a cell, on average, from which on text is sentences.
WORDS = 4
# Share of the rows without a value from which on a column is left out.
EMPTY = 0.95
# Share of the levels of numbers up to which others are named.
FEW = 0.1
# Share of the levels that are dates from which on a column is one.
DATED = 0.95
DATES = re.compile(
    r"[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}([T ][0-9:.,]+)?(Z| ?[+-][0-9:]{2,6}| ?UTC)?"
    r"|[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([0-9]{4}|[0-9]{2})( [0-9:]+( ?[AaPp][Mm])?)?"
    r"|[0-9]{1,2}[- ][A-Za-z]{3,9}[- ]([0-9]{4}|[0-9]{2})"
)

CODE = re.compile(r"0[0-9]+")


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
        # Of several files a column may hold numbers and text.
        typed = pd.api.types.is_numeric_dtype(self.cells)
        written = () if typed else map(str, self.cells.unique().astype(object))
        if any(map(CODE.fullmatch, written)):
            return None
        return numbers.astype(np.float64)

    @cached_property
    def counts(self) -> pd.Series:
        """Rows of every level but the missing one, the most frequent first."""
        counts = Counter(as_levels(self.cells).dropna().to_numpy(dtype=object))
        # Levels that are equally frequent come in the order of their names.
        common = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        return pd.Series(dict(common), dtype=np.int64)

    @cached_property
    def levels(self) -> list[str]:
        """The levels, sorted by name."""
        return sorted(self.counts.index.astype(object))

    @cached_property
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
        return self._fault

    @cached_property
    def _fault(self) -> str | None:
        n = len(self.cells)
        try:
            distinct = len(self.counts)
        except DataError:
            return NESTED if self.numbers is None else LARGE
        if distinct == 0:
            return "empty"
        if distinct == 1:
            return f"{SAME} that has one" if self.missing else SAME
        if self.missing > EMPTY * n:
            return f"missing in {self.missing / n:.0%} of the rows"
        if self._is_date():
            return DATE
        if self._is_identifier(distinct):
            return IDENTIFIER
        if self.numbers is not None:
            infinite = int(np.isinf(self.numbers.to_numpy()).sum())
            return f"infinite in {infinite:,} rows" if infinite else None
        if distinct > MOST_LEVELS or 2 * distinct > n - self.missing:
            return f"text with {distinct:,} different values{self._find_odd()}"
        return None

    def _find_odd(self) -> str:
        """Return which few cells are in the way of numbers."""
        numbers = pd.to_numeric(pd.Series(self.levels, dtype="str"), errors="coerce")
        odd = [level for level, is_odd in zip(self.levels, numbers.isna(), strict=True) if is_odd]
        few = len(odd) <= max(1, FEW * len(self.levels))
        return f", numbers but for {shorten(odd, 3)}" if few else ""

    def _is_date(self) -> bool:
        if pd.api.types.is_numeric_dtype(self.cells):
            return False
        dated = sum(map(bool, map(DATES.fullmatch, self.levels)))
        return dated > DATED * len(self.levels)

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


def shorten(levels: Iterable[str], most: int = 6) -> str:
    """Return levels as a list for a comment."""
    listed = list(levels)
    rest = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return ", ".join(level[:40] for level in listed[:most]) + rest
