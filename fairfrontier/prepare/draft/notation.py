"""Ages by dates of birth, in a table that nobody has described."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from fairfrontier.prepare.draft.column import DATE, SAME, Column
from fairfrontier.prepare.draft.vocabulary import find_attribute
from fairfrontier.prepare.table.column import read_day

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
        if column.find_fault() in (DATE, SAME) and (found := find_days(column.levels)) is not None
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
