"""An estimator of anybody's in a bundle: cells of a table become the rows that it was fitted on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing

from fairfrontier.models.group import SensitiveFeatures
from fairfrontier.models.persistence import State, read_state, write_state
from fairfrontier.models.response import score_as_probability
from fairfrontier.prepare.table.column import are_merged, as_levels, is_number, parse_numbers
from fairfrontier.runtime.errors import DataError, FairfrontierError, InputError

# What a file can hold, and so be a level's value.
Scalar = str | bool | int | float
# Columns of objects that are numbers.
NUMBERS = ("integer", "floating", "mixed-integer-float")
ABSENT: dict[str, Any] = {"None": None, "nan": np.nan, "<NA>": pd.NA}
# In the place of a level that no row has.
UNSEEN = "a level that no row of the fit had"
TRIED = 8


@dataclass(frozen=True)
class Column:
    """A column of the rows of a fit.

    ``name`` is that in tables, ``label`` that of the frame, and ``dtype`` its type there or, where
    there are ``categories``, theirs. Levels are known by their text in tables; ``values`` has those
    that are another value in the frame. ``absent`` is what stands for missing cells, of which the
    fit had some if ``lacking``. ``fault`` says why a table would not give the cells back.
    """

    name: str
    label: str | int
    dtype: str
    numeric: bool
    levels: tuple[str, ...] = ()
    values: Mapping[str, Scalar] = field(default_factory=dict)
    categories: tuple[Scalar, ...] | None = None
    ordered: bool = False
    absent: str = "nan"
    lacking: bool = False
    fault: str = ""

    @classmethod
    def learn(cls, label: Any, dtype: str, column: pd.Series) -> Self:
        """Return what a column is."""
        try:
            return cls._learn(str(label), label, dtype, column)
        except DataError as error:
            return cls(str(label), label, dtype, False, fault=error.fault)

    @classmethod
    def _learn(cls, name: str, label: Any, dtype: str, column: pd.Series) -> Self:
        known = {"name": name, "label": label, "dtype": dtype, "lacking": bool(column.isna().any())}
        if column.dtype == object:
            missing = {str(cell) for cell in column[column.isna()]} or {"nan"}
            known["absent"] = missing.pop()
            if missing or known["absent"] not in ABSENT:
                raise refuse(name, "has missing cells of several kinds")
        kind = pd.api.types.infer_dtype(column) if column.dtype == object else ""
        if is_number(column) or kind in NUMBERS:
            if not pd.api.types.is_float_dtype(column) and are_merged(parse_numbers(column)):
                raise refuse(name, "holds whole numbers of 2^53 or more")
            return cls(numeric=True, **known)
        if column.dtype.kind in "mMc":
            raise refuse(name, f"holds values of type {column.dtype}")
        listed = column.drop_duplicates().dropna()
        if isinstance(column.dtype, pd.CategoricalDtype):
            listed = column.cat.categories.to_series()
            known |= {"categories": tuple(listed.tolist()), "ordered": bool(column.cat.ordered)}
            known["dtype"] = str(listed.dtype) if dtype == "category" else dtype
        texts = as_levels(listed)
        if texts.isna().any() or texts.duplicated().any():
            raise refuse(name, "holds levels that differ by blanks, or by how they are written")
        pairs = zip(texts.tolist(), listed.tolist(), strict=True)
        values = {text: value for text, value in pairs if value is not text and value != text}
        for value in values.values():
            if not isinstance(value, Scalar):
                raise refuse(name, f"holds values of type {type(value).__name__}")
        return cls(numeric=False, levels=tuple(texts), values=values, **known)

    def restore(self, cells: np.ndarray) -> Any:
        """Return cells of `Raw` as a column of the frame was, of pandas."""
        if self.numeric and self.dtype != "object":
            numbers = pd.Series(cells.astype(np.float64))
            kind = pd.api.types.pandas_dtype(self.dtype)
            if isinstance(kind, np.dtype):
                # As pandas does of whole numbers beside missing cells.
                return numbers if kind.kind in "iu" and numbers.hasnans else numbers.astype(kind)
            return numbers.astype("Float64").astype(kind)
        values = self.find_values(cells)
        if self.categories is None:
            lacks = self.dtype == "bool" and pd.isna(values).any()
            return pd.Series(values, dtype=object if lacks else self.dtype)
        known = pd.Index(self.categories, dtype=self.dtype)
        # Others are the estimator's to deal with.
        others = pd.unique(values[~pd.isna(values) & ~pd.Index(values).isin(known)])
        listed = known.append(pd.Index(others, dtype=self.dtype)) if others.size else known
        return pd.Series(pd.Categorical(values, categories=listed, ordered=self.ordered))

    def find_values(self, cells: np.ndarray) -> np.ndarray:
        """Return the frame's values of cells, an array of objects."""
        if self.numeric:
            return np.where(pd.isna(cells), ABSENT[self.absent], cells)
        codes, texts = pd.factorize(cells)
        found = np.empty(len(texts) + 1, dtype=object)
        found[:] = [*(self.values.get(text, text) for text in texts), ABSENT[self.absent]]
        return found[codes]

    def cast(self) -> Any:
        """Return the type of narwhals that the column has where the frame is not of pandas."""
        return (
            nw.Enum(map(str, self.categories or ()))
            if self.dtype == "Enum"
            else getattr(nw, self.dtype)()
        )

    def list_cells(self, cells: np.ndarray) -> list[Any]:
        """Return the column as a list, None where a cell is missing."""
        if not self.numeric:
            return [None if pd.isna(value) else value for value in self.find_values(cells)]
        number = int if "Int" in self.dtype else float
        return [None if cell is None or cell != cell else number(cell) for cell in cells]


