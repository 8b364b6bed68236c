"""The section ``text`` of a dataset's YAML, with its vocabularies, and encoders of texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from fairfrontier.prepare.config.section import (
    Character,
    Count,
    Identifier,
    Name,
    Origin,
    PartName,
    Sha256,
)
from fairfrontier.runtime.config import Model, fault, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import find_yaml
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

    def draw(self, count: int, seed: int) -> Terms:
        """Return the vocabulary of ``count`` terms drawn without replacement, in its order."""
        generator = derive_generator("vocabulary", self.vocabulary, seed)
        drawn = {*generator.permutation(np.array(self.terms, dtype=object))[:count]}
        return self.model_copy(update={"terms": tuple(t for t in self.terms if t in drawn)})


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


MASK = "[MASK]"
PREFIX = "mention:"
TERMS = "text:terms"
WORDS = "text:words"
# Every version is drawn after those before it: their number counts twice.
MOST_DRAWN = 256
# Scores are kept under the names of part, field, set and variant, with slashes between them.
SetName = Annotated[Name, Field(pattern=r"^[^/]*$")]


class Mask(Model):
    """A word that is masked: one that another column names, or one token of the text."""

    column: Name | None = Field(
        default=None, description="Column of the word, which is masked everywhere in the text."
    )
    tokens: Name | None = Field(
        default=None, description="Column that lists the text's tokens.", examples=["tokens"]
    )
    index: Name | None = Field(
        default=None,
        description="Column of the position, among them, of the one that is masked.",
        examples=["profession_index"],
    )
    by: Annotated[Name, Field(max_length=LONGEST_WORD)] = Field(
        default=MASK, description="What stands in its place.", examples=["_"]
    )

    @model_validator(mode="after")
    def _check(self) -> Mask:
        if (self.tokens is None) != (self.index is None):
            raise fault("tokens and index go together")
        if (self.column is None) == (self.tokens is None):
            raise fault("give either column (the word that is masked) or tokens and index")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(name for name in (self.column, self.tokens, self.index) if name)


class VersionRule(Model):
    """A set of counterfactual texts: rewordings of a row that a fair model treats alike.

    - ``{terms: identity}``: every term of a vocabulary is replaced by one other, in one version per
      term;
    - ``{swap: gender}``: the text as it is, and with its words exchanged for those of the other
      gender; a training row has the latter only.
    """

    terms: Annotated[Terms, OrName()] | None = Field(
        default=None, description="Words that replace each other: a name, a path, or the content."
    )
    swap: Annotated[Swap, OrName()] | None = Field(
        default=None, description="Words of two genders: a name, a path, or the content."
    )
    known: int | None = Field(
        default=None, ge=2, description="How many of the terms are seen before the test part."
    )
    draw: Mapping[PartName, Count] = Field(
        default_factory=dict,
        description="Part -> how many versions of a row are drawn, instead of one per term.",
    )
    rows: Mapping[PartName, Count] = Field(
        default_factory=dict,
        description="Part -> how many of the rows that could have versions do, drawn at random; "
        "all by default.",
    )

    @model_validator(mode="after")
    def _check(self) -> VersionRule:
        if (self.terms is None) == (self.swap is None):
            raise fault("give either terms (one replaces all) or swap (words are exchanged)")
        if self.swap and (self.known or self.draw):
            raise fault("known and draw belong to terms: a swap has one version")
        if self.terms and self.known and self.known > len(self.terms.terms):
            raise fault(
                f"known is {self.known}, and the vocabulary has {len(self.terms.terms)} terms"
            )
        for part, count in self.draw.items():
            if self.terms and count > min(MOST_DRAWN, len(self.terms.terms)):
                raise fault(
                    f"draw is {count} for {part}, of {len(self.terms.terms)} terms; at most "
                    f"{MOST_DRAWN} versions are drawn"
                )
        return self


class Text(Model):
    """What is done to a column of texts, in the order of the keys.

    The columns ``text:words`` (number of words) and, with ``mentions``, ``text:terms`` (number of
    its terms) and one ``mention:FAMILY`` for each of its families, yes or no, are added.
    """

    column: Name = Field(description="The column of the texts.")
    lower: tuple[Name, ...] = Field(
        default=(), description="Columns whose levels are converted to lower case first."
    )
    enclosed: Character | None = Field(
        default=None,
        description="A quotation mark that is removed from both ends of cells that it encloses, "
        "and halved where it is doubled inside.",
    )
    replace: Mapping[Name, Annotated[str, Field(max_length=LONGEST_WORD)]] = Field(
        default_factory=dict,
        description="Characters -> what replaces them, after which texts are composed (NFC) and "
        "every run of blanks becomes one blank.",
    )
    mask: Mask | None = Field(default=None, description="A word that would reveal the label.")
    first: Count | None = Field(
        default=None,
        description="How many words are kept; the others are neither read nor searched.",
    )
    mentions: Annotated[Terms, OrName()] | None = Field(
        default=None, description="A vocabulary whose words are counted: a name, path or content."
    )
    versions: Mapping[SetName, VersionRule] = Field(
        default_factory=dict, description="Sets of counterfactual texts, by name."
    )

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of the table that it reads."""
        return (*self.reads_rows, *self.lower)

    @property
    def reads_rows(self) -> tuple[str, ...]:
        """Those of them without which there is no text."""
        return (self.column, *(self.mask.columns if self.mask else ()))

    @property
    def claims(self) -> tuple[str, ...]:
        """The columns of this section, which are features only if they are named as such."""
        return (*self.reads_rows, *self.makes)

    @property
    def makes(self) -> tuple[str, ...]:
        """The columns that it adds to the table."""
        if self.mentions is None:
            return (WORDS,)
        return (WORDS, TERMS, *(PREFIX + name for name in self.mentions.families))


