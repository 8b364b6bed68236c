"""Counterfactual sets of texts: versions of rows, encoded when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.section import PartName
from fairfrontier.prepare.embedding.base import TextEncoder
from fairfrontier.prepare.embedding.feature import TextFeatures
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.prepare.split import Part, Split, Variant
from fairfrontier.prepare.splitting.encoder import Encoder
from fairfrontier.prepare.splitting.plan import Request, split_seed
from fairfrontier.prepare.text.version import Versions, make_versions


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
