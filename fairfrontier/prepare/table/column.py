"""Columns of a table: levels and numbers, rows kept, missing cells, what the dataset uses."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.section import TRUTH, WHOLE_NUMBER, Condition, level_text
from fairfrontier.prepare.config.source import Source
from fairfrontier.runtime.errors import COMPARED, ConfigError, DataError, nearest

# Of a column that is made of dummies.
NONE, SEVERAL = "none", "several"
_log = logging.getLogger(__name__)
MISSING_LEVEL = "missing"
# Trees compute with single precision, to which larger numbers are infinite.
# Said of True and False where a column holds neither.
YAML_TRUTH = " (YAML reads yes, no, on and off as true or false unless quoted)"
LARGEST = float(np.finfo(np.float32).max)
# From here on one float64 stands for several whole numbers.
MERGED = 2.0**53
# Objects of which those that are equal have one level; else True is 1, and noon in Rome 11 UTC.
DISTINCT = ("string", "bytes", "boolean", "decimal", "date", "empty")


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with numbers as float64 and everything else as level text where possible.

    Whole numbers that float64 would merge stay as they are.
    """
    frame = frame.copy()
    for name in frame.columns:
        frame[name] = tidy_column(frame[name])
    return frame


def tidy_column(column: pd.Series) -> pd.Series:
    """Return one column of a table as `tidy` does."""
    if is_number(column):
        numbers = column.astype(np.float64)
        return column if pd.api.types.is_integer_dtype(column) and are_merged(numbers) else numbers
    # Most columns of wide tables are not used; those that are will be refused then.
    with suppress(DataError):
        return as_levels(column)
    return column


def own_column(column: pd.Series) -> pd.Series:
    """Return a column of Arrow's with a type for which pandas lacks functions in pandas' own."""
    if str(column.dtype).startswith(("string_view", "binary_view", "decimal32", "decimal64")):
        cells = pa.array(column).to_pandas()
        return pd.Series(cells.array, column.index, name=column.name)
    return column


def is_number(column: pd.Series) -> bool:
    """Return whether all cells are real numbers by their type."""
    types = pd.api.types
    is_other = types.is_bool_dtype(column) or types.is_complex_dtype(column)
    return types.is_numeric_dtype(column) and not is_other


def are_merged(numbers: pd.Series) -> bool:
    """Return whether whole numbers, given as float64, may each stand for several."""
    return bool((numbers.abs() >= MERGED).any())


def find_merged(values: Iterable[Any]) -> bool:
    """Return whether a float among values, but an infinite one, may stand for several numbers."""
    return any(isinstance(each, float) and MERGED <= abs(each) < math.inf for each in values)


def as_levels(column: pd.Series, where: str = "The table") -> pd.Series:
    """Return a column as level text: 2, 2.0 and "2.0" are all "2", TRUE and true are True.

    Missing cells stay missing. Text loses the blanks at its ends. What a cell becomes depends on no
    other one. Bytes are read as UTF-8; bytes that are not, lists, records and floats of 2⁵³ or more
    raise a DataError that begins with ``where``.
    """
    if isinstance(column.dtype, pd.StringDtype) and column.dtype.storage == "pyarrow":
        text = column.str.strip().astype("str")
        if (truth := text.str.match(TRUTH.pattern, na=False)).any():
            text = text.mask(truth, text.str.capitalize())
        # To compile the pattern takes longer than to look at most columns.
        if not text.str.contains(".0", regex=False).any():
            return text
        return text.str.replace(WHOLE_NUMBER.pattern, r"\1", regex=True)
    is_mixed = column.dtype == object and pd.api.types.infer_dtype(column) not in DISTINCT
    try:
        values = column.dropna() if is_mixed else column.dropna().unique().astype(object)
        if find_merged(values):
            raise DataError(
                f"{where}: column {column.name!r} holds floats of 2^53 or more as levels, and each "
                "may stand for several whole numbers.",
                "Write it as whole numbers or as text; where it is used as a number too, under "
                "another name.",
            )
        if is_mixed:
            return column.map(_read_level, na_action="ignore").astype("str")
        # pandas looks some whole numbers up as floats.
        return column.astype(object).map({cell: _read_level(cell) for cell in values}).astype("str")
    except TypeError:
        raise DataError(
            f"{where}: column {column.name!r} holds lists or records, and one number or text in "
            "each cell is expected.",
            "Write what you need of them as columns of their own.",
        ) from None
    except UnicodeDecodeError:
        raise DataError(
            f"{where}: column {column.name!r} holds bytes that are no UTF-8 text.",
            "Write it as text or numbers.",
        ) from None


