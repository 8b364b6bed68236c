"""Substantive equality of opportunity: least squares that do not correlate with the groups."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np

from fairfrontier.runtime.errors import DataError
from fairfrontier.train.base import Regressor, take_attribute, training_weight
from fairfrontier.train.baseline.linear_regression import RANK, centre, invert_gram
from fairfrontier.train.persistence import State
from fairfrontier.train.registry import method


@method("seo")
class SEO(Regressor):
    """Least squares whose predictions have zero correlation with every level of an attribute.

    min_{β,b}  Σ_i w_i (y_i − x_iᵀβ − b)²   subject to   Σ_i w_i x_iᵀβ (a_i − ā) = 0,

    where a_i ∈ {0, 1}^K says the level of row i, and ā is its weighted mean. With centred columns,
    G = (XᵀX)⁻¹, V = Xᵀ(A − Ā) and β₀ = G Xᵀy the unconstrained solution,

    β = β₀ − G V (Vᵀ G V)⁻¹ Vᵀ β₀.

    Parameters
    ----------
    attribute : int
        Column of the attribute in ``groups``; a study's YAML may name it.
    variant : {"paper", "authors"}
        ``authors``: what the code of Agarwal et al. runs by this name: β₀ without the coefficients
        of the columns that encode the attribute. It may correlate with the groups.

    Attributes
    ----------
    coefficient_ : ndarray of float64, shape (n_features,)
        β; of several that fit alike the shortest.
    intercept_ : float
        b.

    Raises
    ------
    DataError
        From ``fit`` of the variant ``authors``, when no column of X encodes the attribute.

    Notes
    -----
    O(n d² + d³). Inverses are pseudo-inverses. The correlation is zero on the training rows, over
    all of them; what is left of statistical dependence is not bounded. Predictions are not clipped.

    References
    ----------
    K. D. Johnson, D. P. Foster, R. A. Stine. Impartial predictive modeling: ensuring fairness in
    arbitrary models. arXiv:1608.00528, 2016. A. Agarwal, M. Dudík, Z. S. Wu. Fair regression:
    quantitative definitions and reduction-based algorithms. ICML 2019, section 6.
    """

    group_parameters: ClassVar[tuple[str, ...]] = ("attribute",)
    paper: ClassVar[str] = "Johnson, Foster and Stine, Impartial predictive modeling, 2016"

    coefficient_: np.ndarray
    intercept_: float

    def __init__(
        self, *, attribute: int = 0, variant: Literal["paper", "authors"] = "paper"
    ) -> None:
        self.attribute = attribute
        self.variant = variant

    def check(self) -> None:
        """Raise ConfigError for parameters that cannot be."""
        self.require("variant", self.variant in ("paper", "authors"), "paper or authors")

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        groups: np.ndarray,
        sample_weight: np.ndarray | None = None,
    ) -> Self:
        """Solve in closed form."""
        self.check()
        X, y = self.validate_training(X, y, groups)
        weight = training_weight(sample_weight, len(y))
        _, code = np.unique(take_attribute(groups, self.attribute), return_inverse=True)
        centred, mean = centre(X, weight)
        total = weight.sum()
        inverse = invert_gram(centred, weight)
        unconstrained = inverse @ (centred.T @ (weight * y)) / total
        average = float(np.average(y, weights=weight))
        if self.variant == "authors":
            kept = np.where(find_encoding(X, code), 0.0, unconstrained)
            # The level of the predictions is that of the whole solution.
            self.coefficient_, self.intercept_ = kept, average - float(mean @ unconstrained)
        else:
            level, _ = centre(np.eye(int(code.max()) + 1)[code], weight)
            tie = centred.T @ (weight[:, None] * level) / total  # V
            spread = tie.T @ inverse @ tie  # VᵀGV, of rank K − 1 at most
            pull = np.linalg.pinv(spread, rcond=RANK, hermitian=True) @ (tie.T @ unconstrained)
            self.coefficient_ = unconstrained - inverse @ (tie @ pull)
            self.intercept_ = average - float(mean @ self.coefficient_)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return predictions, float64, shape (n_samples,)."""
        value: np.ndarray = self.validate_rows(X) @ self.coefficient_ + self.intercept_
        return value

    def get_state(self) -> State:
        """Return β and b."""
        return State(
            arrays={"coefficient": self.coefficient_}, facts={"intercept": self.intercept_}
        )

    def set_state(self, state: State) -> None:
        """Restore β and b."""
        self.coefficient_ = state.arrays["coefficient"]
        self.intercept_ = state.facts["intercept"]


def find_encoding(X: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Find the columns that say the group and nothing else.

    Parameters
    ----------
    X : ndarray of float64, shape (n_samples, n_features)
    code : ndarray of int64, shape (n_samples,)
        Levels, 0 to K − 1, each with rows.

    Returns
    -------
    ndarray of bool, shape (n_features,)
        Columns that are constant inside every level, and differ between two.

    Raises
    ------
    DataError
        When there is none.
    """
    first = np.unique(code, return_index=True)[1]
    found = (X[first][code] == X).all(axis=0) & (np.ptp(X[first], axis=0) > 0)
    if not found.any():
        raise DataError(
            "The authors' variant of seo leaves out the attribute's column, and no column of the "
            "features is one.",
            "Add the attribute to the dataset's features, under groups, or take variant: paper.",
        )
    return np.asarray(found)
