"""Rows for reading: a table's own values where it is available, else what X says of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import check_columns, expand_rest, read_dataset
from fairfrontier.prepare.source.fetch import find_source
from fairfrontier.prepare.table.rows import type_rows, used_columns
from fairfrontier.prepare.text.corpus import read_corpus
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.home import find_home


def read_source_rows(
    dataset: str | Path, ids: np.ndarray, home: Path | None = None
) -> pd.DataFrame:
    """Read rows of a dataset's table again, by row numbers of the table (``Part.ids``).

    The columns are those of which features, groups and protected attributes are made, numbers as
    float64 and levels as text; ``ids`` is the index. Noise that ``perturb:`` adds to groups is not
    shown. DataError when the table is no longer on this disk, or lacks one of the rows.
    """
    root = home or find_home()
    file = find_yaml("dataset", dataset, root)
    config = read_dataset(file, root)
    source = find_source(config.source, file, root)
    if source is None:
        raise DataError(
            f"The table of {config.dataset} is not on this disk.", "Load the dataset first."
        )
    table = read_corpus(config.model_copy(update={"source": source}), root, file)
    check_columns(config, table.frame.columns, file)
    config = expand_rest(config, table.frame.columns)
    frame = type_rows(table.frame, config, file)
    lost = np.setdiff1d(ids, frame.index.to_numpy())
    if lost.size:
        raise DataError(
            f"The table of {config.dataset} has no row {lost[0]}.", "Load the dataset again."
        )
    numbers, levels = used_columns(config)
    aside = {config.label.column, config.weight, config.split.column}
    shown = {*numbers, *levels} - aside
    return frame.loc[ids, [name for name in table.frame.columns if name in shown]]


def decode_rows(X: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    """Return rows of X with one-hot columns folded back into columns of levels.

    Neighbouring columns of zeros and ones whose names share a prefix up to an underscore, and of
    which no row of X has two, become one column; "other" is none of them. Other columns are
    unchanged: standardised numbers are in standard deviations from the mean.
    """
    binary = np.all((X == 0) | (X == 1), axis=0)
    columns: dict[str, np.ndarray] = {}
    start = 0
    while start < len(names):
        prefix, stop = _find_run(X, names, binary, start)
        if stop - start < 2:
            columns[names[start]] = X[:, start]
            start += 1
            continue
        levels = np.array([*(name[len(prefix) :] for name in names[start:stop]), "other"])
        block = X[:, start:stop]
        codes = np.where(block.any(axis=1), block.argmax(axis=1), stop - start)
        columns[prefix[:-1]] = levels[codes]
        start = stop
    return pd.DataFrame(columns)


def _find_run(
    X: np.ndarray, names: Sequence[str], binary: np.ndarray, start: int
) -> tuple[str, int]:
    """Return the prefix of the one-hot columns that begin at ``start``, and where they end."""
    name = names[start]
    for cut in [i + 1 for i, letter in enumerate(name) if letter == "_" and i]:
        stop, taken = start, np.zeros(len(X))
        while stop < len(names) and names[stop].startswith(name[:cut]) and binary[stop]:
            taken = taken + X[:, stop]
            if taken.max(initial=0.0) > 1:
                break
            stop += 1
        if stop - start > 1:
            return name[:cut], stop
    return "", start


def show_value(value: object) -> str:
    """Return a cell for reading: whole and large numbers without a point, others to four digits."""
    if not isinstance(value, float | np.floating):
        return str(value)
    number = float(value)
    if np.isnan(number):
        return "missing"
    return f"{number:.0f}" if number % 1 == 0 or abs(number) >= 1000 else f"{number:.4g}"
