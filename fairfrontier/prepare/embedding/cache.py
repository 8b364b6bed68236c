"""Vectors on disk, keyed by the text that they encode."""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.secret import find_key, sign

FOLDER = Path("data", "cache", "embeddings")
STORED = np.dtype("<f2")
PATIENCE_SECONDS = 60.0
_TABLE = """CREATE TABLE IF NOT EXISTS keyed_vector
(key BLOB NOT NULL UNIQUE, value BLOB NOT NULL, checksum INTEGER NOT NULL)"""


class VectorCache:
    """The vectors of one encoder, in one SQLite file that is named after its digest.

    Several processes may read and write at once; transactions are atomic, also when a process is
    killed. A vector takes some 2 · dimension + 240 bytes; rounding to half precision changes each
    number by at most 2⁻¹¹ of its size. SQLite needs locks that work: the folder belongs on a local
    disk, or on a network file system that has them.
    """

    def __init__(self, folder: Path, digest: str, dimension: int) -> None:
        self.path = folder / f"{digest}.sqlite"
        self.digest = digest
        self.dimension = dimension
        self._secret = find_key()

    @classmethod
    def stored_dimension(cls, folder: Path, digest: str) -> int | None:
        """Return the length of the intact vectors stored for a digest; None without any."""
        cache = cls(folder, digest, 0)
        if not cache.path.is_file():
            return None
        with cache._open("rw") as database:
            for key, *stored in database.execute("SELECT key, value, checksum FROM keyed_vector"):
                if cache._is_intact(key, *stored):
                    return len(stored[0]) // STORED.itemsize
        return None

    def key(self, text: str) -> bytes:
        """Return the key of a text: sha256 of the encoder's digest and the text."""
        return hashlib.sha256(f"{self.digest}\n{text}".encode()).digest()

    def _checksum(self, key: bytes, value: bytes) -> int:
        """Cover the key too: a damaged index could lead to an intact vector of another text.

        Eight bytes of a signature where there is a secret; see `Store`.
        """
        if self._secret is None:
            return zlib.crc32(value, zlib.crc32(key))
        return int.from_bytes(sign(self._secret, key + value)[:8], "big", signed=True)

    def _is_intact(self, key: bytes, value: Any, checksum: int) -> bool:
        return isinstance(value, bytes) and self._checksum(key, value) == checksum

    def read(self, keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Look vectors up by distinct keys.

        Returns (float16 vectors of shape (n_keys, dimension), which of them were found); missing
        and damaged vectors are zeros. Some 15 µs a vector.
        """
        if not self.path.is_file():
            return np.zeros((len(keys), self.dimension), STORED), np.zeros(len(keys), dtype=bool)
        with self._open("rw") as database:
            return self._select(database, keys)

    def write(self, keys: Sequence[bytes], vectors: np.ndarray) -> np.ndarray:
        """Store vectors under distinct keys in one transaction, and return what is stored.

        They differ from the given ones where another process was first.
        """
        values = np.ascontiguousarray(vectors, STORED)
        with self._open("rwc") as database:
            database.execute("BEGIN IMMEDIATE")
            # The first intact row wins; only one that is damaged or of another length is replaced.
            kept, found = self._select(database, keys)
            for row in np.flatnonzero(~found).tolist():
                key, value = keys[row], values[row].tobytes()
                added = (key, value, self._checksum(key, value))
                database.execute("REPLACE INTO keyed_vector VALUES (?, ?, ?)", added)
            database.execute("COMMIT")
        kept[~found] = values[~found]
        return kept

    def look_up(
        self,
        texts: Sequence[str],
        encode: Callable[[list[str]], Iterable[tuple[np.ndarray, np.ndarray]]],
        report: Callable[[int, int], None],
    ) -> np.ndarray:
        """Return the vectors of texts, float32, after those that are missing were added.

        ``encode`` yields (positions, vectors) of the missing texts in batches, each written at
        once; ``report`` is called with (texts done, texts in total), repeated texts counting once.
        """
        position = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        distinct = list(position)
        keys = [self.key(text) for text in distinct]
        vectors, known = self.read(keys)
        missing = np.flatnonzero(~known)
        done = int(known.sum())
        for positions, fresh in encode([distinct[row] for row in missing]):
            rows = missing[positions]
            vectors[rows] = self.write([keys[row] for row in rows], fresh)
            done += len(rows)
            report(done, len(distinct))
        return vectors[[position[text] for text in texts]].astype(np.float32)

    def _select(
        self, database: sqlite3.Connection, keys: Sequence[bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        vectors = np.zeros((len(keys), self.dimension), STORED)
        found = np.zeros(len(keys), dtype=bool)
        query = "SELECT value, checksum FROM keyed_vector WHERE key = ? AND length(value) = ?"
        for row, key in enumerate(keys):
            stored = database.execute(query, (key, vectors[row].nbytes)).fetchone()
            if stored and self._is_intact(key, *stored):
                vectors[row], found[row] = np.frombuffer(stored[0], STORED), True
        return vectors, found

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        try:
            if mode == "rwc":
                self.path.parent.mkdir(parents=True, exist_ok=True)
            address = f"{self.path.absolute().as_uri()}?mode={mode}"
            with closing(
                sqlite3.connect(address, timeout=PATIENCE_SECONDS, isolation_level=None, uri=True)
            ) as database:
                # A process that was killed before its first transaction leaves no table.
                database.execute(_TABLE)
                yield database
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"The cache of embeddings {self.path} cannot be used: {error}.",
                "Make it writable and free some space, or remove the file and those beside it "
                "whose names begin with its own: its content is computed again.",
            ) from error
