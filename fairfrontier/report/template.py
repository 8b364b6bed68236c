"""Templates of the reports: HTML that needs no network, in which all that goes in is escaped."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from fairfrontier.figure.frontier import name_measure

if TYPE_CHECKING:
    from fairfrontier.study.drawing import Picture

# Its style is every report's.
FOLDER = Path(__file__).parent


def open_template(path: Path) -> Template:
    """Return a template of HTML that escapes what goes in; ``number`` and ``measure`` filter it.

    Parameters
    ----------
    path : Path
        The template. It may include the files that stand beside it, and those of this folder.
    """
    environment = Environment(
        loader=FileSystemLoader([path.parent, FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=show_number, measure=name_measure)
    return environment.get_template(path.name)


def show_number(value: float | None, digits: int = 3) -> str:
    """Return a number for reading: fixed digits, a true minus, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    # A gap of -0.0001 rounds to nothing, not to minus nothing.
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def embed(picture: Picture) -> dict[str, str]:
    """Return a picture as a template takes it: what it shows, and the code of a data URI."""
    return {"alt": picture.alt, "code": base64.b64encode(picture.png).decode()}
