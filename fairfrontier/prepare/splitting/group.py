"""Protected attributes: group codes made from columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import Limits
from fairfrontier.prepare.config.section import OTHERS, Group
from fairfrontier.prepare.table.column import as_levels, sort_levels
from fairfrontier.prepare.table.role import name_cells
from fairfrontier.runtime.errors import ConfigError, DataError, nearest


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
        if (codes < 0).any():
            level = str(column.iloc[int((codes < 0).argmax())])
            raise DataError(
                f"{file}: groups.{self.name}: column {self.column!r} holds level {level!r}, "
                "which belongs to no group.",
                f"List it under groups.{self.name}.levels, or give one group the level {OTHERS}.",
            )
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
        for level in merged:
            if level not in present:
                raise ConfigError(
                    f"{file}: groups.{name}.levels.{label}: column {group.column!r} holds no "
                    f"level {level!r}.",
                    nearest(level, present),
                )
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
