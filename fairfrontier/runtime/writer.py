"""Files that appear in a folder all at once, when all of them are complete."""

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
    """Yield an empty folder inside another one, which is removed afterwards unless it was moved.

    Drafts of killed processes of this machine are removed first.

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
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
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
    """Replace the files of a folder by those written into the folder that is yielded.

    They are moved when the block ends; if it raises, nothing changes. Files named in ``owned`` that
    were not written again are removed, others stay. ``what`` and ``mend`` are for the error.

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
            # Fails unless it is empty.
            with suppress(OSError):
                folder.rmdir()


def flush(path: Path) -> None:
    """Sync a file or folder to disk, so that a rename never precedes its content."""
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
