"""Rows as arrays, and why some of them are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd


@dataclass(eq=False)
class Refusals:
    """Why each of so many rows is refused; only the first reason counts.

    ``texts[code[i]]`` is the reason of row i, empty where there is none.
    """

    n_samples: int
    texts: list[str] = field(default_factory=lambda: [""])

    def __post_init__(self) -> None:
        self.code = np.zeros(self.n_samples, dtype=np.int32)

    def add(self, rows: np.ndarray, reason: str) -> None:
        """Refuse rows, a mask, that are not refused yet."""
        rows = rows & (self.code == 0)
        if rows.any():
            self.code[rows] = len(self.texts)
            self.texts.append(reason)

    def add_infinite(self, answers: np.ndarray) -> np.ndarray:
        """Refuse the accepted rows whose answers, (n_accepted, n_answers), are not all finite.

        Returns a mask of the others among them.
        """
        finite = np.isfinite(answers).all(axis=1)
        rows = np.zeros(self.n_samples, dtype=bool)
        rows[self.accepted] = ~finite
        self.add(rows, "the model gives no finite answer")
        return np.asarray(finite)

    @property
    def accepted(self) -> np.ndarray:
        """A mask of the rows that are not refused."""
        return np.asarray(self.code == 0)

    @property
    def reasons(self) -> np.ndarray:
        """The reason of every row, an array of str; empty where it is not refused."""
        return np.array(self.texts, dtype=object)[self.code]


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows as arrays.

    ``X`` is float64 of shape (n_samples, n_features), ``groups`` int64 of shape (n_samples,
    n_attributes) with −1 where a row is of no group, and ``columns`` the cleaned columns. Where
    ``refusals`` has a reason, X means nothing. ``unseen`` has a mask, bool of shape (n_samples,),
    for every column with levels that training had not.
    """

    X: np.ndarray
    groups: np.ndarray
    columns: pd.DataFrame
    refusals: Refusals
    unseen: Mapping[str, np.ndarray] = field(default_factory=dict)

    def count_unseen(self) -> dict[str, int]:
        """Return how many accepted rows have a level of a column that training had not."""
        accepted = self.refusals.accepted
        counts = {name: int((rows & accepted).sum()) for name, rows in self.unseen.items()}
        return {name: count for name, count in counts.items() if count}