def _read_level(cell: Any) -> str:
    # What has no hash is a list or a record.
    hash(cell)
    return str(level_text(cell.decode() if isinstance(cell, bytes) else cell))


def parse_numbers(column: pd.Series) -> pd.Series:
    """Return a column as float64, with NaN where a cell is missing or no number.

    Truth values, dates, durations and complex numbers are none, whatever pandas makes of them.
    """
    if is_number(column):
        return column.astype(np.float64)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if column.dtype == object:
        column = column.where(column.map(_may_be_number).astype(bool))
    elif not isinstance(column.dtype, pd.StringDtype):
        return pd.Series(np.nan, column.index, dtype=np.float64, name=column.name)
    return pd.to_numeric(column, errors="coerce").astype(np.float64)


def _may_be_number(cell: Any) -> bool:
    # To Python a truth value is a whole number, and so is a duration to NumPy.
    is_other = isinstance(cell, bool | np.timedelta64)
    return isinstance(cell, str | bytes | Real | Decimal) and not is_other


def as_numbers(column: pd.Series, key: str, file: Path | str) -> pd.Series:
    """Return a column as float64 with NaN for missing cells.

    What is no number, infinite or beyond single precision raises a DataError.
    """
    numbers = parse_numbers(column)
    wrong = numbers.isna() & column.notna()
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise DataError(
            f"{file}: {key}: column {column.name!r} holds {column.iloc[row]!r} in row "
            f"{column.index[row]}, which is no number.",
            "List it under source.missing (of Parquet, make it null) if it marks a missing cell, "
            "or use the column as categorical.",
        )
    infinite = np.isinf(numbers.to_numpy())
    if infinite.any():
        raise DataError(
            f"{file}: {key}: column {column.name!r} is infinite in {int(infinite.sum())} rows, "
            f"first in row {numbers.index[int(infinite.argmax())]}.",
            "Correct these cells, or leave the rows out with rows.keep.",
        )
    large = (numbers.abs() > LARGEST).to_numpy()
    if large.any():
        row = int(large.argmax())
        raise DataError(
            f"{file}: {key}: column {column.name!r} holds {numbers.iloc[row]:g} in row "
            f"{numbers.index[row]}, and models compute with numbers up to {LARGEST:.3g}.",
            "Correct these cells, or write the column in a larger unit.",
        )
    return numbers


def keep_rows(frame: pd.DataFrame, config: DatasetConfig, file: Path | str) -> pd.DataFrame:
    """Return the rows that ``rows`` asks for; the index keeps the row numbers."""
    keep = find_rows(frame, config.rows.keep, "rows.keep", file)
    for name in config.rows.drop_missing:
        keep &= frame[name].notna().to_numpy()
    return frame if keep.all() else frame[keep]


def find_rows(
    frame: pd.DataFrame, conditions: Mapping[str, Condition], key: str, file: Path | str
) -> np.ndarray:
    """Return which rows pass all conditions, bool of shape (n_samples,)."""
    passed = np.ones(len(frame), dtype=bool)
    for name, condition in conditions.items():
        passed &= _passes(frame[name], condition, f"{key}.{name}", file)
    return passed


def list_levels(frame: pd.DataFrame, names: Iterable[str]) -> dict[str, set[str]]:
    """Return the levels of some columns; a missing cell has none."""
    return {name: {*as_levels(frame[name].dropna()).unique()} for name in names}


def list_compared(conditions: Mapping[str, Condition]) -> list[str]:
    """Return the columns of which conditions name levels."""
    return [name for name, each in conditions.items() if not each.by_value]


