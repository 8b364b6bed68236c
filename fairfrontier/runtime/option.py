"""Options of commands and flows: the models that both are made of, and their types.

A field is an option, with its name, type, default and description.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field

from fairfrontier.runtime.config import Model, fault
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.home import check_links, find_home, read_path
from fairfrontier.runtime.text_file import is_plain
from fairfrontier.runtime.writer import check_folder, is_draft, recover


def make_absolute(path: Path) -> Path:
    """Return the absolute path."""
    return read_path(path).absolute()


def locate(name: str) -> str:
    """Return a name unchanged, and the path of a YAML file as an absolute one."""
    return str(make_absolute(Path(name))) if name.endswith((".yaml", ".yml")) else name


def split_names(value: Any) -> Any:
    """Return the names in a comma-separated string; anything else unchanged."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def read_numbers(
    what: str, mend: str, mark: str = "=", number: Callable[[str], float] = float
) -> BeforeValidator:
    """Return a validator that reads a text such as a=0.8,b=0.2; names may contain = and commas.

    ``mark`` stands before a number, which is read by ``number``.
    """

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        numbers: dict[str, float] = {}
        pieces = value.split(",")
        while pieces:
            item = pieces.pop(0)
            while (found := _read_pair(item, mark, number)) is None and pieces:
                item = f"{item},{pieces.pop(0)}"
            if found is None or found[0] in numbers:
                raise fault(f"{item.strip()!r} is no {what}", mend)
            numbers[found[0]] = found[1]
        return numbers

    return BeforeValidator(read)


def _read_pair(item: str, mark: str, number: Callable[[str], float]) -> tuple[str, float] | None:
    """Return the name and the number of NAME=NUMBER; None for another text."""
    name, _, text = (part.strip() for part in item.rpartition(mark))
    try:
        return (name, number(text)) if name else None
    except ValueError:
        return None


