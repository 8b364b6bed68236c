"""A dataset's rows: its table, the rows that are kept, and the columns that it uses, by type."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.section import Condition, Source, Votes
from fairfrontier.prepare.table.column import (
    LARGEST,
    MISSING_LEVEL,
    Cells,
    as_levels,
    mask_numbers,
    parse_numbers,
    sort_levels,
)
from fairfrontier.prepare.table.reader import cut_table, join_frames
from fairfrontier.runtime.errors import COMPARED, ConfigError, DataError, refuse_unknown

# Of a column that is made of dummies.
NONE, SEVERAL = "none", "several"
# Said of True and False where a column holds neither.
YAML_TRUTH = " (YAML reads yes, no, on and off as true or false unless quoted)"


@dataclass(frozen=True, eq=False)
class Table:
    """A raw table, indexed by row number, and the sha256 of each of its files."""

    frame: pd.DataFrame
    digests: tuple[str, ...]


def read_table(source: Source, home: Path, folder: Path) -> Table:
    """Read all files of a source as one table, with the columns of votes and of dummies.

    Cells of text formats stay text (columns used as numbers are converted later), Parquet columns
    stay numbers; what is not a number becomes level text. O(bytes) time; the frame is in memory.

    Raises
    ------
    ConfigError, DataError
        See `cut_table`; also when there are no rows.
    """
    found = cut_table(source, home, folder, whole=True)
    frame = join_frames([piece.read() for piece in found.pieces])
    if frame.empty:
        raise DataError(f"{source.path[0].path} holds no rows.", "Check that the file is complete.")
    digests = found.digests
    if source.votes is not None and source.ballots is not None:
        ballots = read_table(source.ballots, home, folder)
        frame = join_votes(frame, count_votes(ballots.frame, source.votes), source.votes)
        digests += ballots.digests
    return Table(frame=join_dummies(frame, source, folder), digests=digests)


def count_votes(ballots: pd.DataFrame, votes: Votes) -> pd.Series:
    """Return the level that most opinions on a key are for, as a Series of str indexed by key.

        w(k) = argmax_l #{i : key_i = k, level_i = l},

    and ``votes.tie`` where several levels have the most. An opinion without a key or a level does
    not count. O(opinions + keys · levels).
    """
    named = (votes.by, votes.column)
    refuse_unknown(named, ballots.columns, "source.votes: the file has no column")
    keys, levels = as_levels(ballots[votes.by]), as_levels(ballots[votes.column])
    counts = ballots.groupby([keys, levels]).size().unstack(fill_value=0)  # noqa: PD010
    if counts.empty:
        return pd.Series([], index=pd.Index([], dtype="str"), dtype="str")
    # Keys in the order of the file, so that errors name the first.
    order = keys[keys.notna() & levels.notna()].unique()
    counts = counts.reindex(index=order, columns=list(sort_levels(counts.columns)))
    winner = counts.idxmax(axis=1).astype("str")
    tied = counts.eq(counts.max(axis=1), axis=0).sum(axis=1) > 1
    if tied.any():
        if votes.tie is None:
            raise DataError(
                f"source.votes: the votes tie for {int(tied.sum())} keys, first for "
                f"{tied.idxmax()}.",
                "Name the level that wins a tie: tie: LEVEL.",
            )
        winner = winner.mask(tied, votes.tie)
    return winner


def join_votes(frame: pd.DataFrame, winners: pd.Series, votes: Votes) -> pd.DataFrame:
    """Return the table with the column that was voted on; rows without votes lack the cell."""
    refuse_unknown([votes.by], frame.columns, "source.votes.by: the table has no column")
    if votes.column in frame:
        raise ConfigError(
            f"source.votes.column: the table has a column {votes.column!r} already.",
            "Rename one of them.",
        )
    keys = pd.Index(as_levels(frame[votes.by]))
    column = pd.Series(winners.reindex(keys).to_numpy(), index=frame.index, dtype="str")
    return frame.assign(**{votes.column: column})


def join_dummies(frame: pd.DataFrame, source: Source, file: Path | str) -> pd.DataFrame:
    """Return a table with the columns that are made of dummies, behind the others.

    ConfigError for a dummy that the table lacks, or a column that it has.
    """
    made: dict[str, pd.Series] = {}
    for name, dummies in source.dummies.items():
        where = f"{file}: source.dummies.{name}: the table has no column"
        refuse_unknown(dummies, frame.columns, where)
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


MENDS = {
    "no number": "List it under source.missing if it marks a missing cell, or use the column as "
    "categorical.",
    "infinite": "Correct the cell, or leave the row out with rows.keep.",
    "too large": f"Models take numbers up to {LARGEST:.3g}: correct it, or write the column "
    "in a larger unit.",
}


def find_wrong(column: pd.Series, numbers: pd.Series) -> dict[str, np.ndarray]:
    """Return what is wrong with cells as numbers -> in which rows, bool of shape (n_samples,)."""
    values = numbers.to_numpy()
    return {
        "no number": np.isnan(values) & column.notna().to_numpy(),
        "infinite": np.isinf(values),
        "too large": np.abs(values) > LARGEST,
    }


def as_numbers(column: pd.Series, key: str, file: Path | str) -> pd.Series:
    """Return a column as float64 with NaN for missing cells.

    What is no number, infinite or beyond single precision raises a DataError.
    """
    numbers = parse_numbers(column)
    for reason, wrong in find_wrong(column, numbers).items():
        Cells(column, key, f"{file}: {key}").refuse(wrong, f", which is {reason}", MENDS[reason])
    return numbers


def type_rows(frame: pd.DataFrame, config: DatasetConfig, file: Path | str) -> pd.DataFrame:
    """Return the rows of a raw table that are kept, with typed columns."""
    numbers = {name: mask_numbers(frame[name], config.source) for name in list_numbers(config)}
    return make_columns(keep_rows(frame.assign(**numbers), config, file), config, file)


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
                where = f"{file}: {key}.{name}: column {name!r} holds no level"
                refuse_unknown([level], present, where, YAML_TRUTH if truth else "")


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
        mend = "Compare levels with in or not."
        Cells(column, key, f"{file}: {key}").refuse(wrong, ", which is no number", mend)
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
