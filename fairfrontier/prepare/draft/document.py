"""YAML for people: comments beside values, and any text as what it is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from fairfrontier.runtime.errors import escape_controls

WIDTH = 100
# YAML 1.1 has a limit of 1,024 characters.
LONGEST_KEY = 1000


def write_value(value: Any) -> str:
    """Return a value in one line of YAML's flow style."""
    if isinstance(value, Mapping):
        pairs = ((write_value(key), write_value(item)) for key, item in value.items())
        return "{" + ", ".join(f"{_mark(key)}{key}: {item}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(write_value, value)) + "]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    # Line breaks and what cannot be printed are written by their numbers.
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    text = yaml.safe_dump(
        [value], default_flow_style=True, default_style=style, allow_unicode=True, width=10**9
    )
    return text.strip()[1:-1]


def _mark(key: str) -> str:
    """Return what stands before a key of so many characters that YAML does not expect one."""
    return "? " if len(key) > LONGEST_KEY else ""


def write_list(key: str, items: Iterable[str], indent: int = 0) -> list[str]:
    """Return the lines of a key with a list, broken between items."""
    lines = [" " * indent + f"{key}: ["]
    hanging = len(lines[0])
    for place, item in enumerate(map(write_value, items)):
        if place:
            lines[-1] += ","
            if len(lines[-1]) + len(item) + 2 > WIDTH:
                lines.append(" " * hanging)
            else:
                lines[-1] += " "
        lines[-1] += item
    lines[-1] += "]"
    return lines


def write_comment(text: str, indent: int = 0) -> list[str]:
    """Return the lines of a comment, whatever the text holds."""
    start = " " * indent + "# "
    return textwrap.wrap(
        escape_controls(text),
        WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )


def write_remark(line: str, text: str) -> list[str]:
    """Return a line with a comment behind it, or above it where both are too long."""
    remark = write_comment(text)
    if len(remark) == 1 and len(line) + len(remark[0]) + 2 <= WIDTH:
        return [f"{line}  {remark[0]}"]
    return [*write_comment(text, len(line) - len(line.lstrip())), line]