def refuse_absent(
    levels: Mapping[str, Collection[str]],
    conditions: Mapping[str, Condition],
    key: str,
    file: Path | str,
) -> None:
    """Raise a ConfigError for a level that no row has, and that may be misspelt.

    Those to be left out need not be there: the next table may have them.
    """
    for name, present in levels.items():
        condition = conditions[name]
        for level in {*(condition.is_in or ()), *(condition.is_not or ())}.difference(present):
            others = {each.casefold() for each in sorted(present)[:COMPARED]}
            close = get_close_matches(level.casefold(), others, n=1, cutoff=0.75)
            known = parse_numbers(pd.Series([level, *present], dtype="str")).to_numpy()
            alike = bool((known[1:] == known[0]).any())
            truth = level in ("True", "False")
            if close or alike or truth or level in (condition.is_in or ()):
                raise ConfigError(
                    f"{file}: {key}.{name}: column {name!r} holds no level {level!r}"
                    f"{YAML_TRUTH if truth else ''}.",
                    nearest(level, present),
                )


def _passes(column: pd.Series, condition: Condition, key: str, file: Path | str) -> np.ndarray:
    passed = column.notna().to_numpy()
    if condition.is_in is not None or condition.is_not is not None:
        text = as_levels(column, f"{file}: {key}")
        if condition.is_in is not None:
            passed = passed & text.isin(condition.is_in).to_numpy()
        if condition.is_not is not None:
            passed = passed & ~text.isin(condition.is_not).to_numpy()
    bounds = {
        np.greater_equal: condition.at_least,
        np.less_equal: condition.at_most,
        np.greater: condition.above,
        np.less: condition.below,
    }
    if any(bound is not None for bound in bounds.values()):
        # An infinite cell is compared like any other number, so that it can be left out here.
        value = parse_numbers(column).to_numpy()
        wrong = np.isnan(value) & column.notna().to_numpy()
        if wrong.any():
            raise DataError(
                f"{file}: {key}: column {column.name!r} holds "
                f"{column.iloc[int(wrong.argmax())]!r}, which is no number.",
                "Compare levels with in or not.",
            )
        with np.errstate(invalid="ignore"):
            for compare, bound in bounds.items():
                if bound is not None:
                    passed = passed & compare(value, bound)
    return passed


