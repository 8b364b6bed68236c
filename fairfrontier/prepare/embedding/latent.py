"""Latent semantic analysis: text vectors from the training texts alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from fairfrontier.prepare.embedding.base import ENCODING, TextEncoder, list_texts, normalise
from fairfrontier.prepare.embedding.cache import FOLDER, STORED, VectorCache
from fairfrontier.prepare.source.progress import COUNT, Progress, show_progress
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import canonical_json
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.runtime.version import version

# Rows encoded at a time: float64 of 4,096 × 384 is 12 MB.
CHUNK = 4096
# Directions whose singular value is less than this share of the first are rounding.
NEGLIGIBLE = 1e-7


class LatentSemantic(TextEncoder):
    """TF-IDF, projected on the largest singular directions of the training texts.

    φ(text) = t V / ‖t V‖,  T ≈ U S Vᵀ,  T_iw = (1 + log n_iw) (1 + log((1 + n)/(1 + n_w))),

    where n_iw counts word w in training text i and n_w the training texts that contain w; rows of T
    and t are divided by their length before.

    Parameters
    ----------
    rank : int
        Directions that are kept, at least 1; fewer where the training texts have fewer.
    words : int
        Size of the vocabulary, the most frequent words; at least 1.
    threads : int
        Of BLAS.
    random_state : int
        Of the randomised SVD.
    home : Path, optional
        The project, in whose ``data/cache`` vectors are kept, rounded to half precision; without it
        they are neither kept nor rounded. What was fitted and encoded before is not fitted again.

    Notes
    -----
    The substitute where no sentence encoder is available: it knows which words occur together and
    nothing of their order. Words are lower-cased, without accents, and have two letters or more. A
    text without any word of the vocabulary becomes zeros. A text's vector has the same bytes
    whatever is encoded with it. O(nnz(T) · rank) to fit and to encode; memory of words · rank
    numbers.

    References
    ----------
    S. Deerwester, S. Dumais, G. Furnas, T. Landauer, R. Harshman. Indexing by latent semantic
    analysis. JASIS 41, 1990.
    N. Halko, P.-G. Martinsson, J. Tropp. Finding structure with randomness. SIAM Review 53, 2011.
    """

    def __init__(
        self,
        *,
        rank: int = 384,
        words: int = 50_000,
        threads: int = 1,
        random_state: int = 0,
        home: Path | None = None,
    ) -> None:
        for name, number in {"rank": rank, "words": words, "threads": threads}.items():
            if number < 1:
                raise ConfigError(f"{name} is {number}.", "Give 1 or more.")
        self.rank = rank
        self.words = words
        self.threads = threads
        self.random_state = random_state
        self.folder = None if home is None else home / FOLDER
        self._texts: list[str] | None = None
        self._directions: np.ndarray | None = None
        self._digest = ""

    @property
    def name(self) -> str:
        """``tfidf``."""
        return "tfidf"

    @property
    def settings(self) -> dict[str, Any]:
        """All that shapes the vectors but the training texts, ready for JSON."""
        return {
            "encoder": self.name,
            "rank": self.rank,
            "words": self.words,
            "threads": self.threads,
            "random_state": self.random_state,
            "stored": STORED.str if self.folder is not None else "whole",
            "source": source_digest([__name__]),
            "versions": {name: version(name) for name in ("numpy", "scipy", "scikit-learn")},
        }

    @property
    def dimension(self) -> int:
        """Directions that the training texts have, at most ``rank``."""
        if self.folder is not None and self._directions is None and self._texts is not None:
            dimension = VectorCache.stored_dimension(self.folder, self._digest)
            if dimension is not None:
                return dimension
        return int(self._fitted().shape[1])

    @property
    def digest(self) -> str:
        """Sha256 of the training texts, the parameters and the libraries' versions."""
        self._require_texts()
        return self._digest

    def fit(self, texts: Iterable[str]) -> Self:
        """Learn words, their weights and directions from training texts."""
        self._texts = list_texts(texts)
        self._digest = self._describe(self._texts)
        self._directions = None
        known = self.folder and VectorCache.stored_dimension(self.folder, self._digest)
        if not known:
            self._fitted()
        return self

    def _learn(self, texts: list[str]) -> np.ndarray:
        """Return the directions, float64 of shape (n_words, dimension); keep the words."""
        # A second of imports, which datasets without texts do not need.
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.utils.extmath import randomized_svd, svd_flip

        self._words = TfidfVectorizer(
            sublinear_tf=True, strip_accents="unicode", max_features=self.words
        )
        try:
            table = self._words.fit_transform(texts)
        except ValueError:
            raise DataError(
                f"No word of two letters is in the {len(texts)} training texts.",
                "Check which column holds the texts.",
            ) from None
        with limited_threads(self.threads):
            left, values, directions = randomized_svd(
                table,
                min(self.rank, *table.shape),
                n_iter=5,
                flip_sign=False,
                random_state=self.random_state,
            )
        _, directions = svd_flip(left, directions, u_based_decision=False)
        return np.ascontiguousarray(directions[values > NEGLIGIBLE * values[0]].T)

    def encode(self, texts: Iterable[str], progress: Progress | None = None) -> np.ndarray:
        """Encode texts; see `TextEncoder.encode`. Before `fit` a NotFittedError is raised."""
        self._require_texts()
        listed = list_texts(texts)
        with show_progress(progress, COUNT) as show:
            report = partial(show, f"{ENCODING} {self.name}")
            if self.folder is not None:
                cache = VectorCache(self.folder, self.digest, self.dimension)
                return cache.look_up(listed, self._project, report)
            vectors = np.empty((len(listed), self.dimension), dtype=np.float32)
            for rows, fresh in self._project(listed):
                vectors[rows] = fresh
                report(int(rows[-1]) + 1, len(listed))
            return vectors

    def _project(self, texts: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield positions and float32 vectors, a chunk at a time."""
        for start in range(0, len(texts), CHUNK):
            directions = self._fitted()
            table = self._words.transform(texts[start : start + CHUNK])
            vectors = normalise(table @ directions).astype(np.float32)
            yield np.arange(start, start + len(vectors)), vectors

    def _fitted(self) -> np.ndarray:
        if self._directions is None:
            self._directions = self._learn(self._require_texts())
        return self._directions

    def _require_texts(self) -> list[str]:
        if self._texts is None:
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("this encoder learns from training texts: call fit first")
        return self._texts

    def _describe(self, texts: list[str]) -> str:
        digest = hashlib.sha256()
        for text in texts:
            content = text.encode()
            digest.update(len(content).to_bytes(8, "big") + content)
        description = {**self.settings, "texts": digest.hexdigest()}
        return hashlib.sha256(canonical_json(description).encode()).hexdigest()
