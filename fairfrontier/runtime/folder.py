"""Files that appear in a folder all at once, when every one of them is whole."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairfrontier.runtime.errors import StoreError

_UNFINISHED = ".unfinished"


@contextmanager
def filling(folder: Path, owned: Iterable[str]) -> Iterator[Path]:
    """Replace the files of a folder: fill the one that is given; on leaving they are moved.

    Parameters
    ----------
    folder : Path
        Made where it is missing.
    owned : iterable of str
        Names of files that are removed where they were not written anew. Others stay.

    Yields
    ------
    Path
        An empty folder inside ``folder``. It vanishes when the block raises, and nothing else is
        changed; what a killed process left is removed by the next one.

    Raises
    ------
    StoreError
        When the folder cannot be written.
    """
    mark = f"{_UNFINISHED}@{socket.gethostname()}@{os.getpid()}"
    existed = folder.is_dir()
    work = folder / f"{mark}@{secrets.token_hex(4)}"
    try:
        work.mkdir(parents=True)
        _sweep(folder, work)
        yield work
        written = sorted(path for path in work.iterdir() if path.is_file())
        for path in written:
            if (folder / path.name).is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{path.name} is a folder there")
            _flush(path)
        for path in written:
            path.replace(folder / path.name)
        for name in set(owned) - {path.name for path in written}:
            (folder / name).unlink(missing_ok=True)
        _flush(folder)
    except OSError as error:
        raise StoreError(
            f"The results cannot be written to {folder}: {error.strerror or error}.",
            "Give a folder that you may write to and that has room, with --out.",
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not existed and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _sweep(folder: Path, own: Path) -> None:
    """Remove what killed processes of this machine left."""
    for left in folder.glob(f"{_UNFINISHED}@*@*@*"):
        _, host, process, _ = left.name.split("@")
        if left != own and host == socket.gethostname() and not _alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _flush(path: Path) -> None:
    """Hand a file or folder to the disk before a rename can outlive its content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
