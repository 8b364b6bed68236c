"""Which encoder a study uses: the one that it names, or the best that this machine has."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from fairfrontier.prepare.config.text import read_encoder
from fairfrontier.prepare.embedding.base import TextEncoder
from fairfrontier.prepare.embedding.latent import LatentSemantic
from fairfrontier.prepare.embedding.transformer import TransformerEncoder, digest_transformer
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.runtime.errors import ConfigError, UnreachableError
from fairfrontier.runtime.store import canonical_json

AUTO = "auto"
FALLBACK = "tfidf"
PREFERRED = "minilm"
EXTRA = "pip install 'fairfrontier[text]'"
_log = logging.getLogger(__name__)


def choose_encoder(
    name: str = AUTO,
    *,
    home: Path,
    max_tokens: int = 256,
    rank: int = 384,
    threads: int = 1,
    random_state: int = 0,
    progress: Progress | None = None,
) -> TextEncoder:
    """Return an encoder that is not fitted yet.

    ``name`` is ``"tfidf"``, a name of ``conf/encoders``, or ``"auto"``: MiniLM, or TF-IDF with a
    warning in the log where MiniLM's libraries are not installed or its files cannot be reached.
    The encoder's ``name`` says which. ``max_tokens`` and ``threads`` are those of a sentence
    encoder, ``rank`` and ``random_state`` those of TF-IDF's singular directions; ``progress`` is
    called with (name, bytes that arrived, bytes in total or None) while files are fetched.

    Raises
    ------
    ConfigError
        When the name is unknown, a parameter is invalid, or a named encoder lacks its libraries.
    UnreachableError
        When the files of a named encoder cannot be reached.
    FetchError
        When its files differ from those stated, or the disk is full; under ``"auto"`` too.
    """
    # Without threads, on which its bytes would depend.
    latent = LatentSemantic(rank=rank, random_state=random_state, home=home)
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
        settings = LatentSemantic(home=home).settings
        return hashlib.sha256(canonical_json(settings).encode()).hexdigest()
    try:
        return digest_transformer(read_encoder(name, home), max_tokens)
    except ImportError as error:
        raise _lacking(name, error) from None


def _lacking(name: str, error: ImportError) -> ConfigError:
    return ConfigError(
        f"The encoder {name!r} cannot run, since {error.name or error} is not installed.",
        f"Install it ({EXTRA}), or take encoder: {FALLBACK}.",
    )
