"""Features: columns of a table to columns of X, with everything fitted on the training rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.table.column import MISSING_LEVEL, as_levels, sort_levels, unique_levels
from fairfrontier.prepare.table.rows import policy_of, used_columns
from fairfrontier.runtime.errors import ConfigError, DataError, nearest, repeated

GROUP_PREFIX = "group:"


@dataclass(frozen=True, eq=False)
class Block:
    """How one source column becomes columns of X.

    ``column`` is the source (``group:NAME`` for the groups of an attribute), ``names`` are the
    columns of X, and ``fill`` replaces missing numbers.
    """

    column: str
    names: tuple[str, ...]
    fill: float = np.nan

    def numbers(self, column: pd.Series) -> np.ndarray:
        """Return the column as float64 with missing cells filled."""
        values = column.to_numpy(dtype=np.float64)
        return values if np.isnan(self.fill) else np.where(np.isnan(values), self.fill, values)

    def encode(self, column: pd.Series) -> np.ndarray:
        """Return float64 of shape (n_samples, len(names)): the numbers as they are."""
        return self.numbers(column)[:, None]


@dataclass(frozen=True, eq=False)
class Standard(Block):
    """(x − mean)/scale with the training rows' mean and population standard deviation."""

    mean: float = 0.0
    scale: float = 1.0

    def encode(self, column: pd.Series) -> np.ndarray:
        """Return the standardised column, shape (n_samples, 1)."""
        return ((self.numbers(column) - self.mean) / self.scale)[:, None]


def take_levels(column: pd.Series) -> pd.Series:
    """Return the levels of a typed column, whose text is levels already."""
    return column if isinstance(column.dtype, pd.StringDtype) else as_levels(column)


def mark_codes(codes: np.ndarray, size: int) -> np.ndarray:
    """Return 1 in the column of each row's code, shape (n_samples, size); −1 has none."""
    marked = np.zeros((codes.size, size))
    rows = np.flatnonzero(codes >= 0)
    marked[rows, codes[rows]] = 1.0
    return marked


@dataclass(frozen=True, eq=False)
class Bins(Block):
    """One column per interval between the ``edges``: bin k is [edge k−1, edge k).

    With ``upper`` it is (edge k−1, edge k].
    """

    edges: tuple[float, ...] = ()
    upper: bool = False

    def encode(self, column: pd.Series) -> np.ndarray:
        """Return the one-hot bins, shape (n_samples, len(edges) + 1)."""
        side: Literal["left", "right"] = "left" if self.upper else "right"
        codes = np.searchsorted(np.asarray(self.edges), self.numbers(column), side=side)
        return mark_codes(codes, len(self.names))


@dataclass(frozen=True, eq=False)
class OneHot(Block):
    """One column per level; a level that was not seen in fitting becomes zeros."""

    levels: tuple[str, ...] = ()

    def encode(self, column: pd.Series) -> np.ndarray:
        """Return the one-hot levels, shape (n_samples, len(levels))."""
        codes = pd.Index(self.levels).get_indexer(pd.Index(take_levels(column)))
        return mark_codes(codes, len(self.levels))


@dataclass(frozen=True, eq=False)
class Binary(Block):
    """1 where the column holds one level, else 0.

    ``levels`` are all that were seen in fitting; empty where the column is used as a number, too.
    """

    level: str = ""
    levels: tuple[str, ...] = ()

    def encode(self, column: pd.Series) -> np.ndarray:
        """Return the indicator, shape (n_samples, 1)."""
        return (take_levels(column) == self.level).to_numpy(dtype=np.float64)[:, None]


KINDS = {cls.__name__: cls for cls in (Block, Standard, Bins, OneHot, Binary)}


