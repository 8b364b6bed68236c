"""Files that appear in a folder all at once, when all of them are complete, and locks of folders.

Files are written into a draft beside the ones to be, and synced to disk. One rename says that it is
complete; then its files are moved. Who is killed before the rename leaves the old files, and who is
killed after it leaves a complete draft: the next one to write to the folder, or to read its files
together, moves the others. The system releases locks however their process ends.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fairfrontier.runtime.errors import StoreError

# Seconds until a process that waits for a folder says so, and until it gives up.
QUIET, PATIENCE = 2.0, 3600.0
# Seconds until a draft is made in a folder that another process has.
MAKING = 10.0
# Of a folder its lock, and that of whoever moves a complete draft there, one at a time.
LOCK, MOVING = ".lock", ".moving.lock"
# Beginnings of names: of a folder that is not complete, and of the locks of those who share one.
UNFINISHED, SHARED = ".unfinished@", ".shared@"
COMPLETE = ".complete@"
# In a complete draft: what it removes, and folders in whose place its own ones are.
_REMOVED, _REPLACED = ".removed", ".replaced@"
# Files that file managers and editors leave in folders that people look into, by their whole names.
_LEFT = re.compile(
    r"\.DS_Store|\._.+|\.nfs[0-9a-f]{16,}|\.~lock\..+#|Thumbs\.db|desktop\.ini"
    r"|\.lock|\.moving\.lock|\.shared@\w+",
    re.DOTALL,
)
# A folder that one of them leaves; what is in it is the user's work.
_CHECKPOINTS = ".ipynb_checkpoints"
_log = logging.getLogger(__name__)


# Locks of this process: that one of its threads waits for another is no news.
_OWN: set[Path] = set()


@contextmanager
def locking(folder: Path, name: str = LOCK, *, patience: float | None = None) -> Iterator[None]:
    """Let one process at a time be in the block of a folder; others wait, and say so.

    The file of the lock goes with it. StoreError ends the wait after ``patience`` seconds, an hour
    by default.

    Raises
    ------
    OSError
        When the lock cannot be made there.
    """
    path, started, told = folder / name, time.monotonic(), False
    patience = PATIENCE if patience is None else patience
    if not folder.is_dir():  # It would be made.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    lock = FileLock(path)
    while True:
        try:
            lock.acquire(timeout=min(QUIET, patience), poll_interval=0.01)
            break
        except Timeout:
            if time.monotonic() - started >= patience:
                raise StoreError(
                    f"{folder} is still used by another process after {patience / 60:g} min.",
                    "Run this again when that has ended.",
                ) from None
        if not told and path not in _OWN:
            _log.warning("Waiting for another process, which uses %s.", folder)
            told = True
    _OWN.add(path)
    try:
        yield
    finally:
        _OWN.discard(path)
        # Whoever waits for the file that is removed makes another one.
        with suppress(OSError):
            path.unlink()
        lock.release()


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
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locking(folder):
            settle(folder)
            yield
    finally:
        _remove_empty(folder, existed=existed)


@contextmanager
def sharing(folder: Path) -> Iterator[None]:
    """Keep what is in a folder from being cleaned meanwhile; any number of processes may.

    Where there is no such folder, or none that can be written, nothing is held. A process that
    cleans it is waited for.
    """
    name = f"{SHARED}{secrets.token_hex(8)}"
    recover(folder)
    try:
        with locking(folder):
            own: AbstractContextManager[None] = locking(folder, name)
            own.__enter__()
    except OSError:
        own = nullcontext()
    try:
        yield
    finally:
        own.__exit__(None, None, None)


@contextmanager
def taking(folder: Path) -> Iterator[bool]:
    """Lock a folder as `locking` does if nobody uses it; yield whether that is so.

    Nobody does who holds or shares it, or writes a draft there.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locking(folder, patience=0.0))
            names = {path.name for path in folder.iterdir() if is_draft(path.name)} - {LOCK}
            free = all(_is_free(folder, name) for name in names - {COMPLETE})
        except (OSError, StoreError):
            free = False
        yield free