def used_columns(config: DatasetConfig) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns used as numbers and those used as levels, each with the key that does.

    A column may be both (an age that is a feature and makes a group).
    """
    features = config.features
    numbers = {
        **dict.fromkeys(features.numeric, "features.numeric"),
        **dict.fromkeys(features.quantiles, "features.quantile"),
        **dict.fromkeys(features.cut, "features.cut"),
        **dict.fromkeys(features.passthrough, "features.passthrough"),
    }
    if config.weight:
        numbers[config.weight] = "weight"
    levels = {
        **dict.fromkeys(features.categorical, "features.categorical"),
        **dict.fromkeys(features.binary, "features.binary"),
    }
    for name, group in config.groups.items():
        if group.column:
            (levels if group.below is None else numbers)[group.column] = f"groups.{name}"
    for name, kind in config.protected.items():
        if kind == "continuous":
            numbers[name] = f"protected.{name}"
        elif name not in config.groups and (kind == "categorical" or name not in numbers):
            levels[name] = f"protected.{name}"
    if config.split.column:
        levels[config.split.column] = "split.column"
    for name, condition in config.split.of.items():
        if name not in numbers and name not in levels:
            (numbers if condition.by_value else levels)[name] = f"split.of.{name}"
    return numbers, levels


def list_numbers(config: DatasetConfig) -> list[str]:
    """Return the columns whose cells are compared or computed with as numbers."""
    numbers, levels = used_columns(config)
    conditions = config.rows.keep.items()
    names = [*numbers, *(name for name, each in conditions if each.by_value and name not in levels)]
    label = config.label
    if label.above is not None or (label.task == "regression" and label.positive is None):
        names.append(label.column)
    return list(dict.fromkeys(names))


def make_columns(frame: pd.DataFrame, config: DatasetConfig, file: Path | str) -> pd.DataFrame:
    """Return every used column with its type, after the policy for missing cells.

    Numbers become float64 (NaN where the training rows will supply a value), levels text. A
    column used both ways stays numeric.
    """
    numbers, levels = used_columns(config)
    made: dict[str, pd.Series] = {}
    keep = np.ones(len(frame), dtype=bool)
    for name, key in {**levels, **numbers}.items():
        numeric = name in numbers
        column = (
            as_numbers(frame[name], key, file)
            if numeric
            else as_levels(frame[name], f"{file}: {key}")
        )
        absent = column.isna().to_numpy()
        if absent.any():
            policy = policy_of(name, config, numeric=numeric)
            if policy == "drop":
                keep &= ~absent
            elif policy == "category":
                column = column.fillna(MISSING_LEVEL)
            elif policy == "error" or not numeric or not key.startswith("features."):
                # Means are filled in by encoders, which see features only.
                raise DataError(
                    f"{file}: {key}: column {name!r} has {int(absent.sum())} missing cells, "
                    f"first in row {column.index[int(absent.argmax())]}.",
                    "Set a policy under missing (drop, mean, median, category), or name the "
                    "column in rows.drop_missing.",
                )
        made[name] = column
    label = config.label.column
    if label not in made:
        made[label] = frame[label]
    absent = frame[label].isna().to_numpy() & keep
    if absent.any():
        raise DataError(
            f"{file}: label.column: {label!r} is missing in {int(absent.sum())} rows.",
            f"Add {label} to rows.drop_missing, or to source.missing what is not missing.",
        )
    result = pd.DataFrame(made, index=frame.index)
    return result if keep.all() else result[keep]


def policy_of(name: str, config: DatasetConfig, *, numeric: bool) -> str:
    """Return what a missing cell of a column means; a ConfigError says what does not fit."""
    missing = config.missing
    policy: str = missing.columns.get(name, missing.numeric if numeric else missing.categorical)
    if policy in (("category",) if numeric else ("mean", "median")):
        kind = "numeric" if numeric else "categorical"
        raise ConfigError(
            f"missing.columns.{name}: {policy} does not fit a {kind} column.",
            f"Use one of: {'error, drop, mean, median' if numeric else 'error, drop, category'}.",
        )
    return policy


def unique_levels(column: pd.Series) -> tuple[str, ...]:
    """Return the sorted levels that occur in a column."""
    return sort_levels(as_levels(column).dropna().unique())


def sort_levels(levels: Iterable[str]) -> tuple[str, ...]:
    """Sort levels: as numbers where all are numbers, else as text; NaN comes last."""

    def rank(level: str) -> tuple[bool, float, str]:
        number = float(level)
        # NaN compares with nothing: the order would be that of the set, another in every process.
        return (True, 0.0, level) if math.isnan(number) else (False, number, level)

    unsorted = list(levels)
    try:
        return tuple(sorted(unsorted, key=rank))
    except ValueError:
        return tuple(sorted(unsorted))


def fold_level(level: str) -> str:
    """Return what levels have in common that differ by case and blanks alone."""
    return " ".join(level.split()).casefold()


def find_spellings(levels: Iterable[str]) -> dict[str, list[str]]:
    """Return the first of levels that differ by case and blanks alone -> all of them."""
    found: dict[str, list[str]] = {}
    for level in levels:
        found.setdefault(fold_level(level), []).append(level)
    return {same[0]: same for same in found.values() if len(same) > 1}


def tell_spellings(name: str, levels: Iterable[str]) -> None:
    """Log that some groups of a column differ by case and blanks alone."""
    if same := find_spellings(levels):
        alike = "; ".join(" = ".join(sorted(each)) for each in same.values())
        _log.warning(
            "%s has levels that differ by case or blanks alone, each a group of its own: %s.",
            name,
            alike,
        )


def join_dummies(frame: pd.DataFrame, source: Source, file: Path | str) -> pd.DataFrame:
    """Return a table with the columns that are made of dummies, behind the others.

    ConfigError for a dummy that the table lacks, or a column that it has.
    """
    made: dict[str, pd.Series] = {}
    for name, dummies in source.dummies.items():
        for dummy in dummies:
            if dummy not in frame:
                raise ConfigError(
                    f"{file}: source.dummies.{name}: the table has no column {dummy!r}.",
                    nearest(dummy, frame.columns),
                )
        if name in frame:
            raise ConfigError(
                f"{file}: source.dummies makes a column {name!r}, and the table has one.",
                "Give it another name.",
            )
        cells = [as_levels(frame[dummy]).str.casefold() for dummy in dummies]
        ones = np.column_stack([each.isin(("1", "true")) for each in cells])
        zeros = np.column_stack([each.isin(("0", "false")) for each in cells])
        count = ones.sum(axis=1)
        level = np.array(list(dummies.values()), dtype=object)[ones.argmax(axis=1)]
        level = np.where(count == 1, level, np.where(count, SEVERAL, NONE))
        known = (ones | zeros).all(axis=1)
        made[name] = pd.Series(level, frame.index, dtype="str").where(known)
    return frame.assign(**made)
