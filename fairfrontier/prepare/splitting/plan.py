"""What is decided about a split before its features are encoded: labels, parts and versions."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.section import (
    LONGEST_NAME,
    REST,
    Drop,
    Group,
    Label,
    Noise,
    SplitRule,
)
from fairfrontier.prepare.split import Part, Split, Variant
from fairfrontier.prepare.splitting.encoder import (
    GROUP_PREFIX,
    Attribute,
    Encoder,
    check_attributes,
    cross_codes,
    encode_attributes,
    fit_attributes,
)
from fairfrontier.prepare.table.column import MISSING_LEVEL, as_levels, sort_levels, unique_levels
from fairfrontier.prepare.table.rows import (
    YAML_TRUTH,
    as_numbers,
    find_rows,
    list_compared,
    list_levels,
    policy_of,
    refuse_absent,
    used_columns,
)
from fairfrontier.runtime.errors import ConfigError, DataError, refuse_unknown

# By how much a share of class 1 may differ from the one that is stated.
ROUNDED = 0.001


@dataclass(frozen=True, eq=False)
class Target:
    """An encoded label: int64 class codes or float64 targets, and the names of the classes by code.

    ``classes`` is empty for regression; ``favourable`` is a code, or None where there is none.
    """

    y: np.ndarray
    classes: tuple[str, ...]
    favourable: int | None


def encode_label(column: pd.Series, label: Label, file: Path | str) -> Target:
    """Encode a label column.

    A binary label becomes 1 where the column holds a ``positive`` level and 0 elsewhere; without
    ``positive`` it must have two levels, and the later one in sorted order is 1. With ``above`` it
    is 1 where the column holds a larger number. Classes of a multiclass label are sorted. A
    regression target y in ``range`` [a, b] becomes (y − a)/(b − a); with ``positive`` it is 1.0
    where the column holds such a level and 0.0 elsewhere.
    """
    if label.task == "regression" and label.positive is None:
        return _regression(column, label, file)
    positive, names = label.positive, label.names
    if label.above is not None:
        names = names or (f"up to {label.above:g}", f"above {label.above:g}")
        is_above = as_numbers(column, "label.column", file) > label.above
        column = pd.Series(np.where(is_above, names[1], names[0]), column.index, name=column.name)
        positive = names[1:]
    text = as_levels(column)
    levels = sort_levels(text.unique())
    where = f"{file}: label.column: {label.column!r}"
    if len(levels) < 2:
        raise DataError(
            f"{where} has only one class: {', '.join(levels)}.",
            "A classifier needs two: check rows.keep and the column.",
        )
    if label.task == "multiclass":
        classes, meaning = levels, {level: code for code, level in enumerate(levels)}
    else:
        if positive is None and len(levels) > 2:
            raise DataError(
                f"{where} has {len(levels)} levels ({', '.join(levels[:6])}), and a binary label "
                "two.",
                "Name the positive ones under label.positive, or set label.task to multiclass.",
            )
        positive = positive or levels[-1:]
        for level in positive:
            truth = YAML_TRUTH if level in ("True", "False") else ""
            refuse_unknown(
                [level], levels, f"{file}: label.positive: {label.column!r} never is", truth
            )
        meaning = {level: int(level in positive) for level in levels}
        negative = [level for level, code in meaning.items() if not code]
        if not negative:
            raise DataError(
                f"{where} has only one class: every level is positive.",
                "List under label.positive only the levels that mean 1.",
            )
        classes = names or (negative[0] if len(negative) == 1 else "other", positive[0])
        for code, name in enumerate(classes):
            if name.casefold() in {level.casefold() for level in (negative, positive)[1 - code]}:
                raise ConfigError(
                    f"{file}: label.names: class {code} is called {name!r}, a level of class "
                    f"{1 - code}.",
                    "Give label.names, first that of class 0, then that of class 1, which holds "
                    "the positive levels.",
                )
    y = text.map(meaning).to_numpy(dtype=np.int64)
    if label.task == "regression":
        return Target(y.astype(np.float64), (), None)
    longest = max(map(len, classes))
    if longest > LONGEST_NAME:
        raise DataError(
            f"{where} has a class of {longest:,} letters, and names have at most {LONGEST_NAME:,}.",
            "Name the classes in fewer letters.",
        )
    if label.favourable is not None:
        known = {*meaning, *classes}
        refuse_unknown([label.favourable], known, f"{file}: label.favourable: there is no class")
    return Target(y, classes, label.find_favourable(classes))


def _regression(column: pd.Series, label: Label, file: Path | str) -> Target:
    y = as_numbers(column, "label.column", file).to_numpy(dtype=np.float64)
    if np.all(y == y[0]):
        raise DataError(
            f"{file}: label.column: {label.column!r} is {y[0]:g} in every row.",
            "A regression target must vary: check rows.keep and the column.",
        )
    if label.range:
        low, high = label.range
        if label.clip:
            y = np.clip(y, low, high)
        if y.min() < low or y.max() > high:
            raise DataError(
                f"{file}: label.range: {label.column!r} lies between {y.min():g} and "
                f"{y.max():g}, outside [{low:g}, {high:g}].",
                "Widen label.range, set label.clip, or leave rows out with rows.keep.",
            )
        y = (y - low) / (high - low)
    return Target(y, (), None)


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
    return _cut(np.random.default_rng(number).permutation(n), sizes)


def _cut(rows: np.ndarray, sizes: Mapping[Any, int]) -> dict[str, np.ndarray]:
    """Return consecutive pieces of an array by their sizes; what remains is left out."""
    return dict(zip(sizes, np.split(rows, np.cumsum([*sizes.values()])), strict=False))


def _by_column(rule: SplitRule, column: pd.Series, file: Path | str) -> dict[str, np.ndarray]:
    parts: dict[str, np.ndarray] = {}
    column = as_levels(column)
    present = set(column.unique())
    for name, levels in rule.parts.items():
        where = f"{file}: split.{name}: column {rule.column!r} holds no level"
        refuse_unknown(levels, present, where)
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


def add_noise(
    rules: Mapping[str, Noise],
    attributes: tuple[Attribute, ...],
    groups: np.ndarray,
    seed: int,
    file: Path | str,
) -> np.ndarray:
    """Return the group codes with some replaced by wrong ones.

    With ``share`` γ, round(γ·n) rows are drawn without replacement and each moves to one of the
    other groups, uniformly. With ``confusion`` C, every row of group j is seen in group k with
    probability C[j][k]. Cross products follow. ``groups``: int64, shape (n_samples, n_attributes).
    """
    noisy = groups.copy()
    for position, attribute in enumerate(attributes):
        rule = rules.get(attribute.name)
        if rule is None:
            continue
        # One stream per attribute: adding a second noisy attribute leaves the first alone.
        generator = np.random.default_rng([seed, 1, position])
        codes, names = groups[:, position], attribute.names
        if rule.share is not None:
            moved = generator.choice(len(codes), size=round(rule.share * len(codes)), replace=False)
            step = generator.integers(1, len(names), size=moved.size)
            noisy[moved, position] = (codes[moved] + step) % len(names)
            continue
        chance = np.zeros((len(names), len(names)))
        where = f"{file}: perturb.noisy_groups.{attribute.name}.confusion: there is no group"
        for true, seen in (rule.confusion or {}).items():
            refuse_unknown((true, *seen), names, where)
            for name, probability in seen.items():
                chance[names.index(true), names.index(name)] = probability
        chance[np.diag_indices_from(chance)] += 1 - chance.sum(axis=1)
        draw = generator.random(len(codes))
        passed = (draw[:, None] >= np.cumsum(chance, axis=1)[codes]).sum(axis=1)
        noisy[:, position] = np.minimum(passed, len(names) - 1)
    return cross_codes(noisy, attributes)


def drop_rows(
    rule: Drop,
    train: np.ndarray,
    attributes: tuple[Attribute, ...],
    groups: np.ndarray,
    y: np.ndarray,
    classes: tuple[str, ...],
    seed: int,
    file: Path | str,
) -> np.ndarray:
    """Return the training rows without those that match a case and are drawn to be dropped.

    ``groups`` are the true codes of all rows, before noise: the sample was biased by what people
    are.
    """
    names = [attribute.name for attribute in attributes]
    matches = np.zeros(train.size, dtype=bool)
    for number, case in enumerate(rule.where):
        key = f"{file}: perturb.drop.where.{number}"
        match = np.ones(train.size, dtype=bool)
        for name, level in case.groups.items():
            column = names.index(name)
            levels = attributes[column].names
            refuse_unknown([level], levels, f"{key}.groups.{name}: there is no group")
            match &= groups[train, column] == levels.index(level)
        if case.label is not None:
            refuse_unknown([case.label], classes, f"{key}.label: there is no class")
            match &= y[train] == classes.index(case.label)
        matches |= match
    draw = np.random.default_rng([seed, 2]).random(train.size)
    return train[~(matches & (draw < rule.probability))]


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
            if present is not None:
                refuse_unknown(wanted or (), present, f"{key}: no row has")
            for level in wanted or () if present is None else ():
                if not np.isfinite(pd.to_numeric(level, errors="coerce")):
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


SelectOn = Literal["train", "validation"]


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `fairfrontier.prepare.loader.load`, and the configuration it read."""

    config: DatasetConfig
    file: Path
    home: Path
    seed: int
    rows: int | None
    select_on: SelectOn | None

    def digest(self, files: tuple[str, ...], text: str | None = None) -> str:
        """Return the sha256 that names the split: raw files, what shapes arrays, the request.

        ``text`` is the digest of the text encoder.
        """
        carved = self.select_on == "validation" and "validation" not in self.config.split.parts
        text = json.dumps(
            {
                "files": files,
                "config": self.config.shape(),
                "seed": self.seed,
                "rows": self.rows,
                # None and "train" give the same arrays, and so does a part that is there already.
                "select_on": "validation" if carved else "train",
                **({} if text is None else {"text": text}),
            },
            sort_keys=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Plan:
    """All that is decided about a split before features are encoded.

    ``ids`` are row numbers in the source; ``groups`` and ``true_groups`` (int64, (n_samples,
    n_attributes)) are with and without noise, the latter None where there is none; ``protected`` is
    float64 (n_samples, n_protected), ``weight`` float64 (n_samples,); ``levels`` are those that
    occur in columns used as levels; ``parts`` maps parts to row positions.
    """

    config: DatasetConfig
    file: Path
    seed: int
    ids: np.ndarray
    target: Target
    attributes: tuple[Attribute, ...]
    groups: np.ndarray
    true_groups: np.ndarray | None
    protected: np.ndarray
    protected_kinds: Mapping[str, Literal["continuous", "categorical"]]
    weight: np.ndarray
    levels: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, np.ndarray]

    @property
    def group_names(self) -> dict[str, tuple[str, ...]]:
        """Level names of every attribute."""
        return {attribute.name: attribute.names for attribute in self.attributes}

    def group_columns(self, rows: slice) -> dict[str, np.ndarray]:
        """Return the groups (noise included) that are features, as columns of level names."""
        return {
            GROUP_PREFIX + name: np.array(names, dtype=object)[self.groups[rows, column]]
            for column, (name, names) in enumerate(self.group_names.items())
            if name in self.config.features.groups
        }

    def edits(self, encoder: Encoder) -> dict[str, tuple[Edit, ...]]:
        """Encode the counterfactual sets."""
        return make_edits(self.config, self.levels, encoder, self.attributes, self.file)

    def part(
        self,
        name: str,
        rows: np.ndarray,
        X: Any,
        edits: Mapping[str, tuple[Edit, ...]],
        convert: Callable[[np.ndarray], Any] = lambda array: array,
    ) -> Part:
        """Put one part together; ``convert`` turns its arrays into those of the backend of X."""
        groups = convert(self.groups[rows])
        return Part(
            dataset=self.config.dataset,
            name=name,
            ids=convert(self.ids[rows]),
            X=X,
            y=convert(self.target.y[rows]),
            groups=groups,
            protected=convert(self.protected[rows]),
            weight=convert(self.weight[rows]),
            attributes=self.group_names,
            classes=self.target.classes,
            favourable=self.target.favourable,
            units=self.config.label.units,
            true_groups=None if self.true_groups is None else convert(self.true_groups[rows]),
            counterfactuals={
                key: Edits(X, groups, self.attributes, made) for key, made in edits.items()
            },
        )

    def split(self, encoder: Encoder, parts: Mapping[str, Part], digest: str) -> Split:
        """Put the split together."""
        names = encoder.feature_names
        return Split(
            dataset=self.config.dataset,
            seed=self.seed,
            task=self.config.label.task,
            feature_names=names,
            protected_columns=self._protected_columns(encoder),
            protected_kinds=dict(self.protected_kinds),
            digest=digest,
            favourable=self.target.favourable,
            **{  # type: ignore[arg-type]
                key: replace(part, feature_names=names) for key, part in parts.items()
            },
        )

    def _protected_columns(self, encoder: Encoder) -> dict[str, tuple[int, ...]]:
        columns: dict[str, tuple[int, ...]] = {}
        for name in self.config.protected:
            sources = {name}
            if name in self.config.groups:
                groups = self.config.groups
                factors = groups[name].cross or (name,)
                sources = {GROUP_PREFIX + factor for factor in (name, *factors)}
                sources |= {str(groups[factor].column) for factor in factors}
            spans = chain(*encoder.spans(sources).values())
            columns[name] = tuple(sorted(chain(*(range(s.start, s.stop) for s in spans))))
        return columns


