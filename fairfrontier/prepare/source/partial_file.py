"""What has arrived of a file that is being downloaded."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import BinaryIO

from fairfrontier.runtime.writer import flush


class PartialFile:
    """The bytes of a file that have arrived, in a folder that one process at a time uses."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ".part"
        self._facts = folder / ".part.json"
        for path in (self.path, self._facts):
            # A link in somebody else's project, or another name of a file, would have us write
            # elsewhere.
            if os.path.lexists(path):
                facts = path.lstat()
                if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
                    path.unlink()

    def open(self, *, anew: bool = True) -> BinaryIO:
        """Open the file to be written, anew or from its end; OSError for a link laid meanwhile."""
        return open(self.path, "wb" if anew else "ab", opener=_open_plain)

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return self.path.stat().st_size if self.path.exists() else 0

    def validator(self, url: str) -> str | None:
        """Return the ETag or date of the version that arrived from this URL, if known."""
        try:
            facts = json.loads(self._facts.read_text(encoding="utf-8"))
            return str(facts["validator"]) if facts["url"] == url else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def note(self, url: str, validator: str | None) -> None:
        """Record the ETag or date of the version that is arriving."""
        if validator is None:
            self._facts.unlink(missing_ok=True)
        else:
            facts = {"url": url, "validator": validator}
            with open(self._facts, "w", encoding="utf-8", opener=_open_plain) as stream:
                json.dump(facts, stream)

    def publish(self, name: str) -> Path:
        """Rename the complete file atomically and return its path."""
        flush(self.path)
        self._facts.unlink(missing_ok=True)
        return self.path.replace(self.path.with_name(name))

    def drop(self) -> None:
        """Remove what has arrived."""
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
