"""The section ``text`` of a dataset's YAML: how a column of texts is cleaned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from fairfrontier.prepare.config.section import Character, Count, Name, PartName
from fairfrontier.prepare.config.vocabulary import LONGEST_WORD, OrName, Swap, Terms
from fairfrontier.runtime.config import Model, fault, read_yaml
from fairfrontier.runtime.finder import find_yaml

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
