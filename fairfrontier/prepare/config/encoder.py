"""An encoder's YAML: where its files come from, and what they expect."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fairfrontier.prepare.config.section import Name, Origin, Sha256
from fairfrontier.runtime.config import Model, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import find_yaml


class PinnedFile(Model):
    """A file by its digest, and where it may come from."""

    sha256: Sha256
    sources: Annotated[tuple[Origin, ...], Field(min_length=1)]


class EncoderConfig(Model):
    """A sentence encoder as an ONNX graph of token states and a file of the tokenizers library.

    ``positions`` is the largest number of tokens that the graph takes.
    """

    encoder: Name
    description: str = ""
    dimension: Annotated[int, Field(ge=1)]
    positions: Annotated[int, Field(ge=3)]
    weights: PinnedFile
    tokenizer: PinnedFile
    notes: str = ""


def read_encoder(name: str, home: Path, also: Iterable[str] = ()) -> EncoderConfig:
    """Read an encoder of ``conf/encoders``, the project's or the package's.

    Parameters
    ----------
    name : str
    home : Path
        The project.
    also : iterable of str
        What else a user could have named here.

    Raises
    ------
    ConfigError
        When there is no such encoder, or its YAML says something that cannot be.
    """
    path = find_yaml("encoder", name, home, also=also)
    config = parse(EncoderConfig, read_yaml(path), path)
    if config.encoder != name:
        raise ConfigError(
            f"{path}: encoder: the file calls itself {config.encoder!r}.",
            f"Call it {name!r}, as the file is named.",
        )
    return config
