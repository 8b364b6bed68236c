"""Fitted encoders of texts in a folder, without pickle: what a bundle takes along.

Kept apart from the encoders, whose sources are part of the keys of all vectors in the cache.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fairfrontier.prepare.config.text import EncoderConfig
from fairfrontier.prepare.embedding.cache import STORED
from fairfrontier.prepare.embedding.encoder import (
    EXTRA,
    FALLBACK,
    LIBRARIES,
    LatentSemantic,
    TextEncoder,
    TransformerEncoder,
    list_texts,
)
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.runtime.errors import ConfigError, FairfrontierError, StoreError
from fairfrontier.runtime.text_file import read_json, read_numbers, write_json

FILE, ARRAYS, WEIGHTS, TOKENIZER = "encoder.json", "arrays.npz", "model.onnx", "tokenizer.json"
LOADED = ("_session", "_tokenizer", "_independent")


class SavedLatentSemantic(LatentSemantic):
    """TF-IDF and directions that were fitted before; vectors are those of the study's cache."""

    def encode(self, texts: Iterable[str], progress: Progress | None = None) -> np.ndarray:
        """Encode texts, float32 rounded to half precision, of shape (n_texts, dimension)."""
        return super().encode(texts, progress).astype(STORED).astype(np.float32)


class SavedTransformer(TransformerEncoder):
    """A sentence encoder whose files stand in a folder; vectors are not kept."""

    def __init__(self, folder: Path, config: EncoderConfig, max_tokens: int, threads: int) -> None:
        # The files need not be fetched.
        self.config, self.max_tokens, self.threads = config, max_tokens, threads
        # They are loaded later, when the current folder may be another.
        self._folder = folder = folder.absolute()
        self._weights, self._tokens = folder / WEIGHTS, folder / TOKENIZER

    def encode(self, texts: Iterable[str], progress: Progress | None = None) -> np.ndarray:  # noqa: ARG002
        """Encode texts, float32 of shape (n_texts, dimension); StoreError for broken files."""
        listed = list_texts(texts)
        vectors = np.empty((len(listed), self.dimension), dtype=np.float32)
        try:
            for positions, fresh in self._batches(listed):
                vectors[positions] = fresh
        except FairfrontierError:
            raise
        # Libraries raise almost anything for bytes that nobody wrote.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            raise StoreError(
                f"The encoder of texts in {self._folder} cannot be run: {reason.rstrip('.')}.",
                "Export the bundle again, or restore the folder from where it was copied.",
            ) from error
        return vectors

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what libraries have loaded, so that joblib's workers load it themselves."""
        return {key: value for key, value in vars(self).items() if key not in LOADED}


def save_encoder(encoder: TextEncoder, folder: Path) -> None:
    """Write a fitted encoder into a new folder: words and arrays, or its graph and tokenizer."""
    folder.mkdir()
    if isinstance(encoder, TransformerEncoder):
        facts = {"config": encoder.config.model_dump(mode="json"), "max_tokens": encoder.max_tokens}
        shutil.copyfile(encoder._weights, folder / WEIGHTS)
        shutil.copyfile(encoder._tokens, folder / TOKENIZER)
    else:
        assert isinstance(encoder, LatentSemantic)  # noqa: S101
        directions, words = encoder._fitted(), encoder._words
        facts = {"words": words.get_feature_names_out().tolist()}
        np.savez(folder / ARRAYS, weight=words.idf_, directions=directions)
    write_json({"encoder": encoder.name, **facts}, folder / FILE)


def load_encoder(folder: Path, threads: int = 1) -> TextEncoder:
    """Read what `save_encoder` wrote; ConfigError where its libraries are missing."""
    facts = read_json(folder / FILE)
    if facts["encoder"] == FALLBACK:
        return _load_latent(folder, facts["words"])
    if lacking := [name for name in LIBRARIES if find_spec(name) is None]:
        raise ConfigError(
            f"The encoder {facts['encoder']!r} of texts needs {lacking[0]}, which is not "
            "installed.",
            f"Install it: {EXTRA}",
        )
    config = EncoderConfig.model_validate(facts["config"])
    if facts["max_tokens"] not in range(3, config.positions + 1):
        raise ValueError(f"it cannot take {facts['max_tokens']} tokens")
    return SavedTransformer(folder, config, int(facts["max_tokens"]), threads)


def _load_latent(folder: Path, words: list[str]) -> SavedLatentSemantic:
    from sklearn.feature_extraction.text import TfidfVectorizer

    weight, directions = read_numbers(folder / ARRAYS, "weight", "directions")
    encoder = SavedLatentSemantic()
    encoder._words = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", vocabulary=words)
    encoder._words.idf_ = weight
    # What it learnt from stays behind.
    encoder._texts, encoder._directions = [], directions
    return encoder
