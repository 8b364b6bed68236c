"""The project root, which holds conf/ and data/, and the one in the package."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.writer import find_user

VARIABLE = "FAIRFRONTIER_HOME"

_PACKAGE = Path(__file__).resolve().parents[1]
# The project that comes with the package: project/ in a wheel, else the checkout.
SHIPPED = _PACKAGE / "project" if (_PACKAGE / "project").is_dir() else _PACKAGE.parent


def read_path(given: str | Path) -> Path:
    """Return a path that somebody gave, ``~`` expanded; raise ConfigError for what can be none."""
    try:
        path = Path(given).expanduser()
        path.exists()  # refuses names that are too long
        str(path).encode()  # and bytes that are not UTF-8, which no report can name
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error.strerror if isinstance(error, OSError) else error).removesuffix(".")
        raise ConfigError(f"{str(given)!r} is no usable path: {reason}.", "Correct it.") from None
    return path


def find_home(start: Path | None = None) -> Path:
    """Return the project root, an absolute folder.

    It is FAIRFRONTIER_HOME if set; else the nearest folder at or above ``start`` (the current
    folder by default) that holds ``conf/datasets`` or ``conf/studies``; else ``start`` itself,
    where only the names of the package are known.

    Raises
    ------
    ConfigError
        When FAIRFRONTIER_HOME names no folder, or another user owns what was found.
    """
    named = os.environ.get(VARIABLE)
    if named:
        home = read_path(named).resolve()
        if not home.is_dir():
            raise ConfigError(
                f"{VARIABLE} is {home}, which is not a folder.",
                "Point it at a project's root, or unset it.",
            )
        return home
    base = (start or Path.cwd()).resolve()
    for folder in (base, *base.parents):
        if any((folder / "conf" / kind).is_dir() for kind in ("datasets", "studies")):
            break
    else:
        folder = base
    foreign = find_foreign((folder, folder / "conf", folder / "data"), base)
    if foreign is not None:
        raise ConfigError(
            f"{foreign} would be the project's here, and belongs to another user.",
            f"Set {VARIABLE}={folder} if you trust that user, or to a folder of yours.",
        )
    return folder


def check_links(folder: Path, home: Path) -> None:
    """Raise a ConfigError where a link in a project leads a folder of it into another project.

    It may have come with the project, to have the other one's results replaced.
    """
    there, home = folder.resolve(), home.resolve()
    if there.is_relative_to(home) or not _leads_out(folder, home):
        return
    for owner in (there, *there.parents):
        if any((owner / mark).is_dir() for mark in ("conf", "data/results", "data/cache")):
            raise ConfigError(
                f"{folder} is, by a link, in another project: {there}.",
                "Remove the link, or give another place with --out.",
            )


def _leads_out(folder: Path, home: Path) -> bool:
    """Whether a link in a project is on the way to a folder, and leads out of the project."""
    step, *names = (*reversed(folder.absolute().parents), folder.absolute())
    for each in names:
        inside, step = step.resolve().is_relative_to(home), each
        if inside and step.is_symlink() and not step.resolve().is_relative_to(home):
            return True
    return False


def find_foreign(paths: Iterable[Path], base: Path) -> Path | None:
    """Return the first of the paths that another user may have laid, as git does of repositories.

    Trusted are the user, root, and who owns ``base``: the user has entered that folder, and in a
    container it is often a checkout of another number's.
    """
    owner = base.stat().st_uid
    trusted = {find_user(owner), 0, owner}
    for path in paths:
        # A link's owner may lead it elsewhere.
        for look in (path.lstat, path.stat):
            with suppress(OSError):
                if look().st_uid not in trusted:
                    return path
    return None
