"""Words replaced by a mask, so that a text does not reveal its label."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from fairfrontier.prepare.config.text import GAP, MASK
from fairfrontier.runtime.errors import DataError

_LISTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U(000[0-9a-f]{5}|0010[0-9a-f]{4})|(.))")


def mask_span(text: str, start: int, end: int, mask: str = MASK) -> str:
    """Replace text[start:end] by a mask."""
    return text[:start] + mask + text[end:]


def locate_token(text: str, tokens: Sequence[str], index: int) -> tuple[int, int]:
    """Return the position of a token in its text, as (start, end) in characters.

    ``tokens`` are the pieces of the text without the blanks between them. A DataError is raised
    when they are not those of the text, or too few.
    """
    if not 0 <= index < len(tokens):
        raise DataError(
            f"There is no token {index} among {len(tokens)}.", "Correct the column of positions."
        )
    end = 0
    for token in tokens[: index + 1]:
        start = end
        while start < len(text) and text[start].isspace():
            start += 1
        end = start + len(token)
        if text[start:end] != token:
            raise DataError(
                f"The token {token!r} is not in its text at character {start}.",
                "Give the tokens of the same text.",
            )
    return start, end


def split_tokens(cell: str) -> list[str]:
    """Parse a list of tokens as Python writes it, ``['a', "b's"]``; nothing is evaluated."""
    inside = cell.strip().removeprefix("[").removesuffix("]")
    return [_ESCAPE.sub(_unescape, single or double) for single, double in _LISTED.findall(inside)]


def _unescape(match: re.Match[str]) -> str:
    code, letter = match[1] or match[2] or match[3], match[4]
    return chr(int(code, 16)) if code else {"n": "\n", "r": "\r", "t": "\t"}.get(letter, letter)


def mask_word(text: str, word: str, mask: str = MASK) -> str:
    """Mask every occurrence of a word, in any case, and its regular plural.

    "nurse" is masked in "nurses", "Nurse's" and "nurse-midwife", not in "nursery"; "secretary" in
    "secretaries", "boss" in "bosses". Blanks or one hyphen may separate the words of a term, which
    may also be given with underscores: "vice_president" is masked in "Vice-president". For an empty
    word nothing is masked.
    """
    return _compile(word).sub(lambda _: mask, text)


def mask_words(texts: Iterable[str], words: Iterable[str], mask: str = MASK) -> list[str]:
    """Mask in each text its own word; see `mask_word`."""
    return [mask_word(text, word, mask) for text, word in zip(texts, words, strict=True)]


@lru_cache(maxsize=4096)
def _compile(word: str) -> re.Pattern[str]:
    pieces = [re.escape(piece) for piece in re.split(r"[\s_-]+", word) if piece]
    if not pieces:
        # Without a word its plural ending would match.
        return re.compile(r"(?!)")
    stem = GAP.join(pieces)
    plural = rf"{stem}(?:s|es)?"
    if re.search(r"[^aeiou]y$", pieces[-1], re.IGNORECASE):
        plural = rf"(?:{plural}|{stem[:-1]}ies)"
    return re.compile(rf"(?<!\w){plural}(?!\w)", re.IGNORECASE)
