"""Equal distributions of predicted numbers in all groups, behind any regressor.

Every group's predictions are moved to the barycentre of the groups' distributions,

    T_g(s) = Σ_h p_h Q_h(F_g(s)),        prediction = (1 − t) s + t T_g(s),

with F_g the distribution function of group g's predictions, Q_h the quantile function of group h
and p_h its share of the rows. At t = 1 the groups' distributions are equal, and no prediction that
has equal distributions is nearer to the regressor's in mean square. A share t of the way is what a
bound on their distance asks for.

References
----------
E. Chzhen, C. Denis, M. Hebiri, L. Oneto, M. Pontil. Fair regression with Wasserstein barycenters.
NeurIPS 2020, theorem 2.3. T. Le Gouic, J.-M. Loubes, P. Rigollet. Projection to fairness in
statistical learning. 2020, for the share of the way.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_predict
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from fairfrontier.models.base import TrainingWarning, explaining
from fairfrontier.models.group import SensitiveFeatures, number_cells
from fairfrontier.runtime.errors import ConfigError, InputError

Distance = Literal["kolmogorov_smirnov", "wasserstein"]
# Halvings of the share of the way.
STEPS = 40


class QuantileBarycentre(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """A regressor whose predictions have nearly the same distribution in every group.

        min E (prediction − regressor)²   s.t.   max_{g,h} distance(prediction | g, prediction | h)
                                                 ≤ bound

    among predictions that move every group a share of the way to the barycentre.

    Parameters
    ----------
    estimator : estimator
        A regressor.
    distance : {"kolmogorov_smirnov", "wasserstein"}
        The largest difference between two distribution functions, from 0 to 1, or the area between
        them (Wasserstein's distance of order 1), in units of the target.
    bound : float
        ≥ 0.
    prefit : bool
        Whether the estimator is fitted, so that the rows of ``fit`` are for the map alone; a
        ``FrozenEstimator`` is, too. Else the map is learnt from predictions of models that were
        fitted on other folds, and the estimator on all rows.
    cv : int or splitter, optional
        Those folds; by default five.

    Attributes
    ----------
    estimator_ : estimator
    share_ : float
        t, how far groups are moved.
    distance_, before_ : float
        The largest distance between two groups on the rows of the fit, with and without the map.

    Raises
    ------
    ConfigError
        From ``fit``, for parameters that are none.
    InputError
        From ``predict``, for groups that no row of the fit had.

    Notes
    -----
    A sort of the predictions, and for K groups some 40 evaluations of K distribution functions on
    all rows, O(K n). Distribution functions are linear between predictions, and beyond them the map
    is a shift. Groups of n rows are equal up to 1/n, and equal predictions stay equal, so that a
    bound may be missed by their share, of which the fit warns. What holds on the rows of the fit
    holds on others up to sampling error. Equal distributions say nothing about the errors.

    Examples
    --------
    >>> import numpy as np, fairfrontier as ff
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 1_000)
    >>> X = rng.normal(size=(1_000, 2)) + (sex == "m")[:, None]
    >>> y = 100 * X.sum(axis=1) + rng.normal(size=1_000)
    >>> model = ff.QuantileBarycentre(LinearRegression(), bound=0.05)
    >>> model = model.fit(X, y, sensitive_features=sex)
    >>> bool(model.distance_ <= 0.05 < model.before_)
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        distance: Distance = "kolmogorov_smirnov",
        bound: float = 0.0,
        prefit: bool = False,
        cv: Any = None,
    ) -> None:
        self.estimator = estimator
        self.distance = distance
        self.bound = bound
        self.prefit = prefit
        self.cv = cv

    def fit(self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None) -> Self:
        """Fit the estimator where it is not, and learn the map from its predictions.

        ``sample_weight``, (n_samples,), weighs the estimator's fit alone.
        """
        if self.distance not in ("kolmogorov_smirnov", "wasserstein") or not self.bound >= 0:
            raise ConfigError(
                f"distance is {self.distance!r}, and bound {self.bound!r}.",
                "Give kolmogorov_smirnov or wasserstein, and a number from 0.",
            )
        if not is_regressor(self.estimator):
            raise ConfigError(
                f"{type(self.estimator).__name__} is no regressor.",
                "Give one; decisions are made equal by GroupThresholds.",
            )
        self.features_ = SensitiveFeatures.learn(sensitive_features)
        self.cells_, code = number_cells(np.asarray(self.features_.code(sensitive_features)))
        with explaining():
            y = column_or_1d(y)
            check_consistent_length(X, y, code, sample_weight)
        if self.prefit or isinstance(self.estimator, FrozenEstimator):
            self.estimator_ = self.estimator
            predicted = self._predict(X)
        else:
            given = {}
            if sample_weight is not None and has_fit_parameter(self.estimator, "sample_weight"):
                given = {"sample_weight": np.asarray(sample_weight)}
            predicted = cross_val_predict(self.estimator, X, y, cv=self.cv, params=given)
            predicted = np.asarray(predicted, dtype=np.float64)
            self.estimator_ = clone(self.estimator).fit(X, y, **given)
        self.parts_ = [predicted[code == k] for k in range(len(self.cells_))]
        self.shares_ = np.bincount(code) / len(code)
        # Distinct predictions, and the middle of the ranks of equal ones.
        self.quantiles_ = [_rank(part) for part in self.parts_]
        moved = [self._move(part, k) for k, part in enumerate(self.parts_)]

        def measure(share: float) -> float:
            pairs = zip(self.parts_, moved, strict=True)
            return find_distance(
                [(1.0 - share) * own + share * there for own, there in pairs], self.distance
            )

        self.before_, low, high = measure(0.0), 0.0, 1.0
        if self.before_ <= self.bound:
            high = 0.0
        elif measure(1.0) <= self.bound:
            for _ in range(STEPS):
                middle = (low + high) / 2.0
                low, high = (low, middle) if measure(middle) <= self.bound else (middle, high)
        self.share_, self.distance_ = high, measure(high)
        grain = 1.0 / min(map(len, self.parts_))
        if self.distance == "wasserstein":
            grain *= float(np.ptp(predicted))
        if self.distance_ > self.bound + 2.0 * grain:
            warnings.warn(
                f"Groups stay {self.distance_:.3g} apart, {self.bound:g} were asked for: many rows "
                "have equal predictions, which stay equal.",
                TrainingWarning,
                stacklevel=2,
            )
        del self.parts_
        return self

    def predict(self, X: Any, *, sensitive_features: Any) -> np.ndarray:
        """Return predictions in units of the target, float64, (n_samples,)."""
        check_is_fitted(self)
        predicted = self._predict(X)
        present, code = number_cells(np.asarray(self.features_.code(sensitive_features)))
        with explaining():
            check_consistent_length(predicted, code)
        known = {tuple(cell): k for k, cell in enumerate(self.cells_.tolist())}
        found = predicted.copy()
        for position, cell in enumerate(map(tuple, present.tolist())):
            if cell not in known:
                described = zip(self.features_.describe().items(), cell, strict=True)
                group = ", ".join(f"{name} {levels[k]}" for (name, levels), k in described)
                raise InputError(
                    f"No row of the fit was of the group {group}.", "Fit on rows of every group."
                )
            rows = code == position
            moved = self._move(predicted[rows], known[cell])
            found[rows] += self.share_ * (moved - predicted[rows])
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any) -> float:
        """Return R² of the predictions."""
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def _predict(self, X: Any) -> np.ndarray:
        predicted = np.asarray(self.estimator_.predict(X), dtype=np.float64)
        if predicted.ndim != 1 or not np.isfinite(predicted).all():
            raise InputError(
                "The estimator predicts no single finite number a row.", "Give one that does."
            )
        return predicted

    def _move(self, predicted: np.ndarray, group: int) -> np.ndarray:
        """Return T_g of predictions of a group."""
        values, ranks = self.quantiles_[group]
        inside = np.clip(predicted, values[0], values[-1])
        rank = np.interp(inside, values, ranks)
        barycentre = sum(
            share * np.interp(rank, own_ranks, own_values)
            for share, (own_values, own_ranks) in zip(self.shares_, self.quantiles_, strict=True)
        )
        return np.asarray(barycentre + (predicted - inside))


def _rank(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct values, ascending, and the middle of the ranks of each, from 0 to 1."""
    distinct, counts = np.unique(values, return_counts=True)
    stops = np.cumsum(counts)
    return distinct, (stops - counts / 2.0) / values.size


def find_distance(parts: Sequence[np.ndarray], distance: Distance) -> float:
    """Return the largest distance between two samples' distributions."""
    points = np.unique(np.concatenate(parts))
    levels = np.array([np.searchsorted(np.sort(p), points, side="right") / p.size for p in parts])
    if distance == "kolmogorov_smirnov":
        return float(np.ptp(levels, axis=0).max())
    steps = np.diff(points)
    apart = [np.abs(one - levels[:k])[:, :-1] @ steps for k, one in enumerate(levels) if k]
    return float(max((each.max() for each in apart), default=0.0))
