"""The section ``text`` of a dataset's YAML: what is done to a column of texts at first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from fairfrontier.prepare.config.section import Name, PartName
from fairfrontier.prepare.config.vocabulary import Swap, Terms
from fairfrontier.runtime.config import Model, fault, read_yaml
from fairfrontier.runtime.finder import find_yaml

MASK = "[MASK]"
PREFIX = "mention:"
TERMS = "text:terms"
WORDS = "text:words"


class Mask(Model):
    """The word that is hidden: the one that another column names, everywhere in the text.

    With ``tokens`` (a column that lists the text's pieces) and ``index`` (a column of positions
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
            raise fault("say either column (which word is masked) or tokens and index (which one)")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(name for name in (self.column, self.tokens, self.index) if name)


Count = Annotated[int, Field(ge=1)]


class VersionRule(Model):
    """A set of counterfactual texts: a row in other words, which a fair model treats alike.

    - ``{terms: identity}``: every term of a vocabulary becomes one other, in one version for each
      term; with ``known: 25`` so many terms, drawn by the split's seed, are all that training,
      calibration and validation know; ``draw: {train: 2}`` has so many versions of a row of that
      part, each with a term drawn for the row, in place of all;
    - ``{swap: gender}``: the text as it is, and with its words exchanged for those of the other
      gender; a training row's version is the second alone.

    The vocabularies are names of ``conf/vocabularies``, paths, or their content. ``rows``: part ->
    how many of its rows have versions, drawn at random of those that could; all where nothing is
    said.
    """

    terms: Terms | None = None
    swap: Swap | None = None
    known: Annotated[int, Field(ge=2)] | None = None
    draw: Mapping[PartName, Count] = Field(default_factory=dict)
    rows: Mapping[PartName, Count] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> VersionRule:
        if (self.terms is None) == (self.swap is None):
            raise fault("say either terms (one stands for all) or swap (words change places)")
        if self.swap and (self.known or self.draw):
            raise fault("known and draw belong to terms: a swap has one version")
        if self.terms and self.known and self.known > len(self.terms.terms):
            raise fault(
                f"known is {self.known}, and the vocabulary has {len(self.terms.terms)} terms"
            )
        return self


class Text(Model):
    """What is done to a column of texts, in this order.

    ``lower``: columns whose levels are written in lower case first. ``enclosed``: a mark that is
    taken off both ends of the cells that it encloses, and halved where it is doubled in them.
    ``replace``: characters of ``column`` -> what stands for them, after which letters and their
    marks become one character each, and every run of blanks one blank. ``mask``: a
    word that would say the label. ``first``: so many words are kept, and the rest of the text is
    neither read nor searched. ``mentions``: a vocabulary of ``conf/vocabularies``, a path, or
    its content. Made are the columns ``text:words`` (how many words the text has) and, with a
    vocabulary, ``text:terms`` (how many of its terms stand there) and one ``mention:FAMILY`` for
    each of its families, yes or no. ``versions``: named sets of counterfactual texts.
    """

    column: Name
    lower: tuple[Name, ...] = ()
    enclosed: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    replace: Mapping[Name, str] = Field(default_factory=dict)
    mask: Mask | None = None
    first: Count | None = None
    mentions: Terms | None = None
    versions: Mapping[Name, VersionRule] = Field(default_factory=dict)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of the table that it reads."""
        return (self.column, *self.lower, *(self.mask.columns if self.mask else ()))

    @property
    def claims(self) -> tuple[str, ...]:
        """The columns that are for this section, and no features unless they are named."""
        return (self.column, *(self.mask.columns if self.mask else ()), *self.makes)

    @property
    def makes(self) -> tuple[str, ...]:
        """The columns that it adds to the table."""
        if self.mentions is None:
            return (WORDS,)
        return (WORDS, TERMS, *(PREFIX + name for name in self.mentions.families))


def resolve_vocabulary(data: Any, path: Path, home: Path | None) -> Any:
    """Put the content of the vocabularies that a dataset's YAML names into the names' places.

    Parameters
    ----------
    data : object
        What was read from the dataset's YAML.
    path : Path
        The YAML.
    home : Path, optional
        The project.

    Raises
    ------
    ConfigError
        When there is no such vocabulary.
    """
    text = data.get("text") if isinstance(data, Mapping) else None
    if not isinstance(text, Mapping):
        return data

    def settle(section: Any, key: str) -> Any:
        name = section.get(key) if isinstance(section, Mapping) else None
        if not isinstance(name, str):
            return section
        content = read_yaml(find_yaml("vocabulary", name, home, beside=path.parent))
        return {**section, key: content}

    settled = dict(settle(text, "mentions"))
    versions = settled.get("versions")
    if isinstance(versions, Mapping):
        settled["versions"] = {
            name: settle(settle(rule, "terms"), "swap") for name, rule in versions.items()
        }
    return {**data, "text": settled}
