"""Counterfactual texts: every term that is found becomes another one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fairfrontier.prepare.config.vocabulary import Terms
from fairfrontier.prepare.text.occurrence import Occurrences, Rewriting, find_words
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.seeds import uniforms


def find_terms(texts: Iterable[str], vocabulary: Terms) -> Occurrences:
    """Find the terms of a vocabulary; see ``occurrence.find_words``."""
    return find_words(texts, vocabulary.terms)


def set_term(found: Occurrences, term: str) -> Rewriting:
    """Set every term that was found to one.

    Parameters
    ----------
    found : Occurrences
    term : str
        One of those that were looked for.

    Returns
    -------
    Rewriting
        Texts without a term are as they were.

    Raises
    ------
    ConfigError
        When it is none of them.
    """
    if term not in found.names:
        raise ConfigError(f"There is no term {term!r}.", nearest(term, found.names))
    return found.replace([term] * len(found))


def make_versions(found: Occurrences) -> Iterator[tuple[str, Rewriting]]:
    """Yield every version of the texts: (term, texts in which it stands for all terms).

    Yields
    ------
    (str, Rewriting)
        As many as there are terms, in their order; one is made at a time.

    Notes
    -----
    A text with two different terms has both set to the same one, so that its versions differ in
    one word only, and none of them is the text itself; a text with one term is one of its own
    versions, save that a hyphen within it becomes a blank. Articles and grammatical number stay:
    "an old man" becomes "an young man". Plurals are other words, and stay unless they are terms.

    References
    ----------
    S. Garg, V. Perot, N. Limtiaco, A. Taly, E. Chi, A. Beutel. Counterfactual fairness in text
    classification through robustness. AIES 2019. M. Yurochkin, Y. Sun. SenSeI. ICLR 2021, app. C.
    """
    for term in found.names:
        yield term, set_term(found, term)


def list_versions(text: str, vocabulary: Terms) -> dict[str, str]:
    """Return all versions of one text, term -> version; see ``make_versions``."""
    found = find_terms([text], vocabulary)
    return {term: version.texts[0] for term, version in make_versions(found)}


def draw_version(
    found: Occurrences, ids: np.ndarray, seed: int, before: Sequence[int] = ()
) -> Rewriting:
    """Set the terms of each text to one that is drawn for it.

    t_i ~ U(terms that do not stand in text i and were not drawn for it before); of all terms where
    they all stand there, and with those drawn before where no other is left.

    Parameters
    ----------
    found : Occurrences
    ids : ndarray of integers, shape (n_texts,)
        Row ids: a text's term depends on its id and the seed, not on the other texts.
    seed : int
    before : sequence of int
        Seeds of the versions drawn before this one.
    """
    holding = np.flatnonzero(found.counts)
    drawn = np.stack([uniforms(each, np.asarray(ids)[holding]) for each in (*before, seed)], axis=1)
    bounds = np.searchsorted(found.rows, holding)
    words: list[str] = []
    for shares, codes in zip(drawn, np.split(found.codes, bounds[1:]), strict=False):
        present = set(codes.tolist())
        others = [name for code, name in enumerate(found.names) if code not in present]
        left: list[str] = []
        for share in shares:
            left = left or list(others or found.names)
            term = left.pop(int(share * len(left)))
        words += [term] * len(codes)
    return found.replace(words)
