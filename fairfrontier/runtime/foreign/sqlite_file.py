"""SQLite files that anybody may have written: what is looked at before SQLite opens one."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from fairfrontier.runtime.home import find_foreign

# The files that SQLite keeps beside a database, and replays into it when it is opened.
JOURNAL = "-journal"
BESIDE = (JOURNAL, "-wal", "-shm")
# The end of a journal that names another one, which SQLite removes (sqlite.org/fileformat2.html
# and pager.c); a transaction of several databases leaves it, and ours have one.
_MAGIC = bytes.fromhex("d9d505f920a163d7")


def find_trap(path: Path) -> str:
    """Return by what SQLite would write to or remove other files than a database; empty if none.

    These are links, what is no plain file, a journal that names a file, and one that belongs to
    another user than the folder's owner, root or the user; journals of living writers are none.
    """
    for suffix in ("", *BESIDE):
        file = path.with_name(path.name + suffix)
        # Writers remove their journals.
        with suppress(FileNotFoundError):
            facts = file.lstat()
            if not stat.S_ISREG(facts.st_mode) or (suffix and facts.st_nlink > 1):
                return f"{file.name} is a link, or no plain file"
            if suffix == JOURNAL and _read_end(file) == _MAGIC:
                return f"{file.name} names another file, which SQLite would remove"
            if suffix and find_foreign([file], path.parent) is not None:
                return f"{file.name} belongs to another user"
    return ""


def _read_end(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-min(len(_MAGIC), file.seek(0, os.SEEK_END)), os.SEEK_END)
        return file.read(len(_MAGIC))
