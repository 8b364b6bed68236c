"""Encoders of texts: latent semantics of the training texts, or a pretrained sentence encoder.

A fitted one is saved into a folder without pickle: what a bundle takes along.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from fairfrontier.prepare.config.dataset import EncoderConfig, read_encoder
from fairfrontier.prepare.embedding.cache import FOLDER, STORED, VectorCache
from fairfrontier.prepare.source.fetch import fetch
from fairfrontier.prepare.source.progress import COUNT, Progress, show_progress
from fairfrontier.runtime.errors import (
    ConfigError,
    DataError,
    FairfrontierError,
    StoreError,
    UnreachableError,
)
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import canonical_json
from fairfrontier.runtime.text_file import read_json, read_numbers, write_json
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.runtime.version import version

# The name of the progress, before the encoder's.
ENCODING = "encoding by"
AUTO = "auto"
FALLBACK = "tfidf"
PREFERRED = "minilm"
EXTRA = "pip install 'fairfrontier[text]'"
# The files of one that was saved.
FILE, ARRAYS, WEIGHTS, TOKENIZER = "encoder.json", "arrays.npz", "model.onnx", "tokenizer.json"
_log = logging.getLogger(__name__)


class TextEncoder(ABC):
    """Texts to vectors: φ(text) ∈ ℝᵈ of unit length.

    The vector of a text depends on the text and on what the encoder was fitted on, never on the
    texts that are encoded together with it.

    Attributes
    ----------
    name : str
        Its name in results.
    dimension : int
        d, the length of a vector.
    digest : str
        Sha256 of all that shapes the vectors: part of the key of results made from them.
    """

    name: str
    dimension: int
    digest: str

    @abstractmethod
    def fit(self, texts: Iterable[str]) -> Self:
        """Learn from training texts; encoders that were trained elsewhere do nothing."""

    @abstractmethod
    def encode(self, texts: Iterable[str], progress: Progress | None = None) -> np.ndarray:
        """Return the vectors of texts, float32 of shape (n_texts, dimension).

        ``progress`` is called with (name, texts done, texts in total), in addition to the bar of a
        terminal.
        """


def normalise(vectors: np.ndarray) -> np.ndarray:
    """Divide rows by their Euclidean length; rows of zeros stay zero."""
    length = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    unit: np.ndarray = vectors / np.where(length > 0, length, 1.0)
    return unit


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

    name = FALLBACK

    def __init__(self, *, rank: int = 384, words: int = 50_000, home: Path | None = None) -> None:
        self.rank = rank
        self.words = words
        self.folder = None if home is None else home / FOLDER
        self.dtype = np.dtype(np.float32) if home is None else STORED
        self._texts: list[str] = []
        self._directions: np.ndarray | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """All that shapes the vectors but the training texts, ready for JSON."""
        return {
            "encoder": self.name,
            "rank": self.rank,
            "words": self.words,
            "stored": self.dtype.str,
            "source": source_digest([__name__]),
            "versions": {name: version(name) for name in ("numpy", "scipy", "scikit-learn")},
        }

    def fit(self, texts: Iterable[str]) -> Self:
        """Learn words, their weights and directions from training texts."""
        self._texts = list(texts)
        self._directions = None
        content = hashlib.sha256()
        for text in map(str.encode, self._texts):
            content.update(len(text).to_bytes(8, "big") + text)
        self.digest = _digest({**self.settings, "texts": content.hexdigest()})
        known = self.folder and VectorCache.stored_dimension(self.folder, self.digest)
        self.dimension = known or self._fitted().shape[1]
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
        rank = min(self.rank, *table.shape)
        # The bytes of sums depend on the number of threads.
        with limited_threads(1):
            left, values, directions = randomized_svd(
                table, rank, n_iter=5, flip_sign=False, random_state=0
            )
        _, directions = svd_flip(left, directions, u_based_decision=False)
        return np.ascontiguousarray(directions[values > NEGLIGIBLE * values[0]].T)

    def encode(self, texts: Iterable[str], progress: Progress | None = None) -> np.ndarray:
        """Encode texts; see `TextEncoder.encode`."""
        listed = list(texts)
        with show_progress(progress, COUNT) as show:
            report = partial(show, f"{ENCODING} {self.name}")
            if self.folder is not None:
                cache = VectorCache(self.folder, self.digest, self.dimension)
                return cache.look_up(listed, self._project, report)
            vectors = np.empty((len(listed), self.dimension), self.dtype)
            for rows, fresh in self._project(listed):
                vectors[rows] = fresh
                report(int(rows[-1]) + 1, len(listed))
            return vectors.astype(np.float32)

    def _project(self, texts: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield positions and float32 vectors, a chunk at a time."""
        for start in range(0, len(texts), CHUNK):
            directions = self._fitted()
            table = self._words.transform(texts[start : start + CHUNK])
            vectors = normalise(table @ directions).astype(np.float32)
            yield np.arange(start, start + len(vectors)), vectors

    def _fitted(self) -> np.ndarray:
        if self._directions is None:
            self._directions = self._learn(self._texts)
        return self._directions


