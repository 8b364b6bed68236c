"""Gradient-boosted trees without any notion of fairness."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from fairfrontier.train.base import training_weight
from fairfrontier.train.registry import method
from fairfrontier.train.tree.boosting import BoostedTrees


@method("gbdt")
class GBDT(BoostedTrees):
    """Gradient-boosted decision trees on the logistic loss.

    Parameters are those of `BoostedTrees`.

    Notes
    -----
    O(n d) per level and round.

    References
    ----------
    T. Chen, C. Guestrin. XGBoost: a scalable tree boosting system. KDD 2016.
    """

    paper: ClassVar[str] = "Chen and Guestrin, XGBoost, KDD 2016"

    def fit(self, X: np.ndarray, y: np.ndarray, *, sample_weight: np.ndarray | None = None) -> Self:
        """Boost ``n_estimators`` trees on rows X with labels y of two classes."""
        X, codes = self.validate_training(X, y)
        return self._boost(X, codes, training_weight(sample_weight, len(codes)))
