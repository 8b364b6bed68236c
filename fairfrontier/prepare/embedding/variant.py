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
from fairfrontier.prepare.source.download import Progress
from fairfrontier.prepare.split import Part, Split, Variant
from fairfrontier.prepare.splitting.encoder import Encoder
from fairfrontier.prepare.splitting.partition import split_seed
from fairfrontier.prepare.splitting.plan import Request
from fairfrontier.prepare.text.version import Versions, make_versions


@dataclass(frozen=True, eq=False)
class TextVariants:
    """A counterfactual set over the texts of one part; iterating makes one variant at a time.

    Attributes
    ----------
    X : ndarray of float64, shape (n_samples, n_features)
        The rows as they are; shared with the part, not copied.
    groups : ndarray of int64, shape (n_samples, n_attributes)
    columns : slice
        The columns of X that are the vector of the text.
    versions : Versions
        Which rows have versions, and their texts.
    encoder : TextEncoder
    taken : ndarray of int64 or None
        Which rows of X and groups the set is restricted to; None for all.

    Notes
    -----
    Vectors of a version are encoded, or looked up, once, and kept as float32: a set that was
    walked through holds 4 · dimension · n_versions · n_rows bytes. Groups stay those of the row:
    they are made of columns of the table, and a version writes into none of them.
    """

    X: np.ndarray
    groups: np.ndarray
    columns: slice
    versions: Versions
    encoder: TextEncoder
    taken: np.ndarray | None = None
    _place: np.ndarray = field(init=False, repr=False)
    _held: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Note where among the versions each row of X stands, −1 for nowhere."""
        place = np.full(len(self.X), -1, dtype=np.int64)
        place[self.versions.rows] = np.arange(self.versions.rows.size)
        object.__setattr__(self, "_place", place if self.taken is None else place[self.taken])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variants, in the order they come."""
        return self.versions.names

    @property
    def n_samples(self) -> int:
        """Number of rows of every variant."""
        return self._place.size

    @property
    def rows(self) -> np.ndarray:
        """Positions of the rows that have versions, ascending."""
        return np.flatnonzero(self._place >= 0)

    def __len__(self) -> int:
        return len(self.versions.versions)

    def __iter__(self) -> Iterator[Variant]:
        rows = self.rows
        for number, name in enumerate(self.names):
            X = self.X.copy() if self.taken is None else self.X[self.taken]
            groups = self.groups if self.taken is None else self.groups[self.taken]
            X[rows, self.columns] = self._vectors(number)[self._place[rows]]
            yield Variant(name, X, groups)

    def take(self, rows: np.ndarray) -> TextVariants:
        """Return the same set for a subset of the rows."""
        return replace(self, taken=rows if self.taken is None else self.taken[rows])

    def _vectors(self, number: int) -> np.ndarray:
        """Return float32 of shape (n_rows, dimension) for one version."""
        if number not in self._held:
            texts = self.versions.versions[number].write().texts
            self._held[number] = self.encoder.encode(texts)
        return self._held[number]


def add_versions(
    part: Part, frame: pd.DataFrame, request: Request, encoder: Encoder, text: TextFeatures
) -> Part:
    """Return a part with the counterfactual sets of its texts beside the others.

    Parameters
    ----------
    part : Part
    frame : DataFrame
        Its rows, with the column of texts.
    request : Request
        What the split was asked for.
    encoder : Encoder
        Of all features.
    text : TextFeatures
        Of the texts.
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
    """Encode all versions of a split's texts at once, into the encoder's cache.

    Parameters
    ----------
    split : Split
    progress : callable, optional
        As `TextEncoder.encode` takes it.

    Returns
    -------
    int
        Texts, some of which may be the same.
    """
    texts: list[str] = []
    encoders: list[TextEncoder] = []
    for _, part in split.parts():
        for each in part.counterfactuals.values():
            if isinstance(each, TextVariants):
                texts.extend(each.versions.texts)
                encoders.append(each.encoder)
    if texts:
        encoders[0].encode(texts, progress)
    return len(texts)


def list_changes(part: Part) -> pd.DataFrame:
    """Return every word that the versions of a part's texts replace.

    Returns
    -------
    DataFrame
        Columns ``set``, ``version``, and those of `Rewriting.table`; no row where there are no
        counterfactual texts.
    """
    tables = [
        each.versions.table().assign(set=name)
        for name, each in part.counterfactuals.items()
        if isinstance(each, TextVariants)
    ]
    if not tables:
        return pd.DataFrame()
    table = pd.concat(tables, ignore_index=True)
    return table[["set", "version", *table.columns.drop(["set", "version"])]]
