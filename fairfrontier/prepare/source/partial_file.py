"""What has arrived of a file that is being downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from fairfrontier.runtime.writer import flush


class PartialFile:
    """The bytes of a file that have arrived, in a folder that one process at a time uses."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ".part"

    def open(self, *, anew: bool = True) -> BinaryIO:
        """Open the file to be written, anew or from its end."""
        return self.path.open("wb" if anew else "ab")

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return self.path.stat().st_size if self.path.exists() else 0

    def publish(self, name: str) -> Path:
        """Rename the complete file atomically and return its path."""
        flush(self.path)
        return self.path.replace(self.path.with_name(name))

    def drop(self) -> None:
        """Remove what has arrived."""
        self.path.unlink(missing_ok=True)
