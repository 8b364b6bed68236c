"""Gradient-boosted trees of a numeric target without any notion of fairness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import xgboost

from fairfrontier.models.base import Regressor
from fairfrontier.models.baseline.linear_regression import (
    RegressionLoss,
    refuse_targets,
    shrink_margin,
)
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.tree.boosting import TreesOfBlocks, check_trees, grow, read_tree_parameters
from fairfrontier.runtime.cluster.executor import fit_rows

if TYPE_CHECKING:
    from distributed import Client

OBJECTIVES = {"square": "reg:squarederror", "logistic": "binary:logistic"}


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
    n_estimators, max_depth, learning_rate, reg_lambda, min_child_weight, tree_method, max_bin
        As in `BoostedTrees`.
    colsample_bytree : float
        The share of the features that each tree is grown on.
    n_jobs, random_state : int
        As in `BoostedTrees`.

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

    takes_missing: ClassVar[bool] = True
    paper: ClassVar[str] = "Chen and Guestrin, XGBoost, KDD 2016"
    example: ClassVar[Mapping[str, Any]] = {"n_estimators": 5, "max_depth": 3}

    booster_: xgboost.Booster = field(init=False)

    loss: RegressionLoss = "square"
    n_estimators: int = 100
    max_depth: int = 6
    learning_rate: float = 0.3
    gamma: float = 0.0
    reg_lambda: float = 1.0
    min_child_weight: float = 1.0
    base_score: float | None = None
    tree_method: str = "hist"
    max_bin: int = 256
    colsample_bytree: float = 1.0
    n_jobs: int = 1
    random_state: int = 0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        check_trees(self)
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
        parameters = {
            **read_tree_parameters(self),
            "objective": OBJECTIVES[self.loss],
            "gamma": self.gamma,
        }
        self.booster_ = fit_rows(
            partial(grow, parameters=parameters, rounds=self.n_estimators),
            X,
            client=client,
            name=self.name,
            dtype=np.float32,
            y=y,
            weight=weight,
        )
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, float64, shape (n_samples,)."""
        data = xgboost.DMatrix(self.validate_rows(X), nthread=self.n_jobs)
        self.booster_.set_param({"nthread": self.n_jobs})
        margin = self.booster_.predict(data, output_margin=True)
        value: np.ndarray = margin.astype(np.float64)
        return value if self.loss == "square" else shrink_margin(value)

    def get_state(self) -> State:
        """Return the trees."""
        return State(boosters={"trees": self.booster_})

    def set_state(self, state: State) -> None:
        """Restore the trees."""
        self.booster_ = state.boosters["trees"]
