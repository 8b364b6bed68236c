"""Gradient-boosted trees without any notion of fairness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairfrontier.models.registry import method
from fairfrontier.models.tree.boosting import BoostedTrees

if TYPE_CHECKING:
    from distributed import Client


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

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: np.ndarray | None = None,
        client: Client | None = None,
    ) -> Self:
        """Boost ``n_estimators`` trees on rows X, an array or Dask array, of two classes."""
        X, codes, weight, _ = self.read_training(X, y, sample_weight, client=client)
        return self._boost(X, codes, weight, client)
