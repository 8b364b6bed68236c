"""Scores of a model that is not at hand, as a member of a frontier."""

from __future__ import annotations

from typing import Any, Self

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from fairfrontier.runtime.errors import ConfigError


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier of which only the scores exist, in a column of the rows.

    Parameters
    ----------
    column : str or int
        Its name in a frame, or its position.
    higher_is_favourable : bool
        Whether higher scores speak for the favourable label. Only their order counts: they may be
        points, deciles, margins or probabilities.
    pos_label : optional
        The favourable label; in a frontier its own, else by default the last in ascending order.

    Examples
    --------
    >>> import pandas as pd, fairfrontier as ff
    >>> rows = pd.DataFrame({"points": [300, 720], "age": [30, 40]})
    >>> ff.Scores("points").fit(rows, [0, 1]).decision_function(rows).tolist()
    [300.0, 720.0]
    """

    def __init__(
        self, column: str | int = 0, *, higher_is_favourable: bool = True, pos_label: Any = None
    ) -> None:
        self.column = column
        self.higher_is_favourable = higher_is_favourable
        self.pos_label = pos_label

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the labels."""
        self._take(X)
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores, float64 (n_samples,), turned so that higher means the last label."""
        favourable_last = self.pos_label is None or self.pos_label == self.classes_[-1]
        score = self._take(X)
        return score if self.higher_is_favourable == favourable_last else -score

    def _take(self, X: Any) -> np.ndarray:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        try:
            if isinstance(frame, nw.DataFrame):
                name = frame.columns[self.column] if isinstance(self.column, int) else self.column
                return np.asarray(frame[name].to_numpy(), dtype=np.float64)
            return np.asarray(np.asarray(X)[:, int(self.column)], dtype=np.float64)
        except (KeyError, IndexError, ValueError, nw.exceptions.NarwhalsError) as error:
            raise ConfigError(
                f"The rows have no column {self.column!r} of scores.", "Name a column of numbers."
            ) from error
