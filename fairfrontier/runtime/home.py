"""Where the project stands: the folder that holds conf/."""

from __future__ import annotations

import os
from pathlib import Path

from fairfrontier.runtime.errors import ConfigError

VARIABLE = "FAIRFRONTIER_HOME"


def find_home(start: Path | None = None) -> Path:
    """Find the project root.

    FAIRFRONTIER_HOME where it is set; else the nearest parent of ``start`` (the current folder)
    that holds ``conf/``; else the checkout that this module was imported from.

    Parameters
    ----------
    start : Path, optional
        Where to begin; the current folder by default.

    Returns
    -------
    Path
        An absolute folder that holds ``conf/``.

    Raises
    ------
    ConfigError
        When FAIRFRONTIER_HOME names a folder without ``conf/``, or no such folder is found.
    """
    named = os.environ.get(VARIABLE)
    if named:
        home = Path(named).expanduser().resolve()
        if not (home / "conf").is_dir():
            raise ConfigError(
                f"{VARIABLE} is {home}, which holds no conf/ folder.",
                "Point it at a folder that does, or unset it.",
            )
        return home
    here = (start or Path.cwd()).resolve()
    checkout = Path(__file__).resolve().parents[2]
    for folder in (here, *here.parents, checkout):
        if (folder / "conf" / "datasets").is_dir():
            return folder
    raise ConfigError(
        f"No folder with conf/ was found at or above {here}.",
        f"Run from inside a project, or set {VARIABLE}.",
    )
