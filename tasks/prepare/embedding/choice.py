"""Which encoder a study gets: the one that it names, or what this machine has."""

from __future__ import annotations

import logging
from pathlib import Path

from tasks.prepare.download import FetchError, Progress
from tasks.prepare.embedding.base import TextEncoder
from tasks.prepare.embedding.config import read_encoder
from tasks.prepare.embedding.latent import LatentSemantic
from tasks.prepare.embedding.transformer import TransformerEncoder
from tasks.runtime.errors import ConfigError, nearest

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
    """Return an encoder, not fitted yet.

    Parameters
    ----------
    name : str
        ``"tfidf"``, a name of ``conf/encoders``, or ``"auto"``: MiniLM where it can be had, else
        TF-IDF with a warning in the log. The encoder's ``name`` says which it became, and its
        ``digest`` is part of the key of what is made of the vectors.
    home : Path
        The project.
    max_tokens : int
        Where a sentence encoder cuts longer texts.
    rank, random_state : int
        Of TF-IDF's singular directions.
    threads : int
        Of either.
    progress : callable, optional
        Called with (name, bytes that arrived, bytes in all or None) while files are fetched.

    Returns
    -------
    TextEncoder

    Raises
    ------
    ConfigError
        When the name is unknown, a parameter cannot be, or a named encoder lacks its libraries.
    FetchError
        When the files of a named encoder cannot be had.
    """
    latent = LatentSemantic(rank=rank, threads=threads, random_state=random_state)
    if name == FALLBACK:
        return latent
    known = [AUTO, FALLBACK, *(each.stem for each in (home / "conf" / "encoders").glob("*.yaml"))]
    if name not in known:
        raise ConfigError(f"There is no encoder {name!r}.", nearest(name, known))
    config = read_encoder(PREFERRED if name == AUTO else name, home)
    try:
        return TransformerEncoder(
            config, home, max_tokens=max_tokens, threads=threads, progress=progress
        )
    except ImportError as error:
        reason = f"{error.name or error} is not installed: {EXTRA}"
        if name != AUTO:
            raise ConfigError(
                f"The encoder {name!r} cannot run, since {error.name or error} is not installed.",
                f"Install it ({EXTRA}), or take encoder: {FALLBACK}.",
            ) from None
    except FetchError as error:
        if name != AUTO:
            raise
        reason = error.fault.rstrip(".")
    _log.warning("Texts are encoded by TF-IDF instead of %s, because %s.", config.encoder, reason)
    return latent