def _check_expected(config: DatasetConfig, y: np.ndarray, file: Path) -> None:
    """Raise a DataError where the kept rows are not as many, or as many of class 1, as stated."""
    rows, positive = config.expected.rows, config.expected.positive
    found = []
    if rows is not None and rows != y.size:
        found.append(f"{y.size:,} rows are kept, and {rows:,} expected")
    if positive is not None and abs(y.mean() - positive) > ROUNDED:
        found.append(f"class 1 is {y.mean():.4f} of the rows, and {positive:g} expected")
    if found:
        raise DataError(
            f"{file}: expected: {'; '.join(found)}.",
            "Get the table that notes describe; or, if this one is meant, correct expected.",
        )


def make_plan(frame: pd.DataFrame, request: Request) -> Plan:
    """Decide labels, groups, noise and parts, which does not depend on features.

    ``frame`` has the label, group, protected, weight and split columns of all kept rows, indexed
    by ids.
    """
    config, file, seed = request.config, request.file, request.seed
    if frame.empty:
        raise DataError(f"{file}: rows: no row remains.", "Loosen rows.keep or missing: drop.")
    target = encode_label(frame[config.label.column], config.label, file)
    _check_expected(config, target.y, file)
    number_columns, level_columns = used_columns(config)
    levels = {name: unique_levels(frame[name]) for name in level_columns if name in frame}
    for name, level in config.features.binary.items():
        refuse_unknown([level], levels[name], f"{file}: features.binary.{name}: no row has")
    where = f"{file}: label.column: {config.label.column!r} has {len(target.classes):,} classes"
    config.limits.check("levels", len(target.classes), where, "Merge some of them")
    attributes = fit_attributes(config.groups, levels, file, config.limits)
    groups = encode_attributes(attributes, frame, file)
    rule = config.split
    refuse_absent(list_levels(frame, list_compared(rule.of)), rule.of, "split.of", file)
    compared = frame[[*rule.of]].copy()
    for name in set(rule.of).difference(number_columns):
        if policy_of(name, config, numeric=False) == "category":
            # A missing cell passes no condition, though it is a level of its own by now.
            compared[name] = compared[name].mask(compared[name] == MISSING_LEVEL)
    eligible = np.flatnonzero(find_rows(compared, rule.of, "split.of", file))
    parts = partition(
        rule,
        eligible.size,
        seed,
        y=target.y[eligible],
        groups=groups[:, list(config.groups).index(rule.group)] if rule.group else None,
        column=frame[rule.column] if rule.column else None,
        file=file,
    )
    parts = {name: eligible[rows] for name, rows in parts.items()}
    if rule.others:
        parts = add_others(rule, parts, np.setdiff1d(np.arange(len(frame)), eligible), seed, file)
    check_attributes(attributes, groups, parts, file)
    number = split_seed(rule, seed)
    true_groups = None
    seen = groups
    if config.perturb.noisy_groups:
        true_groups = groups
        seen = add_noise(config.perturb.noisy_groups, attributes, groups, number, file)
    if config.perturb.drop:
        parts["train"] = drop_rows(
            config.perturb.drop, parts["train"], attributes, groups, target.y, target.classes,
            number, file,
        )  # fmt: skip
    n_train = parts["train"].size
    if request.rows is not None and request.rows < n_train:
        generator = np.random.default_rng([number, 0])
        kept = np.sort(generator.choice(n_train, size=request.rows, replace=False))
        parts["train"] = parts["train"][kept]
    if request.select_on == "validation" and "validation" not in parts:
        y = None if config.label.task == "regression" else target.y
        parts["train"], parts["validation"] = carve_validation(rule, parts["train"], y, seed, file)
    for part, positions in parts.items():
        if positions.size == 0:
            raise DataError(f"{file}: split.{part} is left without rows.", "Give it more rows.")
    check_attributes(attributes, groups, {"train": parts["train"]}, file)
    if config.label.task != "regression" and np.unique(target.y[parts["train"]]).size < 2:
        raise DataError(
            f"{file}: all training rows have one class.",
            "Use split.kind: stratified, or more rows.",
        )
    protected, kinds = _protected(frame, config, seen, levels, parts, file)
    weight = np.ones(len(frame))
    if config.weight:
        weight = frame[config.weight].to_numpy(dtype=np.float64)
        if (weight < 0).any():
            raise DataError(f"{file}: weight: {config.weight!r} is negative.", "Correct it.")
    return Plan(
        config, file, seed, frame.index.to_numpy(dtype=np.int64), target, attributes, seen,
        true_groups, protected, kinds, weight, levels, parts,
    )  # fmt: skip


