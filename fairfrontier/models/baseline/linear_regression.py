"""Linear models of a numeric target without any notion of fairness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.models.base import Regressor
from fairfrontier.models.registry import method
from fairfrontier.runtime.cluster.executor import Block, average_rows, hold, open_rows
from fairfrontier.runtime.cluster.logistic import MOST_NEWTON, fit_logistic
from fairfrontier.runtime.errors import DataError

# C of fair regression: a prediction u stands for the probability σ(C (2u − 1)).
STEEPNESS = 5.0
# Directions with less than this share of the largest variance are left out.
RANK = 1e-10

RegressionLoss = Literal["square", "logistic"]


def shrink_margin(margin: np.ndarray) -> np.ndarray:
    """Return the u in [0, 1] that represents the log-odds: clip(1/2 + margin/(2C), 0, 1)."""
    return np.asarray(np.clip(0.5 + margin / (2 * STEEPNESS), 0.0, 1.0))


def refuse_targets(y: np.ndarray, name: str) -> None:
    """Raise DataError for targets outside [0, 1], and for those that are all 0 or all 1."""
    if y.min() < 0 or y.max() > 1:
        raise DataError(
            f"{name} with the logistic loss was given targets from {y.min():g} to {y.max():g}.",
            "Map them to [0, 1], for example by a range of the label.",
        )
    if y.max() <= 0 or y.min() >= 1:
        raise DataError(
            f"{name} was given the same target in every row.", "Give it rows that differ."
        )


def centre(X: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns minus their weighted means, and these means."""
    mean = np.average(X, axis=0, weights=weight)
    return X - mean, np.asarray(mean)


def gram(X: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return Σ_i w_i x_i x_iᵀ."""
    product: np.ndarray = (X * weight[:, None]).T @ X
    return product


def invert_gram(gram: np.ndarray, penalty: float = 0.0) -> np.ndarray:
    """Return the pseudo-inverse of a Gram matrix plus penalty · I.

    Directions with less than ``RANK`` of the largest eigenvalue are left out: collinear columns
    have such directions.
    """
    value, vector = np.linalg.eigh(gram)
    kept = value > RANK * max(float(value[-1]), 0.0)
    inverse: np.ndarray = (vector[:, kept] / (value[kept] + penalty)) @ vector[:, kept].T
    return inverse


def _add_products(block: Block, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centred = block.X - mean
    return gram(centred, block["weight"]), centred.T @ (block["weight"] * block["y"])


class LinearModel(Regressor):
    """Base of the regressors that predict xᵀβ + b.

    Attributes
    ----------
    coefficient_ : ndarray of float64, shape (n_features,)
        β; of several that fit equally well the shortest.
    intercept_ : float
        b.
    """

    state_arrays: ClassVar[tuple[str, ...]] = ("coefficient",)
    state_facts: ClassVar[tuple[str, ...]] = ("intercept",)

    coefficient_: np.ndarray
    intercept_: float

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, float64, shape (n_samples,)."""
        value: np.ndarray = self.validate_rows(X) @ self.coefficient_ + self.intercept_
        return value


@method("linear_regression")
@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(LinearModel):
    """Least squares, or logistic regression of targets in [0, 1].

    min_{β,b}  Σ_i w_i ℓ(y_i, x_iᵀβ + b) / Σ_i w_i + (penalty/2) ‖β‖²

    with ℓ(y, m) = (y − m)²/2, or the logistic loss −y log σ(m) − (1 − y) log σ(−m). The logistic
    prediction is u = clip(1/2 + m/10, 0, 1), for which p = σ(5 (2u − 1)): the scale on which fair
    regression predicts.

    Parameters
    ----------
    loss : {"square", "logistic"}
        ℓ.
    penalty : float
        ℓ2 penalty on the mean loss; 0 or more, above 0 for the logistic loss.

    Attributes
    ----------
    coefficient_ : ndarray of float64, shape (n_features,)
        β; of several that fit equally well the shortest.
    intercept_ : float
        b.

    Raises
    ------
    DataError
        From ``fit`` with the logistic loss, for targets outside [0, 1] or all equal to 0 or to 1.

    Notes
    -----
    O(n d² + d³) for least squares, which does not clip its predictions; the same for every Newton
    step of the logistic loss.
    Newton steps converge in a few where L-BFGS takes hundreds, for the penalty is small.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression: quantitative definitions and reduction-based
    algorithms. ICML 2019, section 6 (unconstrained baselines).
    """

    takes_blocks: ClassVar[bool] = True
    paper: ClassVar[str] = "Cox, The regression analysis of binary sequences, JRSS B 1958"

    loss: RegressionLoss = "square"
    penalty: float = 1e-6

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        self.require("loss", self.loss in ("square", "logistic"), "square or logistic")
        self.require("penalty", self.penalty >= 0, "0 or more")
        bounded = self.penalty > 0 or self.loss == "square"
        self.require("penalty", bounded, "a number above 0: without, log-odds may be infinite")

    def needs_all_rows(self, n_samples: int, n_features: int, n_classes: int) -> str | None:  # noqa: ARG002
        """Return why rows in blocks do not suit the method; see `Estimator`."""
        if n_features > MOST_NEWTON:
            return f"{self.name} takes at most {MOST_NEWTON} coefficients in partitions."
        return None

    def fit(self, X: Any, y: Any, *, sample_weight: np.ndarray | None = None) -> Self:
        """Solve in closed form, or by Newton's method, for an array or Dask array of rows."""
        self.check()
        X, y, weight, _ = self.read_training(X, y, sample_weight)
        rows = open_rows(hold(X), y=y, weight=weight)
        if self.loss == "square":
            mean = average_rows(rows)
            second, slope = rows.sum(_add_products, mean)
            total = weight.sum()
            self.coefficient_ = invert_gram(second / total, self.penalty) @ (slope / total)
            self.intercept_ = float(np.average(y, weights=weight) - mean @ self.coefficient_)
        else:
            refuse_targets(y, self.name)
            fitted = fit_logistic(rows, 2, self.penalty)
            self.coefficient_ = fitted.coefficient[0]
            self.intercept_ = float(fitted.intercept[0])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, float64, shape (n_samples,)."""
        value = super().predict(X)
        return value if self.loss == "square" else shrink_margin(value)
