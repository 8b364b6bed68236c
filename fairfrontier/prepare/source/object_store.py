"""Tables in object stores: each object is copied into the project once for every version."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairfrontier.prepare.config.section import ADDRESS
from fairfrontier.prepare.source.fetch import FOLDER, clean_name, explain_disk, list_kept
from fairfrontier.prepare.source.partial_file import PartialFile
from fairfrontier.prepare.source.progress import BYTES, Progress, show_progress
from fairfrontier.runtime.errors import ConfigError, FetchError, UnreachableError
from fairfrontier.runtime.store import canonical_json, hash_file
from fairfrontier.runtime.writer import locking

_WILD = re.compile(r"[*\[]")
_CHUNK = 8 * 2**20
# Seconds for which a store that does not answer is asked again.
PATIENCE = 60
# A copy's name begins with its digest, of so many letters.
_DIGEST = 64


@dataclass(frozen=True)
class StoredObject:
    """An object of a store: its ``key`` begins with the bucket, ``modified`` is in seconds."""

    root: str
    key: str
    size: int
    modified: int

    @property
    def version(self) -> str:
        """What names the folder of its copy: another object, size or time is another one."""
        facts = [self.root, self.key, self.size, self.modified]
        return hashlib.sha256(canonical_json(facts).encode()).hexdigest()


def fetch_objects(address: str, home: Path, *, parquet: bool) -> list[Path]:
    """Return copies of the objects at an address, in order of key; those that are here are kept.

    The address is that of an object, of a folder of ``parquet`` files, or a pattern of keys, in
    which ``*`` and ``[…]`` stand for letters but ``/``, and ``**`` for folders. A copy lies in
    ``data/cache/downloads`` under a digest of address, size and time of the object, and its name
    begins with its own digest, by which damage is found. What is there is listed once in a process.
    O(bytes) time to copy what is new and to hash all of it.

    Raises
    ------
    ConfigError
        When nothing is there.
    UnreachableError
        When the store does not answer, or refuses.
    FetchError
        When the disk is full, or an object changes as it is copied.
    """
    found = _list_objects(address, parquet=parquet)
    with show_progress(None, BYTES) as show:
        return [_keep(each, home, show) for each in found]


@lru_cache
def _list_objects(address: str, *, parquet: bool) -> tuple[StoredObject, ...]:
    import pyarrow.fs as pafs

    matched = ADDRESS.fullmatch(address)
    assert matched is not None  # noqa: S101
    root, parts = matched["root"], matched["key"].strip("/").split("/")
    depth = next((at for at, part in enumerate(parts) if _WILD.search(part)), len(parts))
    with _explain_store(address):
        store, bucket = _open_store(root)
        base = "/".join([bucket, *parts[:depth]])
        if depth == len(parts):
            here = store.get_file_info(base)
            if here.type == pafs.FileType.File:
                return (_describe(root, here),)
            parts = [*parts, "*.parquet"] if parquet else parts
        selector = pafs.FileSelector(base, allow_not_found=True, recursive=len(parts) > depth + 1)
        listed = store.get_file_info(selector)
    found = [
        _describe(root, each)
        for each in sorted(listed, key=lambda each: str(each.path))
        if each.type == pafs.FileType.File
        and _match(each.path.removeprefix(f"{base}/").split("/"), parts[depth:])
    ]
    if not found:
        raise ConfigError(
            f"source.path: there is nothing at {address}.",
            "Correct the address; of a folder, *.parquet are read with format: parquet.",
        )
    return tuple(found)


def _open_store(root: str) -> tuple[Any, str]:
    """Return Arrow's file system of a bucket, and the bucket."""
    import pyarrow.fs as pafs

    # Google's would be asked for a quarter of an hour.
    limit = f"?retry_limit_seconds={PATIENCE}" if root.startswith("gs:") else ""
    store, bucket = pafs.FileSystem.from_uri(root + limit)
    return store, bucket.rstrip("/")


def _describe(root: str, info: Any) -> StoredObject:
    # Some servers list milliseconds, and give seconds of a single object.
    return StoredObject(root, info.path, int(info.size), int(info.mtime_ns or 0) // 10**9)


def _match(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a key match those of a pattern, of which ** stands for any folders."""
    if not pattern or not parts:
        return not parts and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _match(parts, pattern[1:]) or _match(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _match(parts[1:], pattern[1:])


def _keep(stored: StoredObject, home: Path, progress: Progress) -> Path:
    """Return the copy of an object, which is made under the lock of its folder if it is missing."""
    folder = home / FOLDER / stored.version
    with explain_disk(folder):
        if (path := _find_copy(folder)) is not None:
            return path
        folder.mkdir(parents=True, exist_ok=True)
        with locking(folder):
            return _find_copy(folder) or _copy(stored, PartialFile(folder), progress)


def _find_copy(folder: Path) -> Path | None:
    """Return the file whose name begins with its digest, if there is one."""
    return next(
        (path for path in list_kept(folder) if path.name[:_DIGEST] == hash_file(path)), None
    )


def _copy(stored: StoredObject, part: PartialFile, progress: Progress) -> Path:
    address, name = f"{stored.root.partition('://')[0]}://{stored.key}", clean_name(stored.key)
    with _explain_store(address):
        store, _ = _open_store(stored.root)
        source = store.open_input_file(stored.key)
    # From the start: nothing tells whether the beginning that another process left is sound.
    with source, part.open() as stream:
        while stream.tell() < stored.size:
            with _explain_store(address):
                content = source.read(_CHUNK)
            if not content:
                break
            stream.write(content)
            progress(name, stream.tell(), stored.size)
    with _explain_store(address):
        here = _describe(stored.root, store.get_file_info(stored.key))
    if part.size != stored.size or here != stored:
        part.drop()
        raise FetchError(f"{address} changed while it was copied.", "Run again.")
    return part.publish(f"{hash_file(part.path)}-{name}")


@contextmanager
def _explain_store(address: str) -> Iterator[None]:
    """Turn Arrow's errors of a store into an UnreachableError."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:300].rstrip(". ")
        raise UnreachableError(
            f"{address} cannot be read: {reason}.",
            "Check the address, and the credentials that the store's own tools find.",
        ) from None
