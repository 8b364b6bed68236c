"""What commands and flows are asked for: the models that both are made of, and their types.

A field is an option: its name, type, default and description stand there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from fairfrontier.runtime.config import Model
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.writer import check_folder


def make_absolute(path: Path) -> Path:
    """Return a path that means the same from every folder."""
    return path.expanduser().absolute()


def locate(name: str) -> str:
    """Return a name as it is, and the path of a YAML file as an absolute one."""
    return str(make_absolute(Path(name))) if name.endswith((".yaml", ".yml")) else name


def split_names(given: Any) -> Any:
    """Return the names of a text that separates them by commas; anything else as it is."""
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else given


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(split_names)]
File = Annotated[Path, AfterValidator(make_absolute)]
NameOrFile = Annotated[str, Field(min_length=1), AfterValidator(locate)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seed = Annotated[int, Field(ge=0)]


class ProjectOptions(Model):
    """What every command is asked for: in which project.

    Attributes
    ----------
    conf : Path or None
        The conf folder, or the project root that holds it; found from the current folder by
        default.
    """

    conf: File | None = Field(
        default=None, description="The conf folder, or the project root that holds it."
    )

    @property
    def home(self) -> Path:
        """The project root."""
        return find_home() if self.conf is None else find_root(self.conf)


class ResultOptions(ProjectOptions):
    """What a command is asked for that leaves a folder of results on a table or a model.

    Attributes
    ----------
    out : Path or None
        The folder that gets the files; data/results/COMMAND/NAME by default.
    """

    command: ClassVar[str]

    out: File | None = Field(
        default=None,
        description="The folder that gets the files; data/results/COMMAND/NAME by default.",
    )

    @property
    def name(self) -> str:
        """What the results are called."""
        raise NotImplementedError

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.out or self.home / "data" / "results" / self.command / self.name

    def check_results(self, read: Iterable[Path], written: Iterable[str]) -> None:
        """Raise when the results could not be written, or would replace what is read.

        Parameters
        ----------
        read : iterable of Path
            Files and folders that are read.
        written : iterable of str
            Names of the files that are written.

        Raises
        ------
        ConfigError
            When a file would be replaced, or results would join the parts of a table.
        StoreError
            When the folder cannot be written.
        """
        check_folder(self.folder)
        out = self.folder.resolve()
        replaced = {out / name for name in written} | {out}
        for path in read:
            if path.resolve() in replaced:
                raise ConfigError(
                    f"The results in {out} would replace what is read: {path.resolve()}.",
                    "Give another folder with --out.",
                )


def find_root(conf: Path) -> Path:
    """Return the project root that a conf folder, or the root itself, stands for.

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
