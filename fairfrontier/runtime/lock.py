"""Locks of folders, which the system releases however their process ends."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from fairfrontier.runtime.errors import StoreError

# Seconds until a process that waits for a folder says so, and until it gives up.
QUIET, PATIENCE = 2.0, 3600.0
_log = logging.getLogger(__name__)


def lock_folder(folder: Path, *, wait: bool, shared: bool = False) -> int:
    """Lock a folder until the handle is closed; raise OSError when another process has it.

    Of locks that are ``shared`` any number is held at once. Whoever can read a folder can lock it:
    who waits says so, and StoreError ends it after an hour.
    """
    # A pipe of that name would be waited for.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    try:
        if wait:
            _wait(handle, kind, folder)
        else:
            fcntl.flock(handle, kind)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _wait(handle: int, kind: int, folder: Path) -> None:
    """Lock a folder as soon as no other process has it."""
    started, told = time.monotonic(), False
    while True:
        try:
            fcntl.flock(handle, kind)
            break
        except BlockingIOError:
            waited = time.monotonic() - started
        except OSError:
            # A file system without locks: writers do without, and nothing of others is removed.
            break
        if waited > PATIENCE:
            raise StoreError(
                f"{folder} is still used by {_name_holder(handle)} after {PATIENCE / 60:g} min.",
                "Run this again when that has ended.",
            )
        if waited > QUIET and not told:
            _log.warning("Waiting for %s, which uses %s.", _name_holder(handle), folder)
            told = True
        time.sleep(0.05)


def _name_holder(handle: int) -> str:
    """Return which process has locked a file, as far as the system tells."""
    facts = os.fstat(handle)
    place = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1] == "FLOCK" and place in words:
                # Threads of one process wait for each other, too.
                own = words[4] == str(os.getpid())
                return "another step of this run" if own else f"process {words[4]}"
    return "another process"
