"""Secrets in files that only their owner can read, and what a project's secret signs."""

from __future__ import annotations

import errno
import hmac
import os
import secrets
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.home import read_path
from fairfrontier.runtime.text_file import read_plain

VARIABLE = "FAIRFRONTIER_SECRET"
MOST_BYTES = 4096


def read_secret(path: Path) -> str:
    """Return the secret in a file; a new one is random, and its owner's alone.

    Raises
    ------
    ConfigError
        When it is empty or another user's, a link of another user's is on the way there, or others
        may read it.
    OSError, ValueError
        When it can be neither read nor made.
    """

    def refuse(fault: str) -> NoReturn:
        mend = f"Make it yours alone (chmod 600 {path}), or remove it."
        raise ConfigError(f"The secret {path} {fault}.", mend)

    # A link of another user's would lead to a file whose content that user may know.
    if (link := find_foreign_link(path)) is not None:
        refuse(f"is behind {link}, a link of another user's")
    if not os.path.lexists(path):
        # Mode 0600; under its own name it appears complete, or not at all.
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            with suppress(FileExistsError):
                os.link(file.name, path)

    def check(facts: os.stat_result) -> None:
        if facts.st_uid != os.geteuid():
            refuse("belongs to another user")
        if not stat.S_ISLNK(facts.st_mode) and facts.st_mode & 0o077:
            refuse("can be read by others")

    return read_plain(path, MOST_BYTES, check).decode().strip() or refuse("is empty")


def find_foreign_link(path: Path, most: int = 40) -> Path | None:
    """Return the first link on the way to a file that neither the user nor root has laid.

    OSError for more than so many links, which may lead in a circle.
    """
    if not most:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    path = path.absolute()
    for step in (*reversed(path.parents), path):
        if step.is_symlink():
            if step.lstat().st_uid not in (0, os.geteuid()):
                return step
            target = step.parent / step.readlink()
            return find_foreign_link(target / path.relative_to(step), most - 1)
    return None


def find_key() -> bytes | None:
    """Return the secret in the file that FAIRFRONTIER_SECRET names, to sign with; None if unset."""
    named = os.environ.get(VARIABLE)
    return None if named is None else _read_key(named)


@cache
def _read_key(named: str) -> bytes:
    if not named.strip():
        raise ConfigError(f"{VARIABLE} is empty.", "Name a file, or unset it to sign nothing.")
    path = read_path(named).absolute()
    try:
        return read_secret(path).encode()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{VARIABLE} names {path}, which cannot be used: {error}.",
            "Name a file that you alone can read, or one to be made in a folder that exists.",
        ) from error


def sign(key: bytes, content: bytes) -> bytes:
    """Return the HMAC-SHA256 of a content."""
    return hmac.digest(key, content, "sha256")
