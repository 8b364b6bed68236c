"""One decision for all rows, which treats everybody alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from fairfrontier.models.base import Classifier
from fairfrontier.models.registry import method
from fairfrontier.prepare.split import Task


@method("constant")
@dataclass(kw_only=True, eq=False, repr=False)
class Constant(Classifier):
    """The classes' shares of the training rows, whatever the features.

    P(Y = c | x) = Σ_{y_i = c} s_i / Σ s_i.  Decisions are the same for all rows, the better one for
    a study's objective, and all groups have the same rates. Mixed with another model at random it
    attains every smaller gap of that model, at a proportional share of its gain.

    Attributes
    ----------
    share_ : ndarray of float64, shape (n_classes,)
        The shares.

    References
    ----------
    R. C. Holte. Very simple classification rules perform well on most commonly used datasets.
    Machine Learning 11, 1993 (0-rules).
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    takes_missing: ClassVar[bool] = True
    takes_blocks: ClassVar[bool] = True
    state_arrays: ClassVar[tuple[str, ...]] = ("share",)
    paper: ClassVar[str] = "Holte, Very simple classification rules, Machine Learning 1993"

    share_: np.ndarray = field(init=False)

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags, with the one that excuses bad scores."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any, *, sample_weight: np.ndarray | None = None) -> Self:
        """Count the classes of labels y, weighted."""
        _, codes, weight, _ = self.read_training(X, y, sample_weight)
        self.share_ = np.bincount(codes, weights=weight) / weight.sum()
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return the shares for every row, float64, shape (n_samples, n_classes)."""
        n_samples = len(self.validate_rows(X))
        return np.tile(self.share_, (n_samples, 1))
