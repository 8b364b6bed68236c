"""Texts of a dataset as features: which encoder, fitted on what, and its columns of X."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig, read_dataset
from fairfrontier.prepare.config.section import TextFeature
from fairfrontier.prepare.embedding.base import TextEncoder
from fairfrontier.prepare.embedding.choice import choose_encoder, determine_encoder, digest_encoder
from fairfrontier.prepare.embedding.embedding_file import SUPPLIED, read_embeddings
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.prepare.splitting.encoder import Block
from fairfrontier.prepare.table.reader import resolve
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.store import canonical_json, hash_file
from fairfrontier.runtime.thread import count_cores


@dataclass(frozen=True, eq=False)
class TextBlock(Block):
    """The vectors that an encoder makes of texts, as float64."""

    encoder: TextEncoder | None = None

    def encode(self, column: pd.Series) -> np.ndarray:
        """Return the vectors, shape (n_samples, dimension)."""
        assert self.encoder is not None  # noqa: S101
        return self.encoder.encode(column.tolist()).astype(np.float64)


@dataclass(frozen=True, eq=False)
class SuppliedBlock(Block):
    """The vectors that a user supplies, looked up by the row numbers of the table."""

    vectors: np.ndarray | None = None
    rows: pd.Index | None = None

    def encode(self, column: pd.Series) -> np.ndarray:
        """Return the vectors, shape (n_samples, dimension)."""
        assert self.vectors is not None and self.rows is not None  # noqa: S101, PT018
        return self.vectors[self.rows.get_indexer(column.index)].astype(np.float64)


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """How the texts of a split become features: the block for their column, and its digest.

    ``encoder`` is fitted, or None where the vectors are the user's.
    """

    name: str
    digest: str
    block: Block
    encoder: TextEncoder | None


def fit_text(
    config: DatasetConfig,
    frame: pd.DataFrame,
    train: pd.DataFrame,
    used: pd.DataFrame,
    home: Path,
    file: Path,
    progress: Progress | None = None,
) -> TextFeatures | None:
    """Return how a dataset's texts become features; None where they do not.

    ``frame`` is the entire table; an encoder learns from the ``train`` rows only. The texts of the
    ``used`` rows, those of all parts, are encoded here at once.
    """
    feature = config.features.text
    if feature is None or config.text is None:
        return None
    column = config.text.column
    if feature.supplied:
        path = resolve(feature.encoder, home, file.parent)
        # An npy has a row for every row of the table, a Parquet file for those in use.
        kept = frame.index if path.suffix == ".npy" else used.index
        ids = frame.loc[kept, feature.ids] if feature.ids else kept
        embedding = read_embeddings(path, ids.tolist(), id_column=feature.ids or "id")
        names = _name_columns(column, embedding.dimension)
        supplied = SuppliedBlock(column, names, vectors=embedding.vectors, rows=kept)
        return TextFeatures(embedding.name, digest_text(feature, home, file), supplied, None)
    encoder = choose_encoder(
        determine_encoder(feature.encoder, home, progress),
        home=home,
        max_tokens=feature.max_tokens,
        threads=count_cores(),
        progress=progress,
    ).fit(train[column].tolist())
    # Repeated texts are encoded once; the blocks then look them up.
    encoder.encode(used[column].tolist(), progress)
    names = _name_columns(column, encoder.dimension)
    block = TextBlock(column, names, encoder=encoder)
    return TextFeatures(encoder.name, digest_text(feature, home, file), block, encoder)


def digest_text(feature: TextFeature, home: Path, file: Path) -> str:
    """Return the digest of what makes vectors of a dataset's texts, besides the texts."""
    if not feature.supplied:
        name = determine_encoder(feature.encoder, home)
        return digest_encoder(name, home, feature.max_tokens)
    content = hash_file(resolve(feature.encoder, home, file.parent))
    described = canonical_json({"file": content, "ids": feature.ids})
    return hashlib.sha256(described.encode()).hexdigest()


def name_encoder(dataset: str | Path, home: Path) -> str | None:
    """Return the name in results of the encoder of a dataset's texts; None without one."""
    path = find_yaml("dataset", dataset, home)
    feature = read_dataset(path, home).features.text
    if feature is None:
        return None
    if feature.supplied:
        return f"{SUPPLIED}{Path(feature.encoder).name}"
    return determine_encoder(feature.encoder, home)


def _name_columns(column: str, dimension: int) -> tuple[str, ...]:
    return tuple(f"{column}_{number}" for number in range(dimension))
