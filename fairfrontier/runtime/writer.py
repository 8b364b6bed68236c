"""Files that appear in a folder all at once, when all of them are complete."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.foreign.owned import check_owned
from fairfrontier.runtime.lock import lock_folder

# Folders beside the files to be: not yet complete, or complete and to be moved. Whoever made one
# holds a lock on it, which the system releases however the process ends. Of complete ones a folder
# has one at a time, so that files of two writers are not mixed.
_UNFINISHED, _COMPLETE = ".unfinished@", ".complete@"
# Lists the files that a complete draft removes, in so many bytes at most.
_REMOVED, _MOST = ".removed", 2**20
# Says which file that list is, as its file system counts files and their changes: a draft that was
# made elsewhere and copied or unpacked here is not completed.
_SEAL = ".seal"
# Names the folders in a complete draft in whose place its own ones are.
_REPLACED = ".replaced@"
# What a system says of a folder in whose place another one cannot be renamed: it is not empty.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
# Seconds until a draft is moved beside another one, and until one is made in a locked folder.
_MOVING, _MAKING = 60.0, 10.0


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
        work, lock = _make_locked(lambda: folder / _name_draft(), mode)
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


def is_draft(name: str) -> bool:
    """Whether a file or folder of that name is taken for unfinished work, or a part of it."""
    return name in (_REMOVED, _SEAL) or name.startswith((_COMPLETE, _UNFINISHED, _REPLACED))


def _name_draft() -> str:
    return f"{_UNFINISHED}{secrets.token_hex(8)}"


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


def is_there(folder: Path, handle: int) -> bool:
    """Whether the folder of a handle is still the one at a path."""
    return folder.is_dir() and os.path.samestat(os.fstat(handle), folder.stat())


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


def recover(folder: Path) -> None:
    """Remove the user's drafts of killed processes from a folder; move what is in complete ones.

    What other users made stays, and so do links: they may have been laid to be found. So does what
    has come, or was changed, in the place of a draft's files since the process was killed.
    """
    with suppress(OSError), _opening(folder, os.O_DIRECTORY) as around:
        for name in _list(around):
            if name.startswith((_COMPLETE, _UNFINISHED)):
                # ValueError: a list that nobody wrote here.
                with suppress(OSError, ValueError):
                    _recover(name, around)


def restore(folder: Path) -> None:
    """Complete what `replacing` left of a folder, or of the one around it, when it was killed."""
    if not folder.is_dir():
        for parent in folder.absolute().parents[:2]:
            recover(parent)


def _recover(name: str, around: int) -> None:
    """Complete or remove a draft, unless it is somebody else's or held."""
    with _opening(name, os.O_DIRECTORY | os.O_NOFOLLOW, around) as draft:
        if os.fstat(draft).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, f"{name} is another user's")
        fcntl.flock(draft, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Before it is locked, its writer may have ended, and renamed it.
        if not os.path.samestat(
            os.fstat(draft), os.stat(name, dir_fd=around, follow_symlinks=False)
        ):
            return
        if name.startswith(_COMPLETE):
            emptied = _name_draft()
            _move(name, draft, around, emptied, late=True)
            name = emptied
        shutil.rmtree(name, ignore_errors=True, dir_fd=around)


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
    what: str = "results",
    mend: str = "Give a folder that you may write to and that has room, with --out.",
) -> Iterator[Path]:
    """Replace the files of a folder by those written into the folder that is yielded.

    They are moved when the block ends; if it raises, nothing changes. If the process is killed as
    they are moved, `recover` moves the others. Files named in ``owned`` that were not written again
    are removed, others stay. Who is `holding` the folder says that it is ``held``; ``what`` and
    ``mend`` are for the error.

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
            _publish(work, sorted(set(owned) - {path.name for path in written}))
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
            # Others may have written there meanwhile, or been killed.
            recover(folder)
            check_owned(folder, owned)
            _publish(work)
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


def _publish(work: Path, removed: Sequence[str] = ()) -> None:
    """Move what is in a draft into the folder around it, and remove what is listed there."""
    listed = work / _REMOVED
    listed.write_text("\n".join(removed), encoding="utf-8")
    flush(listed)
    (work / _SEAL).write_text(seal(listed.stat()), encoding="ascii")
    flush(*work.rglob("*"), work)
    with (
        _opening(work.parent, os.O_DIRECTORY) as around,
        _opening(work.name, os.O_DIRECTORY | os.O_NOFOLLOW, around) as draft,
    ):
        names = _list(draft)
        complete = _complete(work.name, around)
        os.fsync(around)
        try:
            _move(complete, draft, around, work.name)
        except OSError:
            # Where a part was moved, `recover` moves the others.
            if _list(draft) == names:
                _rename(complete, work.name, around, around)
            raise


def _complete(name: str, around: int) -> str:
    """Rename a draft as complete, after the one that is being moved there; return its new name."""
    end = time.monotonic() + _MOVING
    while time.monotonic() < end:
        try:
            _rename(name, _COMPLETE, around, around)
            return _COMPLETE
        except OSError as error:
            if error.errno not in _TAKEN:
                break
        try:
            _recover(_COMPLETE, around)
        except (BlockingIOError, FileNotFoundError):
            # It is being moved, or was just now.
            time.sleep(0.01)
        except (OSError, ValueError):
            # It is not the user's, or the file system has no locks.
            break
    own = name.replace(_UNFINISHED, _COMPLETE)
    _rename(name, own, around, around)
    return own


def _move(name: str, draft: int, around: int, emptied: str, *, late: bool = False) -> None:
    """Move what is in a complete draft into the folder around it, and rename the draft.

    By its new name it is to be removed, even if the process is killed meanwhile. ``late``: what
    was changed there since the draft was complete is neither replaced nor removed.
    """
    gone, since = _read_removed(draft)
    # Whoever shares the folder may have written the list: a path would lead outside.
    gone = [Path(entry).name for entry in gone]
    own = [each for each in _list(draft) if not is_draft(each)]
    kept = {each for each in (*own, *gone) if late and _is_changed(each, around, since)}
    for entry in own:
        if entry not in kept:
            _replace(entry, draft, around)
    for entry in gone:
        if entry not in kept:
            with suppress(FileNotFoundError):
                os.unlink(entry, dir_fd=around)
    os.fsync(around)
    _rename(name, emptied, around, around)


def _is_changed(name: str, around: int, since: int) -> bool:
    """Whether a file, or something in a folder, came there or was changed since, in nanoseconds."""
    try:
        facts = os.stat(name, dir_fd=around, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(facts.st_mode):
        return facts.st_ctime_ns > since
    # The folder itself changes when it is moved, and moved back.
    return any(
        os.stat(each, dir_fd=place, follow_symlinks=False).st_ctime_ns > since
        for _, folders, files, place in os.fwalk(name, dir_fd=around)
        for each in (*folders, *files)
    )


def _replace(name: str, draft: int, around: int) -> None:
    """Move a file or folder out of a draft; a folder in its place goes into the draft."""
    try:
        _rename(name, name, draft, around)
        return
    except OSError as error:
        # A folder replaces only an empty one.
        taken = error.errno in (*_TAKEN, errno.ENOTDIR)
        if not taken or not stat.S_ISDIR(os.stat(name, dir_fd=around).st_mode):
            raise
    old = f"{_REPLACED}{secrets.token_hex(8)}"
    _rename(name, old, around, draft)
    try:
        _rename(name, name, draft, around)
    except OSError:
        try:
            _rename(old, name, draft, around)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            # Another writer's folder came there meanwhile, and stays: ours is not moved later.
            shutil.rmtree(old, ignore_errors=True, dir_fd=draft)
        raise


def _rename(name: str, new: str, source: int, target: int) -> None:
    os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)


def _list(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _read_removed(draft: int) -> tuple[list[str], int]:
    """Return the names that a draft lists, and when; ValueError for what nobody wrote here."""
    listed, facts = _read_own(_REMOVED, draft)
    if _read_own(_SEAL, draft)[0] != seal(facts):
        raise ValueError(f"{_REMOVED} was not written here")
    return listed.splitlines(), facts.st_ctime_ns


def _read_own(name: str, draft: int) -> tuple[str, os.stat_result]:
    if name not in _list(draft):
        raise ValueError(f"there is no {name}")
    # A pipe would be waited for.
    with _opening(name, os.O_NOFOLLOW | os.O_NONBLOCK, draft) as handle:
        facts = os.fstat(handle)
        mine = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid()
        if not mine or facts.st_size > _MOST:
            raise ValueError(f"{name} is no list of names")
        return os.read(handle, _MOST).decode(), facts


def seal(facts: os.stat_result) -> str:
    """Return what nobody who copies or unpacks a file can choose: its inode and last change."""
    return f"{facts.st_ino} {facts.st_ctime_ns}"


@contextmanager
def _opening(path: Path | str, flags: int, folder: int | None = None) -> Iterator[int]:
    """Yield the handle of a file or folder, in the folder of another handle."""
    handle = os.open(path, os.O_RDONLY | flags, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)
