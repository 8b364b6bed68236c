"""Occurrences of words in texts, and counterfactual versions in which they are replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby, permutations
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import GAP, Swap, Terms, VersionRule, lower, name_word
from fairfrontier.prepare.config.section import PartName
from fairfrontier.runtime.seeds import derive_integer, uniforms

EXCERPT = 30


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Occurrences of the words ``names`` in texts.

    texts[rows[i]][starts[i]:ends[i]] is an occurrence of names[codes[i]]; all are int64 of shape
    (n_found,). Rows ascend; within a text occurrences ascend and do not overlap.
    """

    texts: tuple[str, ...]
    names: tuple[str, ...]
    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    codes: np.ndarray

    def __len__(self) -> int:
        return int(self.rows.size)

    @property
    def found(self) -> Iterator[str]:
        """Yield the occurrences as they are in the texts."""
        for row, start, end, _ in self.cells():
            yield self.texts[row][start:end]

    @property
    def counts(self) -> np.ndarray:
        """Occurrences in each text, int64, shape (n_texts,)."""
        return np.bincount(self.rows, minlength=len(self.texts))

    def keep(self, mask: np.ndarray) -> Occurrences:
        """Return the occurrences where the mask is true."""
        columns = (self.rows, self.starts, self.ends, self.codes)
        return Occurrences(self.texts, self.names, *(column[mask] for column in columns))

    def replace(self, words: Iterable[str]) -> Rewriting:
        """Replace every occurrence by one of the words, in their order, adopting its case."""
        pairs = zip(self.found, words, strict=True)
        return Rewriting(self, tuple(match_case(word, old) for old, word in pairs))

    def cells(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (row, start, end, code) of every occurrence."""
        columns = (self.rows, self.starts, self.ends, self.codes)
        yield from zip(*(column.tolist() for column in columns), strict=True)


@dataclass(frozen=True, eq=False)
class Rewriting:
    """Texts in which occurrences were replaced by ``words``, shape (n_found,)."""

    occurrences: Occurrences
    words: tuple[str, ...]
    texts: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Write the texts."""
        texts = list(self.occurrences.texts)
        changes = zip(self.occurrences.cells(), self.words, strict=True)
        for row, group in groupby(changes, key=lambda change: change[0][0]):
            pieces: list[str] = []
            position = 0
            for (_, start, end, _), word in group:
                pieces += [texts[row][position:start], word]
                position = end
            texts[row] = "".join([*pieces, texts[row][position:]])
        object.__setattr__(self, "texts", tuple(texts))

    def table(self, ids: Sequence[Any] | np.ndarray | None = None) -> pd.DataFrame:
        """Return the words that were changed, one row each, for people to inspect.

        Columns: ``row`` (id of the text, its position by default), ``position`` (of the first
        character in the old text), ``from``, ``to``, and an excerpt of the text, ``before`` and
        ``after``, with ``EXCERPT`` characters on each side.
        """
        changes = []
        previous, shift = -1, 0
        for (row, start, end, _), word in zip(self.occurrences.cells(), self.words, strict=True):
            shift = shift if row == previous else 0
            previous = row
            text = self.occurrences.texts[row]
            if word != text[start:end]:
                before = _excerpt(text, start, end)
                after = _excerpt(self.texts[row], start + shift, start + shift + len(word))
                name = row if ids is None else ids[row]
                changes.append((name, start, text[start:end], word, before, after))
            shift += len(word) - (end - start)
        return pd.DataFrame(changes, columns=["row", "position", "from", "to", "before", "after"])


def _excerpt(text: str, start: int, end: int) -> str:
    left, right = max(0, start - EXCERPT), end + EXCERPT
    return ("…" if left else "") + text[left:right] + ("…" if right < len(text) else "")


def find_words(texts: Iterable[str], words: Iterable[str]) -> Occurrences:
    """Find whole words, or terms of several words, in texts.

    Case is ignored. No letter, digit or underscore (of Unicode) may be adjacent to a word: "gay" is
    found in "gay's" and "anti-gay", not in "gays" or "gay_rights". Blanks or one hyphen may
    separate the words of a term. Of words that begin at one position the longest is found, and
    words do not overlap. O(characters): a second for 100,000 comments of 400 characters, for 50
    words.
    """
    texts, names = tuple(texts), tuple(words)
    if not names:
        return Occurrences(texts, names, *np.empty((4, 0), dtype=np.int64))
    pattern = _compile(names)
    codes = {name_word(name): code for code, name in enumerate(names)}
    cells = [
        (row, match.start(), match.end(), codes[name_word(match[0])])
        for row, text in enumerate(texts)
        for match in pattern.finditer(lower(text))
    ]
    table = np.array(cells, dtype=np.int64).reshape(-1, 4)
    return Occurrences(texts, names, *table.T)


def match_case(word: str, model: str) -> str:
    """Return a word in the case of a model.

    In capitals when the model is all capitals; with every word capitalised when the model begins
    with a capital; else as it is.
    """
    if len(model) > 1 and model.isupper():
        return word.upper()
    if model[:1].isupper():
        return re.sub(r"(?<![\w'’])\w", lambda match: match[0].upper(), word)
    return word


@lru_cache(maxsize=64)
def _compile(words: tuple[str, ...]) -> re.Pattern[str]:
    """Compile a pattern for lower-case text: a tree of letters, so that one pass finds them all."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for letter in name_word(word):
            node = node.setdefault(letter, {})
        node[""] = {}
    return re.compile(rf"(?<!\w)(?:{_write(tree)})(?!\w)")


def _write(node: dict[str, Any]) -> str:
    branches = [
        (GAP if letter == " " else re.escape(letter)) + _write(below)
        for letter, below in node.items()
        if letter
    ]
    if not branches:
        return ""
    text = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    # Greedy: the longest word is tried first.
    return f"(?:{text})?" if "" in node else text


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

    def stands_alone(word: str, text: str, end: int) -> bool:
        # The same word again is another phrase: "saw her and her son".
        while link and (joined := link.match(text, end)) and lower(joined[1]) != word:
            word, end = lower(joined[1]), joined.end()
        match = _NEXT.match(text, end)
        blank, opening, follower, closing = match.groups() if match else ("", "", None, None)
        if follower is None:
            return closing is not None
        # A quotation mark that touches the word before it closes a phrase.
        return (bool(opening) and not blank) or lower(follower) in before

    return stands_alone


AS_WRITTEN = "as written"
SWAPPED = "swapped"


@dataclass(frozen=True, eq=False)
class Version:
    """One counterfactual version of the texts of some rows, which ``write`` makes."""

    name: str
    write: Callable[[], Rewriting]


@dataclass(frozen=True, eq=False)
class Versions:
    """The versions of a part's texts in one counterfactual set.

    ``rows`` are the positions of the rows that have versions, ascending, and ``ids`` their ids;
    every version is of these rows.
    """

    rows: np.ndarray
    ids: np.ndarray
    versions: tuple[Version, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the versions, in their order."""
        return tuple(version.name for version in self.versions)

    @property
    def texts(self) -> Iterator[str]:
        """Yield the texts of all versions."""
        for version in self.versions:
            yield from version.write().texts

    def table(self) -> pd.DataFrame:
        """Return every word that is replaced; see `Rewriting.table`, with a column ``version``."""
        tables = [
            version.write().table(self.ids).assign(version=version.name)
            for version in self.versions
        ]
        return pd.concat(tables, ignore_index=True)


def make_versions(
    name: str, rule: VersionRule, texts: Sequence[str], ids: np.ndarray, part: PartName, seed: int
) -> Versions:
    """Return the versions of the rows of a part that contain a known term, or a word to swap.

    Terms that are unknown in training are plain words there: a text that mentions no other term has
    no version. ``name`` (of the set), the row ids, all different, and the seed of the split
    determine what is drawn. O(characters) now, and as much for each version when it is written.
    """
    limit = rule.rows.get(part)
    if rule.terms is not None:
        terms = known_terms(rule, part, seed).terms
        counts = find_words(texts, terms).counts
        rows = _sample(np.flatnonzero(counts), ids, limit, name, part, seed)
        # Found again in the few texts: occurrences refer to texts by position.
        found = find_words([texts[row] for row in rows], terms)
        return Versions(rows, ids[rows], _term_versions(name, rule, found, ids[rows], part, seed))
    assert rule.swap is not None  # noqa: S101 - checked when the rule was read
    number = derive_integer("versions", name, seed)
    swapped = swap_gender(texts, rule.swap, ids, number).texts
    changed = np.array([old != new for old, new in zip(texts, swapped, strict=True)])
    rows = _sample(np.flatnonzero(changed), ids, limit, name, part, seed)
    kept = [texts[row] for row in rows]
    versions = (
        Version(AS_WRITTEN, partial(_keep, kept)),
        Version(SWAPPED, partial(swap_gender, kept, rule.swap, ids[rows], number)),
    )
    return Versions(rows, ids[rows], versions[1:] if part == "train" else versions)


def known_terms(rule: VersionRule, part: PartName, seed: int) -> Terms:
    """Return the terms that a part may use: in the test part all, elsewhere those drawn."""
    assert rule.terms is not None  # noqa: S101 - as above
    if part == "test" or rule.known is None:
        return rule.terms
    return rule.terms.draw(rule.known, seed)


def _term_versions(
    name: str, rule: VersionRule, found: Occurrences, ids: np.ndarray, part: PartName, seed: int
) -> tuple[Version, ...]:
    drawn = rule.draw.get(part)
    if drawn is None:
        return tuple(Version(term, partial(set_term, found, term)) for term in found.names)
    seeds = [derive_integer("versions", name, seed, number) for number in range(1, drawn + 1)]
    return tuple(
        Version(f"drawn {number + 1}", partial(draw_version, found, ids, drawn, seeds[:number]))
        for number, drawn in enumerate(seeds)
    )


def _sample(
    rows: np.ndarray, ids: np.ndarray, limit: int | None, name: str, part: PartName, seed: int
) -> np.ndarray:
    """Return at most ``limit`` of the rows, drawn by their ids, in ascending order."""
    if limit is None or rows.size <= limit:
        return rows
    share = uniforms(derive_integer("versions", name, part, seed), ids[rows])
    return np.sort(rows[np.argsort(share, kind="stable")[:limit]])


def _keep(texts: list[str]) -> Rewriting:
    return find_words(texts, ()).replace(())
