"""Counterfactual texts: pronouns, titles and first names of the other gender."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import permutations

import numpy as np

from fairfrontier.prepare.config.text import Swap, lower
from fairfrontier.prepare.text.occurrence import Rewriting, find_words
from fairfrontier.runtime.seeds import uniforms

# Blanks, then marks that open a phrase; then its first word, or a mark that closes the one before.
# Pictures (emoji, arrows, hearts) and signs that join close it, too; "$5" and "#1" do not.
_NEXT = re.compile(
    r"(\s*)([\"“‘'(\[`*\s]*)"
    r"(?:(\w+)|([.,;:!?)\]}”’»…–—/|+=~^\u2190-\u2bff\U0001f000-\U0001faff]"
    # An entity of HTML may be an opening quotation mark.
    r"|&(?!#?\w+;)|-(?!\w)|$)|)"
)


def swap_gender(
    texts: Iterable[str], vocabulary: Swap, ids: np.ndarray | None = None, seed: int = 0
) -> Rewriting:
    """Exchange the words of two genders.

    ``ids``, shape (n_texts,), decide with the seed what names become; positions by default.

    Notes
    -----
    A word of ``context`` stands alone when nothing follows, or punctuation, an emoji, or a word of
    ``alone_before``; an opening quotation mark or bracket is skipped, and so is what ``link``
    joins ("her or his life" → "his or her life"). Both directions use one rule, hence swapping
    twice restores the text unless it contains a word of ``one_way`` where the rule does not expect
    it ("saw him leave", "hers alone"), or a name. A rule is no parser: "saw her leave" becomes
    "saw his leave".

    First names count only with a capital. In a text equal names get the same new name, and
    different names stay different while the list suffices. Names are drawn, so swapping twice does
    not restore them. O(characters).
    """
    # Name -> the names of the other gender.
    others = {
        name: others
        for names, others in permutations(vocabulary.names.values(), 2)
        for name in names
    }
    changes = vocabulary.changes
    found = find_words(texts, (*changes, *vocabulary.context, *others))
    if others:
        is_name = found.codes >= len(changes) + len(vocabulary.context)
        capital = np.array([word[:1].isupper() for word in found.found], dtype=bool)
        found = found.keep(~is_name | capital)
    stands_alone = _make_rule(vocabulary)
    shares = uniforms(seed, np.arange(len(found.texts)) if ids is None else np.asarray(ids))
    words: list[str] = []
    previous = -1
    renamed: dict[str, str] = {}
    for row, _, end, code in found.cells():
        if row != previous:
            previous, renamed = row, {}
        word = found.names[code]
        if word in others:
            if word not in renamed:
                other = others[word]
                rank = sum(others[name] == other for name in renamed)
                renamed[word] = other[(int(shares[row] * len(other)) + rank) % len(other)]
            words.append(renamed[word])
        elif word in vocabulary.context:
            rule, text = vocabulary.context[word], found.texts[row]
            words.append(rule.alone if stands_alone(lower(word), text, end) else rule.otherwise)
        else:
            words.append(changes[word])
    return found.replace(words)


def _make_rule(vocabulary: Swap) -> Callable[[str, str, int], bool]:
    """Return a function of a word, its text and its end: whether the word stands alone there."""
    before = {lower(word) for word in vocabulary.alone_before}
    link = None
    if vocabulary.link:
        by = "|".join(
            rf"(?<!\w){re.escape(sign)}(?!\w)" if sign[0].isalnum() else re.escape(sign)
            for sign in vocabulary.link.by
        )
        to = "|".join(map(re.escape, vocabulary.link.to))
        link = re.compile(rf"\s*(?:{by})\s*({to})(?!\w)", re.IGNORECASE)

    # (word, end) of the latest text -> the end of the links from there: each is followed once.
    ends: dict[tuple[str, int], int] = {}
    latest = ""

    def stands_alone(word: str, text: str, end: int) -> bool:
        nonlocal latest
        if text is not latest:
            latest = text
            ends.clear()
        passed: list[tuple[str, int]] = []
        # The same word again is another phrase: "saw her and her son".
        while (
            link
            and (word, end) not in ends
            and (joined := link.match(text, end))
            and lower(joined[1]) != word
        ):
            passed.append((word, end))
            word, end = lower(joined[1]), joined.end()
        end = ends.get((word, end), end)
        ends.update(dict.fromkeys(passed, end))
        match = _NEXT.match(text, end)
        blank, opening, follower, closing = match.groups() if match else ("", "", None, None)
        if follower is None:
            return closing is not None
        # A quotation mark that touches the word before it closes a phrase.
        return (bool(opening) and not blank) or lower(follower) in before

    return stands_alone
