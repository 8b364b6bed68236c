"""An encoder's YAML: where its files come from, and what they expect."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from fairfrontier.prepare.config.section import Count, Name, Origin, Sha256
from fairfrontier.runtime.config import Model, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import find_yaml


class PinnedFile(Model):
    """A file by its digest, and where it may come from."""

    sha256: Sha256
    sources: tuple[Origin, ...] = Field(min_length=1)


class EncoderConfig(Model):
    """A sentence encoder: an ONNX graph of token states and a file of the tokenizers library.

    ``positions`` is the largest number of tokens that the graph takes.
    """

    encoder: Name
    description: str = ""
    dimension: Count
    positions: int = Field(ge=3)
    weights: PinnedFile
    tokenizer: PinnedFile
    notes: str = ""


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
