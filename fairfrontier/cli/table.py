"""Tables on the terminal: wrapped at spaces, without the columns that do not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairfrontier.cli.terminal import show
from fairfrontier.runtime.errors import escape_controls

# Heavy modules are imported where they are used.
if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

# Least widths of columns of text, if no word is longer; the second is of columns to keep.
NARROWEST, NARROWEST_KEPT = 16, 24
# Width between two columns, and at the left end.
GAP, EDGE = 3, 1
# A space at which text is not wrapped, and an invisible place at which it may be.
FIXED_SPACE, SOFT_BREAK = "\N{NO-BREAK SPACE}", "\N{ZERO WIDTH SPACE}"


def print_table(
    title: str,
    table: pd.DataFrame,
    *,
    keep: Collection[str] = (),
    complete: str = "",
    console: Console | None = None,
) -> None:
    """Print a table in the width of the terminal; nothing in it is markup or steers the terminal.

    Numbers are right-aligned and never wrapped; text is wrapped at spaces. Columns that do not fit
    are omitted and listed, with ``complete``, where all columns are; those to ``keep`` come first.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    names = [escape_controls(str(name)) for name in table.columns]
    numeric = [dtype.kind in "if" for dtype in table.dtypes]
    cells = [[_write(cell) for cell in table.iloc[:, i]] for i in range(len(names))]
    heads = [re.sub(r"([_:])", rf"\1{SOFT_BREAK}", name) for name in names]
    columns = [[head, *column] for head, column in zip(heads, cells, strict=True)]
    shown, widths = choose_widths(columns, numeric, console.width, [name in keep for name in names])
    heading = Text(escape_controls(title), style="italic")
    grid = Table(title=heading, title_justify="left", box=SIMPLE_HEAD)
    wrapped = {
        i: [Text(wrap(text, width)) for text in columns[i]]
        for i, width in zip(shown, widths, strict=True)
    }
    for i, width in zip(shown, widths, strict=True):
        justify: Any = "right" if numeric[i] else "left"
        grid.add_column(wrapped[i][0], justify=justify, width=width, no_wrap=True)
    for row in range(1, len(table) + 1):
        grid.add_row(*(column[row] for column in wrapped.values()))
    console.print(grid)
    omitted = [name for i, name in enumerate(names) if i not in shown]
    if omitted:
        where = f" All columns: {escape_controls(complete)}" if complete else ""
        console.print(
            Text(f"Omitted for lack of space: {', '.join(omitted)}.{where}"), soft_wrap=True
        )


def print_unseen(unseen: Mapping[str, int], n_samples: int) -> None:
    """Print how many of the decided rows have a level that training had not, by column."""
    import pandas as pd

    if not unseen:
        return
    levels = pd.DataFrame({"column": unseen.keys(), "rows": unseen.values()})
    print_table("Decided with a level that training had not, as if it were none", levels)
    for name in (name for name, count in unseen.items() if count == n_samples):
        show(
            f"No cell of {name} is a level that training had: is it written as in the study? "
            "01 is not 1, nor is 1.50 the text 1.5."
        )


def choose_widths(
    columns: Sequence[Sequence[str]], numeric: Sequence[bool], width: int, kept: Sequence[bool]
) -> tuple[list[int], list[int]]:
    """Return the positions of the columns that fit into a width, and their widths.

    Columns hold their texts, including the name. Numeric ones are as wide as their widest text;
    those to keep are placed before the others.
    """
    # A column of empty texts takes room, too.
    natural = [
        max(1, *(len(text.replace(SOFT_BREAK, "")) for text in column)) for column in columns
    ]
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
    for i in sorted(range(len(columns)), key=lambda i: not kept[i]):
        if least[i] + GAP <= room or not shown:
            room -= least[i] + GAP
            shown.append(i)
    shown.sort()
    widths = {i: least[i] for i in shown}
    # The columns most in need of it share the remaining room.
    while room > 0 and any(widths[i] < natural[i] for i in shown):
        widths[max(shown, key=lambda i: natural[i] / widths[i])] += 1
        room -= 1
    if room < 0:
        widths[shown[0]] = max(width - GAP - EDGE, 1)
    return shown, [widths[i] for i in shown]


def wrap(text: str, width: int) -> str:
    """Return a text in lines of at most so many letters, broken at spaces where possible."""
    lines = [""]
    for word in re.findall(f"[^ {SOFT_BREAK}]+ ?", text):
        while len(word.rstrip()) > width:
            lines.append(word[:width])
            word = word[width:]
        if len((lines[-1] + word).rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip(" ") for line in lines if line.strip(" ")).replace(
        FIXED_SPACE, " "
    )


def write_settings(methods: Iterable[str], settings: Iterable[str]) -> list[str]:
    """Return settings such as max_depth=3, of the keys that differ within a method.

    Every row has a method and a setting as canonical JSON.
    """
    import pandas as pd

    from fairfrontier.figure.frontier import list_swept

    table = pd.DataFrame({"method": list(methods), "setting": list(settings)})
    swept = list_swept(table)
    return [
        write_setting(json.loads(setting), swept[method])
        for method, setting in zip(table["method"], table["setting"], strict=True)
    ]


def write_setting(setting: Mapping[str, Any], keys: Collection[str]) -> str:
    """Return what a setting has under some keys, as max_depth=3."""
    return " ".join(f"{key}={_write_value(value)}" for key, value in setting.items() if key in keys)


def join_interval(value: float, low: float, high: float, left_out: float = 0) -> str:
    """Return an estimate with its interval, which stays on one line.

    And how many groups it leaves out, since they have too few rows.
    """
    few = f", small groups left out: {left_out:.0f}" if left_out else ""
    if value != value:
        return f"not estimable{few}"
    return f"{value:.3f} [{low:.3f},{FIXED_SPACE}{high:.3f}]{few}"


def _write_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_write_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", FIXED_SPACE)


def _write(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else escape_controls(str(cell))


def _find_longest_word(text: str) -> int:
    return max(map(len, re.split(f"[ {SOFT_BREAK}]", text)))
