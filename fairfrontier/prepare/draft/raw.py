"""A table that nobody has described, as the loader will read it."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.prepare.config.section import MISSING_MARKERS, Source
from fairfrontier.prepare.table.column import read_column
from fairfrontier.prepare.table.frame import decode, to_arrow, write_parquet
from fairfrontier.prepare.table.layout import WIDTH, find_keys, find_marks
from fairfrontier.prepare.table.reader import Form, list_files, reading, state_form
from fairfrontier.prepare.table.rows import read_table
from fairfrontier.prepare.table.sheet import FEATHER, read_typed
from fairfrontier.prepare.table.text import check_names, open_text
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import DataError

SUFFIXES = re.compile(
    r"(\.(csv|tsv|tab|txt|data|dat|parquet|feather|arrow|xlsx?|xlsm|ods))?(\.(gz|zip))?$", re.I
)


@dataclass(frozen=True, eq=False)
class RawTable:
    """A table as the loader will read it.

    ``keys`` are those of ``source`` in a dataset's YAML, without the path. ``parquet`` are the
    bytes of a file to write where the loader cannot read the original. ``name`` is the file's.
    ``numbered`` says that there is no header.
    """

    name: str
    frame: pd.DataFrame
    keys: dict[str, Any] = field(default_factory=dict)
    skip_rows: int = 0
    path: Path | None = None
    parquet: bytes | None = None
    numbered: bool = False


def read_raw(table: Path | Any, name: str | None = None) -> RawTable:
    """Read a file, or a frame of pandas, polars or Arrow, as the loader will.

    Raises
    ------
    ConfigError
        When there is no such file, or a library for its format is missing.
    DataError
        When it is not a table.
    """
    if not isinstance(table, Path):
        return _keep_arrow(to_arrow(table), name or "table", Path(name or "table"))
    named = SUFFIXES.sub("", table.name)
    list_files(table)
    if table.is_dir():
        return _read_parquet(table, named)
    with reading(table):
        with table.open("rb") as file:
            start = file.read(len(FEATHER[0]))
        if start.startswith(b"PAR1"):
            return _read_parquet(table, named)
        if (typed := read_typed(table)) is not None:
            size = table.stat().st_size if start.startswith(FEATHER) else None
            return _keep_arrow(typed, named, table, size)
        return _read_text(table, named)


def _read_parquet(path: Path, name: str) -> RawTable:
    source = Source(path=str(path), format="parquet")
    frame = read_table(source, path.parent, path.parent).frame
    return _read_amounts(RawTable(name, frame, {"format": "parquet"}, path=path))


def _read_amounts(raw: RawTable) -> RawTable:
    """Return a table of Parquet with amounts that are text as numbers."""
    frame: pd.DataFrame = raw.frame.select_dtypes(include="str")
    found = {key: value for key, value in find_marks(frame, typed=True).items() if key != "missing"}
    if "units" not in found:
        return raw
    keys = raw.keys | found
    source = parse(Source, {"path": "t.parquet", **keys}, raw.name)
    read = raw.frame.apply(read_column, source=source)
    return replace(raw, frame=read, keys=keys)


def _keep_arrow(table: Any, name: str, path: Path, size: int | None = None) -> RawTable:
    """Return a table, of a file of ``size`` bytes, that is written as Parquet."""
    check_names(table.column_names, path, WIDTH)
    written = io.BytesIO()
    write_parquet(table, written, path, size)
    source = Source(path=str(path), format="parquet")
    frame = Form(path, source, typed=decode(table)).read()
    raw = RawTable(name, frame, {"format": "parquet"}, parquet=written.getvalue())
    return _read_amounts(raw)


def _read_text(path: Path, name: str) -> RawTable:
    with open_text(path) as (stream, _):
        keys, skipped, marks = find_keys(stream.read(), path)
    if "missing" in marks:
        marks["missing"] = [*MISSING_MARKERS, *marks["missing"]]
    keys |= marks
    source = parse(Source, {"path": str(path), **keys}, path)
    frame = state_form(path, source, skipped).read()
    if frame.empty:
        raise DataError(f"{path} holds no rows.", "Check that the file is complete.")
    numbered = keys.get("columns", ())[:1] == ["column1"]
    return RawTable(name, frame, keys, skipped, path, numbered=numbered)