def resolve_vocabulary(data: Any, path: Path, home: Path | None) -> Any:
    """Return a dataset's YAML with the content of the vocabularies in place of their names."""
    text = data.get("text") if isinstance(data, Mapping) else None
    if not isinstance(text, Mapping):
        return data

    def resolve(section: Any, key: str) -> Any:
        name = section.get(key) if isinstance(section, Mapping) else None
        if not isinstance(name, str):
            return section
        content = read_yaml(find_yaml("vocabulary", name, home, beside=path.parent))
        return {**section, key: content}

    resolved = dict(resolve(text, "mentions"))
    versions = resolved.get("versions")
    if isinstance(versions, Mapping):
        resolved["versions"] = {
            name: resolve(resolve(rule, "terms"), "swap") for name, rule in versions.items()
        }
    return {**data, "text": resolved}


class PinnedFile(Model):
    """A file by its digest, and where it may come from."""

    sha256: Sha256 = Field(description="Digest of the file itself.")
    sources: tuple[Origin, ...] = Field(min_length=1, description="Where it may come from.")


class EncoderConfig(Model):
    """A sentence encoder: an ONNX graph of token states and a file of the tokenizers library."""

    encoder: Name = Field(description="Its name, after which the file is named.")
    description: str = Field(default="", description="A line on it.")
    dimension: Count = Field(description="Numbers of a vector.")
    positions: int = Field(ge=3, description="Most tokens that the graph takes.")
    weights: PinnedFile = Field(description="The ONNX graph.")
    tokenizer: PinnedFile = Field(description="The tokenizer's JSON.")
    notes: str = Field(default="", description="Whose it is, and under which licence.")


def read_encoder(name: str, home: Path, also: Iterable[str] = ()) -> EncoderConfig:
    """Read an encoder of ``conf/encoders``, the project's or the package's.

    ``also`` lists what else a user could have named, for the error message.
    """
    path = find_yaml("encoder", name, home, also=also)
    config = parse(EncoderConfig, read_yaml(path), path)
    if config.encoder != name:
        raise ConfigError(
            f"{path}: encoder: the file calls itself {config.encoder!r}.",
            f"Call it {name!r}, as the file is named.",
        )
    return config
