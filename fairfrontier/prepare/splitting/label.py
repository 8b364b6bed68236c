"""What is learnt: class codes or targets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.label import Label
from fairfrontier.prepare.config.section import LONGEST_NAME
from fairfrontier.prepare.table.column import as_levels, sort_levels
from fairfrontier.prepare.table.rows import YAML_TRUTH, as_numbers
from fairfrontier.runtime.errors import ConfigError, DataError, nearest


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
    if label.above is not None:
        column, label = _cut(column, label.above, label, file)
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
        y = text.map(meaning).to_numpy(dtype=np.int64)
    else:
        y, classes, meaning = _binary(text, levels, label, file, where)
    if label.task == "regression":
        return Target(y.astype(np.float64), (), None)
    longest = max(map(len, classes))
    if longest > LONGEST_NAME:
        raise DataError(
            f"{where} has a class of {longest:,} letters, and names have at most {LONGEST_NAME:,}.",
            "Name the classes in fewer letters.",
        )
    if label.favourable is not None and label.favourable not in meaning:
        raise ConfigError(
            f"{file}: label.favourable: there is no class {label.favourable!r}.",
            nearest(label.favourable, meaning),
        )
    return Target(y, classes, label.find_favourable(classes))


def _cut(
    column: pd.Series, above: float, label: Label, file: Path | str
) -> tuple[pd.Series, Label]:
    """Return a column of numbers as one of two levels, and the label that it then is."""
    low, high = label.names or (f"up to {above:g}", f"above {above:g}")
    numbers = as_numbers(column, "label.column", file)
    levels = pd.Series(np.where(numbers > above, high, low), column.index, name=column.name)
    return levels, label.model_copy(update={"positive": (high,), "names": (low, high)})


def _binary(
    text: pd.Series, levels: tuple[str, ...], label: Label, file: Path | str, where: str
) -> tuple[np.ndarray, tuple[str, ...], dict[str, int]]:
    positive = label.positive or levels[-1:]
    if label.positive is None and len(levels) > 2:
        raise DataError(
            f"{where} has {len(levels)} levels ({', '.join(levels[:6])}), and a binary label two.",
            "Name the positive ones under label.positive, or set label.task to multiclass.",
        )
    for level in positive:
        if level not in levels:
            raise ConfigError(
                f"{file}: label.positive: {label.column!r} never is {level!r}"
                f"{YAML_TRUTH if level in ('True', 'False') else ''}.",
                nearest(level, levels),
            )
    negative = [level for level in levels if level not in positive]
    if not negative:
        raise DataError(
            f"{where} has only one class: every level is positive.",
            "List under label.positive only the levels that mean 1.",
        )
    names = label.names or (negative[0] if len(negative) == 1 else "other", positive[0])
    for code, name in enumerate(names):
        if name.casefold() in {level.casefold() for level in (negative, positive)[1 - code]}:
            raise ConfigError(
                f"{file}: label.names: class {code} is called {name!r}, a level of class "
                f"{1 - code}.",
                "Give label.names, first that of class 0, then that of class 1, which holds the "
                "positive levels.",
            )
    meaning = {level: int(level in positive) for level in levels}
    meaning.update({names[0]: 0, names[1]: 1})
    return text.isin(positive).to_numpy().astype(np.int64), names, meaning


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