@dataclass(frozen=True, eq=False)
class Encoder:
    """Fitted blocks, side by side in X."""

    blocks: tuple[Block, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the blocks as plain values; vectors of texts are none."""
        plain = []
        for block in self.blocks:
            fill = None if np.isnan(block.fill) else block.fill
            plain.append({"block": type(block).__name__, **asdict(block), "fill": fill})
        return plain

    @classmethod
    def from_json(cls, plain: Iterable[Mapping[str, Any]]) -> Encoder:
        """Return the encoder that ``to_json`` described."""
        blocks: list[Block] = []
        for described in plain:
            fields = dict(described)
            kind = KINDS[fields.pop("block")]
            fields["fill"] = np.nan if fields["fill"] is None else fields["fill"]
            blocks.append(TypeAdapter(kind).validate_python(fields))
        return cls(tuple(blocks))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of X."""
        return tuple(name for block in self.blocks for name in block.names)

    def _placed(self) -> Iterator[tuple[Block, slice]]:
        """Yield every block with its columns of X."""
        start = 0
        for block in self.blocks:
            end = start + len(block.names)
            yield block, slice(start, end)
            start = end

    def spans(self, columns: Iterable[str]) -> Mapping[str, tuple[slice, ...]]:
        """Return source column -> the slices of X that it makes (a column may make several)."""
        spans: dict[str, tuple[slice, ...]] = dict.fromkeys(columns, ())
        for block, span in self._placed():
            if block.column in spans:
                spans[block.column] += (span,)
        return spans

    def encode(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the rows of a frame encoded, float64 of shape (n_samples, n_features)."""
        encoded = np.empty((len(frame), len(self.feature_names)))
        for block, span in self._placed():
            encoded[:, span] = block.encode(frame[block.column])
        return encoded

    def encode_cells(self, cells: Mapping[str, str]) -> dict[int, float]:
        """Return column of X -> value for source column -> level or number as text."""
        values: dict[int, float] = {}
        for block, span in self._placed():
            if block.column in cells:
                row = block.encode(pd.Series([cells[block.column]], name=block.column))[0]
                values.update(enumerate(map(float, row), span.start))
        return values


@dataclass(frozen=True, eq=False)
class Statistics:
    """What an encoder needs to know of a column of the training rows.

    ``fill`` replaces missing numbers, ``mean`` and ``scale`` are those after filling, ``edges`` the
    inner quantiles and ``levels`` those that occur, sorted.
    """

    fill: float = np.nan
    mean: float = 0.0
    scale: float = 1.0
    edges: tuple[float, ...] = ()
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """Which statistics a column needs.

    ``fill`` is the rule by which missing numbers are filled, ``scaled`` asks for mean and scale,
    ``bins`` for quantiles, ``free`` for levels; no other levels than those ``listed`` may occur.
    """

    fill: str | None = None
    scaled: bool = False
    bins: int = 0
    free: bool = False
    listed: tuple[str, ...] | None = None


def list_wanted(config: DatasetConfig) -> dict[str, Wanted]:
    """Return column -> the statistics that features need of it."""
    features = config.features
    numbers, _ = used_columns(config)
    wanted: dict[str, Wanted] = {}
    for name in dict.fromkeys((*features.numeric, *features.binned, *features.passthrough)):
        policy = policy_of(name, config, numeric=True)
        wanted[name] = Wanted(policy if policy in ("mean", "median") else None)
    for name in features.numeric:
        wanted[name] = replace(wanted[name], scaled=True)
    for name in features.quantiles:
        wanted[name] = replace(
            wanted[name], bins=features.quantile.bins if features.quantile else 0
        )
    # Of a column that is used as a number, too, other levels than those of training may come.
    for name in (*features.categorical, *(name for name in features.binary if name not in numbers)):
        wanted[name] = replace(wanted.get(name, Wanted()), free=name not in features.levels)
    for name, levels in features.levels.items():
        filled = policy_of(name, config, numeric=False) == "category"
        listed = (*levels, MISSING_LEVEL) if filled else levels
        wanted[name] = replace(wanted.get(name, Wanted()), listed=listed)
    return wanted


def fit_column(column: pd.Series, wanted: Wanted, file: Path | str) -> Statistics:
    """Return the statistics of a column of the training rows, in their order."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    found: dict[str, Any] = {}
    if wanted.fill:
        imputer = SimpleImputer(strategy=wanted.fill, keep_empty_features=False)
        found["fill"] = fill = float(imputer.fit(column.to_numpy()[:, None]).statistics_[0])
        if np.isnan(fill):
            raise DataError(
                f"{file}: missing: column {column.name!r} has no value in train to take the "
                f"{wanted.fill} of.",
                "Leave the column out.",
            )
        column = column.fillna(fill)
    if wanted.scaled:
        scaler = StandardScaler().fit(column.to_numpy(dtype=np.float64)[:, None])
        found |= {"mean": float(scaler.mean_[0]), "scale": float(scaler.scale_[0])}
    if wanted.bins:
        found["edges"] = quantile_edges(column.to_numpy(), wanted.bins)
    if wanted.free:
        found["levels"] = unique_levels(column)
    if wanted.listed is not None:
        for level in sort_levels({*as_levels(column.dropna())}.difference(wanted.listed)):
            raise ConfigError(
                f"{file}: features.levels: column {column.name!r} holds the level {level!r} in "
                "train, which is not listed.",
                nearest(level, wanted.listed),
            )
    return Statistics(**found)


def fit_statistics(
    frame: pd.DataFrame, config: DatasetConfig, file: Path | str
) -> dict[str, Statistics]:
    """Return column -> its statistics in the training rows."""
    return {name: fit_column(frame[name], each, file) for name, each in list_wanted(config).items()}


def quantile_edges(values: np.ndarray, bins: int) -> tuple[float, ...]:
    """Return the distinct inner quantiles of a column: fewer than bins − 1 where values tie."""
    inner = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    return tuple(float(edge) for edge in np.unique(inner) if edge > values.min())


def make_blocks(
    config: DatasetConfig,
    statistics: Mapping[str, Statistics],
    group_names: Mapping[str, tuple[str, ...]],
) -> tuple[Block, ...]:
    """Return the blocks of all features but texts, in the order of ``features``."""
    features, known = config.features, statistics

    def name_bins(stem: str, edges: tuple[float, ...]) -> tuple[str, ...]:
        return tuple(f"{stem}{number}" for number in range(1, len(edges) + 2))

    def one_hot(column: str, name: str, levels: tuple[str, ...]) -> OneHot:
        return OneHot(column, tuple(f"{name}_{level}" for level in levels), levels=levels)

    def levels_of(name: str) -> tuple[str, ...]:
        return features.levels.get(name) or (known[name].levels if name in known else ())

    blocks: list[Block] = [
        Standard(name, (name,), known[name].fill, known[name].mean, known[name].scale)
        for name in features.numeric
    ]
    blocks += [
        Bins(name, name_bins(f"{name}_q", known[name].edges), known[name].fill, known[name].edges)
        for name in features.quantiles
    ]
    blocks += [
        Bins(name, name_bins(f"{name}_bin", edges), known[name].fill, edges, upper=True)
        for name, edges in features.cut.items()
    ]
    blocks += [one_hot(name, name, levels_of(name)) for name in features.categorical]
    blocks += [
        Binary(name, (f"{name}_{level}",), level=level, levels=levels_of(name))
        for name, level in features.binary.items()
    ]
    blocks += [Block(name, (name,), known[name].fill) for name in features.passthrough]
    blocks += [one_hot(GROUP_PREFIX + name, name, group_names[name]) for name in features.groups]
    return tuple(blocks)


def make_encoder(
    config: DatasetConfig,
    statistics: Mapping[str, Statistics],
    group_names: Mapping[str, tuple[str, ...]],
    file: Path | str,
    text: Block | None = None,
) -> Encoder:
    """Put the blocks of an encoder together, in the order of ``features``; ``text`` comes last."""
    features = config.features
    for name in features.categorical:
        count = len(features.levels.get(name) or statistics[name].levels)
        where = f"{file}: features.categorical: column {name!r} has {count:,} levels"
        config.limits.check("levels", count, where, "Leave it out, or merge levels")
    blocks = make_blocks(config, statistics, group_names)
    encoder = Encoder(blocks if text is None else (*blocks, text))
    names = encoder.feature_names
    if not names:
        raise ConfigError(
            f"{file}: features names no column.",
            "List columns under numeric, categorical, binary, quantile, cut or passthrough.",
        )
    where = f"{file}: features makes {len(names):,} columns of X"
    config.limits.check("features", len(names), where, "Leave columns out")
    if double := repeated(names):
        raise ConfigError(
            f"{file}: features would give two columns the name {double[0]!r}.",
            "List each column once.",
        )
    return encoder
