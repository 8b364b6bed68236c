"""Files that appear in a folder all at once, when all of them are complete."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from fairfrontier.runtime.draft import is_draft, is_there, name_draft, publish, recover, settle
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.foreign.owned import check_owned
from fairfrontier.runtime.lock import lock_folder

# Seconds until a draft is made in a locked folder.
_MAKING = 10.0


@contextmanager
def drafting(folder: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield an empty folder inside another one, which is removed afterwards unless it was moved.

    It is open to nobody to whom the other one is closed. What killed processes left is removed
    first, or completed; see `recover`. While it is made the other folder's lock is ``shared``:
    `clean` then either finds the draft, and leaves both, or has removed the folder before.

    Raises
    ------
    OSError
        When the folder cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if shared and not is_draft(folder.name):  # Whose lock this process has.
            stack.callback(os.close, _make_locked(lambda: folder, shared=True)[1])
        recover(folder)
        mode = _mode_of(folder)
        work, lock = _make_locked(lambda: folder / name_draft(), mode)
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
        When the folder cannot be written, or what was left cannot be completed.
    """
    check_folder(folder)
    existed = folder.is_dir()
    _, lock = _make_locked(lambda: folder)
    try:
        settle(folder)
        yield
    finally:
        if not existed:
            # Fails unless it is empty.
            with suppress(OSError):
                folder.rmdir()
        os.close(lock)


@contextmanager
def sharing(folder: Path) -> Iterator[None]:
    """Keep what is in a folder from being cleaned meanwhile; any number of processes may.

    Where there is no such folder, nothing is held. A process that cleans it is waited for.
    """
    with locking(folder, shared=True) if folder.is_dir() else nullcontext():
        yield


@contextmanager
def locking(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Let one process at a time use a folder, which none of them needs to write; others wait."""
    lock = lock_folder(folder, wait=True, shared=shared)
    try:
        yield
    finally:
        os.close(lock)


def _make_locked(
    name: Callable[[], Path], mode: int = 0o777, *, shared: bool = False
) -> tuple[Path, int]:
    """Make the folder that is named, and return it with its lock, for which it waits."""
    while True:
        folder = name()
        folder.mkdir(mode, parents=True, exist_ok=True)
        # Before it is locked, another process may remove it, and a third one make it again.
        with suppress(FileNotFoundError):
            lock = _share_lock(folder) if shared else lock_folder(folder, wait=True)
            if is_there(folder, lock):
                return folder, lock
            os.close(lock)


def _share_lock(folder: Path) -> int:
    """Share the lock of a folder for a moment; where that is not to be had, do without."""
    end = time.monotonic() + _MAKING
    while time.monotonic() < end:
        try:
            return lock_folder(folder, wait=False, shared=True)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # No locks there, or no folder, which the next line raises.
            break
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def _mode_of(folder: Path) -> int:
    """Return the mode for a folder in the place of another one, or in it; the umask counts, too."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    # Who may write to a sticky folder may not touch the files of others in it.
    closed = stat.S_IWGRP | stat.S_IWOTH if mode & stat.S_ISVTX else 0
    return mode & 0o777 & ~closed | stat.S_IRWXU


def make_private(folder: Path) -> None:
    """Make a folder of mode 0700; an existing one of the user's is closed to everybody else.

    A link to it has to be the user's, too: another one may lead elsewhere at any time. A folder to
    which others may write is refused, since they may have laid something there.

    Raises
    ------
    StoreError
        When it belongs to another user, or others may write to it.
    OSError
        When it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    mine = {folder.lstat().st_uid, facts.st_uid} == {os.geteuid()}
    if not mine or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StoreError(
            f"{folder} belongs to another user, or others may write to it.",
            f"Make it yours alone (chmod go-w {folder}), or use another.",
        )
    if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        folder.chmod(stat.S_IMODE(facts.st_mode) & stat.S_IRWXU)


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
    held: bool = False,
    check: Callable[[Path], object] = lambda _: None,
    what: str = "results",
    mend: str = "Give a folder that you may write to and that has room, with --out.",
) -> Iterator[Path]:
    """Replace the files of a folder by those written into the folder that is yielded.

    They are moved when the block ends; if it raises, nothing changes. If the process is killed as
    they are moved, `recover` moves the others. Files named in ``owned`` that were not written again
    are removed, others stay. ``check`` is called with the yielded folder before they are moved, and
    raises where they would replace what has come there meanwhile. Who is `holding` the folder says
    that it is ``held``; ``what`` and ``mend`` are for the error.

    Raises
    ------
    StoreError
        When the folder cannot be written.
    """
    existed = folder.is_dir()
    try:
        with drafting(folder, shared=not held) as work:
            yield work
            written = sorted(path for path in work.iterdir() if path.is_file())
            for path in written:
                if (folder / path.name).is_dir():
                    raise IsADirectoryError(errno.EISDIR, f"{path.name} is a folder there")
            removed = sorted(set(owned) - {path.name for path in written})
            publish(work, removed, check)
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
def replacing(folder: Path, owned: Iterable[str] = (), *, what: str, mend: str) -> Iterator[Path]:
    """Replace a folder, with the folders in it, by the one that is filled in the block.

    If the block raises, nothing changes. If the process is killed as they change places, `recover`
    of the folder around them completes it. Files that would go with the folder have to be
    ``owned``; see `check_owned`.

    Raises
    ------
    StoreError
        When the folder cannot be written, or holds something else.
    """
    try:
        with drafting(folder.parent, shared=True) as work:
            made = work / folder.name
            made.mkdir(_mode_of(folder) if folder.is_dir() else 0o777)
            yield made

            def check(_: Path) -> None:
                # Others may have written there meanwhile, or been killed.
                recover(folder)
                check_owned(folder, owned)

            publish(work, check=check)
    except OSError as error:
        raise StoreError(
            f"The {what} cannot be written to {folder}: {error.strerror or error}.", mend
        ) from error
