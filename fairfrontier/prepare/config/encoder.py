"""An encoder's YAML: where its files come from, and what they expect."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from fairfrontier.prepare.config.section import Count, Name, Sha256
from fairfrontier.prepare.config.source import Origin
from fairfrontier.runtime.config import Model, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import find_yaml


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
