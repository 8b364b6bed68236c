"""Additive regression splines with a ridge penalty, as a weak learner that is saved as arrays."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.preprocessing import SplineTransformer

from papers.rival.fair_boosting.parameter import require_number, require_whole


class Spline(RegressorMixin, BaseEstimator):
    """A sum of one B-spline for each feature.

    min_{β, b}  Σ_i w_i (y_i − b − Σ_j Σ_k β_jk B_k(x_ij))² + λ ‖β‖²,   mean w = 1

    Parameters
    ----------
    n_knots : int
        Knots of a feature, evenly from its smallest to its largest value; 2 or more.
    degree : int
        Of the polynomials between knots.
    reg_lambda : float
        λ ≥ 0.

    Attributes
    ----------
    knots_ : ndarray of float64, shape (n_knots, n_features)
        Knots.
    coefficient_ : ndarray of float64
        β, in the order of scikit-learn's ``SplineTransformer``.
    intercept_ : float
        b.

    Notes
    -----
    Beyond the outer knots the spline is constant. O(n d n_knots²).

    References
    ----------
    P. H. C. Eilers, B. D. Marx. Flexible smoothing with B-splines and penalties. Statistical
    Science 11, 1996.
    """

    knots_: np.ndarray
    coefficient_: np.ndarray
    intercept_: float

    def __init__(self, *, n_knots: int = 5, degree: int = 3, reg_lambda: float = 1.0) -> None:
        self.n_knots = n_knots
        self.degree = degree
        self.reg_lambda = reg_lambda

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        require_whole(self, "n_knots", least=2)
        require_whole(self, "degree", least=0)
        require_number(self, "reg_lambda")

    def fit(self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> Self:
        """Fit on rows X with targets y."""
        self.check()
        low, high = X.min(axis=0), X.max(axis=0)
        # A constant feature needs distinct knots as well; its spline is constant.
        self.knots_ = np.linspace(low, np.where(high > low, high, low + 1.0), self.n_knots)
        weight = None if sample_weight is None else sample_weight / np.mean(sample_weight)
        ridge = Ridge(alpha=self.reg_lambda).fit(self._bases(X), y, sample_weight=weight)
        self.coefficient_, self.intercept_ = ridge.coef_, float(ridge.intercept_)
        self.n_features_in_ = X.shape[1]
        return self

    def _bases(self, X: np.ndarray) -> np.ndarray:
        transformer = SplineTransformer(
            degree=self.degree, knots=self.knots_, include_bias=False, extrapolation="constant"
        )
        # With given knots it learns nothing from the rows of fit.
        bases: np.ndarray = transformer.fit(self.knots_).transform(X)
        return bases

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return float64 values, shape (n_samples,)."""
        values: np.ndarray = self._bases(X) @ self.coefficient_ + self.intercept_
        return values
