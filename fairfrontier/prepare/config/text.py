"""The section ``text`` of a dataset's YAML: how a column of texts is cleaned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from fairfrontier.prepare.config.section import Character, Count, Name, PartName
from fairfrontier.prepare.config.vocabulary import Swap, Terms
from fairfrontier.runtime.config import Model, fault, read_yaml
from fairfrontier.runtime.finder import find_yaml

MASK = "[MASK]"
PREFIX = "mention:"
TERMS = "text:terms"
WORDS = "text:words"
# Scores are kept under the names of part, field, set and variant, with slashes between them.
SetName = Annotated[Name, Field(pattern=r"^[^/]*$")]


class Mask(Model):
    """The word that is masked: the one that another column names, everywhere in the text.

    With ``tokens`` (a column that lists the text's tokens) and ``index`` (a column of positions
    among them) only that one token is.
    """

    column: Name | None = None
    tokens: Name | None = None
    index: Name | None = None
    by: Name = MASK

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
      term; ``known: 25`` limits training, calibration and validation to that many terms, drawn by
      the split's seed; ``draw: {train: 2}`` makes that many versions of a row of the part, each
      with a term drawn for the row, instead of all;
    - ``{swap: gender}``: the text as it is, and with its words exchanged for those of the other
      gender; a training row has the latter only.

    The vocabularies are names of ``conf/vocabularies``, paths, or their content. ``rows``: part ->
    how many of the rows that could have versions do, drawn at random; all by default.
    """

    terms: Terms | None = None
    swap: Swap | None = None
    known: int | None = Field(None, ge=2)
    draw: Mapping[PartName, Count] = Field(default_factory=dict)
    rows: Mapping[PartName, Count] = Field(default_factory=dict)

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
        return self


class Text(Model):
    """What is done to a column of texts, in this order.

    ``lower``: columns whose levels are converted to lower case first. ``enclosed``: a quotation
    mark that is removed from both ends of the cells it encloses, and halved where it is doubled
    inside. ``replace``: characters of ``column`` -> their replacement, after which texts are
    composed (NFC) and every run of blanks becomes one blank. ``mask``: a word that would reveal the
    label. ``first``: how many words are kept; the others are neither read nor searched.
    ``mentions``: a vocabulary of ``conf/vocabularies``, a path, or its content. The columns
    ``text:words`` (number of words) and, with a vocabulary, ``text:terms`` (number of its terms)
    and one ``mention:FAMILY`` for each of its families, yes or no, are added. ``versions``: named
    sets of counterfactual texts.
    """

    column: Name
    lower: tuple[Name, ...] = ()
    enclosed: Character | None = None
    replace: Mapping[Name, str] = Field(default_factory=dict)
    mask: Mask | None = None
    first: Count | None = None
    mentions: Terms | None = None
    versions: Mapping[SetName, VersionRule] = Field(default_factory=dict)

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
