"""Counterfactual sets: the same rows with some columns set to other levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.split import Variant
from fairfrontier.prepare.splitting.encoder import GROUP_PREFIX, Encoder
from fairfrontier.prepare.splitting.group import Attribute, cross_codes
from fairfrontier.runtime.errors import ConfigError, nearest


@dataclass(frozen=True, eq=False)
class Edit:
    """One combination of levels, encoded.

    ``name`` is, e.g., ``"sex=Female, race=White"``; ``features`` and ``groups`` map columns of X
    and of the groups to the value that every row gets.
    """

    name: str
    features: Mapping[int, float]
    groups: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class Edits:
    """A counterfactual set over the rows of one part; iterating makes one variant at a time.

    X and groups are those of the part, not copied; cross products among the attributes follow the
    edits. ``taken`` is the subset of rows to which the set is restricted.
    """

    X: Any
    groups: Any
    attributes: tuple[Attribute, ...]
    edits: tuple[Edit, ...]
    taken: np.ndarray | None = None

    @property
    def rows(self) -> None:
        """None: every row of a table can get any level."""
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variants, in the order they come."""
        return tuple(edit.name for edit in self.edits)

    @property
    def n_samples(self) -> int:
        """Number of rows of every variant."""
        return int(self.X.shape[0]) if self.taken is None else self.taken.size

    def __len__(self) -> int:
        return len(self.edits)

    def __iter__(self) -> Iterator[Variant]:
        for edit in self.edits:
            X = self.X if self.taken is None else self.X[self.taken]
            groups = self.groups if self.taken is None else self.groups[self.taken]
            X = _blockwise(X, set_columns, edit.features)
            groups = _blockwise(groups, set_columns, edit.groups)
            groups = _blockwise(groups, cross_codes, self.attributes)
            yield Variant(edit.name, X, groups)

    def take(self, rows: np.ndarray) -> Edits:
        """Return the same set for a subset of the rows."""
        return replace(self, taken=rows if self.taken is None else self.taken[rows])


def _blockwise(array: Any, function: Callable[[np.ndarray, Any], np.ndarray], change: Any) -> Any:
    """Apply a function of rows to a NumPy array, or to every block of a Dask array."""
    if isinstance(array, np.ndarray):
        return function(array, change)
    return array.map_blocks(function, change, dtype=array.dtype)


def set_columns(array: np.ndarray, values: Mapping[int, float]) -> np.ndarray:
    """Return a copy of an array with some columns set to one value each."""
    edited = array.copy()
    edited[:, list(values)] = list(values.values())
    return edited


def make_edits(
    config: DatasetConfig,
    levels: Mapping[str, tuple[str, ...]],
    encoder: Encoder,
    attributes: tuple[Attribute, ...],
    file: Path | str,
) -> dict[str, tuple[Edit, ...]]:
    """Encode every combination of levels of every set.

    ``levels``: column -> levels that occur. A variant re-encodes only the columns of X that the
    edited columns make.
    """
    made: dict[str, tuple[Edit, ...]] = {}
    for name, columns in config.counterfactuals.items():
        _refuse_crossed(columns, config, attributes, f"{file}: counterfactuals.{name}")
        choices: list[list[tuple[str, str]]] = []
        for column, wanted in columns.items():
            key = f"{file}: counterfactuals.{name}.{column}"
            used = {block.column for block in encoder.blocks} | {a.column for a in attributes}
            if column not in used:
                raise ConfigError(
                    f"{key}: this column is used by no feature and no group.",
                    "Add it to features or groups, or leave it out of the set.",
                )
            present = levels.get(column)
            if wanted is None and present is None:
                raise ConfigError(f"{key}: a numeric column has no levels to list.", "List values.")
            for level in wanted or ():
                if present is not None and level not in present:
                    raise ConfigError(f"{key}: no row has {level!r}.", nearest(level, present))
                if present is None and not np.isfinite(pd.to_numeric(level, errors="coerce")):
                    raise ConfigError(
                        f"{key}: {level!r} is no number, and the column has numbers.",
                        "List numbers.",
                    )
            choices.append([(column, level) for level in wanted or present or ()])
        count = math.prod(map(len, choices))
        if count < 2:
            raise ConfigError(
                f"{file}: counterfactuals.{name} makes one version of a row, and versions are "
                "compared with each other.",
                "List a further level.",
            )
        where = f"{file}: counterfactuals.{name} makes {count:,} variants of a row"
        config.limits.check("levels", count, where, "List fewer levels")
        made[name] = tuple(_edit(dict(cells), encoder, attributes) for cells in product(*choices))
    return made


def _refuse_crossed(
    columns: Iterable[str], config: DatasetConfig, attributes: Iterable[Attribute], key: str
) -> None:
    """Raise a ConfigError for an edit of a feature that other columns of the row make, too."""
    edited = {each.name for each in attributes if each.column in {*columns}}
    for each in attributes:
        if each.name in config.features.groups and edited & {*each.cross}:
            raise ConfigError(
                f"{key}: the feature {each.name} is crossed of {' and '.join(each.cross)}, so that "
                "what it becomes depends on the row.",
                f"Take {each.name} out of features.groups, and its attributes in, or leave out "
                "this set.",
            )


def _edit(cells: dict[str, str], encoder: Encoder, attributes: tuple[Attribute, ...]) -> Edit:
    groups: dict[int, int] = {}
    seen = dict(cells)
    for position, attribute in enumerate(attributes):
        if attribute.column in cells:
            code = int(attribute.encode(pd.Series([cells[attribute.column]]))[0])
            groups[position] = code
            seen[GROUP_PREFIX + attribute.name] = attribute.names[code]
    name = ", ".join(f"{column}={level}" for column, level in cells.items())
    return Edit(name, encoder.encode_cells(seen), groups)
