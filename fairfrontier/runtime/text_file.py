"""Tables and summaries as text files."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    import pandas as pd

# Text that a spreadsheet evaluates; apostrophes already before it count, so that one is undone.
FORMULA = r"'*[=+\-@\t\r]"


def to_csv(table: pd.DataFrame, **options: Any) -> bytes:
    """Return CSV in which every float reads back as itself, and no text is a formula.

    Text that begins with = + - @, a tab or a carriage return has an apostrophe before it, which
    `read_csv` removes; numbers are unchanged. The options are those of pandas.
    """
    # Categories cannot be replaced.
    plain = table.astype(dict.fromkeys(table.select_dtypes("category"), object))
    guarded = _replace(plain, f"^(?={FORMULA})", "'")
    options = {"index": False, "lineterminator": "\n", **options}
    text = str(guarded.to_csv(**options))
    if "\r" in text:
        # Unquoted it would end the row, and a formula could follow.
        text = str(guarded.to_csv(quoting=csv.QUOTE_NONNUMERIC, **options))
    return text.encode()


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Return the table that `to_csv` wrote; the options are those of pandas.

    Only empty cells are missing: None and NA may be labels.
    """
    import pandas as pd

    options = {"keep_default_na": False, "na_values": [""], **options}
    return _replace(pd.read_csv(path, **options), f"^'(?={FORMULA})", "")


def write_json(summary: Mapping[str, Any], path: Path) -> None:
    """Write JSON in the order of the keys; ValueError for a number that is not finite."""
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    path.write_text(text, encoding="utf-8")


def list_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table for `write_json`; see `to_plain`."""
    return [
        {str(name): to_plain(value) for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def to_plain(value: Any) -> Any:
    """Return a value as JSON has it: None for NaN, infinity and NA."""
    import pandas as pd

    unknown = value is pd.NA or (isinstance(value, float) and not math.isfinite(value))
    return None if unknown else value


def _replace(table: pd.DataFrame, pattern: str, by: str) -> pd.DataFrame:
    """Replace a pattern in all text of a table, names of columns included."""
    names = [re.sub(pattern, by, str(name)) for name in table.columns]
    return table.replace(regex=pattern, value=by).set_axis(names, axis=1)
