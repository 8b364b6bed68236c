"""Counterfactual texts: every term that is found becomes another one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairfrontier.prepare.text.occurrence import Occurrences, Rewriting
from fairfrontier.runtime.seeds import uniforms


def set_term(found: Occurrences, term: str) -> Rewriting:
    """Replace every term that was found by one; texts without a term stay as they were.

    A text with two different terms has both set to the same one, so that its versions differ in
    one word only, and none of them is the text itself; a text with one term is one of its own
    versions, except that a hyphen within it becomes a blank. Articles and grammatical number stay:
    "an old man" becomes "an young man". Plurals are other words, and stay unless they are terms.

    References
    ----------
    S. Garg, V. Perot, N. Limtiaco, A. Taly, E. Chi, A. Beutel. Counterfactual fairness in text
    classification through robustness. AIES 2019. M. Yurochkin, Y. Sun. SenSeI. ICLR 2021, app. C.
    """
    return found.replace([term] * len(found))


def draw_version(
    found: Occurrences, ids: np.ndarray, seed: int, before: Sequence[int] = ()
) -> Rewriting:
    """Replace the terms of each text by one that is drawn for it.

    t_i ~ U(terms that are neither in text i nor drawn for it before); from all terms where the text
    contains them all, and including those drawn before where no other remains. A text's term
    depends on its id and the seed, not on the other texts; ``before`` are the seeds of the
    versions drawn before this one.
    """
    holding = np.flatnonzero(found.counts)
    ids = np.asarray(ids)[holding]
    drawn = np.stack([uniforms(number, ids) for number in (*before, seed)], axis=1)
    bounds = np.searchsorted(found.rows, holding)
    words: list[str] = []
    for shares, codes in zip(drawn, np.split(found.codes, bounds[1:]), strict=False):
        others = np.delete(np.array(found.names, dtype=object), codes).tolist()
        remaining: list[str] = []
        for share in shares:
            remaining = remaining or list(others or found.names)
            term = remaining.pop(int(share * len(remaining)))
        words += [term] * len(codes)
    return found.replace(words)
