"""What a column of an undescribed table holds, and why it may be of no use."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from fairfrontier.prepare.table.column import as_levels, read_day
from fairfrontier.runtime.errors import DataError

_LISTED = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))
# Protected attribute -> the words by which a column of it is called, as most laws list them.
PROTECTED = {kind: frozenset(words.split(", ")) for kind, words in _LISTED.pop("protected").items()}
# Lists of words by what they are for: see words.yaml.
LEXICON = {key: frozenset(words.split(", ")) for key, words in _LISTED.items()}
YES = LEXICON["plain"] | LEXICON["good"]


def fold(text: str) -> str:
    """Return text in lower case without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char)).strip()


def name_words(name: str) -> list[str]:
    """Return the words of a column's name, and every run of two or three of them joined by _."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = re.findall(r"[^\W_]+", fold(spaced))
    runs = [
        "_".join(words[start : start + size])
        for size in (2, 3)
        for start in range(len(words) - size + 1)
    ]
    return words + runs


def find_attribute(name: str) -> str | None:
    """Return the protected attribute that a column's name says it holds."""
    words = set(name_words(name))
    single = {word for word in words if "_" not in word} - LEXICON["beside"]
    words -= LEXICON["alone"] if len(single) > 1 else frozenset()
    return next((kind for kind, names in PROTECTED.items() if words & names), None)


def recognise_levels(levels: list[str]) -> str | None:
    """Return the protected attribute whose levels these are."""
    found = {fold(level) for level in levels}
    men, women = LEXICON["men"], LEXICON["women"]
    if found & men and found & women and found <= men | women | LEXICON["further_sexes"]:
        return "sex"
    kinds = {"race": "races", "religion": "religions", "marital status": "marital"}
    return next((kind for kind, key in kinds.items() if len(found & LEXICON[key]) > 1), None)


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

    @cached_property
    def fault(self) -> str | None:
        """Why no model should be given the column, None where it may be a feature."""
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
        words = {*name_words(self.name)}
        named = bool(LEXICON["identifiers"] & words) or self.name.startswith("Unnamed: ")
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


DAYS = ("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d",
        "%Y.%m.%d", "%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y")  # fmt: skip

# Of whose birth nothing else says when a decision is made.
ADULT = 18


def find_days(cells: Iterable[str]) -> tuple[str, list[date], bool] | None:
    """Return how days are written, the days, and whether they could be others; None for none.

    Of years of two digits nobody knows the century.
    """
    texts = list(cells)
    found: list[tuple[str, list[date]]] = []
    for codes in DAYS:
        days: list[date] = []
        for text in texts:
            day = read_day(text, None if codes == DAYS[0] else codes)
            if day is None or day.year < 1000:
                break
            days.append(day)
        else:
            found.append((codes, days))
    if not found or not texts:
        return None
    codes, days = found[0]
    return codes, days, any(other != days for _, other in found[1:])


def count_ages(columns: Mapping[str, Column]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return what ``source.ages`` says of the columns of dates of birth, and what is to be known.

    Ages are counted on the last day of the other columns of dates; where there are none, or
    somebody is born later, on the day on which the youngest becomes an adult.
    """
    dated = {
        name: found
        for name, column in columns.items()
        # One day in all rows is that of the extract, as a rule.
        if column.fault in (DATE, SAME) and (found := find_days(column.levels)) is not None
    }
    births = [name for name in dated if find_attribute(name) == "age"]
    # Cards are valid until days to come, and contracts until the year 9999.
    others = [day for name in dated if name not in births for day in dated[name][1]]
    last = max((day for day in others if day <= date.today()), default=None)
    ages: dict[str, dict[str, Any]] = {}
    said = []
    for name in births:
        codes, days, doubtful = dated[name]
        youngest = max(days)
        if last is not None and last >= youngest:
            at, why = last, "the last day of the table"
        else:
            # Nobody becomes an adult on the 29th of February of a year that has none.
            leap = (youngest.month, youngest.day) == (2, 29)
            at = youngest.replace(year=youngest.year + ADULT, day=28 if leap else youngest.day)
            why = f"when the youngest becomes {ADULT}, since the table has no later day"
        ages[name] = {"at": str(at)} | ({} if codes == DAYS[0] else {"format": codes})
        said.append(
            f"{name} is read as an age, counted on {at}, {why}: write the day of the decisions "
            "into source.ages"
        )
        if doubtful:
            said.append(f"{name} may have its days and months exchanged: see source.ages")
    return ages, said
