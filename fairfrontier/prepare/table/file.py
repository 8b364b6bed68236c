"""The files of a table: found by name, pattern or address, and held to their digests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fairfrontier.prepare.config.source import Source, SourceFile, is_address
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.home import SHIPPED, read_path
from fairfrontier.runtime.recall import note_file
from fairfrontier.runtime.text_file import is_plain

WILD = re.compile(r"[*?\[]")


def resolve(path: str, home: Path, folder: Path) -> Path:
    """Return a source file: absolute, below the project, beside the YAML, or in the package."""
    # An absolute path is the same below every root.
    candidates = dict.fromkeys(root / read_path(path) for root in (home, folder, SHIPPED))
    for candidate in candidates:
        if candidate.exists():
            return candidate
    mend = nearest_file(next(iter(candidates)))
    raise ConfigError(
        f"source.path: there is no file {path} (looked at {', '.join(map(str, candidates))}).",
        # A folder's entire content would not help.
        mend if mend.startswith("Did you mean") else "Put it there, or correct the path.",
    )


def nearest_file(path: Path) -> str:
    """Return the sentence that offers the file nearest to a missing one; "" without any."""
    siblings = [file.name for file in path.parent.glob("*")] if path.parent.is_dir() else []
    return nearest(path.name, siblings) if siblings else ""


def refuse_missing(path: Path) -> ConfigError:
    """Return the error for a path that is no plain file."""
    if os.path.lexists(path):
        return ConfigError(f"{path} is a pipe, a device or a broken link.", "Give a file.")
    return ConfigError(f"There is no file {path}.", nearest_file(path) or "Check the path.")


def list_parquet(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder in order of name."""
    return sorted(folder.glob("*.parquet"))


def list_sources(file: SourceFile, source: Source, home: Path, folder: Path) -> list[Path]:
    """Return the files behind one path, in order of name.

    They are the file itself, a folder's Parquet files, or what a pattern such as ``2026-*.parquet``
    matches; of an address, copies of the objects there.
    """
    if is_address(str(file.path)):
        # Arrow's stores take a tenth of a second to import.
        from fairfrontier.prepare.source.object_store import fetch_objects

        return fetch_objects(str(file.path), home, parquet=source.format == "parquet")
    roots = dict.fromkeys((home, folder, SHIPPED))
    literal = any((root / read_path(str(file.path))).exists() for root in roots)
    if WILD.search(str(file.path)) and not literal:
        return _match(str(file.path), [*roots])
    path = resolve(str(file.path), home, folder)
    if is_plain(path):
        return [path]
    if not path.is_dir():
        # A device, a pipe or a file of the kernel may never end.
        raise ConfigError(f"source.path: {path} is no file.", "Name a file or a folder.")
    note_file(path)
    files = list_parquet(path) if source.format == "parquet" else []
    if not files:
        raise ConfigError(
            f"source.path: {path} is a folder without Parquet files.",
            "Name a file, or a folder of *.parquet with format: parquet.",
        )
    return files


def walk_files(source: Source, home: Path, folder: Path) -> Iterator[tuple[SourceFile, Path]]:
    """Yield the files of a table in their order; ConfigError for one that is listed twice."""
    seen: set[Path] = set()
    for file in source.path:
        for path in list_sources(file, source, home, folder):
            if (real := path.resolve()) in seen:
                raise ConfigError(
                    f"source.path: {path} is listed twice, so that its rows would be, too.",
                    "List every file once, by its name or by a pattern.",
                )
            seen.add(real)
            yield file, path


def check_digest(path: Path, digest: str, expected: str | None) -> None:
    """Raise a DataError when a file is not the one the YAML was written for."""
    if expected is not None and digest != expected:
        raise DataError(
            f"{path} has sha256 {digest[:12]}…, and its dataset expects {expected[:12]}….",
            "Fetch the file again, or correct source.sha256 if it was changed on purpose.",
        )


def _match(pattern: str, roots: list[Path]) -> list[Path]:
    """Return the files that a pattern matches below the first root where there are any."""
    for root in roots:
        path = root / read_path(pattern)
        # What stands before the first part with a wildcard is a folder.
        depth = next(at for at, part in enumerate(path.parts) if WILD.search(part))
        base = Path(*path.parts[:depth])
        note_file(base)
        if any("**" in part and part != "**" for part in path.parts[depth:]):
            # Python 3.13 takes it for *, earlier ones refuse it.
            raise ConfigError(
                f"source.path: {pattern} is no pattern.", "Write ** as a whole folder."
            )
        found = sorted({*base.glob("/".join(path.parts[depth:]))})
        if files := [file for file in found if is_plain(file)]:
            return files
    raise ConfigError(
        f"source.path: no file matches {pattern} (looked below {', '.join(map(str, roots))}).",
        "Put files there, or correct the pattern.",
    )
