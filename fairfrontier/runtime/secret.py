"""Secrets in files that only their owner can read, and what a project's secret signs."""

from __future__ import annotations

import hmac
import os
import secrets
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.home import read_path
from fairfrontier.runtime.text_file import read_plain
from fairfrontier.runtime.writer import find_user

VARIABLE = "FAIRFRONTIER_SECRET"
MOST_BYTES = 4096


def read_secret(path: Path) -> str:
    """Return the secret in a file; a new one is random, and its owner's alone.

    Raises
    ------
    ConfigError
        When it is empty or another user's, or others may read it.
    OSError, ValueError
        When it can be neither read nor made.
    """

    def refuse(fault: str) -> NoReturn:
        mend = f"Make it yours alone (chmod 600 {path}), or remove it."
        raise ConfigError(f"The secret {path} {fault}.", mend)

    if not os.path.lexists(path):
        # Mode 0600; under its own name it appears complete, or not at all.
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            with suppress(FileExistsError):
                os.link(file.name, path)

    def check(facts: os.stat_result) -> None:
        if facts.st_uid != find_user(facts.st_uid):
            refuse("belongs to another user")
        # Windows says of any file that all may read it.
        if os.name != "nt" and facts.st_mode & 0o077:
            refuse("can be read by others")

    return read_plain(path, MOST_BYTES, check).decode().strip() or refuse("is empty")


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
