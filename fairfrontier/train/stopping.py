"""Early stopping: the round after which the log loss on validation rows is least."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax

from fairfrontier.prepare.split import Part


class Watch:
    """The log loss on validation rows, round by round.

    Attributes
    ----------
    X : ndarray of float64, shape (n_rows, n_features)
        The rows whose margins ``add`` is given: those of labels that were trained on.
    y : ndarray of int64, shape (n_rows,)
        Codes of the labels among the classes of the fit.
    weight : ndarray of float64, shape (n_rows,)
        Case weights; a method multiplies them by those of its classes.
    losses : list of float
        The weighted mean after every round.
    """

    def __init__(self, validation: Part, classes: np.ndarray, patience: int) -> None:
        known = np.isin(np.asarray(validation.y), classes)
        self.X = np.asarray(validation.X)[known]
        self.y = np.searchsorted(classes, np.asarray(validation.y)[known])
        self.weight = np.asarray(validation.weight, dtype=np.float64)[known]
        self.patience = patience
        self.losses: list[float] = []

    def add(self, margin: np.ndarray) -> None:
        """Record a round by its margins: log-odds of class 1, (n_rows,), or (n_rows, n_classes)."""
        margin = np.asarray(margin, dtype=np.float64)
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
