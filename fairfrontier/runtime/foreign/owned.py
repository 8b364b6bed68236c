"""What may go with a folder that is replaced."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from fairfrontier.runtime.errors import StoreError

# Files that file managers and editors leave in folders that people look into, by their whole names.
_LEFT = re.compile(
    r"\.DS_Store|\._.+|\.nfs[0-9a-f]{16,}|\.~lock\..+#|Thumbs\.db|desktop\.ini", re.DOTALL
)
# A folder that one of them leaves; what is in it is the user's work.
_CHECKPOINTS = ".ipynb_checkpoints"


def check_owned(folder: Path, owned: Iterable[str]) -> None:
    """Raise StoreError when a folder that is to be replaced holds what is not ``owned``.

    Owned are plain files, by their paths in the folder, and the folders around them.
    """
    files = {folder / name for name in owned}
    around = {parent for path in files for parent in path.parents}
    strangers = list[Path]()
    for place, folders, names in os.walk(folder, onerror=_fail):
        here = Path(place)
        strangers += [here / name for name in names if not _is_owned(here / name, files)]
        strange = [name for name in folders if not _is_around(here / name, around)]
        strangers += [here / name for name in strange]
        folders[:] = {*folders}.difference(strange)
    if strangers:
        name = min(strangers).relative_to(folder)
        raise StoreError(f"{folder} holds something else: {name}.", "Move it away.")


def _is_owned(path: Path, files: set[Path]) -> bool:
    known = path in files or _LEFT.fullmatch(path.name) is not None
    return known and stat.S_ISREG(path.lstat().st_mode)


def _is_around(path: Path, around: set[Path]) -> bool:
    return (path in around or path.name == _CHECKPOINTS) and not path.is_symlink()


def _fail(error: OSError) -> None:
    """Raise StoreError for a folder of which nobody knows what it holds; none there is fine."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise StoreError(
            f"{error.filename} cannot be read: {error.strerror}.", "Mend its permissions."
        ) from error
