"""The YAML file that a name or a path stands for: of a dataset, a study, a method, and so on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.home import SHIPPED

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


def is_path(name: str | Path) -> bool:
    """Return whether this is the path of a YAML file, by its suffix, and not a name."""
    return Path(name).suffix in SUFFIXES


def list_names(kind: Kind, home: Path | None, *folders: Path) -> dict[str, Path]:
    """Return every name of a kind with its YAML file, sorted by name.

    Parameters
    ----------
    kind : Kind
    home : Path or None
        The project, whose names win over those that come with the package.
    *folders : Path
        Further folders of names, which win over both.
    """
    places = [*folders, *(root / FOLDERS[kind] for root in (home, SHIPPED) if root is not None)]
    found: dict[str, Path] = {}
    for folder in places:
        for path in folder.glob("*.yaml"):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


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
    """Return the YAML file that a name or a path stands for.

    Parameters
    ----------
    kind : Kind
        What the file describes.
    name : str or Path
        A name in the kind's folder of the project, else of the package; or, where it ends in .yaml
        or .yml, a path, relative to ``beside``, to the current folder, or to ``home``, in this
        order.
    home : Path or None
        The project.
    beside : Path, optional
        The folder of the file that names this one.
    folders : iterable of Path, optional
        Further folders of names, looked at first.
    also : iterable of str, optional
        Names without a file that would have been right: they are offered in errors.
    where : str, optional
        File and key that name this file; opens the errors.

    Returns
    -------
    Path
        Absolute.

    Raises
    ------
    ConfigError
        When there is no such file or name; offers the nearest name.
    """
    opening = f"{where}: there" if where else "There"
    if is_path(name):
        path = Path(name).expanduser()
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
