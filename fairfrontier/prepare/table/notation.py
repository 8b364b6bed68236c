"""How the cells of a table that nobody has described are written: marks, numbers and units."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from fairfrontier.prepare.config.source import MISSING_MARKERS, Source
from fairfrontier.prepare.table.cell import (
    BRACKETS,
    OPEN,
    OPEN_END,
    find_doubtful,
    number_pattern,
    read_amount,
)

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
