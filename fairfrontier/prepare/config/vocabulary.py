"""Vocabularies: words that a fair model of texts treats alike, supplied by the user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from fairfrontier.prepare.config.section import Identifier, Name
from fairfrontier.runtime.config import Model, fault
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.seeds import derive_generator

# Between the words of a term: "african american", "African-American", also with a hyphen (U+2010),
# a hyphen that does not break (U+2011) or a dash (U+2013).
GAP = r"(?:\s+|[-\u2010\u2011\u2013])"


def lower(text: str) -> str:
    """Return a text in lower case, with every character at its old position."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    # Of all characters only İ becomes two.
    return "".join(char if len(char.lower()) > 1 else char.lower() for char in text)


def name_word(word: str) -> str:
    """Return what two spellings of a word share: lower case, one space for blanks and hyphens."""
    return re.sub(GAP, " ", lower(word))


def _word(value: Any) -> Any:
    if isinstance(value, bool):
        raise fault("YAML reads yes, no, on and off as true and false: put the word in quotes")
    return re.sub(r"\s+", " ", value).strip() if isinstance(value, str) else value


# What is put into texts in place of something shorter makes them that much longer.
LONGEST_WORD = 100
# Without a letter or digit it would have no boundaries.
Word = Annotated[str, Field(pattern=r"\w", max_length=LONGEST_WORD), BeforeValidator(_word)]
Sign = Annotated[str, Field(min_length=1, max_length=LONGEST_WORD), BeforeValidator(_word)]


class OrName:
    """Lets the schema of a section offer a name, which `resolve_vocabulary` replaces beforehand."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


def _refuse_doubles(words: Iterable[str]) -> None:
    seen: set[str] = set()
    for word in words:
        if name_word(word) in seen:
            raise fault(f"{word!r} is listed twice; case, and a hyphen for a blank, do not count")
        seen.add(name_word(word))


class Terms(Model):
    """Words that may replace each other, and families of words that name one identity."""

    vocabulary: Identifier = Field(description="Its name, after which the file is named.")
    description: str = Field(default="", description="A line on it.")
    terms: tuple[Word, ...] = Field(
        min_length=2, description="Words, or several words, that may replace each other."
    )
    families: Mapping[Name, Annotated[tuple[Word, ...], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Identity -> words that mention it, terms or not; plurals are listed, too.",
    )
    notes: str = Field(default="", description="Who chose the words.")

    @model_validator(mode="after")
    def _check(self) -> Terms:
        _refuse_doubles(self.terms)
        for words in self.families.values():
            _refuse_doubles(words)
        return self

    def take(self, terms: Iterable[str]) -> Terms:
        """Return the vocabulary of some of the terms, in its order; families stay."""
        wanted = {name_word(term): term for term in terms}
        known = {name_word(term): term for term in self.terms}
        for name, term in wanted.items():
            if name not in known:
                raise ConfigError(
                    f"The vocabulary {self.vocabulary} has no term {term!r}.",
                    nearest(term, self.terms),
                )
        if len(wanted) < 2:
            raise ConfigError(
                f"Fewer than two terms of the vocabulary {self.vocabulary} are chosen.",
                "Choose at least two: a single one cannot be replaced.",
            )
        kept = tuple(term for name, term in known.items() if name in wanted)
        return self.model_copy(update={"terms": kept})

    def draw(self, count: int, seed: int) -> Terms:
        """Return the vocabulary of ``count`` terms drawn without replacement."""
        if not 2 <= count <= len(self.terms):
            raise ConfigError(
                f"{count} of the {len(self.terms)} terms of {self.vocabulary} cannot be drawn.",
                f"Give a number from 2 to {len(self.terms)}.",
            )
        generator = derive_generator("vocabulary", self.vocabulary, seed)
        return self.take(generator.permutation(np.array(self.terms, dtype=object))[:count])


class Context(Model):
    """What a word becomes where it stands alone ("saw her.") and elsewhere ("her book")."""

    alone: Word = Field(description="At the end, before punctuation and before certain words.")
    otherwise: Word = Field(description="Elsewhere.")


class Link(Model):
    """Words that join possessives, and those that may follow: "her or his"."""

    by: tuple[Sign, ...] = Field(description="Words and signs that join.")
    to: tuple[Word, ...] = Field(description="Possessives that may follow.")


class Swap(Model):
    """Words that become their counterparts of the other gender."""

    vocabulary: Identifier = Field(description="Its name, after which the file is named.")
    description: str = Field(default="", description="A line on it.")
    pairs: Mapping[Word, Word] = Field(
        default_factory=dict, description="Words that become each other."
    )
    one_way: Mapping[Word, Word] = Field(
        default_factory=dict, description="Words that become others, and do not come back."
    )
    context: Mapping[Word, Context] = Field(
        default_factory=dict, description="Words with two forms, by what comes behind them."
    )
    alone_before: tuple[Word, ...] = Field(
        default=(),
        description="Words before which a word of ``context`` stands alone.",
        examples=[["and", "is", "was"]],
    )
    link: Link | None = Field(
        default=None, description="What is skipped before it is seen what comes behind a word."
    )
    names: Mapping[Name, tuple[Word, ...]] = Field(
        default_factory=dict,
        description="Two lists of first names: one becomes a random one of the other list.",
    )
    notes: str = Field(default="", description="Who chose the words.")

    @model_validator(mode="after")
    def _check(self) -> Swap:
        if self.names and (len(self.names) != 2 or not all(self.names.values())):
            raise fault("names must be two lists that are not empty")
        names = [name for names in self.names.values() for name in names]
        pairs = [*self.pairs, *self.pairs.values()]
        _refuse_doubles([*pairs, *self.one_way, *self.context, *names])
        return self

    @property
    def changes(self) -> dict[str, str]:
        """Word -> what it becomes in every position."""
        back = {second: first for first, second in self.pairs.items()}
        return {**self.one_way, **self.pairs, **back}
