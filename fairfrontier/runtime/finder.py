"""YAML files of datasets, studies, methods and so on, by name or path."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal

from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.home import SHIPPED, read_path

Kind = Literal["dataset", "study", "method", "cluster", "encoder", "vocabulary", "publication"]

FOLDERS: dict[Kind, Path] = {
    "dataset": Path("conf", "datasets"),
    "study": Path("conf", "studies"),
    "method": Path("conf", "methods"),
    "cluster": Path("conf", "clusters"),
    "encoder": Path("conf", "encoders"),
    "vocabulary": Path("conf", "vocabularies"),
    "publication": Path("data", "reference"),
}
SUFFIXES = (".yaml", ".yml")
# Its entry points name the packages of other distributions that have such folders inside.
GROUP = "fairfrontier.projects"


def is_path(name: str | Path) -> bool:
    """Return whether this is the path of a YAML file, by its suffix, rather than a name."""
    return Path(name).suffix in SUFFIXES


def list_names(kind: Kind, home: Path | None, *folders: Path) -> dict[str, Path]:
    """Return every name of a kind with its YAML file, sorted by name.

    Names in ``folders`` win over those of the project ``home``, these over those of the package,
    and these over those of packages of others.
    """
    roots = [root for root in (home, SHIPPED, *_find_guests()) if root is not None]
    sources = [*folders, *(root / FOLDERS[kind] for root in roots)]
    files: dict[str, Path] = {}
    for folder in sources:
        for path in folder.glob("*.yaml"):
            files.setdefault(path.stem, path)
    return dict(sorted(files.items()))


@cache
def _find_guests() -> tuple[Path, ...]:
    """Return the folders of other distributions' packages that hold a project."""
    folders = []
    for point in entry_points(group=GROUP):
        try:
            spec = importlib.util.find_spec(point.value)
        except ImportError:
            spec = None
        if spec is None or not spec.submodule_search_locations:
            package = point.dist.name if point.dist else point.value
            raise ConfigError(
                f"The project of the package {package} is not there: {point.value} is no package.",
                f"Correct {point.value}, or uninstall {package}.",
            )
        folders += [Path(folder) for folder in spec.submodule_search_locations]
    return tuple(folders)


def find_yaml(
    kind: Kind,
    name: str | Path,
    home: Path | None,
    *,
    beside: Path | None = None,
    folders: Iterable[Path] = (),
    also: Iterable[str] = (),
    where: str = "",
) -> Path:
    """Return the absolute path of the YAML file that a name or a path stands for.

    A path ends in .yaml or .yml and is relative to ``beside`` (the folder of the file that names
    it), to the current folder, or to the project ``home``, in this order. A name is looked up as in
    `list_names`. Errors offer the names in ``also`` as well, and open with ``where``, the file and
    key that name this file.

    Raises
    ------
    ConfigError
        When there is no such file or name; offers the nearest name.
    """
    opening = f"{where}: there" if where else "There"
    if is_path(name):
        path = read_path(name)
        roots = [root for root in (beside, Path(), home) if root is not None]
        for root in roots:
            if (root / path).is_file():
                return (root / path).resolve()
        starts = dict.fromkeys(str(root.absolute()) for root in roots)
        raise ConfigError(
            f"{opening} is no {kind} file {path}.",
            "Check the path." if path.is_absolute() else f"Paths start at {' or '.join(starts)}.",
        )
    known = list_names(kind, home, *folders)
    if str(name) not in known:
        raise ConfigError(
            f"{opening} is no {kind} {str(name)!r}.", nearest(str(name), {*known, *also})
        )
    return known[str(name)].absolute()
