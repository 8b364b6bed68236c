"""Substantive equality of opportunity: least squares that do not correlate with the groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np

from fairfrontier.models.base import training_weight
from fairfrontier.models.baseline.linear_regression import (
    RANK,
    LinearModel,
    centre,
    gram,
    invert_gram,
)
from fairfrontier.models.group import take_attribute
from fairfrontier.models.registry import method
from fairfrontier.runtime.errors import DataError


@method("seo")
@dataclass(kw_only=True, eq=False, repr=False)
class SEO(LinearModel):
    """Least squares whose predictions have zero correlation with every level of an attribute.

    min_{β,b}  Σ_i w_i (y_i − x_iᵀβ − b)²   subject to   Σ_i w_i x_iᵀβ (a_i − ā) = 0,

    where a_i ∈ {0, 1}^K indicates the level of row i, and ā is its weighted mean. With centred
    columns, G = (XᵀX)⁻¹, V = Xᵀ(A − Ā) and β₀ = G Xᵀy the unconstrained solution,

    β = β₀ − G V (Vᵀ G V)⁻¹ Vᵀ β₀.

    Parameters
    ----------
    attribute : int
        Column of the attribute in ``sensitive_features``; a study's YAML may name it.
    variant : {"paper", "authors"}
        ``authors``: what the code of Agarwal et al. runs by this name: β₀ without the coefficients
        of the columns that encode the attribute. It may correlate with the groups.

    Attributes
    ----------
    coefficient_, intercept_
        As in `LinearRegression`.

    Raises
    ------
    DataError
        From ``fit`` of the variant ``authors``, when no column of X encodes the attribute.

    Notes
    -----
    O(n d² + d³). Inverses are pseudo-inverses. The correlation is zero on the training rows, over
    all of them; other statistical dependence is not bounded. Predictions are not clipped.

    References
    ----------
    K. D. Johnson, D. P. Foster, R. A. Stine. Impartial predictive modeling: ensuring fairness in
    arbitrary models. arXiv:1608.00528, 2016. A. Agarwal, M. Dudík, Z. S. Wu. Fair regression:
    quantitative definitions and reduction-based algorithms. ICML 2019, section 6.
    """

    group_parameters: ClassVar[tuple[str, ...]] = ("attribute",)
    paper: ClassVar[str] = "Johnson, Foster and Stine, Impartial predictive modeling, 2016"

    attribute: int = 0
    variant: Literal["paper", "authors"] = "paper"

    def check(self) -> None:
        """Raise ConfigError for an unknown variant."""
        self.require("variant", self.variant in ("paper", "authors"), "paper or authors")

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
    ) -> Self:
        """Solve in closed form."""
        self.check()
        X, y = self.validate_training(X, y, sensitive_features)
        weight = training_weight(sample_weight, len(y))
        _, code = np.unique(take_attribute(sensitive_features, self.attribute), return_inverse=True)
        centred, mean = centre(X, weight)
        total = weight.sum()
        inverse = invert_gram(gram(centred, weight) / total)
        unconstrained = inverse @ (centred.T @ (weight * y)) / total
        average = float(np.average(y, weights=weight))
        if self.variant == "authors":
            self.coefficient_ = np.where(find_encoding(X, code), 0.0, unconstrained)
            # The intercept is that of the unconstrained solution.
            self.intercept_ = average - float(mean @ unconstrained)
        else:
            level, _ = centre(np.eye(int(code.max()) + 1)[code], weight)
            cross = centred.T @ (weight[:, None] * level) / total  # V
            spread = cross.T @ inverse @ cross  # VᵀGV, of rank K − 1 at most
            pull = np.linalg.pinv(spread, rcond=RANK, hermitian=True) @ (cross.T @ unconstrained)
            self.coefficient_ = unconstrained - inverse @ (cross @ pull)
            self.intercept_ = average - float(mean @ self.coefficient_)
        return self


def find_encoding(X: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Return which columns are constant inside every level, and differ between two, (n_features,).

    ``code``, shape (n_samples,), is 0 to K − 1, each with rows. DataError when there is no such
    column.
    """
    first = np.unique(code, return_index=True)[1]
    encoding = (X[first][code] == X).all(axis=0) & (np.ptp(X[first], axis=0) > 0)
    if not encoding.any():
        raise DataError(
            "The authors' variant of seo leaves out the columns that encode the attribute, and no "
            "feature does.",
            "Add the attribute to the dataset's features, under groups, or use variant: paper.",
        )
    return np.asarray(encoding)
