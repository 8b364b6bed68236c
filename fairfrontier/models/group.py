"""Sensitive features as they are given to estimators, their codes, and bounds on groups' rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Self

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, InputError

# Columns of sensitive features, by number or, of frames, by name; None for all of them.
Attributes = int | str | list[int] | list[str] | None
Criterion = Literal["parity", "equal_opportunity", "predictive_equality", "equalized_odds"]
# The labels among which a criterion compares the groups' rates of decision 1; None for all rows.
EVENTS: Mapping[str, tuple[int | None, ...]] = MappingProxyType(
    {
        "parity": (None,),
        "equal_opportunity": (1,),
        "predictive_equality": (0,),
        "equalized_odds": (0, 1),
    }
)
# Up to this many combinations of levels, groups are numbered by counting.
MOST_CELLS = 1 << 20


def check_bound(model: Any) -> None:
    """Raise ConfigError for an invalid criterion or bound of an estimator."""
    model.require("criterion", model.criterion in EVENTS, " or ".join(EVENTS))
    model.require("bound", 0 <= model.bound <= 1, "a number from 0 to 1")


class Codes(np.ndarray):
    """Codes that `SensitiveFeatures` gave, which no estimator codes again; columns have names."""

    names: tuple[str, ...] = ()

    def __array_finalize__(self, source: Any) -> None:
        """Keep the names of what this is a view or a part of."""
        self.names = getattr(source, "names", ())

    @classmethod
    def of(cls, codes: np.ndarray, names: tuple[str, ...]) -> Self:
        """Return codes of attributes with these names."""
        named = codes.view(cls)
        named.names = names
        return named


@dataclass(frozen=True)
class SensitiveFeatures:
    """The attributes of a fit, by which rows of later calls are coded.

    Attributes
    ----------
    names : tuple of str
        Of the columns, where they have names.
    levels : tuple of (tuple or None)
        Of each column the values in the order of their codes 0, 1, …: ascending, or of a
        categorical column its own; None for whole numbers, which are codes as they are.
    within : bool
        Whether they are columns of the rows.
    """

    names: tuple[str, ...]
    levels: tuple[tuple[Any, ...] | None, ...]
    within: bool = False

    @classmethod
    def learn(cls, given: Any) -> Self:
        """Return the names and levels of what a fit is given.

        A frame or series of pandas, Polars or Arrow, a mapping of names to columns, an array or
        lists of shape (n_samples,) or (n_samples, n_attributes). InputError is raised for missing
        values and for fractions, which have to be named or put into bands first.
        """
        columns = list_columns(given)
        names = tuple(name for name, _ in columns if name is not None)
        return cls(
            names if len(names) == len(columns) else (),
            tuple(_list_levels(name, column) for name, column in columns),
        )

    @classmethod
    def restore(
        cls, names: Sequence[str], levels: Sequence[Sequence[Any] | None], within: bool = False
    ) -> Self:
        """Return what a saved model's file states."""
        read = tuple(None if own is None else tuple(own) for own in levels)
        return cls(tuple(names), read, within)

    def take(self, names: Sequence[str]) -> Self:
        """Return some of the columns, by name."""
        known = dict(zip(self.names, self.levels, strict=True))
        return replace(self, names=tuple(names), levels=tuple(known[name] for name in names))

    def forget_levels(self) -> Self:
        """Return the same columns as codes, which text is none of."""
        return replace(self, levels=(None,) * len(self.levels))

    def code(self, given: Any, *, unseen: bool = False) -> Codes:
        """Return the codes of the same attributes, int64 (n_samples, n_attributes).

        Columns with names are found by them, in any order and beside others. A level that the fit
        did not have is an InputError, or has a code of its own where ``unseen`` ones are decided.
        """
        columns = list_columns(given)
        found = dict(columns)
        if self.names and found.keys() >= set(self.names):
            columns = [(name, found[name]) for name in self.names]
        elif len(columns) != len(self.levels) or (self.names and None not in found):
            raise InputError(
                f"The fit had the sensitive features {', '.join(self.names) or len(self.levels)}, "
                f"and these are {', '.join(map(str, found))}.",
                "Give the same ones, by name or in the same order.",
            )
        codes = [
            _code(name, column, levels, unseen)
            for (name, column), levels in zip(columns, self.levels, strict=True)
        ]
        return Codes.of(np.column_stack(codes), self.names)

    def number(self, given: Any) -> tuple[np.ndarray, dict[str, tuple[str, ...]]]:
        """Return codes from 0 of all attributes, whole numbers too, and their levels by name."""
        codes, attributes = np.asarray(self.code(given)).copy(), {}
        for column, (name, levels) in enumerate(self.describe().items()):
            if self.levels[column] is None:
                present, codes[:, column] = np.unique(codes[:, column], return_inverse=True)
                levels = present.astype(str).tolist()
            attributes[name] = tuple(levels)
        return codes, attributes

    def describe(self) -> dict[str, Sequence[str]]:
        """Return the levels by the attributes' names, as errors and reports name groups."""
        names = self.names or tuple(f"attribute {k}" for k in range(len(self.levels)))
        return {
            name: _AsTheyAre() if levels is None else tuple(map(str, levels))
            for name, levels in zip(names, self.levels, strict=True)
        }


