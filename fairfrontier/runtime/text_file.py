"""Files that anybody may have written, read within limits, and tables and summaries written."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from fairfrontier.runtime.errors import repeated

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Text that a spreadsheet evaluates, also of full width, and behind quotes and a byte-order mark,
# which it may drop; apostrophes already before it count, so that one is undone.
_FORMULA = r"['\ufeff\"]*[=+\-@\t\r＝＋－＠]"
# Where a cell begins: many spreadsheets split rows at semicolons or tabs.
_BEGIN = r"(?:^|(?<=[;\t\r\n]))"
_BARE, _GUARDED = f"{_BEGIN}(?={_FORMULA})", f"{_BEGIN}'(?={_FORMULA})"
# Of a JSON file. Read, a value takes some hundred bytes, and a letter up to four, several times.
MOST_BYTES, MOST_VALUES = 2**25, 2**21


def to_csv(table: pd.DataFrame, **options: Any) -> bytes:
    """Return CSV in which every float reads back as itself, and no text is a formula.

    Text that begins with = + - @, also of full width, a tab or a carriage return, or with a
    byte-order mark or quotes and one of these, has an apostrophe before it, which `read_csv`
    removes; so has what follows a semicolon, a tab or the end of a line in a text, where other
    spreadsheets begin a cell. Numbers are unchanged. The options are those of pandas.
    """
    # Categories cannot be replaced.
    plain = table.astype(dict.fromkeys(table.select_dtypes("category"), object))
    guarded = _replace(plain, _BARE, "'")
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
    return _replace(pd.read_csv(path, **options), _GUARDED, "")


def is_plain(path: Path) -> bool:
    """Return whether a path is a file on a disk: not of the kernel, whose files may never end."""
    kernel = (Path("/proc"), Path("/sys"))
    return path.is_file() and not any(path.resolve().is_relative_to(each) for each in kernel)


def read_plain(
    path: Path, most: int, check: Callable[[os.stat_result], None] = lambda _: None
) -> bytes:
    """Return the content of a file that anybody may have laid; no pipe and no device is waited for.

    ``check`` is given the facts of the open file before it is read. FileNotFoundError for what is
    no file, ValueError for one of more than ``most`` bytes.
    """
    if not is_plain(path):
        raise FileNotFoundError(f"there is no file {path.name}")
    # What has taken its place since is not waited for, either.
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise FileNotFoundError(f"there is no file {path.name}")
        check(facts)
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path.name} has more than the {most:,} bytes that are read")
    return content


def read_json(path: Path) -> Any:
    """Return the content of a JSON file that anybody may have written.

    ValueError for a file of too many bytes or values, for a key that a mapping has twice, of which
    other readers may take the first one, and for texts with halves of characters; FileNotFoundError
    for what is no file.
    """
    text = read_plain(path, MOST_BYTES)
    # An upper bound of how many there are, since texts have commas, too.
    if sum(map(text.count, (b",", b":", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"{path.name} has more than the {MOST_VALUES:,} values that are read")
    content = json.loads(text.decode(), object_pairs_hook=_make_mapping)
    json.dumps(content, ensure_ascii=False).encode()
    return content


def _make_mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = repeated(key for key, _ in pairs)
        raise ValueError(f"it has the key {twice[0]!r} twice")
    return mapping


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


def refuse_expansion(path: Path) -> None:
    """Raise ValueError for an archive that unpacks to more than its size, or has a name twice.

    None does that ``np.savez`` wrote, which compresses nothing.
    """
    with ZipFile(path) as archive:
        members = archive.infolist()
    # Members may overlap, too.
    if sum(member.file_size for member in members) > path.stat().st_size:
        raise ValueError(f"{path} unpacks to more than its size")
    if double := repeated(member.filename for member in members):
        raise ValueError(f"{path} has {double[0]!r} twice")


def read_numbers(path: Path, *names: str) -> list[np.ndarray]:
    """Return arrays of float64 that ``np.savez`` wrote.

    ValueError as `refuse_expansion`, and for arrays of another type or with numbers that are not
    finite.
    """
    import numpy as np

    refuse_expansion(path)
    with np.load(path, allow_pickle=False) as stored:
        arrays = [stored[name] for name in names]
    if any(array.dtype != np.float64 or not np.isfinite(array).all() for array in arrays):
        raise ValueError(f"{path} has arrays of other values than finite numbers")
    return arrays