@dataclass(frozen=True)
class Layout:
    """What the rows of a fit are: a frame of pandas, polars or pyarrow, or an array (numpy).

    ``dtype`` is that of the array.
    """

    kind: str
    columns: tuple[Column, ...]
    dtype: str = ""

    @classmethod
    def learn(cls, X: Any) -> Self:
        """Return the layout of rows; DataError for those that are no table of named columns.

        O(n) for columns of numbers, a hash table for others.
        """
        kind, dtype, columns = _list_columns(X)
        names = [str(label) for label, _, _ in columns]
        if len(set(names)) < len(names):
            raise DataError("Two columns have one name.", "Give every column its own.")
        if not all(isinstance(label, str | int) for label, _, _ in columns):
            raise DataError("A column's name is neither text nor a number.", "Rename it.")
        return cls(kind, tuple(Column.learn(*column) for column in columns), dtype)

    def reduce(self, X: Any, score: Callable[[Any], np.ndarray]) -> Self:
        """Return the layout of the columns of a frame without which rows X are scored otherwise.

        As tried on the first of them, since nothing else says what a pipeline drops. DataError for
        one that a table would not give back.
        """
        rows = _safe_indexing(X, np.arange(min(TRIED, len(X))))
        frame = nw.from_native(rows, eager_only=True, pass_through=True)
        whole = score(rows)

        def needs(label: Any) -> bool:
            try:
                return not np.array_equal(score(frame.drop(label).to_native()), whole)
            except Exception:  # Libraries raise anything.
                return True

        needed = self.columns
        if isinstance(frame, nw.DataFrame):
            needed = tuple(each for each in self.columns if needs(each.label))
        for column in needed:
            if column.fault:
                raise DataError(column.fault, "Write it otherwise.")
        return replace(self, columns=needed)

    def tabulate(self, X: Any) -> pd.DataFrame:
        """Return rows as a table has them, numbered, with the names of the columns there."""
        cells = {label: column for label, _, column in _list_columns(X)[2]}
        return pd.DataFrame(
            {each.name: cells[each.label].reset_index(drop=True) for each in self.columns}
        )

    def restore(self, cells: np.ndarray) -> Any:
        """Return cells, (n_samples, n_columns) objects, as rows like those of the fit."""
        pairs = list(zip(self.columns, cells.T, strict=True))
        if self.kind == "pandas":
            made = [column.restore(own) for column, own in pairs]
            labels = pd.Index([column.label for column in self.columns])
            return pd.concat(made, axis=1).set_axis(labels, axis=1)
        if self.kind != "numpy":
            data = {str(column.label): column.list_cells(own) for column, own in pairs}
            schema = {str(column.label): column.cast() for column in self.columns}
            return nw.from_dict(data, schema, backend=self.kind).to_native()  # type: ignore[arg-type]
        if all(column.numeric for column in self.columns):
            rows = cells.astype(np.float64)
            whole = np.dtype(self.dtype).kind in "iub" and np.isnan(rows).any()
            return rows if whole else rows.astype(self.dtype)
        found = [column.find_values(own) for column, own in pairs]
        return np.stack(found, axis=1).astype(self.dtype)


def refuse(name: str, what: str) -> DataError:
    """Return the error about a column that a table would not give back as it was."""
    return DataError(
        f"The column {name!r} {what}, which tables do not tell apart.", "Write it otherwise."
    )


def _list_columns(X: Any) -> tuple[str, str, list[tuple[Any, str, pd.Series]]]:
    """Return the kind of rows, of an array its type, and label, type and cells of the columns."""
    if issparse(X):
        raise DataError("The rows are a sparse matrix.", "Give a frame.")
    if isinstance(X, pd.DataFrame):
        return "pandas", "", [(label, str(own.dtype), own) for label, own in X.items()]
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        columns = [
            (each.name, type(each.dtype).__name__, each.to_pandas())
            for each in frame.iter_columns()
        ]
        return str(frame.implementation).lower(), "", columns
    rows = np.asarray(X)
    columns = [(f"x{k}", str(rows.dtype), pd.Series(own)) for k, own in enumerate(rows.T)]
    return "numpy", str(rows.dtype), columns