def _is_free(folder: Path, name: str) -> bool:
    """Return whether nobody holds what one of our names in a folder stands for."""
    if name.startswith(UNFINISHED):
        name = f"{name.removesuffix('.lock')}.lock"
    try:
        with locking(folder, name, patience=0.0):
            return True
    except (OSError, StoreError):
        return False


def is_draft(name: str) -> bool:
    """Whether a file or folder of that name is taken for unfinished work, or a part of it."""
    return name in (LOCK, MOVING, _REMOVED) or name.startswith(
        (COMPLETE, UNFINISHED, SHARED, _REPLACED)
    )


@contextmanager
def drafting(folder: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield an empty folder inside another one, which is removed afterwards unless it was moved.

    It is open to nobody to whom the other one is closed. What killed processes left is removed
    first, or completed; see `recover`. ``shared`` where `clean` may remove the other folder: it
    then either finds the draft, and leaves both, or has removed the folder before.

    Raises
    ------
    OSError
        When the folder cannot be made.
    """
    work = folder / f"{UNFINISHED}{secrets.token_hex(8)}"
    recover(folder)
    with ExitStack() as stack:
        while not work.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            # `clean` may remove it before it is locked; who holds it for long is not waited for.
            with suppress(FileNotFoundError), ExitStack() as guard:
                if shared and not is_draft(folder.name):
                    with suppress(StoreError, PermissionError):
                        guard.enter_context(locking(folder, patience=MAKING))
                stack.enter_context(locking(folder, f"{work.name}.lock"))
                work.mkdir(_mode_of(folder))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def recover(folder: Path) -> None:
    """Remove the user's drafts of killed processes from a folder; move what is in complete ones.

    What other users made stays, and so do links.
    """
    with suppress(OSError):
        own = {path.name for path in folder.iterdir() if is_draft(path.name) and _is_own(path)}
        if COMPLETE in own:
            with suppress(StoreError), locking(folder, MOVING, patience=0.0):
                _move(folder)
        for name in sorted(own - {COMPLETE}):
            unfinished = name.startswith(UNFINISHED)
            lock = f"{name.removesuffix('.lock')}.lock" if unfinished else name
            # Whoever made one holds its lock, whose file goes, too.
            with suppress(OSError, StoreError), locking(folder, lock, patience=0.0):
                if unfinished:
                    shutil.rmtree(folder / lock.removesuffix(".lock"), ignore_errors=True)


def _is_own(path: Path) -> bool:
    facts = path.lstat()
    return not stat.S_ISLNK(facts.st_mode) and facts.st_uid == find_user(facts.st_uid)


def find_user(otherwise: int) -> int:
    """Return the number of the user; on Windows, which has none, ``otherwise``."""
    return os.geteuid() if hasattr(os, "geteuid") else otherwise


def settle(folder: Path) -> None:
    """Complete what killed processes left in a folder before its files are read together.

    Raises
    ------
    StoreError
        When that cannot be done, so that its files may be of two commands.
    """
    if (folder / COMPLETE).is_dir():
        with suppress(OSError), locking(folder, MOVING, patience=60.0):
            if _is_own(folder / COMPLETE):
                _move(folder)
        if (folder / COMPLETE).is_dir():
            raise StoreError(
                f"{folder} holds {COMPLETE}, files that a killed command has not moved.",
                "Run that command again as its user, and remove what is still there then.",
            )


def restore(folder: Path) -> None:
    """Complete what `replacing` left of a folder, or of the one around it, when it was killed."""
    if not folder.is_dir():
        for parent in folder.absolute().parents[:2]:
            recover(parent)


def publish(
    work: Path, removed: Sequence[str] = (), check: Callable[[Path], object] = lambda _: None
) -> None:
    """Move what is in a draft into the folder around it, and remove what is listed there.

    ``check``, called with the draft's path, raises where that would replace what has come there
    meanwhile.
    """
    folder = work.parent
    # On a slow disk that takes long.
    flush(*work.rglob("*"), work)
    with locking(folder, MOVING):
        _move(folder)
        check(work)
        names = sorted(path.name for path in work.iterdir())
        (work / _REMOVED).write_text(json.dumps(list(removed)), encoding="utf-8")
        flush(work / _REMOVED, work)
        work.rename(folder / COMPLETE)
        flush(folder)
        try:
            _move(folder)
        except OSError:
            # Where a part was moved, `recover` moves the others.
            left = {path.name for path in (folder / COMPLETE).iterdir()}
            if left.issuperset(names):
                (folder / COMPLETE).rename(work)
            raise


def _move(folder: Path) -> None:
    """Move what is in the complete draft of a folder there; the caller has the lock ``MOVING``."""
    draft = folder / COMPLETE
    if draft.is_symlink() or not draft.is_dir():
        return
    for path in sorted(draft.iterdir()):
        if path.name == _REMOVED or path.name.startswith(_REPLACED):
            continue
        target = folder / path.name
        if not (path.is_dir() and target.is_dir()):
            path.replace(target)
            continue
        old = target.rename(draft / f"{_REPLACED}{secrets.token_hex(8)}")
        try:
            path.rename(target)
        except OSError:
            with suppress(OSError):
                old.rename(target)
            raise
    with suppress(FileNotFoundError):
        for name in json.loads((draft / _REMOVED).read_text(encoding="utf-8")):
            # Whoever shares the folder may have written it: a path would lead outside.
            (folder / Path(name).name).unlink(missing_ok=True)
    flush(folder)
    shutil.rmtree(draft)


def flush(*paths: Path) -> None:
    """Sync files and folders to disk, so that a rename never precedes their content."""
    # At once, since a file system writes its journal once for all that wait for it.
    with ThreadPoolExecutor(min(len(paths), 16)) as threads:
        list(threads.map(_flush, paths))


def _flush(path: Path) -> None:
    if os.name == "nt":  # It syncs no file that is not open for writing, and no folder.
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
    mine = {folder.lstat().st_uid, facts.st_uid} == {find_user(facts.st_uid)}
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
            written = sorted(path.name for path in work.iterdir() if path.is_file())
            for name in written:
                if (folder / name).is_dir():
                    raise IsADirectoryError(errno.EISDIR, f"{name} is a folder there")
            publish(work, sorted({*owned} - {*written}), check)
    except OSError as error:
        raise StoreError(
            f"The {what} cannot be written to {folder}: {error.strerror or error}.", mend
        ) from error
    finally:
        _remove_empty(folder, existed=existed)


def _remove_empty(folder: Path, *, existed: bool) -> None:
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


def check_owned(folder: Path, owned: Iterable[str]) -> None:
    """Raise StoreError when a folder that is to be replaced holds what is not ``owned``.

    Owned are plain files, by their paths in the folder, and the folders around them.
    """
    files = {folder / name for name in owned}
    around = {parent for path in files for parent in path.parents}

    def is_owned(path: Path) -> bool:
        known = path in files or _LEFT.fullmatch(path.name) is not None
        return known and stat.S_ISREG(path.lstat().st_mode)

    strangers = list[Path]()
    for place, folders, names in os.walk(folder, onerror=_fail):
        here = Path(place)
        strangers += [here / name for name in names if not is_owned(here / name)]
        strange = [
            name
            for name in folders
            if (here / name not in around and name != _CHECKPOINTS) or (here / name).is_symlink()
        ]
        strangers += [here / name for name in strange]
        folders[:] = {*folders}.difference(strange)
    if strangers:
        name = min(strangers).relative_to(folder)
        raise StoreError(f"{folder} holds something else: {name}.", "Move it away.")


def _fail(error: OSError) -> None:
    """Raise StoreError for a folder of which nobody knows what it holds; none there is fine."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise StoreError(
            f"{error.filename} cannot be read: {error.strerror}.", "Mend its permissions."
        ) from error
