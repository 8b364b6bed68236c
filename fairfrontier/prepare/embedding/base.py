"""What every text encoder promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self

import numpy as np

from fairfrontier.prepare.source.progress import Progress
from fairfrontier.runtime.errors import DataError

# The name of the progress, before the encoder's.
ENCODING = "encoding by"


class TextEncoder(ABC):
    """Texts to vectors: φ(text) ∈ ℝᵈ of unit length.

    The vector of a text depends on the text and on what the encoder was fitted on, never on the
    texts that are encoded together with it.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in results."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """d, the length of a vector."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Sha256 of all that shapes the vectors: part of the key of results made from them."""

    @abstractmethod
    def fit(self, texts: Iterable[str]) -> Self:
        """Learn from training texts; encoders that were trained elsewhere do nothing."""

    @abstractmethod
    def encode(self, texts: Iterable[str], progress: Progress | None = None) -> np.ndarray:
        """Return the vectors of texts, float32 of shape (n_texts, dimension).

        ``progress`` is called with (name, texts done, texts in total), in addition to the bar of a
        terminal.
        """


def list_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts as a list; missing texts and invalid Unicode raise a DataError."""
    listed = list(texts)
    for position, text in enumerate(listed):
        if not isinstance(text, str):
            raise DataError(
                f"Text {position} is {text!r}, which is no text.",
                "Drop rows without a text, or fill them.",
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DataError(
                f"Text {position} contains invalid Unicode (half of a surrogate pair).",
                "Read the file with the right encoding.",
            ) from None
    return listed


def normalise(vectors: np.ndarray) -> np.ndarray:
    """Divide rows by their Euclidean length; rows of zeros stay zero."""
    length = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    unit: np.ndarray = vectors / np.where(length > 0, length, 1.0)
    return unit
