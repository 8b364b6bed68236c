"""The rows that minibatches draw of a table whose rows stay in partitions, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairfrontier.runtime.cluster.executor import hold, open_rows


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Some rows of a table, by the numbers that they have in it.

    Attributes
    ----------
    numbers : ndarray of int64, shape (n_drawn,)
        Ascending numbers of the rows.
    values : ndarray, shape (n_drawn, n_features)
        Those rows.
    shape : tuple of int
        That of the whole table.
    """

    numbers: np.ndarray
    values: np.ndarray
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return rows by their numbers in the table, which must have been drawn."""
        return np.asarray(self.values[self.find(rows)])

    def find(self, rows: np.ndarray) -> np.ndarray:
        """Return where rows of the table are among ``values``."""
        return np.searchsorted(self.numbers, rows)


def gather_rows(table: Mapping[str, Any], drawn: np.ndarray, dtype: str) -> dict[str, Any]:
    """Return the data of a fit with the drawn rows in place of its Dask array X.

    ``drawn``, bool (n_samples,), marks the rows, which are cast to ``dtype`` where they are. So are
    those of counterfactual sets, whose versions are made of the gathered rows.
    """
    X = table["X"]
    numbers = np.flatnonzero(drawn)
    rows = DrawnRows(numbers, open_rows(hold(X)).read(numbers, dtype), X.shape)
    sets = table.get("counterfactuals")
    if sets is None:
        return {**table, "X": rows}
    edited = {key: replace(each, X=rows) for key, each in sets.items()}
    return {**table, "X": rows, "counterfactuals": edited}
