"""Features: columns of a table to columns of X, with everything fitted on the training rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.table.column import (
    MISSING_LEVEL,
    as_levels,
    list_levels,
    policy_of,
    sort_levels,
    unique_levels,
    used_columns,
)
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
        codes = pd.Index(self.levels).get_indexer(pd.Index(as_levels(column)))
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
        return (as_levels(column) == self.level).to_numpy(dtype=np.float64)[:, None]


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
            # JSON has lists where fields are tuples.
            fields: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in described.items()
            }
            kind = KINDS[fields.pop("block")]
            fill = np.nan if fields["fill"] is None else float(fields["fill"])
            blocks.append(kind(**{**fields, "fill": fill}))
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
    """Statistics of the training rows that encoders need, however they were computed.

    ``mean`` and ``scale`` of numeric columns after filling, and the ``fill``; inner ``edges`` of
    quantile bins; sorted ``levels`` of categorical and binary columns.
    """

    mean: Mapping[str, float]
    scale: Mapping[str, float]
    fill: Mapping[str, float]
    edges: Mapping[str, tuple[float, ...]]
    levels: Mapping[str, tuple[str, ...]]


def filled_columns(config: DatasetConfig) -> dict[str, str]:
    """Return the numeric feature columns whose missing cells are filled, with mean or median."""
    features = config.features
    numeric = (*features.numeric, *features.binned, *features.passthrough)
    policies = {name: policy_of(name, config, numeric=True) for name in numeric}
    return {name: rule for name, rule in policies.items() if rule in ("mean", "median")}


def free_columns(config: DatasetConfig) -> list[str]:
    """Return the categorical and binary feature columns whose levels are those of training rows.

    Of a column that is used as a number, too, others than those of training are to be expected.
    """
    numbers, _ = used_columns(config)
    features = config.features
    binary = (name for name in features.binary if name not in numbers)
    names = dict.fromkeys((*features.categorical, *binary))
    return [name for name in names if name not in features.levels]


def fit_statistics(frame: pd.DataFrame, config: DatasetConfig, file: Path | str) -> Statistics:
    """Fit the statistics on the training rows with scikit-learn."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    features = config.features
    frame = frame.copy(deep=False)
    fill: dict[str, float] = {}
    for name, rule in filled_columns(config).items():
        imputer = SimpleImputer(strategy=rule, keep_empty_features=False)
        fill[name] = float(imputer.fit(frame[[name]].to_numpy()).statistics_[0])
        refuse_empty(name, rule, fill[name], file)
        frame[name] = frame[name].fillna(fill[name])
    numeric = list(features.numeric)
    mean: dict[str, float] = {}
    scale: dict[str, float] = {}
    if numeric:
        scaler = StandardScaler().fit(frame[numeric].to_numpy(dtype=np.float64))
        mean = dict(zip(numeric, map(float, scaler.mean_), strict=True))
        scale = dict(zip(numeric, map(float, scaler.scale_), strict=True))
    edges = {}
    if features.quantile:
        for name in features.quantiles:
            edges[name] = quantile_edges(frame[name].to_numpy(), features.quantile.bins)
    levels = {name: unique_levels(frame[name]) for name in free_columns(config)}
    for name, found in list_levels(frame, features.levels).items():
        refuse_unlisted(name, found, config, file)
    return Statistics(mean, scale, fill, edges, levels)


def refuse_empty(name: str, rule: str, value: float, file: Path | str) -> None:
    """Raise a DataError when a value to fill with could not be computed."""
    if np.isnan(value):
        raise DataError(
            f"{file}: missing: column {name!r} has no value in train to take the {rule} of.",
            "Leave the column out.",
        )


def refuse_unlisted(
    name: str, found: Iterable[str], config: DatasetConfig, file: Path | str
) -> None:
    """Raise a ConfigError where training rows have a level that is not among those listed."""
    listed = config.features.levels[name]
    filled = policy_of(name, config, numeric=False) == "category"
    for level in sort_levels({*found}.difference(listed, {MISSING_LEVEL} if filled else ())):
        raise ConfigError(
            f"{file}: features.levels: column {name!r} holds the level {level!r} in train, which "
            "is not listed.",
            nearest(level, listed),
        )


def quantile_edges(values: np.ndarray, bins: int) -> tuple[float, ...]:
    """Return the distinct inner quantiles of a column: fewer than bins − 1 where values tie."""
    inner = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    return tuple(float(edge) for edge in np.unique(inner) if edge > values.min())


def make_blocks(
    config: DatasetConfig, statistics: Statistics, group_names: Mapping[str, tuple[str, ...]]
) -> tuple[Block, ...]:
    """Return the blocks of all features but texts, in the order of ``features``."""
    features, edges = config.features, statistics.edges
    fill = dict.fromkeys(features.binned + features.passthrough + tuple(features.numeric), np.nan)
    fill |= statistics.fill
    levels = {**statistics.levels, **features.levels}

    def name_bins(stem: str, edges: tuple[float, ...]) -> tuple[str, ...]:
        return tuple(f"{stem}{number}" for number in range(1, len(edges) + 2))

    def one_hot(column: str, name: str, levels: tuple[str, ...]) -> OneHot:
        return OneHot(column, tuple(f"{name}_{level}" for level in levels), levels=levels)

    blocks: list[Block] = [
        Standard(name, (name,), fill[name], statistics.mean[name], statistics.scale[name])
        for name in features.numeric
    ]
    blocks += [
        Bins(name, name_bins(f"{name}_q", edges[name]), fill[name], edges[name])
        for name in features.quantiles
    ]
    blocks += [
        Bins(name, name_bins(f"{name}_bin", edges), fill[name], edges, upper=True)
        for name, edges in features.cut.items()
    ]
    blocks += [one_hot(name, name, levels[name]) for name in features.categorical]
    blocks += [
        Binary(name, (f"{name}_{level}",), level=level, levels=levels.get(name, ()))
        for name, level in features.binary.items()
    ]
    blocks += [Block(name, (name,), fill[name]) for name in features.passthrough]
    blocks += [one_hot(GROUP_PREFIX + name, name, group_names[name]) for name in features.groups]
    return tuple(blocks)


def make_encoder(
    config: DatasetConfig,
    statistics: Statistics,
    group_names: Mapping[str, tuple[str, ...]],
    file: Path | str,
    text: Block | None = None,
) -> Encoder:
    """Put the blocks of an encoder together, in the order of ``features``; ``text`` comes last."""
    features = config.features
    for name in features.categorical:
        count = len(features.levels.get(name) or statistics.levels[name])
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
