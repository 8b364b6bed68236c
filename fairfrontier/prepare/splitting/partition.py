"""Which rows go to which part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.section import REST, SplitRule
from fairfrontier.runtime.errors import ConfigError, DataError, nearest


def split_seed(rule: SplitRule, seed: int) -> int:
    """Return the number that seeds split ``seed``: the listed one, else ``seed`` itself."""
    return rule.seeds[seed] if seed < len(rule.seeds) else seed


def part_sizes(parts: dict[str, Any], n: int, file: Path | str) -> dict[str, int]:
    """Turn counts, shares and ``rest`` into row counts.

    Shares are rounded cumulatively, so that shares that add up to 1 use every row once.

    Raises
    ------
    DataError
        When counts ask for more rows than there are, or a part is left without rows.
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
    left = n - sum(sizes.values())
    if left < 0:
        raise DataError(
            f"{file}: split asks for {n - left} rows, and the table has {n}.",
            "Lower the counts, or give shares.",
        )
    sizes = {name: sizes.get(name, left) for name in parts}
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
    """Deal rows to parts.

    Parameters
    ----------
    rule : SplitRule
    n : int
        Number of rows.
    seed : int
        Which split; see ``split_seed``.
    y : ndarray of int64, shape (n,)
        Class codes, for ``stratified``.
    groups : ndarray of int64, shape (n,)
        Group codes, for ``per_group``.
    column : Series of str, length n
        Level text, for ``column``.
    file : Path or str
        Named in errors.

    Returns
    -------
    dict of str to ndarray of int64
        Part -> row positions. Parts are disjoint. ``permutation``, ``random`` and ``stratified``
        keep the order in which rows were drawn; the others keep the table's.

    Raises
    ------
    DataError
        When a part is left without rows, or a class is too small to stratify.
    ConfigError
        When a part names a level that the column does not hold.

    Notes
    -----
    O(n).
    """
    number = split_seed(rule, seed)
    if rule.kind == "column":
        if column is None:
            raise ValueError("kind: column needs the column")
        return _by_column(rule, column, file)
    if rule.kind == "per_group":
        if groups is None:
            raise ValueError("kind: per_group needs groups")
        return _per_group(rule, groups, number, file)
    sizes = part_sizes(rule.parts, n, file)
    if rule.kind == "stratified":
        if y is None:
            raise ValueError("kind: stratified needs class codes")
        return _stratified(sizes, y, number, file)
    if rule.kind == "permutation":
        # The legacy generator is the authors' np.random.seed(s); np.random.permutation(n).
        order = np.random.RandomState(number).permutation(n)
    else:
        order = np.random.default_rng(number).permutation(n)
    parts: dict[str, np.ndarray] = {}
    start = 0
    for name, size in sizes.items():
        parts[name] = order[start : start + size].astype(np.int64)
        start += size
    return parts


def _by_column(rule: SplitRule, column: pd.Series, file: Path | str) -> dict[str, np.ndarray]:
    parts: dict[str, np.ndarray] = {}
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
        start = 0
        for name, size in part_sizes(rule.parts, members.size, file).items():
            pieces[name].append(members[start : start + size])
            start += size
    return {name: np.sort(np.concatenate(each)) for name, each in pieces.items()}


def _stratified(
    sizes: dict[str, int], y: np.ndarray, number: int, file: Path | str
) -> dict[str, np.ndarray]:
    parts: dict[str, np.ndarray] = {}
    rows = np.arange(y.size)
    names = list(sizes)
    for name in names[:-1]:
        others = sum(sizes[other] for other in names[names.index(name) + 1 :])
        taken, left = draw_stratified(y[rows], sizes[name], others, number, file)
        parts[name], rows = rows[taken], rows[left]
    # A single part that is not the whole table has nothing to be split from: take it first.
    last = names[-1]
    parts[last] = rows if rows.size == sizes[last] else rows[: sizes[last]]
    return parts


def draw_stratified(
    y: np.ndarray, first: int, second: int, number: int, file: Path | str
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two disjoint samples that hold every class alike (StratifiedShuffleSplit).

    Returns
    -------
    tuple of ndarray
        Positions of ``first`` and of ``second`` rows.

    Raises
    ------
    DataError
        When a class has fewer than two rows, or a sample fewer rows than there are classes.
    """
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
    """Take a validation part out of train, stratified by class where there are classes.

    Parameters
    ----------
    rule : SplitRule
        ``validation_share`` says how much.
    train : ndarray of int64
        Row positions.
    y : ndarray of int64 or None
        Class codes of all rows; None for regression.
    seed : int
    file : Path or str
        Named in errors.

    Returns
    -------
    tuple of ndarray
        What stays in train and what becomes validation, each in train's order.
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
        keep, taken = order[size:], order[:size]
    else:
        keep, taken = draw_stratified(y[train], train.size - size, size, number, file)
    return train[np.sort(keep)], train[np.sort(taken)]


def add_others(
    rule: SplitRule, parts: Mapping[str, np.ndarray], rest: np.ndarray, seed: int, file: Path | str
) -> dict[str, np.ndarray]:
    """Add a sample of the rows that were not dealt to the parts that ask for some.

    Parameters
    ----------
    rule : SplitRule
        ``others`` says how many.
    parts : mapping of str to ndarray of int64
        Part -> row positions.
    rest : ndarray of int64
        Row positions that ``of`` left out.
    seed : int
    file : Path or str
        Named in errors.

    Returns
    -------
    dict of str to ndarray of int64
        The parts, with what was added behind their own rows.

    Raises
    ------
    DataError
        When there are fewer rows than are asked for.
    """
    wanted = sum(rule.others.values())
    if wanted > rest.size:
        raise DataError(
            f"{file}: split.others asks for {wanted} rows, and split.of leaves {rest.size} out.",
            "Ask for fewer.",
        )
    drawn = np.random.default_rng([split_seed(rule, seed), 5]).permutation(rest)
    added = dict(parts)
    start = 0
    for name, size in rule.others.items():
        added[name] = np.concatenate([parts[name], drawn[start : start + size]])
        start += size
    return added
