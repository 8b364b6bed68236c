"""Vectors on disk, found by the text that they were made from."""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from fairfrontier.runtime.errors import StoreError

FOLDER = Path("data", "cache", "embeddings")
STORED = np.dtype("<f2")
PATIENCE_SECONDS = 60.0
# SQLite takes 32,766 parameters a statement; more than some hundreds make it no faster.
CHUNK = 500
_TABLE = """CREATE TABLE IF NOT EXISTS keyed_vector
(key BLOB NOT NULL UNIQUE, value BLOB NOT NULL, checksum INTEGER NOT NULL)"""
_LENGTH = "SELECT length(value) FROM keyed_vector WHERE crc32(key, value) = checksum LIMIT 1"
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE name = 'keyed_vector'"
# The first whole row wins; only one that is damaged or of another length is replaced.
_INSERT = """INSERT INTO keyed_vector AS kept VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE
SET value = excluded.value, checksum = excluded.checksum
WHERE crc32(kept.key, kept.value) != kept.checksum
OR length(kept.value) != length(excluded.value)"""


def _checksum(key: bytes, value: bytes) -> int:
    """Cover the key too: a damaged index leads to a whole vector of another text."""
    return zlib.crc32(value, zlib.crc32(key))


class VectorCache:
    """The vectors of one encoder, in one SQLite file.

    Parameters
    ----------
    folder : Path
        E.g. ``data/cache/embeddings``; made at the first write.
    digest : str
        Of the encoder and its settings; names the file and is part of every key.
    dimension : int
        Length of a vector.

    Notes
    -----
    Several processes may read and write at once; a transaction is there whole or not at all,
    whoever was killed when. A vector takes some 2 · dimension + 240 bytes. Rounding to half
    precision changes each number by at most 2⁻¹¹ of its size.
    SQLite needs locks that work: the folder belongs on a disk of this machine, or on a network
    file system that has them.
    """

    def __init__(self, folder: Path, digest: str, dimension: int) -> None:
        self.path = folder / f"{digest}.sqlite"
        self.digest = digest
        self.dimension = dimension

    @classmethod
    def stored_dimension(cls, folder: Path, digest: str) -> int | None:
        """Return the length of the whole vectors that are kept for a digest; None without any."""
        cache = cls(folder, digest, 0)
        if not cache.path.is_file():
            return None
        with cache._open("rw") as database:
            if not database.execute(_HAS_TABLE).fetchone():
                return None
            row = database.execute(_LENGTH).fetchone()
        return int(row[0]) // STORED.itemsize if row else None

    def key(self, text: str) -> bytes:
        """Return the key of a text: sha256 of the encoder's digest and the text."""
        return hashlib.sha256(f"{self.digest}\n{text}".encode()).digest()

    def read(self, keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Look vectors up.

        Parameters
        ----------
        keys : sequence of bytes
            All different.

        Returns
        -------
        vectors : ndarray of float16, shape (n_keys, dimension)
            Zeros where there is none.
        found : ndarray of bool, shape (n_keys,)
            A damaged vector counts as none.

        Raises
        ------
        StoreError
            When the file is no database of ours.

        Notes
        -----
        Some 15 µs a vector on a busy core.
        """
        if not self.path.is_file():
            return np.zeros((len(keys), self.dimension), STORED), np.zeros(len(keys), dtype=bool)
        with self._open("rw") as database:
            return self._select(database, keys)

    def write(self, keys: Sequence[bytes], vectors: np.ndarray) -> np.ndarray:
        """Keep vectors, all at once, and return what is kept.

        Parameters
        ----------
        keys : sequence of bytes
            All different.
        vectors : ndarray of float16, shape (n_keys, dimension)

        Returns
        -------
        ndarray of float16, shape (n_keys, dimension)
            The same, except where another process was first.

        Raises
        ------
        StoreError
            When the file cannot be written, or is damaged so that what was written is not found.
        """
        values = [row.tobytes() for row in np.ascontiguousarray(vectors, STORED)]
        rows = [
            (key, value, _checksum(key, value)) for key, value in zip(keys, values, strict=True)
        ]
        with self._open("rwc") as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(_TABLE)
            database.executemany(_INSERT, rows)
            kept, found = self._select(database, keys)
            if not found.all():
                raise sqlite3.DatabaseError("what was just written is not found again")
            database.execute("COMMIT")
        return kept

    def _select(
        self, database: sqlite3.Connection, keys: Sequence[bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        vectors = np.zeros((len(keys), self.dimension), STORED)
        found = np.zeros(len(keys), dtype=bool)
        place = {key: position for position, key in enumerate(keys)}
        # A process that was killed before its first transaction leaves no table.
        if not database.execute(_HAS_TABLE).fetchone():
            return vectors, found
        for start in range(0, len(keys), CHUNK):
            some = keys[start : start + CHUNK]
            marks = ",".join("?" * len(some))
            query = f"SELECT key, value, checksum FROM keyed_vector WHERE key IN ({marks})"  # noqa: S608
            for key, value, checksum in database.execute(query, some):
                whole = len(value) == STORED.itemsize * self.dimension
                if whole and _checksum(key, value) == checksum:
                    vectors[place[key]] = np.frombuffer(value, STORED)
                    found[place[key]] = True
        return vectors, found

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        try:
            if mode == "rwc":
                self.path.parent.mkdir(parents=True, exist_ok=True)
            address = f"{self.path.absolute().as_uri()}?mode={mode}"
            with closing(
                sqlite3.connect(address, PATIENCE_SECONDS, isolation_level=None, uri=True)
            ) as database:
                database.create_function("crc32", 2, _checksum, deterministic=True)
                yield database
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"The cache of embeddings {self.path} cannot be used: {error}.",
                "Make it writable and free some space, or remove the file: what it held is "
                "computed again.",
            ) from error