def _protected(
    frame: pd.DataFrame,
    config: DatasetConfig,
    groups: np.ndarray,
    levels: Mapping[str, tuple[str, ...]],
    parts: Mapping[str, np.ndarray],
    file: Path,
) -> tuple[np.ndarray, dict[str, Literal["continuous", "categorical"]]]:
    """Return raw values of continuous protected attributes and codes of categorical ones."""
    numbers, _ = used_columns(config)
    names = list(config.groups)
    values: list[np.ndarray] = []
    kinds: dict[str, Literal["continuous", "categorical"]] = {}
    for name, kind in config.protected.items():
        if kind == "continuous" or (kind == "auto" and name in numbers):
            kinds[name] = "continuous"
            column = frame[name].to_numpy(dtype=np.float64)
            if np.isnan(column).any():
                raise DataError(
                    f"{file}: protected.{name} has missing cells, and a fair metric needs numbers.",
                    f"Set missing.columns: {{{name}: drop}}, or protect a group of its bands.",
                )
            if np.ptp(column[parts["train"]]) == 0:
                raise DataError(
                    f"{file}: protected.{name} is constant: it is {column[0]:g} in all training "
                    "rows.",
                    "A fair metric has nothing to ignore there: choose another column or rows.",
                )
        elif name in names:
            kinds[name] = "categorical"
            column = groups[:, names.index(name)]
        else:
            kinds[name] = "categorical"
            group = {name: Group(column=name)}
            (attribute,) = fit_attributes(group, levels, file, config.limits)
            column = attribute.encode(frame[name], file)
            check_attributes((attribute,), column[:, None], parts, file)
        values.append(column.astype(np.float64))
    return np.column_stack(values) if values else np.empty((len(frame), 0)), kinds
