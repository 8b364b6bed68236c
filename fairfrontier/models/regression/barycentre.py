"""Equal distributions of predicted numbers in all groups, behind any regressor.

Every group's predictions are moved to the barycentre of the groups' distributions,

    T_g(s) = Σ_h p_h Q_h(F_g(s)),        prediction = (1 − t) s + t T_g(s),

with F_g the distribution function of group g's predictions, Q_h the quantile function of group h
and p_h its share of the rows. At t = 1 the groups' distributions are equal, and no prediction that
has equal distributions is nearer to the regressor's in mean square. A share t of the way is what a
bound on their distance asks for.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_consistent_length, column_or_1d

from fairfrontier.models.base import Regressor, TrainingWarning, explaining, training_weight
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.response import cross_fit, list_fit_keywords, name_estimator
from fairfrontier.models.thresholds.base import GroupRule, as_column, is_number
from fairfrontier.runtime.errors import ConfigError, InputError

Distance = Literal["kolmogorov_smirnov", "wasserstein"]
# Halvings of the share of the way.
STEPS = 40


@dataclass(kw_only=True, eq=False, repr=False)
class NumberRule(GroupRule, Regressor):
    """Base of rules that move predicted numbers by group, behind a regressor or by themselves.

    A subclass learns in ``learn`` and moves in ``move``. Parameters are those of `GroupRule`, with
    a ``bound`` and what becomes of groups ``unseen`` in the fit.
    """

    rescores: ClassVar[bool] = True
    weights_are_counts: ClassVar[bool] = False  # repeated rows are other folds
    example: ClassVar[dict[str, Any]] = {"attributes": 0, "unseen": "pooled"}

    shares_: np.ndarray = field(init=False)

    bound: float = 0.0
    unseen: Literal["refuse", "pooled"] = "refuse"

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        self.require("bound", is_number(self.bound) and self.bound >= 0, "a number from 0")
        self.require("unseen", self.unseen in ("refuse", "pooled"), "refuse or pooled")
        if self.estimator is not None and not is_regressor(self.estimator):
            raise ConfigError(
                f"{name_estimator(self.estimator)} is no regressor.",
                "Give one; decisions are made equal by GroupThresholds.",
            )

    @property
    def takes_unseen(self) -> bool:
        """Whether groups without a row in the fit are moved."""
        return self.unseen == "pooled"

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any,
        sample_weight: Any = None,
        unit: float = 1.0,
    ) -> Self:
        """Fit the estimator where it is not, and learn from its predictions how groups are moved.

        Without an estimator X holds predictions, (n_samples,) or (n_samples, 1). ``sample_weight``,
        (n_samples,), weighs the estimator's fit and what is learnt. Where predictions are scaled, 1
        of them is a ``unit`` of what the bound is in.
        """
        self.check()
        with explaining():
            check_consistent_length(X, y, sensitive_features, sample_weight)
        predicted, target = self._learn_predictions(X, y, sensitive_features, sample_weight)
        weight = training_weight(sample_weight, len(predicted))
        code = self.learn_cells(sensitive_features)
        self.require_weight(code, weight, "fitted")
        groups = [np.flatnonzero((code == k) & (weight > 0)) for k in range(len(self.cells_))]
        parts, weights = [predicted[g] for g in groups], [weight[g] for g in groups]
        self.shares_ = np.array([each.sum() for each in weights]) / weight.sum()
        targets = None if target is None else [target[g] for g in groups]
        self.learn(parts, targets, weights, unit)
        return self

    def learn(
        self,
        parts: Sequence[np.ndarray],
        targets: Sequence[np.ndarray] | None,
        weights: Sequence[np.ndarray],
        unit: float,
    ) -> None:
        """Learn from the predictions, targets and weights of each group."""
        raise NotImplementedError

    def move(self, predicted: np.ndarray, group: int) -> np.ndarray:
        """Return predictions of a group where they are moved; that of no row of the fit is last."""
        raise NotImplementedError

    def _learn_predictions(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> Any:
        """Return predictions of rows by models that were not trained on them, and targets."""
        self.__dict__.pop("estimator_", None)
        if self.estimator is None:
            target = np.zeros(len(as_column(X))) if y is None else y
            rows, target = self.validate_training(as_column(X), target)
            return self._take(rows), None if y is None else np.asarray(target, dtype=np.float64)
        fitted = self.estimator
        if self.prefit or isinstance(fitted, FrozenEstimator):
            predicted = self._take(fitted.predict(X))
        else:
            with explaining():
                y = column_or_1d(y, warn=True)
            weight = None if sample_weight is None else training_weight(sample_weight, len(y))
            name = name_estimator(fitted)
            keywords = list_fit_keywords(
                fitted, name, sample_weight=weight, sensitive_features=groups
            )
            fitted, output = cross_fit(fitted, X, y, "predict", self.cv, keywords)
            predicted = self._take(output)
        if not np.isfinite(predicted).all():
            raise InputError(
                f"{name_estimator(fitted)} predicts numbers that are not finite.",
                "Give one that predicts a finite number for every row.",
            )
        self._stand_behind(fitted)
        return predicted, None if y is None else np.asarray(y, dtype=np.float64)

    def predict(self, X: Any, *, sensitive_features: Any) -> np.ndarray:  # type: ignore[override]
        """Return predictions in units of the target, float64, (n_samples,).

        Where the estimator predicts no finite number, there is none.
        """
        behind = vars(self).get("estimator_")
        rows = self.validate_rows(as_column(X)) if behind is None else behind.predict(X)
        predicted = self._take(rows)
        with explaining():
            check_consistent_length(predicted, sensitive_features)
        code, found = self.encode(sensitive_features), predicted.copy()
        for k in np.unique(code):
            rows = code == k
            found[rows] = self.move(predicted[rows], k)
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any) -> float:
        """Return R² of the predictions."""
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def _take(self, rows: Any) -> np.ndarray:
        """Return one number a row; InputError for other shapes."""
        predicted = np.asarray(rows, dtype=np.float64)
        if predicted.ndim == 2 and predicted.shape[1] == 1:
            predicted = predicted[:, 0]
        if predicted.ndim != 1:
            raise InputError(
                f"{self.name} got predictions of shape {predicted.shape}.",
                "Give one number per row, or rows with estimator=.",
            )
        return predicted

    def try_prediction(self) -> None:
        """Predict zeros in every group."""
        score, groups = self.list_tried()
        if self.predict(score, sensitive_features=groups).shape != score.shape:
            raise ValueError("it has not one prediction for every row")


@method("quantile_barycentre")
@dataclass(kw_only=True, eq=False, repr=False)
class QuantileBarycentre(NumberRule):
    """A regressor whose predictions have nearly the same distribution in every group.

        min E (prediction − regressor)²   s.t.   max_{g,h} distance(prediction | g, prediction | h)
                                                 ≤ bound

    among predictions that move every group a share of the way to the barycentre.

    Parameters
    ----------
    estimator : estimator or None
        A regressor; None where its predictions are given in place of rows.
    distance : {"kolmogorov_smirnov", "wasserstein"}
        The largest difference between two distribution functions, from 0 to 1, or the area between
        them (Wasserstein's distance of order 1), in units of the target of the fit.
    bound : float
        ≥ 0.
    attributes : int, str, list of these or None
        Columns of ``sensitive_features`` whose cross product makes the groups; None crosses all.
    unseen : {"refuse", "pooled"}
        What becomes of groups without a row in the fit: an error, or the map of all rows together.
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
    GroupError
        From ``predict``, for groups that no row of the fit had.

    Notes
    -----
    A sort of the predictions, and for K groups some 40 evaluations of K distribution functions on
    all rows, O(K n). Distribution functions are linear between predictions, and beyond them the map
    is a shift. Groups of n rows are equal up to 1/n, and equal predictions stay equal, so that a
    bound may be missed by their share, of which the fit warns. What holds on the rows of the fit
    holds on others up to sampling error. Equal distributions say nothing about the errors.

    References
    ----------
    E. Chzhen, C. Denis, M. Hebiri, L. Oneto, M. Pontil. Fair regression with Wasserstein
    barycenters. NeurIPS 2020, theorem 2.3. T. Le Gouic, J.-M. Loubes, P. Rigollet. Projection to
    fairness in statistical learning. 2020, for the share of the way.

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

    paper: ClassVar[str] = "Chzhen et al., Fair regression with Wasserstein barycenters, 2020"
    state_arrays: ClassVar[tuple[str, ...]] = ("cells", "shares")
    state_facts: ClassVar[tuple[str, ...]] = ("share", "distance", "before")

    # Of each group, and of all rows last: distinct predictions and the middle of their ranks.
    quantiles_: list[tuple[np.ndarray, np.ndarray]] = field(init=False)
    share_: float = field(init=False)
    distance_: float = field(init=False)
    before_: float = field(init=False)

    distance: Distance = "kolmogorov_smirnov"

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        known = self.distance in ("kolmogorov_smirnov", "wasserstein")
        self.require("distance", known, "kolmogorov_smirnov or wasserstein")

    def learn(
        self,
        parts: Sequence[np.ndarray],
        targets: Sequence[np.ndarray] | None,  # noqa: ARG002
        weights: Sequence[np.ndarray],
        unit: float,
    ) -> None:
        """Learn the groups' quantiles, and how far they go to the barycentre of these."""
        unit = unit if self.distance == "wasserstein" else 1.0
        everyone = np.concatenate(parts)
        self.quantiles_ = [*map(_rank, parts, weights), _rank(everyone, np.concatenate(weights))]
        moved = [self._find_barycentre(part, k) for k, part in enumerate(parts)]

        def measure(share: float) -> float:
            pairs = zip(parts, moved, strict=True)
            way = [(1.0 - share) * own + share * there for own, there in pairs]
            return unit * float(compare_distributions(way, weights, self.distance).max())

        self.before_, low, high = measure(0.0), 0.0, 1.0
        if self.before_ <= self.bound:
            high = 0.0
        elif measure(1.0) <= self.bound:
            for _ in range(STEPS):
                middle = (low + high) / 2.0
                low, high = (low, middle) if measure(middle) <= self.bound else (middle, high)
        self.share_, self.distance_ = high, measure(high)
        grain = max(float(each.max() / each.sum()) for each in weights)
        if self.distance == "wasserstein":
            grain *= unit * float(np.ptp(everyone))
        if self.distance_ > self.bound + 2.0 * grain:
            warnings.warn(
                f"Groups stay {self.distance_:.3g} apart, {self.bound:g} were asked for: many rows "
                "have equal predictions, which stay equal.",
                TrainingWarning,
                stacklevel=4,
            )

    def get_state(self) -> State:
        """Return the map."""
        knots = {"knots": np.array([len(values) for values, _ in self.quantiles_])}
        for k, name in enumerate(("values", "ranks")):
            knots[name] = np.concatenate([pair[k] for pair in self.quantiles_])
        state = super().get_state()
        return replace(state, arrays={**state.arrays, **knots})

    def set_state(self, state: State) -> None:
        """Restore the map."""
        super().set_state(state)
        stops = np.cumsum(state.arrays["knots"])[:-1]
        pair = [np.split(state.arrays[name], stops) for name in ("values", "ranks")]
        self.quantiles_ = list(zip(*pair, strict=True))
        if not len(self.cells_) == len(self.shares_) == len(self.quantiles_) - 1:
            raise ValueError("it has not one distribution for every group")

    def move(self, predicted: np.ndarray, group: int) -> np.ndarray:
        """Return predictions of a group a share of the way to the barycentre."""
        moved = self._find_barycentre(predicted, group)
        # As `learn` measures it: equal numbers stay equal to the last bit.
        return np.asarray((1.0 - self.share_) * predicted + self.share_ * moved)

    def _find_barycentre(self, predicted: np.ndarray, group: int) -> np.ndarray:
        """Return T_g of predictions of a group."""
        values, ranks = self.quantiles_[group]
        inside = np.clip(predicted, values[0], values[-1])
        rank = np.interp(inside, values, ranks)
        barycentre = sum(
            share * np.interp(rank, own_ranks, own_values)
            for share, (own_values, own_ranks) in zip(self.shares_, self.quantiles_, strict=False)
        )
        return np.asarray(barycentre + (predicted - inside))


@method("residual_shift")
@dataclass(kw_only=True, eq=False, repr=False)
class ResidualShift(NumberRule):
    """A regressor whose mean residuals in two groups differ by at most a bound.

        min E (prediction − regressor)²   s.t.   max_{g,h} |E(y − prediction | g)
                                                 − E(y − prediction | h)| ≤ bound

    among all predictions. Every group's are shifted by one number: with r_g the mean residual of
    group g it becomes clip(r_g, c, c + bound), at the c of the least mean squared shift.

    Parameters
    ----------
    estimator : estimator or None
        A regressor; None where its predictions are given in place of rows.
    bound : float
        ≥ 0, in units of the target.
    attributes, prefit, cv
        As in `QuantileBarycentre`.
    unseen : {"refuse", "pooled"}
        What becomes of groups without a row in the fit: an error, or the mean shift of all rows.

    Attributes
    ----------
    shift_ : ndarray of float64, shape (n_groups,)
        What is added to predictions.
    residual_ : ndarray of float64, shape (n_groups,)
        r_g on the rows of the fit.

    Raises
    ------
    ConfigError
        From ``fit``, for parameters that are none, and without y.
    GroupError
        From ``predict``, for groups that no row of the fit had.

    Notes
    -----
    O(n + K log K) beside the estimator. What holds on the rows of the fit holds on others up to the
    standard errors of the mean residuals. Equal mean residuals say nothing of their spread.

    References
    ----------
    T. Calders, A. Karim, F. Kamiran, W. Ali, X. Zhang. Controlling attribute effect in linear
    regression. ICDM 2013, whose equal mean residuals these are for any regressor.

    Examples
    --------
    >>> import fairfrontier as ff
    >>> model = ff.create("residual_shift", bound=1.0)
    >>> predicted, y, sex = [5.0, 6.0, 5.0, 6.0], [9.0, 10.0, 5.0, 6.0], ["f", "f", "m", "m"]
    >>> model = model.fit(predicted, y, sensitive_features=sex)
    >>> model.predict(predicted, sensitive_features=sex).tolist()
    [6.5, 7.5, 3.5, 4.5]
    """

    paper: ClassVar[str] = "Calders et al., Controlling attribute effect in linear regression, 2013"
    state_arrays: ClassVar[tuple[str, ...]] = ("cells", "shares", "shift", "residual")

    shift_: np.ndarray = field(init=False)
    residual_: np.ndarray = field(init=False)

    def learn(
        self,
        parts: Sequence[np.ndarray],
        targets: Sequence[np.ndarray] | None,
        weights: Sequence[np.ndarray],
        unit: float,
    ) -> None:
        """Learn the groups' shifts from their mean residuals."""
        if targets is None:
            raise ConfigError(f"{self.name} learns from residuals.", "Pass y.")
        rows = zip(parts, targets, weights, strict=True)
        residual = np.array([np.average(y - part, weights=w) for part, y, w in rows])
        bound = self.bound / unit
        # Half the slope of the mean squared shift in c rises, and is linear between these.
        points = np.unique([residual, residual - bound])
        below = np.maximum(points[:, None] - residual, 0.0)
        slope = (below - np.maximum(residual - bound - points[:, None], 0.0)) @ self.shares_
        least = float(np.interp(0.0, slope, points))
        self.residual_, self.shift_ = residual, residual - residual.clip(least, least + bound)

    def move(self, predicted: np.ndarray, group: int) -> np.ndarray:
        """Return predictions with the group's shift."""
        return np.asarray(predicted + np.append(self.shift_, self.shares_ @ self.shift_)[group])


def _rank(values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct values, ascending, and the middle of the ranks of each, from 0 to 1."""
    distinct, code = np.unique(values, return_inverse=True)
    mass = np.bincount(code, weight)
    return distinct, (np.cumsum(mass) - mass / 2.0) / mass.sum()


def compare_distributions(
    parts: Sequence[np.ndarray], weights: Sequence[np.ndarray], distance: Distance
) -> np.ndarray:
    """Return the distance between the distributions of every two weighted samples, (K, K)."""
    points = np.unique(np.concatenate(parts))
    levels = np.zeros((len(parts), len(points)))
    for level, part, weight in zip(levels, parts, weights, strict=True):
        level[:] = np.cumsum(np.bincount(np.searchsorted(points, part), weight, len(points)))
        level /= level[-1]
    found = np.zeros((len(parts), len(parts)))
    for k, one in enumerate(levels):
        apart = np.abs(one - levels[:k])
        steep = distance == "kolmogorov_smirnov"
        found[k, :k] = apart.max(axis=1) if steep else apart[:, :-1] @ np.diff(points)
    return found + found.T
