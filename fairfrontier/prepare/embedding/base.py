"""What every text encoder promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self

import numpy as np

from fairfrontier.prepare.source.download import Progress
from fairfrontier.runtime.errors import DataError

# What progress is called.
ENCODING = "encoding by"


class TextEncoder(ABC):
    """Texts to vectors: φ(text) ∈ ℝᵈ of unit length.

    The vector of a text depends on the text and on what the encoder was fitted on, never on the
    texts that are encoded together with it.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What results call it."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """d, the length of a vector."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Sha256 of all that shapes the vectors: part of the key of what is made of them."""

    @abstractmethod
    def fit(self, texts: Iterable[str]) -> Self:
        """Learn from training texts; encoders that were trained elsewhere do nothing."""

    @abstractmethod
    def encode(self, texts: Iterable[str], progress: Progress | None = None) -> np.ndarray:
        """Encode texts.

        Parameters
        ----------
        texts : iterable of str
        progress : callable, optional
            Called with (name, texts done, texts in all), beside the bar of a terminal.

        Returns
        -------
        ndarray of float32, shape (n_texts, dimension)

        Raises
        ------
        DataError
            When something is not a text.
        """


def list_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts as a list.

    Raises
    ------
    DataError
        When one is missing or no text, or holds half of a surrogate pair.
    """
    listed = list(texts)
    for place, text in enumerate(listed):
        if not isinstance(text, str):
            raise DataError(
                f"Text {place} is {text!r}, which is no text.",
                "Drop rows without a text, or fill them.",
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DataError(
                f"Text {place} holds characters that Unicode has not.",
                "Read the file with its own encoding.",
            ) from None
    return listed


def normalise(vectors: np.ndarray) -> np.ndarray:
    """Divide rows by their Euclidean length; rows of zeros stay."""
    length = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    unit: np.ndarray = vectors / np.where(length > 0, length, 1.0)
    return unit