# The file that lists those of a bundle.
BUNDLE_FILE = "bundle.json"
# Its key for what the project's secret makes of the digest there.
SIGNATURE = "signature"
# Columns by which a file is known that holds decisions, whatever its name, and the metadata that
# `score` gives its own.
DECIDED = ("id", "refused")
SCORED: Mapping[bytes, bytes] = {b"fairfrontier": b"score"}
# What a command leaves in a folder; the first file makes the folder one of its results.
RESULTS: Mapping[str, tuple[str, ...]] = {
    "run": (
        *("points.parquet", "scores.parquet", "frontier.csv", "frontier.png", "attributes.png"),
        *("published.csv", "report.html", "summary.json", "models.csv", "changes.csv"),
    ),
    "select": (
        *("choice.json", "bundle", "measures.csv", "datasheet.csv", "explain.csv", "explain.png"),
        *("decisions.parquet", "card.md", "datasheet.md", "technical-file.md", "card.html"),
    ),
    "explain": ("explain.csv", "explain.png"),
    "debias": (
        *("thresholds.json", "decisions.parquet", "curve.csv", "curve.png", "groups.csv"),
        *("groups.png", "rules.png", "report.html", "summary.json"),
    ),
    "audit": (
        *("audit.json", "bounds.csv", "bounds.png", "conclusions.csv", "noise.csv", "impact.csv"),
        *("impact.png", "scores.csv", "measures.csv", "calibration.csv", "calibration.png"),
        "report.html",
    ),
    "monitor": (
        *("monitor.json", "history.parquet", "drift.parquet", "rates.csv", "checks.csv"),
        *("evidence.csv", "rates.png", "evidence.png", "report.html"),
    ),
}
# What the first of these files holds if the command has written it: the user may have one of that
# name. Columns of Parquet, else pieces of the first bytes.
SIGNS: Mapping[str, tuple[str, ...]] = {
    "run": ("method", "setting", "measure", "value"),
    "select": ('"query": ', '"selected": '),
    "explain": ("attribute,level,n,column,mean_abs,",),
    "debias": ('"format": "fairfrontier thresholds"',),
    "audit": ('"name": ', '"subject": {', '"table": ', '"sha256": "'),
    "monitor": ('"bundle": {', '"period": '),
}
_HEAD = 2**16
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(split_names)]
File = Annotated[Path, AfterValidator(make_absolute)]
NameOrFile = Annotated[str, Field(min_length=1), AfterValidator(locate)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seed = Annotated[int, Field(ge=0)]
# A model's own method is called json.
AsJson = Annotated[bool, Field(validation_alias=AliasChoices("json"), description="For programs.")]


def name_table(table: Path) -> str:
    """Return the name of a table's file or folder without its suffix, and without .gz."""
    return Path(table.resolve().name.removesuffix(".gz")).stem or "table"


class ProjectOptions(Model):
    """Options of every command: the project, found from the current folder by default."""

    conf: File | None = Field(
        default=None, description="The conf folder, or the project root that holds it."
    )

    @property
    def home(self) -> Path:
        """The project root."""
        return find_home() if self.conf is None else find_root(self.conf)


class ResultOptions(ProjectOptions):
    """Options of commands that leave a folder of results on a table or a model."""

    command: ClassVar[str]

    out: File | None = Field(
        default=None,
        description="The folder that gets the files; data/results/COMMAND/NAME by default.",
    )
    minimum: int = Field(default=10, ge=1, description="Rows that a group needs to be reported on.")

    @property
    def name(self) -> str:
        """Name of the results."""
        raise NotImplementedError

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.out or self.home / "data" / "results" / self.command / self.name

    def check_results(self, read: Iterable[Path], written: Iterable[str]) -> None:
        """Raise when results of these names cannot be written, or would replace what is read.

        Raises
        ------
        ConfigError
            When a file would be replaced, another command's among them, or results would join a
            table's parts, a bundle or the cache, or get into another project by a link.
        StoreError
            When the folder cannot be written.
        """
        check_links(self.folder, self.home)
        check_folder(self.folder)
        files = [self.folder / name for name in written]
        check_apart(files, read, self.command)


def _is_foreign(path: Path, command: str) -> bool:
    """Whether a file that is there is another command's than ``command``."""
    if _holds_columns(path, DECIDED):
        return command != "score"
    others = [
        names
        for name, names in RESULTS.items()
        if name != command and (path.parent / names[0]).is_file()
    ]
    # What `score` writes may have the name of any file, as that of a figure.
    return any(command == "score" or path.name in names for names in others)


def _is_own(path: Path, command: str) -> bool:
    """Whether a file is a result of a command, to be replaced when it is called again."""
    if command == "score":
        schema = _read_schema(path)
        return schema is not None and {*SCORED.items()} <= {*(schema.metadata or {}).items()}
    return holds_results(path.parent, command)


def holds_results(folder: Path, command: str) -> bool:
    """Whether a folder has results of a command, by what is in the first of them."""
    first, signs = folder / RESULTS[command][0], SIGNS[command]
    if first.suffix == ".parquet":
        return _holds_columns(first, signs)
    # A pipe would be waited for.
    if not is_plain(first):
        return False
    with first.open("rb") as file:
        head = file.read(_HEAD).decode(errors="replace")
    return all(sign in head for sign in signs)


def _holds_columns(path: Path, columns: Iterable[str]) -> bool:
    """Whether a file is Parquet with these columns."""
    schema = _read_schema(path)
    return schema is not None and {*columns} <= {*schema.names}


def _read_schema(path: Path) -> Any:
    """Return the schema of a Parquet file; None for anything else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path) if is_plain(path) else None
    except (OSError, pa.ArrowException):
        return None


def check_apart(written: Iterable[Path], read: Iterable[Path], command: str) -> None:
    """Raise a ConfigError when files would replace or join what they have to leave alone.

    That is what is ``read``, results of another command than ``command``, files that no command has
    written, any bundle, and the cache of any project. A file joins a table that is the folder it
    gets into, and a bundle or a cache at any depth below it. Nor does a file have a name by which
    unfinished work is known, which is removed.
    """
    written = [*written]
    files = {path.resolve() for path in written}
    near = files | {path.parent for path in files}
    # The cache may be a link to another disk.
    below = near.union(*(path.parents for path in (*files, *written)))
    # What a killed process of the command left is its own.
    for folder in {path.parent for path in written}:
        recover(folder)
    mend = "Give another place with --out."
    if unfinished := sorted(path for path in below.union(written) if is_draft(path.name)):
        raise ConfigError(f"{unfinished[0]} has a name of unfinished work, which goes.", mend)
    read, there = [*read], [path for path in written if os.path.lexists(path)]
    found = {
        "replace what is read": [path for path in read if path.resolve() in files],
        "join a table": [path for path in read if path.resolve() in near],
        "replace another command's": [path for path in there if _is_foreign(path, command)],
        "join a bundle": filter(_is_bundle, sorted(below)),
        "join the cache": filter(_is_cache, sorted(below)),
        f"replace what {command} has not written": [
            path for path in there if not _is_own(path, command)
        ],
    }
    for harm, paths in found.items():
        for path in paths:
            raise ConfigError(
                f"The results in {min(files).parent} would {harm}: {path.resolve()}.", mend
            )


def check_again(folder: Path, names: Iterable[str], command: str) -> Callable[[Path], None]:
    """Return what asks `check_apart` once more when results are complete; see `filling`."""
    files = [folder / name for name in names]
    return lambda _: check_apart(files, (), command)


def _is_bundle(folder: Path) -> bool:
    """Whether a folder has what every bundle has: other programs have a bundle.json, too."""
    files = (folder / BUNDLE_FILE, folder / "encoder.json")
    return all(path.is_file() for path in files) and (folder / "model").is_dir()


def _is_cache(folder: Path) -> bool:
    """Whether a folder is data/cache of a project."""
    return folder.parts[-2:] == ("data", "cache") and (folder.parents[1] / "conf").is_dir()


def find_root(conf: Path) -> Path:
    """Return the project root for ``--conf``, a folder named conf or the root that holds it.

    Raises
    ------
    ConfigError
        When the folder neither is nor holds one named conf.
    """
    folder = make_absolute(conf)
    home = folder.parent if folder.name == "conf" else folder
    if not (home / "conf").is_dir():
        raise ConfigError(
            f"--conf is {conf}, which neither is nor holds a folder named conf.",
            "Point it at a conf folder, or at the project root that holds one.",
        )
    return home
