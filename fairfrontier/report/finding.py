"""What a verb found: one shape, one writer of its files, and pages that need no network."""

from __future__ import annotations

import base64
import html
import json
import math
import platform
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape

from fairfrontier.figure.frontier import name_measure
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.option import RESULTS, check_again
from fairfrontier.runtime.text_file import to_csv, write_json
from fairfrontier.runtime.writer import filling

if TYPE_CHECKING:
    from fairfrontier.study.drawing import Picture

# What Markdown or a table of it would read as its own.
# Numbers from here on are shown with one digit.
LARGE = 1000.0
_SPECIAL = re.compile(r"([\\`*_\[\]#|~])")
# The frame of all pages, with their style sheet.
FOLDER = Path(__file__).parent
# Those on which results depend; xgboost and xgboost-cpu provide the same module.
PACKAGES = (
    *("fairfrontier", "numpy", "pandas", "pyarrow", "scikit-learn", "scipy"),
    *("xgboost", "xgboost-cpu", "matplotlib"),
)


@dataclass(frozen=True, eq=False)
class Finding(ABC):
    """What a verb found: its own class has the results, and says what of them is written and shown.

    Attributes
    ----------
    config : ResultOptions
        The options; their ``command`` is the verb.
    page : Path
        The template of report.html. It is given ``summary``, ``config``, ``pictures`` by name, and
        what `context` returns.
    file : str
        The name of the summary, JSON.
    """

    page: ClassVar[Path]
    file: ClassVar[str] = "summary.json"

    config: Any

    @abstractmethod
    def tabulate(self) -> Mapping[str, pd.DataFrame]:
        """Return the tables by name; those without rows are not written."""

    @abstractmethod
    def draw(self) -> Mapping[str, Picture]:
        """Return the pictures by name."""

    @abstractmethod
    def summarise(self) -> Mapping[str, Any]:
        """Return what was done and the results, as plain values; None for what is not known."""

    @abstractmethod
    def context(self) -> Mapping[str, Any]:
        """Return what the page shows beside the summary."""


def write_finding(
    command: str,
    folder: Path,
    make: Callable[[Path], Finding],
    started: float,
    *,
    held: bool = False,
    more: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the files of a finding to a folder, and return the content of its summary.

    ``make`` is given the folder in which the files are drafted, into which it may write ``more``
    files of its own. Those of earlier results of the ``command`` are removed. ``started`` is when
    the work began, by ``time.monotonic``. All files but the summary depend only on the rows and the
    options. Who is `holding` the folder says that it is ``held``.

    Raises
    ------
    StoreError
        When the folder cannot be written; then no file in it has changed.
    """
    owned = RESULTS[command]
    check = check_again(folder, [*owned, *more], command)
    with filling(folder, owned, held=held, check=check) as work:
        finding = make(work)
        for name, table in finding.tabulate().items():
            if not table.empty:
                (work / f"{name}.csv").write_bytes(to_csv(table))
        pictures = finding.draw()
        for name, picture in pictures.items():
            (work / f"{name}.png").write_bytes(picture.png)
        summary = {"name": folder.name, **finding.summarise(), "versions": list_versions()}
        summary["seconds"] = round(time.monotonic() - started, 3)
        page = open_template(finding.page).render(
            summary=summary,
            config=finding.config,
            pictures={name: embed(picture) for name, picture in pictures.items()},
            **finding.context(),
        )
        (work / "report.html").write_text(page, encoding="utf-8")
        write_json(summary, work / finding.file)
    return summary


class RowFile:
    """A Parquet file of rows that come in batches, with the types of the first; a context manager.

    ``facts`` become its metadata.
    """

    def __init__(self, path: Path, facts: Mapping[bytes, bytes] | None = None) -> None:
        self._path, self._facts = path, facts
        self._file: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def write(self, rows: pa.Table) -> None:
        """Append rows; DataError where they have other types than the first ones."""
        rows = rows.replace_schema_metadata(self._facts)
        if self._file is None:
            self._file = pq.ParquetWriter(self._path, rows.schema, compression="zstd")
        try:
            self._file.write_table(rows.cast(self._file.schema))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"A column to keep has other cells in later files: {str(error).splitlines()[0]}.",
                "Write the files with the same types, or keep other columns.",
            ) from None

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def list_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries on which results depend."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def open_template(path: Path) -> Template:
    """Return a template, which may include files beside it and in this folder.

    What is inserted into HTML is escaped, in Markdown by the filters ``plain`` and ``code``.
    ``number``, ``measure`` and ``pool`` are filters, too.
    """
    return _open_folder(path.parent).get_template(path.name)


@cache
def _open_folder(folder: Path) -> Environment:
    """Return what keeps the compiled templates of a folder: compiling one takes .1 s."""
    environment = Environment(
        loader=FileSystemLoader([folder, FOLDER]),
        # Markdown has its own escapes.
        autoescape=select_autoescape(disabled_extensions=("md.j2",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=show_number, measure=name_measure, pool=name_pool)
    environment.filters.update(plain=escape_markdown, code=quote_code)
    return environment


def escape_markdown(text: object) -> str:
    """Return text as Markdown shows it: no markup, no HTML, one line."""
    return _SPECIAL.sub(r"\\\1", html.escape(" ".join(str(text).split()), quote=False))


def quote_code(text: str) -> str:
    """Return text as code in a line of Markdown, whatever backticks it has."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{' '.join(text.splitlines())}{pad}{fence}"


def show_number(value: float | None, digits: int = 3) -> str:
    """Return a number for reading: fixed digits, a true minus sign, a dash for no number.

    A large one, as an error in dollars, has one digit at most.
    """
    if value is None or not math.isfinite(value):
        return "–"
    digits = min(digits, 1) if abs(value) >= LARGE else digits
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
