"""How many cells the first rows of a text table have, counted before they become columns.

pandas takes a minute for a million columns, which a few kilobytes of gzip may hold.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, cast

from fairfrontier.prepare.config.source import Source
from fairfrontier.runtime.errors import DataError

START_BYTES = 1 << 20
# As the parser of pandas cuts them: quotes count where a cell begins, or a line that is skipped.
_QUOTED = r'(?:"[^"]*+(?:""[^"]*+)*+"?)?+'
_SKIPPED = re.compile(rf"{_QUOTED}[^\r\n]*+(?:\r\n?|\n)?")


def check_width(number: int, path: Path, width: int, *, more: bool = False) -> None:
    """Raise a DataError for more columns than a source may have; ``more`` were not counted."""
    if number > width:
        shown = f"more than {width:,}" if more else f"{number:,}"
        raise DataError(
            f"{path} has {shown} columns, and source.width is {width:,}.",
            "Leave some out, or raise source.width in the dataset's YAML.",
        )


def check_rows(stream: IO[bytes], path: Path, source: Source, skip_rows: int) -> None:
    """Raise a DataError for a text table whose first two rows are wider than its source may be.

    The second one counts because pandas takes what a header does not name for an index. No more is
    read than these rows, in pieces; the stream is left at its beginning.
    """
    size = START_BYTES
    while True:
        start = stream.read(size)
        stream.seek(0)
        text = start.decode(source.encoding or "utf-8", errors="replace").removeprefix("\ufeff")
        if _check_start(text, path, source, skip_rows) or len(start) < size:
            return
        size *= 4


def _check_start(text: str, path: Path, source: Source, skip_rows: int) -> bool:
    """Return whether the two rows end within the text; DataError where they are too wide."""
    width = max(source.width, len(source.columns or ()))
    if source.format == "whitespace":
        blank = stop = r" \t"
        mark = r"[ \t]+"
    else:
        stop = mark = re.escape(source.separator)
        blank = " \t".replace(source.separator, "")
    initial = rf"[{blank}]*+" if source.format == "whitespace" else " *+" if " " in blank else ""
    # Before a separator pandas takes a carriage return for the end of a row that it does not count.
    end = rf"(?:\r\n|\n|\r(?!{mark}))"
    cell = re.compile(rf"{initial}{_QUOTED}[^{stop}\r\n]*+({mark}|\r(?={mark}))?")
    empty = re.compile(rf"(?:[{blank}]*+{end})*+")
    place = 0
    for _ in range(skip_rows):
        place = _match(_SKIPPED, text, place).end()
    rows = 0
    while rows < 2 and place < len(text):
        place = _match(empty, text, place).end()
        number, marks = 0, {""}
        while None not in marks:
            found = _match(cell, text, place)
            place, number = found.end(), number + 1
            marks.add(found[1])
            check_width(number, path, width, more=True)
        rows += "\r" not in marks
    return place < len(text)


def _match(pattern: re.Pattern[str], text: str, place: int) -> re.Match[str]:
    """Match a pattern that takes the empty text, too."""
    return cast("re.Match[str]", pattern.match(text, place))