class _AsTheyAre(Sequence[str]):
    """Levels of an attribute that was given as codes."""

    def __getitem__(self, code: Any) -> Any:
        return str(code)

    def __len__(self) -> int:
        return 0


def frame_features(given: Any, names: Sequence[str] = ()) -> pd.DataFrame:
    """Return sensitive features as a frame with the columns ``names``, or all of its own.

    Columns without names are called ``sensitive_feature_0`` and so on.
    """
    columns = list_columns(given)
    named = {
        f"sensitive_feature_{k}" if name is None else name: column
        for k, (name, column) in enumerate(columns)
    }
    if lacking := [name for name in names if name not in named]:
        raise InputError(
            f"The sensitive features are {', '.join(named)}, and {lacking[0]} is not among them.",
            "Give the columns of the fit, by name.",
        )
    return pd.DataFrame({name: named[name] for name in names or named})


def list_columns(given: Any) -> list[tuple[str | None, pd.Series]]:
    """Return the columns of sensitive features, with their names where they have one."""
    if isinstance(given, Mapping):
        # Rows are in their order, whatever index a series has.
        listed = [(str(name), _as_series(values)) for name, values in given.items()]
        if len({len(column) for _, column in listed}) != 1:
            raise InputError(
                "The sensitive features have different numbers of rows, or are none.",
                "Give every name one value per row.",
            )
        return [*listed]
    try:
        frame = nw.from_native(given, allow_series=True, eager_only=True, pass_through=True)
    except nw.exceptions.NarwhalsError as error:
        raise InputError(
            f"The sensitive features are no table: {error}.", "Give every column a name of its own."
        ) from error
    if isinstance(frame, nw.Series):
        name = None if frame.name is None else str(frame.name) or None
        return [(name, _as_series(frame.to_pandas()))]
    if isinstance(frame, nw.DataFrame):
        return [(str(each.name), _as_series(each.to_pandas())) for each in frame.iter_columns()]
    table = np.asarray(to_numpy(given))
    if table.ndim not in (1, 2):
        raise InputError(
            f"The sensitive features have the shape {table.shape}.",
            "Give one value per row, or a column for each attribute.",
        )
    return [
        (None, _as_series(column)) for column in (table if table.ndim == 2 else table[:, None]).T
    ]


def _as_series(values: Any) -> pd.Series:
    """Return a column with rows from 0, with its type where its cells are objects of one."""
    if np.ndim(values) != 1:
        raise InputError("A sensitive feature is no column.", "Give one value per row.")
    column = pd.Series(values).reset_index(drop=True)
    if isinstance(column.dtype, pd.CategoricalDtype):
        plain = all(isinstance(level, str | int) for level in column.cat.categories.tolist())
        return column if plain else column.cat.rename_categories(str)
    return pd.Series(column.tolist()) if column.dtype == object else column


def _list_levels(name: str | None, column: pd.Series) -> tuple[Any, ...] | None:
    """Return the levels of a column in the order of their codes; None where it holds codes."""
    shown = "A sensitive feature" if name is None else f"The sensitive feature {name!r}"
    if column.isna().any():
        raise InputError(
            f"{shown} is missing in {int(column.isna().sum())} of {len(column)} rows.",
            "Name that level, as by fillna('unknown'), or leave those rows out.",
        )
    if isinstance(column.dtype, pd.CategoricalDtype):
        present = set(column.unique())
        return tuple(level for level in column.cat.categories.tolist() if level in present)
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_integer_dtype(column):
        return None
    if pd.api.types.is_float_dtype(column) and (column == np.trunc(column)).all():
        return None
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        raise InputError(
            f"{shown} holds {column.nunique()} distinct values of type {column.dtype}, which are "
            "no groups.",
            "Put them into bands, as by pandas.cut.",
        )
    levels = column.unique().tolist()
    if not all(isinstance(level, str) for level in levels):
        raise InputError(
            f"{shown} holds values of several types, such as {levels[0]!r}.",
            "Write all of them as text, as by astype(str).",
        )
    return tuple(sorted(levels))


