"""Tables of the terminal: wrapped at spaces, and without columns for which there is no room."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

# What is heavy is imported where it is used.
if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

# Text is set no narrower than this, nor than its longest word; columns to keep get the second.
NARROWEST, NARROWEST_KEPT = 16, 24
# What stands between two columns, and at the left end.
GAP, EDGE = 3, 1
# A space to readers, and never a place to wrap at; and such a place that readers do not see.
FIXED_SPACE, SOFT_BREAK = "\N{NO-BREAK SPACE}", "\N{ZERO WIDTH SPACE}"


def print_table(
    title: str,
    table: pd.DataFrame,
    *,
    keep: Collection[str] = (),
    whole: str = "",
    console: Console | None = None,
) -> None:
    """Print a table in the width of the terminal; nothing in it is markup.

    Numbers are aligned at the right and never wrapped. Text is wrapped at spaces. Columns for which
    there is no room are left out, and a line says so.

    Parameters
    ----------
    title : str
        Above the table.
    table : DataFrame
        What is shown; columns of numbers have a numeric dtype.
    keep : collection of str
        Columns that get room before the others do.
    whole : str
        Where the whole table is, after "All columns: ".
    console : Console, optional
        Standard output by default.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    names = [str(name) for name in table.columns]
    numeric = [dtype.kind in "if" for dtype in table.dtypes]
    cells = [[_write(cell) for cell in table.iloc[:, i]] for i in range(len(names))]
    heads = [re.sub(r"([_:])", rf"\1{SOFT_BREAK}", name) for name in names]
    columns = [[head, *column] for head, column in zip(heads, cells, strict=True)]
    shown, widths = choose_widths(columns, numeric, console.width, [name in keep for name in names])
    grid = Table(title=Text(title, style="italic"), title_justify="left", box=SIMPLE_HEAD)
    for place, width in zip(shown, widths, strict=True):
        grid.add_column(
            Text(wrap(heads[place], width)),
            justify="right" if numeric[place] else "left",
            width=width,
            no_wrap=True,
        )
    for row in range(len(table)):
        grid.add_row(
            *(
                Text(wrap(cells[place][row], width))
                for place, width in zip(shown, widths, strict=True)
            )
        )
    console.print(grid)
    left_out = [name for place, name in enumerate(names) if place not in shown]
    if left_out:
        where = f" All columns: {whole}" if whole else ""
        console.print(
            Text(f"Left out for want of room: {', '.join(left_out)}.{where}"), soft_wrap=True
        )


def choose_widths(
    columns: Sequence[Sequence[str]], numeric: Sequence[bool], width: int, kept: Sequence[bool]
) -> tuple[list[int], list[int]]:
    """Return which columns are shown in so many characters, and how wide each is.

    Parameters
    ----------
    columns : sequence of sequence of str
        The texts of every column, its name included.
    numeric : sequence of bool
        Which columns are as wide as their widest text.
    width : int
        Of the terminal.
    kept : sequence of bool
        Which columns get room before the others do.

    Returns
    -------
    list of int, list of int
        Positions of the columns that are shown, and their widths.
    """
    natural = [max(len(text.replace(SOFT_BREAK, "")) for text in column) for column in columns]
    least = [
        full
        if fixed
        else max(
            min(full, NARROWEST_KEPT if important else NARROWEST),
            max(map(_find_longest_word, column)),
        )
        for column, full, fixed, important in zip(columns, natural, numeric, kept, strict=True)
    ]
    room = width - EDGE
    shown: list[int] = []
    for place in sorted(range(len(columns)), key=lambda place: not kept[place]):
        if least[place] + GAP <= room or not shown:
            room -= least[place] + GAP
            shown.append(place)
    shown.sort()
    widths = {place: least[place] for place in shown}
    # What wants most gets most.
    while room > 0 and any(widths[place] < natural[place] for place in shown):
        neediest = max(shown, key=lambda place: natural[place] / widths[place])
        widths[neediest] += 1
        room -= 1
    if room < 0:
        widths[shown[0]] = max(width - GAP - EDGE, 1)
    return shown, [widths[place] for place in shown]


def wrap(text: str, width: int) -> str:
    """Return a text of lines of at most so many letters, broken where it may be if it can be."""
    lines = [""]
    for word in re.findall(f"[^ {SOFT_BREAK}]+ ?", text):
        while len(word.rstrip()) > width:
            lines.append(word[:width])
            word = word[width:]
        if len((lines[-1] + word).rstrip()) > width:
            lines.append("")
        lines[-1] += word
    kept = [line.rstrip(" ") for line in lines if line.strip(" ")]
    return "\n".join(kept).replace(FIXED_SPACE, " ")


def write_settings(methods: Iterable[str], settings: Iterable[str]) -> list[str]:
    """Return settings for people: words such as max_depth=3, of what differs within a method.

    Parameters
    ----------
    methods, settings : iterable of str
        Of every row; a setting is canonical JSON.
    """
    methods = list(methods)
    parsed = [json.loads(setting) for setting in settings]
    values: dict[tuple[str, str], set[str]] = {}
    rows: dict[str, set[str]] = {}
    for method, setting in zip(methods, parsed, strict=True):
        rows.setdefault(method, set()).add(json.dumps(setting, sort_keys=True))
        for key, value in setting.items():
            values.setdefault((method, key), set()).add(json.dumps(value))
    return [
        " ".join(
            f"{key}={_write_value(value)}"
            for key, value in setting.items()
            if len(values[method, key]) > 1
            or sum(key in json.loads(each) for each in rows[method]) < len(rows[method])
        )
        for method, setting in zip(methods, parsed, strict=True)
    ]


def join_interval(value: float, low: float, high: float) -> str:
    """Return an estimate with its interval, which stays on one line."""
    if value != value:
        return "not estimable"
    return f"{value:.3f} [{low:.3f},{FIXED_SPACE}{high:.3f}]"


def _write_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_write_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", FIXED_SPACE)


def _write(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _find_longest_word(text: str) -> int:
    return max(map(len, re.split(f"[ {SOFT_BREAK}]", text)))
