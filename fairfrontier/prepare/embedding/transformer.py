"""Pretrained sentence encoders: an ONNX graph run by onnxruntime."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from fairfrontier.prepare.config.text import EncoderConfig
from fairfrontier.prepare.embedding.base import ENCODING, TextEncoder, list_texts, normalise
from fairfrontier.prepare.embedding.cache import FOLDER, STORED, VectorCache
from fairfrontier.prepare.source.fetch import fetch
from fairfrontier.prepare.source.progress import COUNT, Progress, show_progress
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import canonical_json
from fairfrontier.runtime.version import version

LIBRARIES = ("onnxruntime", "tokenizers")
# In a batch. Fewer are slower below 64 tokens a text, more are slower above.
BATCH_TOKENS = 512
# Some seconds of work: what is lost when the process is killed.
FLUSH_TEXTS = 256
# Texts that are split into tokens between two signs of progress, and its name.
SHOWN_TEXTS, SPLITTING = 1000, "tokens for"
INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


class TransformerEncoder(TextEncoder):
    """Mean of the token states of a transformer, divided by its length.

    φ(text) = m / ‖m‖,  m = (1/L) Σ_t h_t,  over the L tokens of the text, [CLS] and [SEP] included

    Parameters
    ----------
    config : EncoderConfig
    home : Path
        The project, in whose ``data/cache`` files and vectors are kept.
    max_tokens : int
        Longer texts are cut, in 3, …, ``config.positions``. The model card's 256 by default.
    threads : int
        Batches that are run at once, each by one thread of onnxruntime; at least 1.
    progress : callable, optional
        Called with (name, bytes that arrived, bytes in total or None) while files are fetched.

    Raises
    ------
    ConfigError
        When ``max_tokens`` or ``threads`` is out of range.
    FetchError
        When the weights or the tokenizer cannot be obtained.
    ImportError
        When onnxruntime or tokenizers is not installed.

    Notes ----- All texts of a batch have the same number of tokens, so that nothing is padded.
    MiniLM's activations are float32, and a text has the same bytes alone and in any batch of 2 to
    32 texts of 7 to 128 tokens, with one thread or two, on the processor where this was measured. A
    graph with quantised activations scales them by the entire batch: when a graph is loaded, a few
    texts are run alone and together, and where a byte differs every text is run alone from then on.
    Between processors and versions of onnxruntime sums are rounded differently. Vectors are rounded
    to half precision, whether they come from the cache or not.

    Loading takes some 2 s and 270 MB. O(L · dimension² + L² · dimension) for a text.

    References
    ----------
    N. Reimers, I. Gurevych. Sentence-BERT. EMNLP 2019, section 3 (mean pooling).
    W. Wang, F. Wei, L. Dong, H. Bao, N. Yang, M. Zhou. MiniLM. NeurIPS 2020.
    """

    def __init__(
        self,
        config: EncoderConfig,
        home: Path,
        *,
        max_tokens: int = 256,
        threads: int = 1,
        progress: Progress | None = None,
    ) -> None:
        if not 3 <= max_tokens <= config.positions:
            raise ConfigError(
                f"max_tokens is {max_tokens}, and {config.encoder} takes 3 to {config.positions}.",
                "Give a number between.",
            )
        if threads < 1:
            raise ConfigError(f"threads is {threads}.", "Give 1 or more.")
        import onnxruntime  # noqa: F401
        import tokenizers  # noqa: F401

        self.config = config
        self.max_tokens = max_tokens
        self.threads = threads
        self._weights, self._tokens = (
            fetch(file.sources, file.sha256, home, progress)
            for file in (config.weights, config.tokenizer)
        )
        self.cache = VectorCache(home / FOLDER, self.digest, self.dimension)

    @property
    def name(self) -> str:
        """The name of its YAML."""
        return self.config.encoder

    @property
    def dimension(self) -> int:
        """d, the length of a vector."""
        return self.config.dimension

    @cached_property
    def digest(self) -> str:  # type: ignore[override]
        """Sha256 of both files, of what is done with them, and of the libraries' versions."""
        return digest_transformer(self.config, self.max_tokens)

    def fit(self, texts: Iterable[str]) -> Self:  # noqa: ARG002
        """Do nothing: it was trained elsewhere."""
        return self

    def encode(self, texts: Iterable[str], progress: Progress | None = None) -> np.ndarray:
        """Encode texts, float32 of shape (n_texts, dimension); cached ones are looked up.

        Rows have length 1 to within 10⁻³, because they are rounded to half precision. Repeated
        texts count once in ``progress``.
        """
        listed = list_texts(texts)
        with show_progress(progress, COUNT) as show:
            report = partial(show, f"{ENCODING} {self.name}")
            return self.cache.look_up(listed, partial(self._flushes, show=show), report)

    def _flushes(
        self, texts: Sequence[str], show: Progress
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield positions and vectors, in batches worth a transaction."""
        waiting: list[tuple[np.ndarray, np.ndarray]] = []
        for batch in self._batches(texts, show):
            waiting.append(batch)
            if sum(len(positions) for positions, _ in waiting) >= FLUSH_TEXTS:
                yield _join(waiting)
                waiting = []
        if waiting:
            yield _join(waiting)

    def _batches(
        self, texts: Sequence[str], show: Progress = lambda *_: None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield positions and vectors of batches, from the longest texts to the shortest.

        Texts that are cut to the same tokens are run once.
        """
        alike: dict[bytes, list[int]] = {}
        for position, text in enumerate(texts):
            if position and position % SHOWN_TEXTS == 0:
                show(f"{SPLITTING} {self.name}", position, len(texts))
            # One by one: the library's own batches would take every core.
            tokens = np.array(self._tokenizer.encode(text).ids, dtype=np.int64)
            alike.setdefault(tokens.tobytes(), []).append(position)
        tokens_of = [np.frombuffer(content, dtype=np.int64) for content in alike]
        members = list(alike.values())
        lengths = np.array([tokens.size for tokens in tokens_of], dtype=np.int64)
        batches: list[np.ndarray] = []
        for length in np.unique(lengths)[::-1]:
            equal = np.flatnonzero(lengths == length)
            size = max(1, BATCH_TOKENS // int(length)) if self._independent else 1
            batches += [equal[start : start + size] for start in range(0, len(equal), size)]
        vectors = self._map(
            lambda batch: self._run(np.stack([tokens_of[i] for i in batch])), batches
        )
        for batch, rows in zip(batches, vectors, strict=True):
            counts = [len(members[i]) for i in batch]
            yield np.concatenate([members[i] for i in batch]), np.repeat(rows, counts, axis=0)

    def _map(
        self, run: Callable[[np.ndarray], np.ndarray], batches: Sequence[np.ndarray]
    ) -> Iterator[np.ndarray]:
        """Run batches in their order, several at once where that is allowed."""
        if self.threads == 1 or len(batches) < 2:
            yield from map(run, batches)
            return
        # Made before several threads could make it.
        _ = self._session
        pool = ThreadPoolExecutor(self.threads)
        try:
            yield from pool.map(run, batches)
        finally:
            pool.shutdown(cancel_futures=True)

    def _run(self, ids: np.ndarray) -> np.ndarray:
        """Return float16 of shape (n_texts, dimension) for token numbers (n_texts, n_tokens)."""
        values = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        inputs = {item.name: values[item.name] for item in self._session.get_inputs()}
        states = self._session.run(None, inputs)[0]
        # Nothing is padded, so that the mean under the mask is the mean.
        vectors = normalise(states.mean(axis=1, dtype=np.float64))
        if vectors.shape != (len(ids), self.dimension) or not np.isfinite(vectors).all():
            raise DataError(
                f"The encoder {self.name} gives {vectors.shape[1:]} numbers for a text or not "
                f"finite ones, and {self.dimension} are expected.",
                "Correct dimension in its YAML, or the weights.",
            )
        return vectors.astype(STORED)

    @cached_property
    def _independent(self) -> bool:
        """Whether texts of a batch do not affect each other, by trial on random tokens."""
        generator = np.random.default_rng(0)
        ids = generator.integers(
            self._tokenizer.get_vocab_size(), size=(8, min(16, self.max_tokens))
        )
        alone = [self._run(row[None]) for row in ids]
        return bool((np.concatenate(alone) == self._run(ids)).all())

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self._tokens))
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.max_tokens)
        return tokenizer

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # On CPUs onnxruntime's fused layer norms are slower than their parts.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        session = onnxruntime.InferenceSession(
            str(self._weights), options, providers=["CPUExecutionProvider"]
        )
        unknown = {item.name for item in session.get_inputs()} - INPUTS
        if unknown:
            raise ConfigError(
                f"The graph of {self.name} wants {', '.join(sorted(unknown))}.",
                f"Take one whose inputs are among {', '.join(sorted(INPUTS))}.",
            )
        return session


def _join(batches: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    positions, vectors = zip(*batches, strict=True)
    return np.concatenate(positions), np.concatenate(vectors)


def digest_transformer(config: EncoderConfig, max_tokens: int) -> str:
    """Return the digest of a sentence encoder, without its files.

    An ImportError is raised when onnxruntime or tokenizers is not installed.
    """
    description = {
        "weights": config.weights.sha256,
        "tokenizer": config.tokenizer.sha256,
        "max_tokens": max_tokens,
        "pooling": "mean",
        "length": "unit",
        "stored": STORED.str,
        "source": source_digest([__name__]),
        "versions": {library: version(library) for library in LIBRARIES},
    }
    return hashlib.sha256(canonical_json(description).encode()).hexdigest()
