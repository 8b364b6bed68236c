"""Texts of a dataset as features, and the counterfactual sets of their versions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig, read_dataset
from fairfrontier.prepare.config.section import PartName, TextFeature
from fairfrontier.prepare.embedding.embedding_file import SUPPLIED, read_embeddings
from fairfrontier.prepare.embedding.encoder import (
    TextEncoder,
    choose_encoder,
    determine_encoder,
    digest_encoder,
)
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.prepare.split import Part, Split, Variant
from fairfrontier.prepare.splitting.encoder import Block, Encoder
from fairfrontier.prepare.splitting.plan import Request, split_seed
from fairfrontier.prepare.table.reader import resolve
from fairfrontier.prepare.text.version import Versions, make_versions
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
        vectors = read_embeddings(path, ids.tolist(), id_column=feature.ids or "id")
        names = _name_columns(column, vectors.shape[1])
        supplied = SuppliedBlock(column, names, vectors=vectors, rows=kept)
        name = f"{SUPPLIED}{path.name}"
        return TextFeatures(name, digest_text(feature, home, file), supplied, None)
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


@dataclass(frozen=True, eq=False)
class TextVariants:
    """A counterfactual set over the texts of one part; iterating makes one variant at a time.

    X and groups are those of the part, not copied; ``columns`` of X are the vector of the text, and
    ``taken`` is the subset of rows to which the set is restricted. Vectors are encoded, or looked
    up, once: a set that was iterated over keeps 4 · dimension · n_versions · n_rows bytes. A
    version does not change the groups of a row, which are made from other columns.
    """

    X: np.ndarray
    groups: np.ndarray
    columns: slice
    versions: Versions
    encoder: TextEncoder
    taken: np.ndarray | None = None
    _version_row: np.ndarray = field(init=False, repr=False)
    _encoded: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Compute the position of each row of X among the versions, −1 without one."""
        row = np.full(len(self.X), -1, dtype=np.int64)
        row[self.versions.rows] = np.arange(self.versions.rows.size)
        object.__setattr__(self, "_version_row", row if self.taken is None else row[self.taken])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variants, in the order they come."""
        return self.versions.names

    @property
    def n_samples(self) -> int:
        """Number of rows of every variant."""
        return self._version_row.size

    @property
    def rows(self) -> np.ndarray:
        """Positions of the rows that have versions, ascending."""
        return np.flatnonzero(self._version_row >= 0)

    def __len__(self) -> int:
        return len(self.versions.versions)

    def __iter__(self) -> Iterator[Variant]:
        rows = self.rows
        for number, name in enumerate(self.names):
            X = self.X.copy() if self.taken is None else self.X[self.taken]
            groups = self.groups if self.taken is None else self.groups[self.taken]
            X[rows, self.columns] = self._vectors(number)[self._version_row[rows]]
            yield Variant(name, X, groups)

    def take(self, rows: np.ndarray) -> TextVariants:
        """Return the same set for a subset of the rows."""
        return replace(self, taken=rows if self.taken is None else self.taken[rows])

    def _vectors(self, number: int) -> np.ndarray:
        """Return float32 of shape (n_rows, dimension) for one version."""
        if number not in self._encoded:
            texts = self.versions.versions[number].write().texts
            self._encoded[number] = self.encoder.encode(texts)
        return self._encoded[number]


def add_versions(
    part: Part, frame: pd.DataFrame, request: Request, encoder: Encoder, text: TextFeatures
) -> Part:
    """Return a part with the counterfactual sets of its texts in addition to the others.

    ``frame`` has the rows of the part, with the column of texts.
    """
    config = request.config
    if text.encoder is None or config.text is None:
        return part
    column = config.text.column
    (columns,) = encoder.spans([column])[column]
    texts = frame[column].tolist()
    seed = split_seed(config.split, request.seed)
    sets = {
        name: TextVariants(
            part.X,
            part.groups,
            columns,
            make_versions(name, rule, texts, part.ids, cast(PartName, part.name), seed),
            text.encoder,
        )
        for name, rule in config.text.versions.items()
    }
    return replace(part, counterfactuals={**part.counterfactuals, **sets})


def encode_versions(split: Split, progress: Progress | None = None) -> int:
    """Encode all versions of a split's texts at once, into the encoder's cache; return how many."""
    sets = [
        variants
        for _, part in split.parts()
        for variants in part.counterfactuals.values()
        if isinstance(variants, TextVariants)
    ]
    texts = [text for variants in sets for text in variants.versions.texts]
    if texts:
        sets[0].encoder.encode(texts, progress)
    return len(texts)


def list_changes(part: Part) -> pd.DataFrame:
    """Return every word that the versions of a part's texts replace.

    The columns are ``set``, ``version``, and those of `Rewriting.table`; the frame is empty where
    there are no counterfactual texts.
    """
    tables = [
        variants.versions.table().assign(set=name)
        for name, variants in part.counterfactuals.items()
        if isinstance(variants, TextVariants)
    ]
    if not tables:
        return pd.DataFrame()
    table = pd.concat(tables, ignore_index=True)
    return table[["set", "version", *table.columns.drop(["set", "version"])]]
