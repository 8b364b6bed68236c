"""Projecting the sensitive subspace out of the features before training as usual."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.tree.boosting import BoostedTrees
from fairfrontier.similarity.fair_metric import FairMetric

if TYPE_CHECKING:
    from distributed import Client


@method("project")
class Project(BoostedTrees):
    """Gradient-boosted trees on x Σ: on the part of x that the fair metric sees.

    For a sensitive subspace Σ = I − proj(span A), so that movement along the sensitive directions
    does not change the prediction; features that merely correlate with them can still be used.
    Parameters are those of `BoostedTrees`.

    Attributes
    ----------
    sigma_ : ndarray of float64, shape (n_features, n_features)
        The metric's Σ.

    Notes
    -----
    O(n d²) for x Σ beside what `GBDT` costs.

    References
    ----------
    A. Vargo et al. Individually fair gradient boosting. ICLR 2021, Appendix C.2. A. Bower et al.
    Debiasing representations by removing unwanted variation due to protected attributes. 2018.
    """

    takes_missing: ClassVar[bool] = False
    paper: ClassVar[str] = "Vargo et al., Individually fair gradient boosting, ICLR 2021"

    sigma_: np.ndarray

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        metric: FairMetric,
        sample_weight: np.ndarray | None = None,
        client: Client | None = None,
    ) -> Self:
        """Boost trees on the projected rows."""
        X, codes, weight, _ = self.read_training(X, y, sample_weight, client=client)
        self.sigma_ = metric.sigma
        return self._boost(X, codes, weight, client)

    def _project(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(X @ self.sigma_)

    def get_state(self) -> State:
        """Return the trees and Σ."""
        return replace(super().get_state(), arrays={"sigma": self.sigma_})

    def set_state(self, state: State) -> None:
        """Restore the trees and Σ."""
        super().set_state(state)
        self.sigma_ = state.arrays["sigma"]
