"""Files that appear in a folder all at once, when all of them are complete."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from fairfrontier.runtime.errors import StoreError

# Folders beside the files to be: not yet complete, or complete and to be moved. Whoever made one
# holds a lock on it, which the system releases however the process ends.
_UNFINISHED, _COMPLETE = ".unfinished@", ".complete@"
# Lists the files that a complete draft removes.
_REMOVED = ".removed"


@contextmanager
def drafting(folder: Path) -> Iterator[Path]:
    """Yield an empty folder inside another one, which is removed afterwards unless it was moved.

    What killed processes left is removed first, or completed; see `recover`.

    Raises
    ------
    OSError
        When the folder cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    recover(folder)
    work, lock = _make_locked(lambda: folder / f"{_UNFINISHED}{secrets.token_hex(8)}")
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(lock)


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Let one process at a time read the files of a folder and replace them; others wait.

    What a killed process left is completed first. A folder that was made for it, and got no file,
    is removed.

    Raises
    ------
    StoreError
        When the folder cannot be written.
    """
    check_folder(folder)
    existed = folder.is_dir()
    _, lock = _make_locked(lambda: folder)
    try:
        recover(folder)
        yield
    finally:
        if not existed:
            # Fails unless it is empty.
            with suppress(OSError):
                folder.rmdir()
        os.close(lock)


def _make_locked(name: Callable[[], Path]) -> tuple[Path, int]:
    """Make the folder that is named, and return it with its lock, for which it waits."""
    while True:
        folder = name()
        folder.mkdir(parents=True, exist_ok=True)
        # Before it is locked, another process may remove it, and a third one make it again.
        with suppress(FileNotFoundError):
            lock = lock_folder(folder, wait=True)
            if folder.is_dir() and os.path.samestat(os.fstat(lock), folder.stat()):
                return folder, lock
            os.close(lock)


def recover(folder: Path) -> None:
    """Remove the drafts of killed processes from a folder; move the files of complete ones."""
    for draft in (*folder.glob(f"{_COMPLETE}*"), *folder.glob(f"{_UNFINISHED}*")):
        # ValueError: names that only somebody else can have written.
        with suppress(OSError, ValueError):
            lock = lock_folder(draft, wait=False)
            try:
                if draft.name.startswith(_COMPLETE):
                    _move(draft)
                else:
                    shutil.rmtree(draft, ignore_errors=True)
            finally:
                os.close(lock)


def make_private(folder: Path) -> None:
    """Make a folder of mode 0700; an existing one has to be the user's, and closed to writers.

    Raises
    ------
    StoreError
        When it belongs to another user, or others may write to it.
    OSError
        When it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StoreError(
            f"{folder} belongs to another user, or others may write to it.",
            f"Make it yours alone (chmod go-w {folder}), or use another.",
        )


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

    They are moved when the block ends; if it raises, nothing changes. If the process is killed as
    they are moved, `recover` moves the others. Files named in ``owned`` that were not written again
    are removed, others stay. ``what`` and ``mend`` are for the error.

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
            gone = sorted(set(owned) - {path.name for path in written})
            (work / _REMOVED).write_text("\n".join(gone), encoding="utf-8")
            flush(*written, work / _REMOVED, work)
            complete = work.rename(folder / work.name.replace(_UNFINISHED, _COMPLETE))
            flush(folder)
            _move(complete)
    except OSError as error:
        raise StoreError(
            f"The {what} cannot be written to {folder}: {error.strerror or error}.", mend
        ) from error
    finally:
        if not existed:
            # Fails unless it is empty.
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def replacing(folder: Path, *, what: str, mend: str) -> Iterator[Path]:
    """Replace a folder, with the folders in it, by the one that is filled in the block.

    If the block raises, nothing changes. If the process is killed between the two last steps, there
    is no folder, and never half of one.

    Raises
    ------
    StoreError
        When the folder cannot be written.
    """
    try:
        with drafting(folder.parent) as work:
            made = work / "made"
            made.mkdir()
            yield made
            flush(*made.rglob("*"), made)
            if folder.is_dir():
                folder.rename(work / "replaced")
            made.rename(folder)
            flush(folder.parent)
    except OSError as error:
        raise StoreError(
            f"The {what} cannot be written to {folder}: {error.strerror or error}.", mend
        ) from error


def flush(*paths: Path) -> None:
    """Sync files and folders to disk, so that a rename never precedes their content."""
    # At once, since a file system writes its journal once for all that wait for it.
    with ThreadPoolExecutor(min(len(paths), 16)) as threads:
        list(threads.map(_flush, paths))


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _move(complete: Path) -> None:
    """Move the files of a complete draft into the folder around it."""
    folder = complete.parent
    if not (complete / _REMOVED).is_file():
        # Of somebody else's draft: a pipe would be waited for.
        raise FileNotFoundError(complete / _REMOVED)
    gone = (complete / _REMOVED).read_text(encoding="utf-8").splitlines()
    for path in sorted(complete.iterdir()):
        if path.name != _REMOVED:
            path.replace(folder / path.name)
    for name in gone:
        # Whoever shares the folder may have written the list: a path would lead outside.
        (folder / Path(name).name).unlink(missing_ok=True)
    flush(folder)
    shutil.rmtree(complete)


def lock_folder(folder: Path, *, wait: bool) -> int:
    """Lock a folder until the handle is closed; raise OSError when another process has it."""
    # A pipe of that name would be waited for.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        # A file system without locks: writers do without, and nothing of others is removed.
        if wait:
            return handle
        os.close(handle)
        raise
    return handle
