"""Folders of unfinished work: sealed, moved when they are complete, and recovered after a kill."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.lock import lock_folder

_log = logging.getLogger(__name__)
# Folders beside the files to be: not yet complete, or complete and to be moved. Whoever made one
# holds a lock on it, which the system releases however the process ends. Of complete ones a folder
# has one at a time, so that files of two writers are not mixed.
UNFINISHED, COMPLETE = ".unfinished@", ".complete@"
# Lists what a complete draft replaces and removes, and what was there, in so many bytes at most.
_PLAN, _MOST = ".plan", 2**20
# Says which file that list is, as its file system counts files and their changes: a draft that was
# made elsewhere and copied or unpacked here is not completed.
_SEAL = ".seal"
# Names the folders in a complete draft in whose place its own ones are.
_REPLACED = ".replaced@"
# What a system says of a folder in whose place another one cannot be renamed: it is not empty.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
# Seconds until a draft is moved beside another one.
_MOVING = 60.0


def is_draft(name: str) -> bool:
    """Whether a file or folder of that name is taken for unfinished work, or a part of it."""
    return name in (_PLAN, _SEAL) or name.startswith((COMPLETE, UNFINISHED, _REPLACED))


def name_draft() -> str:
    """Return a name that no other draft has."""
    return f"{UNFINISHED}{secrets.token_hex(8)}"


def is_there(folder: Path, handle: int) -> bool:
    """Whether the folder of a handle is still the one at a path."""
    return folder.is_dir() and os.path.samestat(os.fstat(handle), folder.stat())


def recover(folder: Path) -> None:
    """Remove the user's drafts of killed processes from a folder; move what is in complete ones.

    What other users made stays, and so do links: they may have been laid to be found. So does what
    has come, or was changed, in the place of a draft's files since the process was killed; of a
    draft of which nothing was moved yet the others are not moved then, either.
    """
    with suppress(OSError), _opening(folder, os.O_DIRECTORY) as around:
        for name in _list(around):
            if name.startswith((COMPLETE, UNFINISHED)):
                # ValueError: a plan that nobody wrote here.
                with suppress(OSError, ValueError):
                    _recover(name, around)


def settle(folder: Path) -> None:
    """Complete what killed processes left in a folder before its files are read together.

    Raises
    ------
    StoreError
        When that cannot be done, so that its files may be of two commands.
    """
    end = time.monotonic() + _MOVING
    while True:
        recover(folder)
        left = [path for path in sorted(folder.glob(f"{COMPLETE}*")) if not path.is_symlink()]
        if not left:
            return
        if time.monotonic() > end or not any(map(_is_held, left)):
            raise StoreError(
                f"{folder} holds {left[0].name}, files that a killed command has not moved.",
                "Run that command again as its user, and remove what is still there then.",
            )
        time.sleep(0.01)


def _is_held(folder: Path) -> bool:
    """Whether another process holds a draft, or has moved it meanwhile."""
    try:
        os.close(lock_folder(folder, wait=False))
    except (BlockingIOError, FileNotFoundError):
        return True
    except OSError:
        pass  # no locks there
    return False


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
        if name.startswith(COMPLETE):
            emptied = name_draft()
            _move(name, draft, around, emptied, late=True)
            name = emptied
        shutil.rmtree(name, ignore_errors=True, dir_fd=around)


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


def write_plan(work: Path, removed: Sequence[str] = ()) -> None:
    """Write into a draft what it replaces and removes, and seal it."""
    with _opening(work.parent, os.O_DIRECTORY) as around:
        plan = {
            "moved": {each.name: _mark(each.name, around) for each in sorted(work.iterdir())},
            "removed": {name: _mark(name, around) for name in removed},
            "made": {each.name: each.lstat().st_ino for each in work.iterdir()},
        }
    listed = work / _PLAN
    listed.write_text(json.dumps(plan), encoding="utf-8")
    flush(listed)
    (work / _SEAL).write_text(_seal(listed.stat()), encoding="ascii")


def publish(
    work: Path, removed: Sequence[str] = (), check: Callable[[Path], object] = lambda _: None
) -> None:
    """Move what is in a draft into the folder around it, and remove what is listed there.

    ``check``, called with the draft's path, raises where that would replace what has come there
    meanwhile: before a list says what is replaced, for the case of a kill, and when it is synced.
    """
    # On a slow disk that takes long, and nobody else's work may come between.
    flush(*work.rglob("*"), work)
    check(work)
    write_plan(work, removed)
    flush(work / _SEAL, work)
    with (
        _opening(work.parent, os.O_DIRECTORY) as around,
        _opening(work.name, os.O_DIRECTORY | os.O_NOFOLLOW, around) as draft,
    ):
        names = _list(draft)
        complete = _complete(work.name, around)
        os.fsync(around)
        try:
            check(work.parent / complete)
            _move(complete, draft, around, work.name)
        except Exception:
            # Where a part was moved, `recover` moves the others.
            if _list(draft) == names:
                _rename(complete, work.name, around, around)
            raise


def _complete(name: str, around: int) -> str:
    """Rename a draft as complete, after the one that is being moved there; return its new name."""
    end = time.monotonic() + _MOVING
    while time.monotonic() < end:
        try:
            _rename(name, COMPLETE, around, around)
            return COMPLETE
        except OSError as error:
            if error.errno not in _TAKEN:
                break
        try:
            _recover(COMPLETE, around)
        except (BlockingIOError, FileNotFoundError):
            # It is being moved, or was just now.
            time.sleep(0.01)
        except (OSError, ValueError):
            # It is not the user's, or was not written here, or the file system has no locks.
            break
    own = name.replace(UNFINISHED, COMPLETE)
    _rename(name, own, around, around)
    return own


def _move(name: str, draft: int, around: int, emptied: str, *, late: bool = False) -> None:
    """Move what is in a complete draft into the folder around it, and rename the draft.

    By its new name it is to be removed, even if the process is killed meanwhile. ``late``: what
    was changed there since the draft was complete is neither replaced nor removed, nor is anything
    else then, unless a part was moved before and is there.
    """
    moved, removed, made, since = _read_plan(draft)
    held = {*_list(draft)}
    left, gone = [each for each in moved if each in held], [*removed]
    if late:
        marks = {**moved, **removed}
        stays = {each for each in (*left, *gone) if _is_changed(each, marks[each], around, since)}
        # Those that were moved before, and are there.
        there = {each for each in moved if each not in held and _find(each, around) == made[each]}
        stays |= {each for each in moved if each not in held and each not in there}
        if stays:
            _log.warning(
                "%s was changed after a command was killed that was to replace it, and is left: "
                "run that command again to have it replaced.",
                min(stays),
            )
        if stays and not there:
            stays |= {*left, *gone}
        left, gone = ([each for each in names if each not in stays] for names in (left, gone))
    for each in left:
        _replace(each, draft, around)
    for each in gone:
        with suppress(FileNotFoundError):
            os.unlink(each, dir_fd=around)
    os.fsync(around)
    _rename(name, emptied, around, around)


def _mark(name: str, around: int) -> list[int] | None:
    """Return what tells a file or folder from another one in its place; None for none."""
    try:
        facts = os.stat(name, dir_fd=around, follow_symlinks=False)
    except FileNotFoundError:
        return None
    # A folder has another time when it was moved away and back.
    of_file = [] if stat.S_ISDIR(facts.st_mode) else [facts.st_size, facts.st_mtime_ns]
    return [facts.st_ino, *of_file]


def _find(name: str, around: int) -> int | None:
    """Return the inode of a file or folder, None without."""
    mark = _mark(name, around)
    return None if mark is None else mark[0]


def _is_changed(name: str, mark: list[int] | None, around: int, since: int) -> bool:
    """Whether a file or folder is not as it was marked, or something in the folder is newer."""
    here = _mark(name, around)
    if here is None or here != mark:
        return here is not None
    return len(here) == 1 and any(
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


def _read_plan(draft: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, int], int]:
    """Return what a draft moves and what it removes, with marks, what it was, and since when.

    ValueError for what nobody wrote here.
    """
    listed, facts = _read_own(_PLAN, draft)
    if _read_own(_SEAL, draft)[0] != _seal(facts):
        raise ValueError(f"{_PLAN} was not written here")
    try:
        plan = json.loads(listed)
        # Whoever shares the folder may have written it: a path would lead outside.
        moved, removed, made = (
            {Path(name).name: fact for name, fact in plan[key].items()}
            for key in ("moved", "removed", "made")
        )
        if {*moved} != {*made}:
            raise ValueError(f"{_PLAN} is no plan")
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{_PLAN} is no plan: {error!r}") from error
    return moved, removed, made, facts.st_ctime_ns


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


def _seal(facts: os.stat_result) -> str:
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