def _code(
    name: str | None, column: pd.Series, levels: tuple[Any, ...] | None, unseen: bool
) -> np.ndarray:
    """Return the codes of a column among the levels of the fit."""
    if not len(column):
        return np.empty(0, dtype=np.int64)
    own = _list_levels(name, column)
    if levels is None and own is None:
        return column.to_numpy().astype(np.int64)
    if levels is None or (own is None and isinstance(levels[0], str)):
        kinds = ("whole numbers", "text") if levels is None else ("text", "whole numbers")
        raise InputError(
            f"The sensitive feature {name or ''} was {kinds[0]} in the fit, and is {kinds[1]}.",
            "Give the levels or codes of the fit.",
        )
    codes = pd.Index(levels).get_indexer(pd.Index(column))
    strange = codes < 0
    if strange.any() and not unseen:
        raise InputError(
            f"No row of the fit has the sensitive feature {column[strange].iloc[0]!r}.",
            f"Its levels are {', '.join(map(str, levels))}.",
        )
    return np.where(strange, len(levels), codes).astype(np.int64)


def is_coded(given: Any) -> bool:
    """Return whether sensitive features are a NumPy array of whole numbers, codes as they are."""
    return isinstance(given, np.ndarray) and given.dtype.kind in "biu" and given.ndim in (1, 2)


def read_groups(groups: Any) -> np.ndarray:
    """Return groups as a matrix of codes, int64 (n_samples, n_attributes)."""
    coded = groups if is_coded(groups) else SensitiveFeatures.learn(groups).code(groups)
    matrix = np.asarray(coded)
    return (matrix if matrix.ndim == 2 else matrix[:, None]).astype(np.int64, copy=False)


def find_columns(groups: Any, attributes: int | str | list[int] | list[str]) -> list[int]:
    """Return the numbers of the columns of attributes, given by number or by name.

    ConfigError is raised for those that are none.
    """
    names = list(getattr(groups, "names", ()))
    width = groups.shape[1] if groups.ndim == 2 else 1
    listed: list[int | str] = [attributes] if isinstance(attributes, int | str) else [*attributes]
    found = [names.index(each) if each in names else each for each in listed]
    if not found or not all(isinstance(each, int) and 0 <= each < width for each in found):
        known = f"named {', '.join(names)}" if names else f"numbered 0 to {width - 1}"
        raise ConfigError(
            f"The attributes {listed} are no columns of sensitive_features, {known}.",
            "Name columns of a frame, or number those of an array from 0.",
        )
    return [each for each in found if isinstance(each, int)]


def take_attribute(groups: Any, attribute: int | str) -> np.ndarray:
    """Return one column of ``groups``, shape (n_samples,); ConfigError where there is none."""
    codes = read_groups(groups)
    if isinstance(attribute, int) and attribute < 0:
        attribute += codes.shape[1]
    return codes[:, find_columns(groups if hasattr(groups, "names") else codes, attribute)[0]]


def choose_columns(groups: np.ndarray, attributes: Attributes) -> np.ndarray:
    """Return the chosen columns of ``groups`` as a matrix; None chooses all."""
    matrix = read_groups(groups)
    if attributes is None:
        return matrix
    return matrix[:, find_columns(groups if groups.ndim == 2 else matrix, attributes)]


def number_cells(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of a matrix of codes in ascending order, and the code of each row.

    O(n) by counting where the columns combine to at most ``MOST_CELLS`` rows; else a sort.
    """
    if matrix.shape[0] and matrix.min() >= 0:
        sizes = tuple(int(size) + 1 for size in matrix.max(axis=0))
        if math.prod(sizes) <= MOST_CELLS:
            flat = np.ravel_multi_index(tuple(matrix.T), sizes)
            present = np.bincount(flat, minlength=math.prod(sizes)) > 0
            cells = np.column_stack(np.unravel_index(np.flatnonzero(present), sizes))
            return cells, (np.cumsum(present) - 1)[flat]
    cells, codes = np.unique(matrix, axis=0, return_inverse=True)
    return cells, codes.reshape(-1).astype(np.int64)


def number_groups(groups: Any, attributes: Attributes) -> tuple[np.ndarray, np.ndarray]:
    """Return what `number_cells` does of the chosen columns; DataError for one group alone."""
    cells, codes = number_cells(choose_columns(groups, attributes))
    if len(cells) < 2:
        raise InputError(
            "All training rows are in one group.", "Name an attribute with two groups or more."
        )
    return cells, codes
