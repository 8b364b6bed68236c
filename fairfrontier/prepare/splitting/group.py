"""Protected attributes: group codes made from columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.section import OTHERS, Group
from fairfrontier.prepare.table.column import as_levels, sort_levels
from fairfrontier.runtime.errors import ConfigError, DataError, nearest


@dataclass(frozen=True)
class Attribute:
    """How one attribute is made.

    Attributes
    ----------
    name : str
    names : tuple of str
        Level names; code k is level k.
    column : str or None
        The column it is made from; None for a cross product.
    codes : mapping of str to int
        Column level -> code.
    others : int or None
        Code of the levels that ``codes`` lacks.
    below : float or None
        Threshold: code 0 below it, 1 from it on.
    cross : tuple of str
        The attributes it combines.
    """

    name: str
    names: tuple[str, ...]
    column: str | None = None
    codes: Mapping[str, int] | None = None
    others: int | None = None
    below: float | None = None
    cross: tuple[str, ...] = ()

    def encode(self, column: pd.Series, file: Path | str = "") -> np.ndarray:
        """Return the group codes of a column, int64 of shape (n_samples,).

        Raises
        ------
        DataError
            When a level has no code.
        """
        if self.below is not None:
            return (column.to_numpy(dtype=np.float64) >= self.below).astype(np.int64)
        codes = as_levels(column).map(dict(self.codes or {}))
        if self.others is not None:
            codes = codes.fillna(self.others)
        unknown = codes.isna()
        if unknown.any():
            level = column.iloc[int(unknown.to_numpy().argmax())]
            raise DataError(
                f"{file}: groups.{self.name}: column {self.column!r} holds level {level!r}, "
                "which belongs to no group.",
                f"List it under groups.{self.name}.levels, or give one group the level {OTHERS}.",
            )
        return codes.to_numpy(dtype=np.int64)


def fit_attributes(
    groups: Mapping[str, Group], levels: Mapping[str, tuple[str, ...]], file: Path | str
) -> tuple[Attribute, ...]:
    """Settle the levels of every attribute.

    Parameters
    ----------
    groups : mapping of str to Group
        What the YAML says.
    levels : mapping of str to tuple of str
        The levels that occur in each column that makes a group by level.
    file : Path or str
        Named in errors.

    Returns
    -------
    tuple of Attribute
        In the order of the YAML.

    Raises
    ------
    ConfigError
        When a level is named that the column does not hold, or is named twice.
    """
    made: dict[str, Attribute] = {}
    for name, group in groups.items():
        if group.cross:
            continue
        if group.below is not None:
            names = group.names or (f"below {group.below:g}", f"from {group.below:g}")
            made[name] = Attribute(name, names, column=group.column, below=group.below)
        else:
            made[name] = _by_level(name, group, levels[group.column or ""], file)
    for name, group in groups.items():
        if group.cross:
            combined: tuple[str, ...] = ("",)
            for each in group.cross:
                combined = tuple(
                    f"{left}×{right}" if left else right
                    for left in combined
                    for right in made[each].names
                )
            made[name] = Attribute(name, combined, cross=group.cross)
    return tuple(made[name] for name in groups)


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
            if level in codes:
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
    codes = np.zeros((len(frame), len(attributes)), dtype=np.int64)
    for position, attribute in enumerate(attributes):
        if attribute.column is not None:
            codes[:, position] = attribute.encode(frame[attribute.column], file)
    return cross_codes(attributes, codes)


def cross_codes(attributes: tuple[Attribute, ...], codes: np.ndarray) -> np.ndarray:
    """Fill in the columns of cross products from the columns of what they combine."""
    codes = codes.copy()
    place = {attribute.name: position for position, attribute in enumerate(attributes)}
    for position, attribute in enumerate(attributes):
        if attribute.cross:
            codes[:, position] = 0
            for other in attribute.cross:
                width = len(attributes[place[other]].names)
                codes[:, position] = codes[:, position] * width + codes[:, place[other]]
    return codes


def check_attributes(
    attributes: tuple[Attribute, ...],
    codes: np.ndarray,
    parts: Mapping[str, np.ndarray],
    file: Path | str,
) -> None:
    """Refuse an attribute that is constant in train, or has levels that train has not seen.

    Raises
    ------
    DataError
        Names the attribute and the level.
    """
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
