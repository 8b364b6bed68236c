"""Secrets in files that only their owner can read, and what a project's secret signs."""

from __future__ import annotations

import hmac
import os
import secrets
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.home import read_path

VARIABLE = "FAIRFRONTIER_SECRET"


def read_secret(path: Path) -> str:
    """Return the secret in a file; a new one is random, and its owner's alone.

    Raises
    ------
    ConfigError
        When it is empty or another user's, or others may read it.
    OSError
        When it can be neither read nor made.
    """
    if not path.exists():
        # Mode 0600; under its own name it appears complete, or not at all.
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            with suppress(FileExistsError):
                os.link(file.name, path)
    with path.open(encoding="utf-8") as opened:
        facts, secret = os.fstat(opened.fileno()), opened.read().strip()
    faults = {
        "is empty": not secret,
        "belongs to another user": facts.st_uid != os.geteuid(),
        "can be read by others": facts.st_mode & 0o077,
    }
    for fault, found in faults.items():
        if found:
            mend = f"Make it yours alone (chmod 600 {path}), or remove it."
            raise ConfigError(f"The secret {path} {fault}.", mend)
    return secret


def find_key() -> bytes | None:
    """Return the secret in the file that FAIRFRONTIER_SECRET names, to sign with; None if unset."""
    named = os.environ.get(VARIABLE)
    return _read_key(named) if named else None


@cache
def _read_key(named: str) -> bytes:
    path = read_path(named).absolute()
    try:
        return read_secret(path).encode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{VARIABLE} names {path}, which cannot be used: {error}.",
            "Name a file that you alone can read, or one to be made in a folder that exists.",
        ) from error


def sign(key: bytes, content: bytes) -> bytes:
    """Return the HMAC-SHA256 of a content."""
    return hmac.digest(key, content, "sha256")
