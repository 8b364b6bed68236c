"""Where the project is: the folder that holds conf/ and data/, and the one in the package."""

from __future__ import annotations

import os
from pathlib import Path

from fairfrontier.runtime.errors import ConfigError

VARIABLE = "FAIRFRONTIER_HOME"

_PACKAGE = Path(__file__).resolve().parents[1]
# What comes with the package, laid out as a project: a wheel holds the folder project/, and a
# checkout or an editable installation is one.
SHIPPED = _PACKAGE / "project" if (_PACKAGE / "project").is_dir() else _PACKAGE.parent


def find_home(start: Path | None = None) -> Path:
    """Find the project root.

    FAIRFRONTIER_HOME where it is set; else the nearest folder at or above ``start`` (the current
    folder) that holds ``conf/datasets`` or ``conf/studies``; else ``start`` itself, where names
    are those of the package.

    Parameters
    ----------
    start : Path, optional
        Where to begin; the current folder by default.

    Returns
    -------
    Path
        An absolute folder.

    Raises
    ------
    ConfigError
        When FAIRFRONTIER_HOME names no folder.
    """
    named = os.environ.get(VARIABLE)
    if named:
        home = Path(named).expanduser().resolve()
        if not home.is_dir():
            raise ConfigError(
                f"{VARIABLE} is {home}, which is no folder.",
                "Point it at a project's root, or unset it.",
            )
        return home
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if any((folder / "conf" / kind).is_dir() for kind in ("datasets", "studies")):
            return folder
    return here
