"""Words in texts: where they stand, and texts in which they are replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.vocabulary import GAP, lower, name_word

EXCERPT = 30


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Where words of a list stand in texts.

    Attributes
    ----------
    texts : tuple of str
    names : tuple of str
        The words that were looked for, as they were given.
    rows : ndarray of int64, shape (n_found,)
        Position of the text; does not fall.
    starts, ends : ndarray of int64, shape (n_found,)
        texts[row][start:end] is what stands there; within a text they rise and do not overlap.
    codes : ndarray of int64, shape (n_found,)
        Positions in ``names``.
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
        """Yield what stands in the texts."""
        for row, start, end in self._spans():
            yield self.texts[row][start:end]

    @property
    def counts(self) -> np.ndarray:
        """Occurrences in each text, int64, shape (n_texts,)."""
        return np.bincount(self.rows, minlength=len(self.texts))

    def tally(self) -> np.ndarray:
        """Return how often each word stands in each text, int64, shape (n_texts, n_names).

        Notes
        -----
        Dense: for lists of tens of words.
        """
        width = len(self.names)
        cells = np.bincount(self.rows * width + self.codes, minlength=len(self.texts) * width)
        return cells.reshape(len(self.texts), width)

    def keep(self, mask: np.ndarray) -> Occurrences:
        """Return the occurrences where the mask is true."""
        columns = (each[mask] for each in (self.rows, self.starts, self.ends, self.codes))
        return Occurrences(self.texts, self.names, *columns)

    def replace(self, words: Iterable[str]) -> Rewriting:
        """Replace every occurrence by a word, in the case of what stands there.

        Parameters
        ----------
        words : iterable of str
            One for each occurrence, in their order.
        """
        pairs = zip(self.found, words, strict=True)
        return Rewriting(self, tuple(match_case(word, old) for old, word in pairs))

    def _spans(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.rows.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True)


@dataclass(frozen=True, eq=False)
class Rewriting:
    """Texts in which words were replaced.

    Attributes
    ----------
    occurrences : Occurrences
        Where they stood.
    words : tuple of str
        What stands there now, shape (n_found,).
    texts : tuple of str
        The new texts; outside the occurrences they are as they were.
    """

    occurrences: Occurrences
    words: tuple[str, ...]
    texts: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Write the texts."""
        texts = list(self.occurrences.texts)
        pieces: list[str] = []
        current, place = -1, 0
        for (row, start, end), word in zip(self.occurrences._spans(), self.words, strict=True):
            if row != current:
                if current >= 0:
                    pieces.append(texts[current][place:])
                    texts[current] = "".join(pieces)
                pieces, current, place = [], row, 0
            pieces += [self.occurrences.texts[row][place:start], word]
            place = end
        if current >= 0:
            pieces.append(texts[current][place:])
            texts[current] = "".join(pieces)
        object.__setattr__(self, "texts", tuple(texts))

    def table(self, ids: Sequence[Any] | np.ndarray | None = None) -> pd.DataFrame:
        """Return what was changed, for people to look at.

        Parameters
        ----------
        ids : sequence, optional
            Names of the texts; their positions by default.

        Returns
        -------
        DataFrame
            One row per word that is another now: ``row`` (id of the text), ``position`` (of its
            first character in the old text), ``from``, ``to``, and an excerpt of the text,
            ``before`` and ``after``, ``EXCERPT`` characters to each side.
        """
        old = self.occurrences
        cells = []
        row_before, shift = -1, 0
        for (row, start, end), word in zip(old._spans(), self.words, strict=True):
            shift = shift if row == row_before else 0
            row_before = row
            text = old.texts[row]
            if word != text[start:end]:
                left = start + shift
                cells.append(
                    {
                        "row": row if ids is None else ids[row],
                        "position": start,
                        "from": text[start:end],
                        "to": word,
                        "before": _excerpt(text, start, end),
                        "after": _excerpt(self.texts[row], left, left + len(word)),
                    }
                )
            shift += len(word) - (end - start)
        return pd.DataFrame(cells, columns=["row", "position", "from", "to", "before", "after"])


def _excerpt(text: str, start: int, end: int) -> str:
    left, right = max(0, start - EXCERPT), end + EXCERPT
    return ("…" if left else "") + text[left:right] + ("…" if right < len(text) else "")


def find_words(texts: Iterable[str], words: Iterable[str]) -> Occurrences:
    """Find whole words in texts.

    Parameters
    ----------
    texts : iterable of str
    words : iterable of str
        One word or several each; no two alike but for case, blanks and hyphens.

    Notes
    -----
    Case does not count. No letter, digit or underscore (of Unicode) may stand beside a word: "gay"
    is found in "gay's" and "anti-gay", not in "gays" or "gay_rights". Between the words of a term
    stand blanks or one hyphen. Of words that begin at one place the longest is found, and words do
    not overlap. O(characters): a second for 100,000 comments of 400 characters, for 50 words.
    """
    held = tuple(texts)
    names = tuple(words)
    if not names:
        return Occurrences(held, names, *np.empty((4, 0), dtype=np.int64))
    pattern = _compile(names)
    codes = {name_word(name): code for code, name in enumerate(names)}
    cells = [
        (row, match.start(), match.end(), codes[name_word(match[0])])
        for row, text in enumerate(held)
        for match in pattern.finditer(lower(text))
    ]
    table = np.array(cells, dtype=np.int64).reshape(-1, 4)
    return Occurrences(held, names, *table.T)


def match_case(word: str, model: str) -> str:
    """Write a word in the case of another.

    Parameters
    ----------
    word : str
    model : str
        All capitals: so is the result. A capital first: every word of the result gets one. Else
        the word is returned as it is.
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
