"""Early stopping: the round after which the log loss on validation rows is least."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax

from fairfrontier.prepare.split import Part
from fairfrontier.runtime.cluster.executor import is_collection


class Watch:
    """The log loss on validation rows, round by round.

    Attributes
    ----------
    X : ndarray or dask array of float64, shape (n_rows, n_features)
        The rows whose margins ``add`` is given.
    y : ndarray of int64
        Codes of the labels among the classes of the fit, of the rows that have one of these.
    weight : ndarray of float64
        Case weights of the same rows; a method multiplies them by those of its classes.
    losses : list of float
        The weighted mean after every round.
    """

    def __init__(self, validation: Part, classes: np.ndarray, patience: int) -> None:
        known = np.isin(np.asarray(validation.y), classes)
        self.X = validation.X if is_collection(validation.X) else np.asarray(validation.X)
        self.y = np.searchsorted(classes, np.asarray(validation.y)[known])
        self.weight = np.asarray(validation.weight, dtype=np.float64)[known]
        self._known = known
        self.patience = patience
        self.losses: list[float] = []

    def add(self, margin: np.ndarray) -> None:
        """Record a round by its margins: log-odds of class 1, (n_rows,), or (n_rows, n_classes)."""
        margin = np.asarray(margin, dtype=np.float64)[self._known]
        if margin.ndim == 1:
            margin = np.stack([np.zeros_like(margin), margin], axis=1)
        loss = -log_softmax(margin, axis=1)[np.arange(self.y.size), self.y]
        self.losses.append(float(np.average(loss, weights=self.weight)))

    @property
    def best(self) -> int:
        """The number of rounds after which the loss is least; the first of equally good ones."""
        return int(np.argmin(self.losses)) + 1

    @property
    def is_over(self) -> bool:
        """Whether so many rounds as the patience have not improved on the best."""
        return bool(self.losses) and len(self.losses) - self.best >= self.patience


def watch(model: Any, validation: Part | None) -> Watch | None:
    """Return what an estimator's ``early_stopping`` watches; None where it has nothing to watch."""
    if model.early_stopping is None or validation is None:
        return None
    begun = Watch(validation, model.classes_, model.early_stopping)
    return begun if begun.weight.any() else None


def check_stopping(model: Any) -> None:
    """Raise ConfigError for an invalid patience of an estimator."""
    patience = model.early_stopping
    model.require("early_stopping", patience is None or patience >= 1, "1 or more, or null")
