"""Where the rows of a text table begin, and the names of their cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

import pandas as pd

from fairfrontier.prepare.config.source import Source
from fairfrontier.runtime.errors import DataError

# Rows that are looked at, and where they are.
LINES, START_BYTES = 200, 1 << 20
BOM = "\ufeff"


class Row(NamedTuple):
    """A row: its stripped cells, the lines above it as pandas counts, the length to its end."""

    cells: list[str]
    above: int
    end: int

    @property
    def filled(self) -> list[str]:
        """The cells up to the last one that is not empty."""
        return self.cells[: max((n for n, cell in enumerate(self.cells, 1) if cell), default=0)]


@dataclass(frozen=True)
class Header:
    """The columns of a text table.

    Attributes
    ----------
    names : tuple of str
        Of every cell of a row. Columns without a name are called as pandas calls them.
    padding : frozenset of str
        Those of them that nobody named, and that are empty where the table begins: no columns, but
        what a spreadsheet or a separator at the end of each row leaves. No row may fill them.
    above : int
        Lines above the first row, as pandas counts them.
    start : int
        Bytes above it.
    """

    names: tuple[str, ...]
    padding: frozenset[str] = frozenset()
    above: int = 0
    start: int = 0

    @property
    def columns(self) -> list[str]:
        """The names without padding."""
        return [name for name in self.names if name not in self.padding]


def decode_start(start: bytes, encoding: str | None) -> str:
    """Return the text where a table begins; bytes that are none of it are kept as surrogates."""
    return start.decode(encoding or "utf-8", "surrogateescape").removeprefix(BOM)


def cut_rows(text: str, separator: str) -> Iterator[Row]:
    """Yield the rows of a text that are not blank."""
    length = [0]

    def count(lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            length[0] += len(line)
            yield line

    lines = count(io.StringIO(text, newline=""))
    try:
        for above, row in enumerate(csv.reader(lines, delimiter=separator, skipinitialspace=True)):
            if len(row) > 1 or any(map(str.strip, row)):
                yield Row([cell.strip() for cell in row], above, length[0])
    except csv.Error:
        pass  # a cell of more than 128 KiB: what was read is enough


def read_start(stream: IO[bytes], separator: str = ",") -> tuple[bytes, bool]:
    """Return the first rows of a table, and whether there are more; the stream is left there."""
    start, size = b"", START_BYTES
    while more := stream.read(size):
        # Of blank lines there may be any number.
        kept = more.rstrip(b"\r\n")
        start += kept + b"\n" if len(kept) < len(more) else more
        rows = cut_rows(start.decode("latin-1"), separator)
        if not kept or len(list(islice(rows, 3))) == 3:
            return start, len(more) == size
        size = 3 * len(start)
    return start, False


def find_header(start: bytes, path: Path, source: Source, skip_rows: int = 0) -> Header:
    """Return the columns of a table by its first rows; DataError where ``columns`` do not fit."""
    if source.format == "whitespace":
        first = pd.read_csv(
            io.BytesIO(start),
            sep=r"\s+",
            header=None,
            nrows=1,
            skiprows=skip_rows,
            dtype=str,
            encoding=source.encoding or "utf-8",
            encoding_errors="replace",
        )
        _check_named(first.shape[1], source, path)
        return Header(tuple(source.columns or ()), above=skip_rows)
    text = decode_start(start, source.encoding)
    above, end, found = skip_rows, 0, list(islice(cut_rows(text, source.separator), LINES))
    rows = [row for row in found if row.above >= skip_rows]
    if not rows:
        raise DataError(f"{path} is empty.", "Check that the file is complete.")
    end = max((row.end for row in found if row.above < skip_rows), default=0)
    if source.columns is None:
        above, end = rows[0].above + 1, rows[0].end
        names, least, rows = rows[0].cells, len(rows[0].filled), rows[1:]
    else:
        names, least = list(source.columns), len(source.columns)
        if len(rows[0].cells) < least or len(rows[0].filled) > least:
            _check_named(len(rows[0].cells), source, path)
    # Longer ones are refused, with their number, by who reads them.
    rows = [row for row in rows if len(row.filled) <= len(names)]
    width = max(least, max((len(row.cells) for row in rows), default=len(names)))
    empty = set(range(width)).difference(
        *({n for n, cell in enumerate(row.cells) if cell} for row in rows)
    )
    names = [*names, *[""] * width][:width]
    padding = {f"Unnamed: {n}" for n in empty if not names[n]}
    names = [name or f"Unnamed: {n}" for n, name in enumerate(names)]
    # A byte-order mark is of the start, and not of the text.
    bytes_above = len(text[:end].encode(source.encoding or "utf-8", "surrogateescape"))
    bytes_above += len(BOM.encode()) if source.encoding is None and start[:3] == BOM.encode() else 0
    start[:bytes_above].decode(source.encoding or "utf-8")
    return Header(tuple(names), frozenset(padding), above, bytes_above)


def _check_named(count: int, source: Source, path: Path) -> None:
    named = len(source.columns or ())
    if count != named:
        raise DataError(
            f"{path} has {count} columns, and source.columns names {named}.",
            "Name every column of the file, in its order.",
        )