LIBRARIES = ("onnxruntime", "tokenizers")
# In a batch. Fewer are slower below 64 tokens a text, more are slower above.
BATCH_TOKENS = 512
INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
# What the libraries have loaded.
LOADED = ("_session", "_tokenizer", "_independent")


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
    folder : Path, optional
        Where the files of a saved encoder stand: nothing is fetched, and no vector kept.

    Raises
    ------
    ConfigError
        When ``max_tokens`` is out of range.
    FetchError
        When the weights or the tokenizer cannot be obtained.
    ImportError
        When onnxruntime or tokenizers is not installed.

    Notes
    -----
    All texts of a batch have the same number of tokens, so that nothing is padded.
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
        folder: Path | None = None,
    ) -> None:
        if not 3 <= max_tokens <= config.positions:
            raise ConfigError(
                f"max_tokens is {max_tokens}, and {config.encoder} takes 3 to {config.positions}.",
                "Give a number between.",
            )
        import onnxruntime  # noqa: F401
        import tokenizers  # noqa: F401

        self.config, self.max_tokens, self.threads = config, max_tokens, threads
        self.name, self.dimension = config.encoder, config.dimension
        self.digest = digest_transformer(config, max_tokens)
        self.cache = None if folder else VectorCache(home / FOLDER, self.digest, self.dimension)
        if folder is not None:
            # They are loaded later, when the current folder may be another.
            self._weights, self._tokens = (
                folder.absolute() / name for name in (WEIGHTS, TOKENIZER)
            )
        else:
            self._weights, self._tokens = (
                fetch(file.sources, file.sha256, home, progress)
                for file in (config.weights, config.tokenizer)
            )

    def fit(self, texts: Iterable[str]) -> Self:  # noqa: ARG002
        """Do nothing: it was trained elsewhere."""
        return self

    def encode(self, texts: Iterable[str], progress: Progress | None = None) -> np.ndarray:
        """Encode texts, float32 of shape (n_texts, dimension); cached ones are looked up.

        Rows have length 1 to within 10⁻³, because they are rounded to half precision. Repeated
        texts count once in ``progress``. StoreError for files that the libraries cannot use.
        """
        listed = list(texts)
        try:
            if self.cache is not None:
                with show_progress(progress, COUNT) as show:
                    report = partial(show, f"{ENCODING} {self.name}")
                    return self.cache.look_up(listed, self._batches, report)
            vectors = np.empty((len(listed), self.dimension), dtype=np.float32)
            for positions, fresh in self._batches(listed):
                vectors[positions] = fresh
            return vectors
        except FairfrontierError:
            raise
        # Libraries raise almost anything for bytes that nobody wrote.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            raise StoreError(
                f"The encoder of texts {self._weights} cannot be run: {reason.rstrip('.')}.",
                "Restore its folder from where it was copied, or export the bundle again.",
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what libraries have loaded, so that joblib's workers load it themselves."""
        return {key: value for key, value in vars(self).items() if key not in LOADED}

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield positions and vectors of batches, from the longest texts to the shortest.

        Texts that are cut to the same tokens are run once.
        """
        alike: dict[bytes, list[int]] = {}
        for position, text in enumerate(texts):
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
        pool = ThreadPoolExecutor(self.threads)
        try:
            # In their order, several at once.
            runs = pool.map(self._run, (np.stack([tokens_of[i] for i in each]) for each in batches))
            for batch, rows in zip(batches, runs, strict=True):
                counts = [len(members[i]) for i in batch]
                yield np.concatenate([members[i] for i in batch]), np.repeat(rows, counts, axis=0)
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
    return _digest(description)


def _digest(description: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(description).encode()).hexdigest()


def choose_encoder(
    name: str = AUTO,
    *,
    home: Path,
    max_tokens: int = 256,
    threads: int = 1,
    progress: Progress | None = None,
) -> TextEncoder:
    """Return an encoder that is not fitted yet.

    ``name`` is ``"tfidf"``, a name of ``conf/encoders``, or ``"auto"``: MiniLM, or TF-IDF with a
    warning in the log where MiniLM's libraries are not installed or its files cannot be reached.
    The encoder's ``name`` says which. ``max_tokens`` and ``threads`` are those of a sentence
    encoder; ``progress`` is called with (name, bytes that arrived, bytes in total or None) while
    files are fetched.

    Raises
    ------
    ConfigError
        When the name is unknown, a parameter is invalid, or a named encoder lacks its libraries.
    UnreachableError
        When the files of a named encoder cannot be reached.
    FetchError
        When its files differ from those stated, or the disk is full; under ``"auto"`` too.
    """
    latent = LatentSemantic(home=home)
    if name == FALLBACK:
        return latent
    config = read_encoder(PREFERRED if name == AUTO else name, home, also=(AUTO, FALLBACK))
    try:
        return TransformerEncoder(
            config, home, max_tokens=max_tokens, threads=threads, progress=progress
        )
    except ImportError as error:
        reason = f"{error.name or error} is not installed: {EXTRA}"
        if name != AUTO:
            raise _lacking(name, error) from None
    except UnreachableError as error:
        if name != AUTO:
            raise
        reason = error.fault.rstrip(".")
    _log.warning("Texts are encoded by TF-IDF instead of %s, because %s.", config.encoder, reason)
    return latent


_DETERMINED: dict[tuple[str, Path], str] = {}


def determine_encoder(name: str, home: Path, progress: Progress | None = None) -> str:
    """Return the name of the encoder that ``name`` means on this machine.

    ``"auto"`` tries to fetch the files where they are missing. The answer is the same throughout a
    process, so that the key of a fit and the fit itself agree.
    """
    if name != AUTO:
        return name
    if (name, home) not in _DETERMINED:
        _DETERMINED[name, home] = choose_encoder(name, home=home, progress=progress).name
    return _DETERMINED[name, home]


def digest_encoder(name: str, home: Path, max_tokens: int) -> str:
    """Return a digest of an encoder (not ``"auto"``) that needs neither its files nor texts."""
    if name == FALLBACK:
        return _digest(LatentSemantic(home=home).settings)
    try:
        return digest_transformer(read_encoder(name, home), max_tokens)
    except ImportError as error:
        raise _lacking(name, error) from None


def _lacking(name: str, error: ImportError) -> ConfigError:
    return ConfigError(
        f"The encoder {name!r} of texts needs {error.name or error}, which is not installed.",
        f"Install it ({EXTRA}), or take encoder: {FALLBACK}.",
    )


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
    """Read what `save_encoder` wrote; ConfigError where its libraries are missing.

    Vectors are those of the study's cache, and not kept.
    """
    facts = read_json(folder / FILE)
    name = facts["encoder"]
    if name != FALLBACK:
        config = EncoderConfig.model_validate(facts["config"])
        tokens = int(facts["max_tokens"])
        try:
            return TransformerEncoder(
                config, folder, max_tokens=tokens, threads=threads, folder=folder
            )
        except ImportError as error:
            raise _lacking(name, error) from None
    from sklearn.feature_extraction.text import TfidfVectorizer

    encoder = LatentSemantic()
    # What it learnt from stays behind.
    weight, encoder._directions = read_numbers(folder / ARRAYS, "weight", "directions")
    encoder.dimension, encoder.dtype = encoder._directions.shape[1], STORED
    encoder._words = TfidfVectorizer(
        sublinear_tf=True, strip_accents="unicode", vocabulary=facts["words"]
    )
    encoder._words.idf_ = weight
    return encoder
