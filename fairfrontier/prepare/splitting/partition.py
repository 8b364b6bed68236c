"""Which rows go to which part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.section import REST, SplitRule
from fairfrontier.prepare.table.column import as_levels
from fairfrontier.runtime.errors import ConfigError, DataError, nearest


def split_seed(rule: SplitRule, seed: int) -> int:
    """Return the number that seeds split ``seed``: the listed one, else ``seed`` itself."""
    return rule.seeds[seed] if seed < len(rule.seeds) else seed


def part_sizes(parts: dict[str, Any], n: int, file: Path | str) -> dict[str, int]:
    """Return row counts for counts, shares and ``rest``.

    Shares are rounded cumulatively, so that shares that add up to 1 use every row once. Every part
    must get rows.
    """
    sizes: dict[str, int] = {}
    share = 0.0
    start = 0
    for name, amount in parts.items():
        if isinstance(amount, float):
            share += amount
            end = int(np.floor(share * n + 0.5))
            sizes[name] = end - start
            start = end
        elif amount != REST:
            sizes[name] = amount
    remaining = n - sum(sizes.values())
    if remaining < 0:
        raise DataError(
            f"{file}: split asks for {n - remaining} rows, and the table has {n}.",
            "Lower the counts, or give shares.",
        )
    sizes = {name: sizes.get(name, remaining) for name in parts}
    for name, size in sizes.items():
        if size < 1:
            raise DataError(
                f"{file}: split.{name} is left without rows (the table has {n}).",
                "Give it a larger share, or more rows.",
            )
    return sizes


def partition(
    rule: SplitRule,
    n: int,
    seed: int,
    *,
    y: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    column: pd.Series | None = None,
    file: Path | str = "",
) -> dict[str, np.ndarray]:
    """Return disjoint row positions of every part, int64.

    ``permutation``, ``random`` and ``stratified`` keep the order in which rows were drawn; the
    others keep the table's. ``stratified`` needs the class codes ``y``, ``per_group`` the group
    codes ``groups`` and ``column`` the level text ``column``, each of length n. O(n).
    """
    number = split_seed(rule, seed)
    if rule.kind == "column" and column is not None:
        return _by_column(rule, column, file)
    if rule.kind == "per_group" and groups is not None:
        return _per_group(rule, groups, number, file)
    sizes = part_sizes(rule.parts, n, file)
    if rule.kind == "stratified" and y is not None:
        return _stratified(sizes, y, number, file)
    if rule.kind == "permutation":
        # The legacy generator is the authors' np.random.seed(s); np.random.permutation(n).
        return _cut(np.random.RandomState(number).permutation(n).astype(np.int64), sizes)
    if rule.kind == "random":
        return _cut(np.random.default_rng(number).permutation(n), sizes)
    raise ValueError(f"kind: {rule.kind} needs the array it splits by")


def _cut(rows: np.ndarray, sizes: Mapping[Any, int]) -> dict[str, np.ndarray]:
    """Return consecutive pieces of an array by their sizes; what remains is left out."""
    return dict(zip(sizes, np.split(rows, np.cumsum([*sizes.values()])), strict=False))


def _by_column(rule: SplitRule, column: pd.Series, file: Path | str) -> dict[str, np.ndarray]:
    parts: dict[str, np.ndarray] = {}
    column = as_levels(column)
    present = set(column.unique())
    for name, levels in rule.parts.items():
        for level in levels:
            if level not in present:
                raise ConfigError(
                    f"{file}: split.{name}: column {rule.column!r} holds no level {level!r}.",
                    nearest(level, present),
                )
        parts[name] = np.flatnonzero(column.isin(levels).to_numpy())
    return parts


def _per_group(
    rule: SplitRule, groups: np.ndarray, number: int, file: Path | str
) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(number)
    pieces: dict[str, list[np.ndarray]] = {name: [] for name in rule.parts}
    for code in np.unique(groups):
        members = generator.permutation(np.flatnonzero(groups == code))
        for name, piece in _cut(members, part_sizes(rule.parts, members.size, file)).items():
            pieces[name].append(piece)
    return {name: np.sort(np.concatenate(arrays)) for name, arrays in pieces.items()}


def _stratified(
    sizes: dict[str, int], y: np.ndarray, number: int, file: Path | str
) -> dict[str, np.ndarray]:
    parts: dict[str, np.ndarray] = {}
    rows = np.arange(y.size)
    *names, last = sizes
    others = sum(sizes.values())
    for name in names:
        others -= sizes[name]
        drawn, remaining = draw_stratified(y[rows], sizes[name], others, number, file)
        parts[name], rows = rows[drawn], rows[remaining]
    # A single part has nothing to be split from.
    parts[last] = rows[: sizes[last]]
    return parts


def draw_stratified(
    y: np.ndarray, first: int, second: int, number: int, file: Path | str
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of two disjoint samples with equal class shares (StratifiedShuffleSplit)."""
    from sklearn.model_selection import StratifiedShuffleSplit

    rule = StratifiedShuffleSplit(
        n_splits=1, train_size=first, test_size=second, random_state=number
    )
    try:
        one, other = next(rule.split(np.zeros((y.size, 1)), y))
    except ValueError as error:
        raise DataError(
            f"{file}: split: the label cannot be stratified: {str(error).rstrip('.')}.",
            "Use split.kind: random, or merge rare classes.",
        ) from None
    return one.astype(np.int64), other.astype(np.int64)


def carve_validation(
    rule: SplitRule, train: np.ndarray, y: np.ndarray | None, seed: int, file: Path | str
) -> tuple[np.ndarray, np.ndarray]:
    """Split train into train and validation, stratified by the class codes y where there are some.

    Both keep train's order.
    """
    size = max(1, round(rule.validation_share * train.size))
    if train.size - size < 1:
        raise DataError(
            f"{file}: train has {train.size} row, and select_on: validation needs at least two.",
            "Give train more rows, or use select_on: train.",
        )
    number = split_seed(rule, seed)
    if y is None:
        order = np.random.default_rng([number, 3]).permutation(train.size)
        keep, drawn = order[size:], order[:size]
    else:
        keep, drawn = draw_stratified(y[train], train.size - size, size, number, file)
    return train[np.sort(keep)], train[np.sort(drawn)]


def add_others(
    rule: SplitRule,
    parts: Mapping[str, np.ndarray],
    remaining: np.ndarray,
    seed: int,
    file: Path | str,
) -> dict[str, np.ndarray]:
    """Return the parts with a sample of the remaining rows added behind their rows.

    ``remaining`` are the row positions that ``of`` left out.
    """
    wanted = sum(rule.others.values())
    if wanted > remaining.size:
        raise DataError(
            f"{file}: split.others asks for {wanted} rows; split.of leaves {remaining.size} out.",
            "Ask for fewer.",
        )
    drawn = np.random.default_rng([split_seed(rule, seed), 5]).permutation(remaining)
    added = _cut(drawn, rule.others)
    return {
        name: np.concatenate([rows, added[name]]) if name in added else rows
        for name, rows in parts.items()
    }
