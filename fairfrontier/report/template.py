"""Templates of the reports: HTML that needs no network, with everything escaped."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from fairfrontier.figure.frontier import name_measure

if TYPE_CHECKING:
    from fairfrontier.study.drawing import Picture

# Its style sheet is shared by all reports.
FOLDER = Path(__file__).parent


def open_template(path: Path) -> Template:
    """Return an HTML template, which may include files beside it and in this folder.

    What is inserted is escaped; ``number``, ``measure`` and ``pool`` are filters.
    """
    return _open_folder(path.parent).get_template(path.name)


@cache
def _open_folder(folder: Path) -> Environment:
    """Return what keeps the compiled templates of a folder: compiling one takes .1 s."""
    environment = Environment(
        loader=FileSystemLoader([folder, FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=show_number, measure=name_measure, pool=name_pool)
    return environment


def show_number(value: float | None, digits: int = 3) -> str:
    """Return a number for reading: fixed digits, a true minus sign, a dash for no number."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    # -0.0001 rounds to 0, not to -0.
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def show_setting(setting: str, budgets: Mapping[str, float] = MappingProxyType({})) -> list[str]:
    """Return a canonical setting as "key value" texts, without what all rows share.

    Budgets of the fitted models follow, where the setting does not name them.
    """
    content = json.loads(setting)
    found = {name: f"{value:.3g}" for name, value in budgets.items() if name not in content}
    return [
        _show_parameter(key.replace("_", " "), value)
        for key, value in {**content, **found}.items()
        if key not in ("rows", "select_on")
    ]


def _show_parameter(name: str, value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        # An ensemble's settings; summary.json has them.
        return f"{len(value)} {name}"
    return f"{name} {value if isinstance(value, str) else json.dumps(value)}"


def name_pool(count: int) -> str:
    """Return the name under which levels with too few rows are reported as one."""
    return f"other ({count} {'level' if count == 1 else 'levels'})"


def embed(picture: Picture) -> dict[str, str]:
    """Return the fields of a picture in a template: its words, and the code of a data URI."""
    return {"alt": picture.alt, "code": base64.b64encode(picture.png).decode()}
