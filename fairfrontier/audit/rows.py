"""Rows for measures: without features, and a sample of different ones of a stream."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import DataError

# Different rows that are measured again, where the study does not say how many.
ROWS = 2000
# Scores and probabilities of rows and their versions, 8 bytes each, of which there are some copies.
MOST_ANSWERS = 1 << 27


def refuse_answers(n_samples: int, versions: int, what: object) -> None:
    """Raise DataError for rows with more versions than this process takes answers to."""
    if versions and n_samples > (most := MOST_ANSWERS // (2 + 2 * versions)):
        raise DataError(
            f"{what} has more than {most:,} rows, each with {versions:,} counterfactual versions.",
            "Audit fewer rows at once, or choose from a study with fewer counterfactual versions.",
        )


def make_part(
    y: np.ndarray,
    weight: np.ndarray,
    attribute: str = "",
    codes: np.ndarray | None = None,
    levels: tuple[str, ...] = (),
    classes: tuple[str, ...] = ("0", "1"),
) -> Part:
    """Return rows without features, for measures, which read none."""
    n = y.size
    groups = np.zeros((n, 0), dtype=np.int64) if codes is None else codes[:, None]
    nothing = np.zeros((n, 0))
    attributes = {attribute: levels} if codes is not None else {}
    return Part(
        "table", "all", np.arange(n), nothing, y, groups, nothing, weight, attributes, classes
    )


class Sample:
    """Different rows of a stream, with how often each occurs: at most so many, drawn by content.

    Neither the order of the rows nor its batches matter. Memory is that of the kept rows.
    """

    def __init__(self, rows: int = ROWS) -> None:
        self._most = rows
        self._words = np.empty(0, dtype=np.uint64)
        self._counts = np.empty(0, dtype=np.int64)
        self._rows: np.ndarray | None = None
        self._texts = np.empty(0, dtype=object)

    def add(self, rows: np.ndarray, texts: np.ndarray | None = None) -> None:
        """Add rows, float64 of shape (n, n_columns), and a text of each where there are texts."""
        written = np.full(len(rows), "", dtype=object) if texts is None else texts
        content = (
            row.tobytes() + text.encode() for row, text in zip(rows + 0.0, written, strict=True)
        )
        digests = b"".join(blake2b(each, digest_size=8).digest() for each in content)
        words = np.concatenate([self._words, np.frombuffer(digests, dtype="<u8")])
        rows = rows if self._rows is None else np.vstack([self._rows, rows])
        counts = np.concatenate([self._counts, np.ones(len(written), dtype=np.int64)])
        words, first, place = np.unique(words, return_index=True, return_inverse=True)
        # A row among the lowest words of all was among the lowest since it came.
        kept = slice(self._most)
        self._words, self._rows = words[kept], rows[first[kept]]
        self._counts = np.bincount(place, counts, words.size).astype(np.int64)[kept]
        self._texts = np.concatenate([self._texts, written])[first[kept]]

    @property
    def rows(self) -> np.ndarray:
        """The rows, in an order that is that of their content."""
        return np.zeros((0, 0)) if self._rows is None else self._rows

    @property
    def counts(self) -> np.ndarray:
        """How often each of them occurs, int64."""
        return self._counts

    @property
    def texts(self) -> list[str]:
        """Their texts."""
        return [str(text) for text in self._texts]

    @property
    def words(self) -> np.ndarray:
        """A number of each of them, by its content, int64."""
        return self._words.view(np.int64)
