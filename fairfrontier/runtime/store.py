"""Results on disk, found by what they were made from; the authority on what is done.

An entry is a folder, ``KIND/ab/KEY/``, of plain files and a ``manifest.json`` with their digests.
It appears all at once by a rename and is never changed afterwards, so that a reader sees a complete
entry or none, even if a writer is killed. Digests find damage, not forgery: where the variable
FAIRFRONTIER_SECRET names a file with a secret, entries are signed, and others count as damaged.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fairfrontier.runtime.cached import note_file
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.secret import find_key, sign
from fairfrontier.runtime.text_file import read_json
from fairfrontier.runtime.writer import drafting, flush

# In a project.
CACHE = Path("data", "cache")
STORE = CACHE / "store"
MANIFEST = "manifest.json"
KEY = re.compile("[0-9a-f]{64}")
_log = logging.getLogger(__name__)


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces, tuples as lists.

    ``value`` is nested from mappings with string keys, sequences, str, bool, int, float, None and
    NumPy scalars.

    Raises
    ------
    TypeError
        When it holds something else.
    ValueError
        When a number is NaN or infinite.
    """
    return json.dumps(
        value,
        default=_to_plain,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a description holds plain values, not {type(value).__name__}")


class Store:
    """A content-addressed store in a folder, made at the first write.

    Several processes may read and write at once: of two that write the same key the first wins
    and the other's work is dropped. Kinds are names like ``"fit"`` and ``"points"``.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).expanduser().absolute()

    def key(self, kind: str, description: Mapping[str, Any]) -> str:
        """Return the sha256 of a kind and the canonical JSON of a description."""
        text = f"{kind}\n{canonical_json(description)}"
        return hashlib.sha256(text.encode()).hexdigest()

    def path(self, kind: str, key: str) -> Path:
        """Return the folder where the entry is, or would be."""
        return self.folder / kind / key[:2] / key

    def read(self, kind: str, key: str) -> Path | None:
        """Return the folder of an entry, or None; every byte is verified, at some 1 GB/s.

        A damaged entry is logged and removed, so that the caller computes it again.
        """
        entry = self.path(kind, key)
        if not entry.is_dir():
            return None
        fault = _find_fault(entry, kind, key)
        if fault is None:
            return entry
        _log.warning(
            "The stored %s %s is damaged (%s) and will be computed again.", kind, key[:12], fault
        )
        # In one step, so that no reader sees half of it. In a read-only store it stays; the next
        # write will raise.
        with suppress(OSError), drafting(self.folder) as work:
            entry.rename(work / entry.name)
        return None

    def digest(self, kind: str, key: str) -> str | None:
        """Return the digest over all files of a verified entry, or None."""
        manifest = self._read_manifest(kind, key)
        return None if manifest is None else str(manifest["digest"])

    def describe(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the description of a verified entry, or None."""
        manifest = self._read_manifest(kind, key)
        return None if manifest is None else dict(manifest["description"])

    def list_files(self, kind: str, key: str) -> dict[str, Path] | None:
        """Return name -> path of the files of a verified entry, or None."""
        manifest = self._read_manifest(kind, key)
        return manifest and {name: self.path(kind, key) / name for name in manifest["files"]}

    def _read_manifest(self, kind: str, key: str) -> Any:
        entry = self.read(kind, key)
        return entry and json.loads((entry / MANIFEST).read_text(encoding="utf-8"))

    @contextmanager
    def writing(self, kind: str, key: str, description: Mapping[str, Any]) -> Iterator[Path]:
        """Write an entry into the folder that is yielded; it appears at once when the block ends.

        ``description`` holds plain values and is kept in the manifest for readers. If the block
        raises, nothing is written.

        Raises
        ------
        StoreError
            When the folder cannot be made or written.
        """
        described = json.loads(canonical_json(description))
        with self._explaining(), drafting(self.folder) as work:
            yield work
            flush(*_write_manifest(work, kind, key, described), work)
            self._publish(work, kind, key)

    def check_writable(self) -> None:
        """Raise StoreError now rather than after the first hour of computing."""
        with self._explaining(), drafting(self.folder):
            pass

    def _publish(self, work: Path, kind: str, key: str) -> None:
        # The same key means the same content; what is damaged is removed.
        if self.read(kind, key) is not None:
            return
        entry = self.path(kind, key)
        entry.parent.mkdir(parents=True, exist_ok=True)
        try:
            work.rename(entry)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # Another writer was faster, or what is damaged could not be removed.
            fault = _find_fault(entry, kind, key)
            if fault is not None:
                raise StoreError(
                    f"{entry} is damaged ({fault}), and cannot be removed.", "Remove it yourself."
                ) from error
            return
        flush(entry.parent)

    def list_entries(self) -> Iterator[tuple[str, str, Path]]:
        """Yield the kind, the key and the folder of every entry; no link is followed."""
        for kind in list_folders(self.folder):
            for start in list_folders(kind):
                for entry in list_folders(start):
                    if KEY.fullmatch(entry.name):
                        yield kind.name, entry.name, entry

    def find_fault(self, kind: str, key: str) -> str | None:
        """Return how an entry is damaged, or None; unlike `read`, it stays."""
        return _find_fault(self.path(kind, key), kind, key)

    def peek(self, kind: str, key: str) -> dict[str, Any]:
        """Return the description of an entry that may be damaged; {} where it cannot be read."""
        try:
            return dict(read_json(self.path(kind, key) / MANIFEST)["description"])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return {}

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"The store {self.folder} cannot be written: {error.strerror or error}.",
                "Make the folder writable, free some space, or choose another project root.",
            ) from error


