"""Files that appear in a folder all at once, when every one of them is whole."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fairfrontier.runtime.errors import StoreError

_UNFINISHED = ".unfinished"
# Folders that this process is filling: a dead process may have had the same number.
_drafts: set[Path] = set()


@contextmanager
def drafting(folder: Path) -> Iterator[Path]:
    """Yield an empty folder inside another one; on leaving it vanishes, unless it was moved.

    What processes of this machine left there when they were killed is removed first.

    Raises
    ------
    OSError
        When the folder cannot be made.
    """
    work = folder / f"{_UNFINISHED}@{socket.gethostname()}@{os.getpid()}@{secrets.token_hex(8)}"
    _drafts.add(work)
    try:
        work.mkdir(parents=True)
        _sweep(folder)
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        _drafts.discard(work)


def check_folder(folder: Path) -> None:
    """Raise StoreError when files could not be written to a folder; it is not made."""
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise StoreError(
            f"The results cannot be written to {folder}: {error.strerror or error}.",
            "Give a folder that you may write to, with --out.",
        ) from error


@contextmanager
def filling(
    folder: Path,
    owned: Iterable[str] = (),
    *,
    what: str = "results",
    mend: str = "Give a folder that you may write to and that has room, with --out.",
) -> Iterator[Path]:
    """Replace the files of a folder: fill the one that is given; on leaving they are moved.

    Parameters
    ----------
    folder : Path
        Made where it is missing.
    owned : iterable of str
        Names of files that are removed where they were not written anew. Others stay.
    what, mend : str
        What is written, and what the user can do when it cannot be; for the error.

    Yields
    ------
    Path
        An empty folder inside ``folder``. It vanishes when the block raises, and nothing else is
        changed.

    Raises
    ------
    StoreError
        When the folder cannot be written.
    """
    existed = folder.is_dir()
    try:
        with drafting(folder) as work:
            yield work
            written = sorted(path for path in work.iterdir() if path.is_file())
            for path in written:
                if (folder / path.name).is_dir():
                    raise IsADirectoryError(errno.EISDIR, f"{path.name} is a folder there")
                flush(path)
            for path in written:
                path.replace(folder / path.name)
            for name in set(owned) - {path.name for path in written}:
                (folder / name).unlink(missing_ok=True)
            flush(folder)
    except OSError as error:
        raise StoreError(
            f"The {what} cannot be written to {folder}: {error.strerror or error}.", mend
        ) from error
    finally:
        if not existed:
            # Refused where something is in it.
            with suppress(OSError):
                folder.rmdir()


def flush(path: Path) -> None:
    """Hand a file or folder to the disk, so that a rename never outlives its content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    for draft in folder.glob(f"{_UNFINISHED}@*@*@*"):
        _, host, process, _ = draft.name.split("@")
        if host == socket.gethostname() and draft not in _drafts and not _is_alive(process):
            shutil.rmtree(draft, ignore_errors=True)


def _is_alive(process: str) -> bool:
    if not process.isdigit() or int(process) in (0, os.getpid()):
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
