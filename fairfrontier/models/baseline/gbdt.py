"""Gradient-boosted trees: as they are, on weighted or projected rows, and of a numeric target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairfrontier.models.base import Regressor
from fairfrontier.models.baseline.linear_regression import (
    RegressionLoss,
    refuse_targets,
    shrink_margin,
)
from fairfrontier.models.group import take_attribute
from fairfrontier.models.registry import method
from fairfrontier.models.tree.boosting import BoostedTrees, TreesOfBlocks, predict_margins
from fairfrontier.similarity.fair_metric import FairMetric

if TYPE_CHECKING:
    from distributed import Client

OBJECTIVES = {"square": "reg:squarederror", "logistic": "binary:logistic"}


@method("gbdt")
class GBDT(BoostedTrees):
    """Gradient-boosted decision trees on the logistic loss, of several classes the softmax's.

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
        """Boost ``n_estimators`` trees on rows X, an array or Dask array, with labels y."""
        X, codes, weight, _ = self.read_training(X, y, sample_weight, client=client)
        return self._classify(X, codes, weight, client)


def independence_weights(group: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the factors P(g) P(y) / P(g, y) on the case weights of rows with codes g and y.

    Shares are counted by the case weights, under which the factors have the mean 1.

    References
    ----------
    F. Kamiran, T. Calders. Data preprocessing techniques for classification without
    discrimination. Knowledge and Information Systems 33, 2012, Algorithm 3.
    """
    n_groups, n_classes = int(group.max()) + 1, int(y.max()) + 1
    cell = group * n_classes + y
    joint = np.bincount(cell, weights=weight, minlength=n_groups * n_classes)
    joint = joint.reshape(n_groups, n_classes) / weight.sum()
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    factor = np.divide(independent, joint, out=np.zeros_like(joint), where=joint > 0)
    weights: np.ndarray = factor.reshape(-1)[cell]
    return weights


@method("reweigh")
@dataclass(kw_only=True, eq=False, repr=False)
class Reweigh(BoostedTrees):
    """Gradient-boosted trees on rows weighted so that group and label are independent.

    Parameters
    ----------
    attribute : int
        Column of the attribute in ``sensitive_features``; a study's YAML may name it.
    **parameters
        Those of `BoostedTrees`.

    Notes
    -----
    O(n) for the weights beside what `GBDT` costs.

    References
    ----------
    F. Kamiran, T. Calders. Data preprocessing techniques for classification without
    discrimination. Knowledge and Information Systems 33, 2012.
    """

    group_parameters: ClassVar[tuple[str, ...]] = ("attribute",)
    paper: ClassVar[str] = "Kamiran and Calders, Data preprocessing techniques, KAIS 2012"

    attribute: int = 0

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
        client: Client | None = None,
    ) -> Self:
        """Weigh the rows by group and label, then boost."""
        X, codes, weight, sensitive_features = self.read_training(
            X, y, sample_weight, sensitive_features, client
        )
        group = take_attribute(sensitive_features, self.attribute)
        factor = independence_weights(group, codes, weight)
        return self._classify(X, codes, weight * factor, client)


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

    state_arrays: ClassVar[tuple[str, ...]] = ("sigma",)

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
        return self._classify(X, codes, weight, client)

    def _project(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(X @ self.sigma_)


@method("gbdt_regression")
@dataclass(kw_only=True, eq=False, repr=False)
class GBDTRegression(TreesOfBlocks, Regressor):
    """Gradient-boosted decision trees on the squared error, or the logistic loss of shares.

    With the logistic loss targets lie in [0, 1], and predictions are u = clip(1/2 + m/10, 0, 1) of
    the margin m, for which p = σ(5 (2u − 1)): the scale on which fair regression predicts.

    Parameters
    ----------
    loss : {"square", "logistic"}
        What is boosted.
    gamma : float
        Least gain of a split, as XGBoost's.
    base_score : float or None
        Prediction (a probability, with the logistic loss) that boosting starts from; None lets
        XGBoost estimate it from the targets.
    **parameters
        Those of `TreesOfBlocks`.

    Attributes
    ----------
    booster_ : xgboost.Booster
        The trees.

    Raises
    ------
    DataError
        From ``fit`` with the logistic loss, for targets outside [0, 1] or all equal to 0 or to 1.

    Notes
    -----
    O(n d) per level and round.

    References
    ----------
    T. Chen, C. Guestrin. XGBoost: a scalable tree boosting system. KDD 2016. A. Agarwal, M. Dudík,
    Z. S. Wu. Fair regression: quantitative definitions and reduction-based algorithms. ICML 2019.
    """

    paper: ClassVar[str] = "Chen and Guestrin, XGBoost, KDD 2016"

    loss: RegressionLoss = "square"
    gamma: float = 0.0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        self.require("loss", self.loss in OBJECTIVES, " or ".join(OBJECTIVES))
        self.require("gamma", self.gamma >= 0, "0 or more")

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: np.ndarray | None = None,
        client: Client | None = None,
    ) -> Self:
        """Boost ``n_estimators`` trees on rows X, an array or Dask array, with targets y."""
        self.check()
        X, y, weight, _ = self.read_training(X, y, sample_weight, client=client)
        if self.loss == "logistic":
            refuse_targets(y, self.name)
        objective = OBJECTIVES[self.loss]
        return self._boost(X, y, weight, client, objective=objective, gamma=self.gamma)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, float64, shape (n_samples,)."""
        rows = self.validate_rows(X)
        margin = predict_margins(self.booster_, rows, self.n_jobs)
        return margin if self.loss == "square" else shrink_margin(margin)
