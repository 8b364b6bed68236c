"""Features: columns of a table to columns of X, with everything fitted on the training rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from fairfrontier.prepare.config.dataset import DatasetConfig, Limits
from fairfrontier.prepare.config.section import OTHERS, Group
from fairfrontier.prepare.table.column import (
    MISSING_LEVEL,
    Cells,
    as_levels,
    sort_levels,
    unique_levels,
)
from fairfrontier.prepare.table.role import name_cells
from fairfrontier.prepare.table.rows import policy_of, used_columns
from fairfrontier.runtime.errors import ConfigError, DataError, refuse_unknown, repeated

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


@dataclass(frozen=True, eq=False)
class Raw(Block):
    """The cells as they are, for an estimator that encodes them itself.

    Numbers where it is ``numeric``, else levels as text; of the ``levels``, if there are any, all
    others are refused. Missing cells are passed on where they are ``accepted``.
    """

    numeric: bool = True
    accepted: bool = True
    levels: tuple[str, ...] = ()

    def encode(self, column: pd.Series) -> np.ndarray:
        """Return the cells as objects, shape (n_samples, 1); a missing one is None."""
        cells = self.numbers(column) if self.numeric else take_levels(column)
        return pd.Series(cells, dtype=object).where(pd.notna(cells), None).to_numpy()[:, None]


KINDS = {cls.__name__: cls for cls in (Block, Standard, Bins, OneHot, Binary, Raw)}


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
        """Return the rows of a frame encoded, float64 of shape (n_samples, n_features).

        Objects where some are `Raw`.
        """
        kind = object if any(isinstance(block, Raw) for block in self.blocks) else np.float64
        encoded = np.empty((len(frame), len(self.feature_names)), dtype=kind)
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


def fit_column(column: pd.Series, config: DatasetConfig, file: Path | str) -> dict[str, Block]:
    """Return key of ``features`` -> the block that it makes of a column of the training rows.

    Statistics are those of the rows in their order.
    """
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    features, name, fill = config.features, str(column.name), np.nan
    made: dict[str, Block] = {}
    is_number = name in (*features.numeric, *features.binned, *features.passthrough)
    policy = policy_of(name, config, numeric=True) if is_number else ""
    if policy in ("mean", "median"):
        imputer = SimpleImputer(strategy=policy, keep_empty_features=False)
        fill = float(imputer.fit(column.to_numpy()[:, None]).statistics_[0])
        if np.isnan(fill):
            raise DataError(
                f"{file}: missing: column {name!r} has no value in train to take the {policy} of.",
                "Leave the column out.",
            )
        column = column.fillna(fill)
    if name in features.numeric:
        scaler = StandardScaler().fit(column.to_numpy(dtype=np.float64)[:, None])
        mean, scale = float(scaler.mean_[0]), float(scaler.scale_[0])
        made["numeric"] = Standard(name, (name,), fill, mean, scale)
    if features.quantile and name in features.quantiles:
        edges = quantile_edges(column.to_numpy(), features.quantile.bins)
        made["quantile"] = Bins(name, _number_bins(f"{name}_q", edges), fill, edges)
    if name in features.cut:
        edges = features.cut[name]
        made["cut"] = Bins(name, _number_bins(f"{name}_bin", edges), fill, edges, upper=True)
    if name in features.passthrough:
        made["passthrough"] = Block(name, (name,), fill)
    levels = features.levels.get(name, ())
    if levels:
        filled = policy_of(name, config, numeric=False) == "category"
        listed = (*levels, MISSING_LEVEL) if filled else levels
        where = f"{file}: features.levels: column {name!r} holds the level"
        refuse_unknown(unique_levels(column), listed, where, " in train, which is not listed")
    # Of a column that is used as a number, too, other levels than those of training may come.
    elif name in features.categorical or name not in used_columns(config)[0]:
        levels = unique_levels(column)
    if name in features.categorical:
        where = f"{file}: features.categorical: column {name!r} has {len(levels):,} levels"
        config.limits.check("levels", len(levels), where, "Leave it out, or merge levels")
        made["categorical"] = _one_hot(name, name, levels)
    if name in features.binary:
        level = features.binary[name]
        made["binary"] = Binary(name, (f"{name}_{level}",), level=level, levels=levels)
    return made


def _number_bins(stem: str, edges: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"{stem}{number}" for number in range(1, len(edges) + 2))


def _one_hot(column: str, name: str, levels: tuple[str, ...]) -> OneHot:
    return OneHot(column, tuple(f"{name}_{level}" for level in levels), levels=levels)


def quantile_edges(values: np.ndarray, bins: int) -> tuple[float, ...]:
    """Return the distinct inner quantiles of a column: fewer than bins − 1 where values tie."""
    inner = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    return tuple(float(edge) for edge in np.unique(inner) if edge > values.min())


def list_fitted(config: DatasetConfig) -> dict[str, tuple[str, ...]]:
    """Return key of ``features`` -> its columns that `fit_column` takes, in the order of X."""
    features = config.features
    return {
        "numeric": tuple(features.numeric),
        "quantile": features.quantiles,
        "cut": tuple(features.cut),
        "categorical": tuple(features.categorical),
        "binary": tuple(features.binary),
        "passthrough": features.passthrough,
    }


def make_encoder(
    config: DatasetConfig,
    fitted: Mapping[str, Mapping[str, Block]],
    group_names: Mapping[str, tuple[str, ...]],
    file: Path | str,
    text: Block | None = None,
) -> Encoder:
    """Put the fitted blocks together in the order of ``features``, groups and ``text`` last."""
    blocks = [fitted[name][key] for key, names in list_fitted(config).items() for name in names]
    blocks += [
        _one_hot(GROUP_PREFIX + name, name, group_names[name]) for name in config.features.groups
    ]
    encoder = Encoder(tuple(blocks) if text is None else (*blocks, text))
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


# Protected attributes: group codes made from columns.


@dataclass(frozen=True)
class Attribute:
    """How one attribute is made; code k is the level names[k].

    From ``column``: by ``codes`` (column level -> code) with ``others`` as the code of the
    remaining levels, or by bands: code k counts the ``edges`` that a number is not below. Or as the
    ``cross`` product of others.
    """

    name: str
    names: tuple[str, ...]
    column: str | None = None
    codes: Mapping[str, int] | None = None
    others: int | None = None
    edges: tuple[float, ...] = ()
    cross: tuple[str, ...] = ()

    def find(self, column: pd.Series) -> np.ndarray:
        """Return the group codes of a column, int64; −1 where a row belongs to no group."""
        absent = column.isna().to_numpy()
        if self.edges:
            numbers = column.to_numpy(dtype=np.float64)
            codes = np.searchsorted(self.edges, numbers, side="right")
            return np.where(absent, -1, codes).astype(np.int64)
        others = -1 if self.others is None else self.others
        known = as_levels(column).map(dict(self.codes or {}))
        return np.where(absent, -1, known.fillna(others).to_numpy(dtype=np.int64))

    def encode(self, column: pd.Series, file: Path | str = "") -> np.ndarray:
        """Return the group codes of a column, int64 of shape (n_samples,)."""
        codes = self.find(column)
        mend = f"List it under groups.{self.name}.levels, or give one group the level {OTHERS}."
        cells = Cells(column.rename(self.column), "", f"{file}: groups.{self.name}")
        cells.refuse(codes < 0, ", which belongs to no group", mend)
        return codes


def fit_attributes(
    groups: Mapping[str, Group],
    levels: Mapping[str, tuple[str, ...]],
    file: Path | str,
    limits: Limits,
) -> tuple[Attribute, ...]:
    """Return the attributes in the order of the YAML, with their levels.

    ``levels`` are those that occur in each column that makes a group by level. A level that is
    named must occur, and in one group only.
    """
    made: dict[str, Attribute] = {}
    for name, group in groups.items():
        if group.cross:
            continue
        if group.edges:
            where = f"{file}: groups.{name}: below makes {len(group.edges) + 1:,} bands"
            limits.check("levels", len(group.edges) + 1, where, "List fewer numbers")
            names = group.names or name_bands(group.edges)
            made[name] = Attribute(name, names, column=group.column, edges=group.edges)
        else:
            made[name] = _by_level(name, group, levels[group.column or ""], file)
            where = f"{file}: groups.{name}: column {group.column!r} has {len(made[name].names):,}"
            limits.check("levels", len(made[name].names), f"{where} levels", "Merge some of them")
    for name, group in groups.items():
        if group.cross:
            count = math.prod(len(made[other].names) for other in group.cross)
            where = f"{file}: groups.{name}: cross makes {count:,} combinations of levels"
            limits.check("levels", count, where, "Cross fewer attributes")
            cells = product(*(made[other].names for other in group.cross))
            names = name_cells(cells, f"{file}: groups.{name}")
            made[name] = Attribute(name, names, cross=group.cross)
    # Studies measure pairs, too. Two have one name only where both sides have levels with a ×.
    signed = [each for each in made.values() if not each.cross and "×" in "".join(each.names)]
    for first, second in combinations(signed, 2):
        if len(first.names) * len(second.names) <= limits.levels:
            where = f"{file}: groups.{first.name} and groups.{second.name}"
            name_cells(product(first.names, second.names), where)
    return tuple(made[name] for name in groups)


def name_bands(edges: tuple[float, ...]) -> tuple[str, ...]:
    """Return names of the bands between rising edges: below 25, 25 to below 40, from 40."""
    texts = [_write_edge(edge) for edge in edges]
    between = (f"{low} to below {high}" for low, high in pairwise(texts))
    return (f"below {texts[0]}", *between, f"from {texts[-1]}")


def _write_edge(edge: float) -> str:
    """Return a number in so many digits that it reads back as itself, and no two are alike."""
    texts = (f"{edge:.{digits}g}" for digits in (6, 15, 17))
    return next(text for text in texts if float(text) == edge)


def _by_level(name: str, group: Group, present: tuple[str, ...], file: Path | str) -> Attribute:
    if group.levels is None:
        codes = {level: code for code, level in enumerate(sort_levels(present))}
        return Attribute(name, tuple(codes), column=group.column, codes=codes)
    codes = {}
    others = None
    for code, (label, merged) in enumerate(group.levels.items()):
        if merged == (OTHERS,) and OTHERS not in present:
            others = code
            continue
        where = f"{file}: groups.{name}.levels.{label}: column {group.column!r} holds no level"
        refuse_unknown(merged, present, where)
        for level in merged:
            if codes.get(level, code) != code:
                raise ConfigError(
                    f"{file}: groups.{name}.levels: {level!r} is listed in two groups.",
                    "List each level once.",
                )
            codes[level] = code
    return Attribute(name, tuple(group.levels), column=group.column, codes=codes, others=others)


def encode_attributes(
    attributes: tuple[Attribute, ...], frame: pd.DataFrame, file: Path | str = ""
) -> np.ndarray:
    """Return the group codes of all attributes, int64 of shape (n_samples, n_attributes)."""
    codes = find_groups(attributes, frame)
    for position, attribute in enumerate(attributes):
        if attribute.column is not None and (none := codes[:, position] < 0).any():
            attribute.encode(frame[attribute.column][none], file)
    return codes


def find_groups(attributes: tuple[Attribute, ...], frame: pd.DataFrame) -> np.ndarray:
    """Return the group codes of all attributes, with −1 where a row belongs to no group.

    Columns that the frame lacks give −1 in every row.
    """
    codes = np.full((len(frame), len(attributes)), -1, dtype=np.int64)
    names = [attribute.name for attribute in attributes]
    for position, attribute in enumerate(attributes):
        if attribute.column in frame:
            codes[:, position] = attribute.find(frame[attribute.column])
    crossed = cross_codes(np.maximum(codes, 0), attributes)
    for position, attribute in enumerate(attributes):
        factors = [names.index(other) for other in attribute.cross or (attribute.name,)]
        crossed[(codes[:, factors] < 0).any(axis=1), position] = -1
    return crossed


def cross_codes(codes: np.ndarray, attributes: tuple[Attribute, ...]) -> np.ndarray:
    """Return the codes with the columns of cross products made from those of their attributes."""
    codes = codes.copy()
    names = [attribute.name for attribute in attributes]
    for position, attribute in enumerate(attributes):
        if attribute.cross:
            columns = [names.index(other) for other in attribute.cross]
            shape = [len(attributes[column].names) for column in columns]
            codes[:, position] = np.ravel_multi_index(tuple(codes[:, columns].T), shape)
    return codes


def check_attributes(
    attributes: tuple[Attribute, ...],
    codes: np.ndarray,
    parts: Mapping[str, np.ndarray],
    file: Path | str,
) -> None:
    """Raise a DataError for an attribute that is constant, or has unseen levels, in train."""
    for position, attribute in enumerate(attributes):
        seen = np.bincount(codes[parts["train"], position], minlength=len(attribute.names)) > 0
        if seen.sum() < 2:
            raise DataError(
                f"{file}: groups.{attribute.name} is constant: all training rows are "
                f"{attribute.names[int(seen.argmax())]!r}.",
                "A protected attribute needs at least two groups: choose another column, "
                "threshold or rows.",
            )
        if attribute.cross:
            # An empty cell of a cross product says nothing about the levels of its attributes.
            continue
        for part, rows in parts.items():
            unseen = ~seen & (np.bincount(codes[rows, position], minlength=seen.size) > 0)
            if unseen.any():
                raise DataError(
                    f"{file}: groups.{attribute.name}: level "
                    f"{attribute.names[int(unseen.argmax())]!r} occurs in {part} and never in "
                    "train.",
                    f"Merge rare levels under groups.{attribute.name}.levels, "
                    "or use split.kind: per_group.",
                )
