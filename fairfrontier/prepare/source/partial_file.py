"""What has arrived of a file that is being downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import BinaryIO

from fairfrontier.runtime.writer import flush


class PartialFile:
    """The bytes of a file that have arrived, in a folder that one process at a time uses."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ".part"
        self._facts = folder / ".part.json"

    def open(self, *, anew: bool = True) -> BinaryIO:
        """Open the file to be written, anew or from its end."""
        return self.path.open("wb" if anew else "ab")

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
            facts = json.dumps({"url": url, "validator": validator})
            self._facts.write_text(facts, encoding="utf-8")

    def publish(self, name: str) -> Path:
        """Rename the complete file atomically and return its path."""
        flush(self.path)
        self._facts.unlink(missing_ok=True)
        return self.path.replace(self.path.with_name(name))

    def drop(self) -> None:
        """Remove what has arrived."""
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)