@dataclass(frozen=True, eq=False)
class Origin:
    """What a fit remembers of its rows for the bundles of its models.

    ``layout`` is that of the rows, or why tables would not give them back. ``values`` are those of
    every attribute in the order of its codes. ``label`` and ``columns``, by attribute, are the
    columns of tables in which labels and groups are.
    """

    layout: Layout | FairfrontierError
    values: Mapping[str, Sequence[Any]]
    label: str
    columns: Mapping[str, str]
    facts: Mapping[str, Any]

    @classmethod
    def learn(
        cls,
        X: Any,
        y: Any,
        groups: pd.DataFrame,
        features: SensitiveFeatures,
        facts: Mapping[str, Any],
    ) -> Self:
        """Return what is remembered of all rows of a fit; ``facts`` are the manifest's."""
        table = pd.DataFrame()
        layout: Layout | FairfrontierError
        try:
            layout = Layout.learn(X)
            table = layout.tabulate(X)
        except FairfrontierError as error:
            layout = error
        values, columns = {}, {}
        for (name, column), levels in zip(groups.items(), features.levels, strict=True):
            values[str(name)] = np.unique(column).tolist() if levels is None else list(levels)
            own = name in table and as_levels(table[name]).equals(as_levels(column))
            # What is a number in the rows and a band among the groups are two columns.
            columns[str(name)] = f"{name} (group)" if name in table and not own else str(name)
        asked = (str(getattr(y, "name", None) or "label"), "label", "label (y)")
        label = next(each for each in asked if each not in {*table, *columns.values()})
        return cls(layout, values, label, columns, facts)

    def number(self, groups: pd.DataFrame, features: SensitiveFeatures) -> np.ndarray:
        """Return codes of later rows, from 0; InputError for a value that no row of the fit had."""
        codes = np.asarray(features.code(groups)).copy()
        for k, name in enumerate(features.names):
            values = self.values[name]
            if features.levels[k] is None:
                known = pd.Index(np.asarray(values).astype(np.int64))
                codes[:, k] = known.get_indexer(pd.Index(codes[:, k]))
            if (codes[:, k] < 0).any():
                wrong = groups[name].iloc[int(np.argmin(codes[:, k]))]
                raise InputError(
                    f"No row of the fit has the sensitive feature {wrong!r} of {name}.",
                    f"Its levels are {', '.join(map(str, values))}.",
                )
        return codes


@dataclass(frozen=True, eq=False)
class FrameEstimator:
    """An estimator of two classes on frames or arrays, as a model of a bundle's cells.

    ``column`` is the favourable label's among those of ``predict_proba``, and ``cut_`` the least
    score that is decided 1. Without an estimator the one cell of a row is its score. ``trusted``
    names the types in it beside those that are known.
    """

    estimator: Any = None
    layout: Layout | None = None
    column: int = 1
    cut_: float = 0.5
    trusted: tuple[str, ...] = ()

    name: ClassVar[str] = "estimator"
    randomized: ClassVar[bool] = False
    predict_needs: ClassVar[frozenset[str]] = frozenset()
    classes_: ClassVar[np.ndarray] = np.arange(2)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return the probabilities of 0 and 1, float64 (n_samples, 2); of X see `Raw`."""
        if self.layout is None:
            score = X[:, 0].astype(np.float64)
        else:
            rows, positive = self.layout.restore(X), self.estimator.classes_[self.column]
            score = score_as_probability(self.estimator, rows, positive, "The estimator")
        return np.column_stack([1.0 - score, score])

    def save(self, folder: str | Path) -> Path:
        """Write it to a new folder by skops; StoreError for types that are not trusted."""
        layout = None if self.layout is None else asdict(self.layout)
        state = State(
            learners={} if layout is None else {self.name: self.estimator},
            facts={"layout": layout, "column": self.column, "cut": self.cut_},
        )
        return write_state(Path(folder), self.name, {}, state, self.trusted)

    @classmethod
    def load(cls, folder: str | Path, *, trusted: Collection[str] = ()) -> Self:
        """Read what ``save`` wrote; nothing is unpickled, and ``trusted`` as in `load_model`."""
        from pydantic import TypeAdapter

        _, state = read_state(Path(folder), cls.name, trusted)
        layout = TypeAdapter(Layout | None).validate_python(state.facts["layout"])
        column, cut = int(state.facts["column"]), float(state.facts["cut"])
        return cls(state.learners.get(cls.name), layout, column, cut, tuple(trusted))

    def restored(self) -> Self:
        """Return what is loaded after it was saved; StoreError where it cannot be."""
        with TemporaryDirectory() as folder:
            return self.load(self.save(Path(folder) / self.name), trusted=self.trusted)

    def answers(self, X: np.ndarray, column: int, cell: Any) -> bool:
        """Return whether it has scores for rows whose cells of a column are replaced."""
        X = X.copy()
        X[:, column] = cell
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return bool(np.isfinite(self.predict_proba(X)).all())
        except Exception:  # Libraries raise anything.
            return False
