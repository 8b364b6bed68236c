"""The section ``text`` of a dataset's YAML: what is done to a column of texts at first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from tasks.prepare.section import Name
from tasks.prepare.text.mask import MASK
from tasks.prepare.text.vocabulary import Terms, find_vocabulary
from tasks.runtime.config import Model, fault, read_yaml

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


class Text(Model):
    """What is done to a column of texts, in this order.

    ``lower``: columns whose levels are written in lower case first. ``replace``: characters of
    ``column`` -> what stands for them, after which every run of blanks becomes one. ``mask``: a
    word that would say the label. ``mentions``: a vocabulary of ``conf/vocabularies``, a path, or
    its content. Made are the columns ``text:words`` (how many words the text has) and, with a
    vocabulary, ``text:terms`` (how many of its terms stand there) and one ``mention:FAMILY`` for
    each of its families, yes or no.
    """

    column: Name
    lower: tuple[Name, ...] = ()
    replace: Mapping[Name, str] = Field(default_factory=dict)
    mask: Mask | None = None
    mentions: Terms | None = None

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


def settle_vocabulary(data: Any, path: Path, home: Path | None) -> Any:
    """Put the content of the vocabulary that a dataset's YAML names into the name's place.

    Parameters
    ----------
    data : object
        What was read from the dataset's YAML.
    path : Path
        The YAML.
    home : Path, optional
        The project; the YAML's own folder without one.

    Raises
    ------
    ConfigError
        When there is no such vocabulary.
    """
    text = data.get("text") if isinstance(data, Mapping) else None
    name = text.get("mentions") if isinstance(text, Mapping) else None
    if not isinstance(name, str) or text is None:
        return data
    content = read_yaml(find_vocabulary(name, home or path.parent, path.parent))
    return {**data, "text": {**text, "mentions": content}}