def open_store(home: Path) -> Store:
    """Return the store of a project."""
    return Store(home / STORE)


def refuse_unsigned(entry: Path) -> None:
    """Raise StoreError for an entry of a store that is not signed with the secret, if there is one.

    It is for readers that know the folder of an entry, from models.csv; others have no such name.
    """
    entry = entry.absolute()
    if find_key() is None or not KEY.fullmatch(entry.name):
        return
    fault = _find_fault(entry, entry.parents[1].name, entry.name)
    if fault is not None:
        raise StoreError(
            f"{entry} is not to be trusted: {fault}.", "Remove it, and run its study again."
        )


def list_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted, without links and unfinished work."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(
            Path(entry.path)
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        )
    return []


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder, without its manifest, links and pipes."""
    return sorted(
        path for path in folder.rglob("*") if _is_plain(path) and path != folder / MANIFEST
    )


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def hash_file(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal."""
    note_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_manifest(work: Path, kind: str, key: str, description: Mapping[str, Any]) -> list[Path]:
    files = _files(work)
    manifest = {
        "kind": kind,
        "key": key,
        "description": description,
        "files": {
            path.relative_to(work).as_posix(): {
                "sha256": hash_file(path),
                "bytes": path.stat().st_size,
            }
            for path in files
        },
    }
    manifest["digest"] = hashlib.sha256(canonical_json(manifest).encode()).hexdigest()
    secret = find_key()
    if secret is not None:
        manifest["signature"] = sign(secret, str(manifest["digest"]).encode()).hex()
    path = work / MANIFEST
    path.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return [*files, path]


def _is_other(path: Path) -> bool:
    """Return whether something in an entry is neither file nor folder, or a draft to be moved."""
    folder = path.is_dir() and not path.is_symlink() and not path.name.startswith(".")
    return not folder and not _is_plain(path)


def _find_fault(entry: Path, kind: str, key: str) -> str | None:
    """Return what is wrong with an entry, or None."""
    secret = find_key()
    if entry.is_symlink():
        return "it is a link"
    if not _is_plain(entry / MANIFEST):
        return f"{MANIFEST} is missing"
    try:
        manifest = read_json(entry / MANIFEST)
        claimed = manifest.pop("digest")
        signature = str(manifest.pop("signature", ""))
        named = manifest["kind"], manifest["key"]
        dict(manifest["description"])
        listed = {
            str(name): (facts["bytes"], facts["sha256"])
            for name, facts in manifest["files"].items()
        }
        actual = hashlib.sha256(canonical_json(manifest).encode()).hexdigest()
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return f"{MANIFEST} cannot be read"
    if actual != claimed or named != (kind, key):
        return f"{MANIFEST} was altered"
    if secret and not hmac.compare_digest(
        signature.encode(), sign(secret, claimed.encode()).hex().encode()
    ):
        return f"{MANIFEST} is not signed with the project's secret"
    # Nothing else is opened: a manifest of somebody else's may name pipes, or files elsewhere.
    present = {path.relative_to(entry).as_posix() for path in _files(entry)}
    if absent := listed.keys() - present:
        return f"{min(absent)} is missing"
    others = {path.relative_to(entry).as_posix() for path in entry.rglob("*") if _is_other(path)}
    if added := (present | others) - listed.keys():
        return f"{min(added)} is not in {MANIFEST}"
    for name, (bytes_, digest) in listed.items():
        path = entry / name
        try:
            size = path.stat().st_size
            if size != bytes_:
                return f"{name} has {size} bytes instead of {bytes_}"
            if hash_file(path) != digest:
                return f"{name} was altered"
        except OSError:
            return f"{name} cannot be read"
    return None
