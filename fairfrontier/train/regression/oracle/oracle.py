"""Oracles: learners without fairness constraints that answer multipliers with a predictor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import xgboost
from scipy.special import expit
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.train.regression.moment import Moments, factorise, sum_by_cell, sum_moments
from fairfrontier.train.regression.oracle.logistic import LogisticRegressor
from fairfrontier.train.regression.predictor import (
    LearnerPredictor,
    LinearPredictor,
    Predictor,
    TreePredictor,
)

Variant = Literal["paper", "authors"]

# Short names of scikit-learn's learners: (regressor, classifier).
LEARNERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "decision_tree": (
        lambda: DecisionTreeRegressor(max_depth=6),
        lambda: DecisionTreeClassifier(max_depth=6),
    ),
    "extra_trees": (ExtraTreesRegressor, ExtraTreesClassifier),
    "random_forest": (RandomForestRegressor, RandomForestClassifier),
    "ridge": (Ridge, LogisticRegression),
}


@dataclass(frozen=True, eq=False)
class Costs:
    """What a best response under statistical parity minimises: Σ_i w_i g_λ(ỹ_i, a_i, f(x_i)).

    Attributes
    ----------
    total : ndarray of float64, shape (n_groups, n_labels, N + 1)
        g_λ at the levels.
    target : ndarray of float64, shape (n_groups, n_labels)
        U, the middle of the interval where g_λ is least.
    cell : ndarray of int64, shape (n_samples,)
        a_i · n_labels + ỹ_i of each training row.
    """

    total: np.ndarray
    target: np.ndarray
    cell: np.ndarray

    @property
    def targets(self) -> np.ndarray:
        """U of each row, shape (n_samples,)."""
        targets: np.ndarray = self.target.reshape(-1)[self.cell]
        return targets


@dataclass(frozen=True, eq=False)
class Response:
    """A predictor and its values on the training rows, shape (n_samples,), not yet clipped."""

    predictor: Predictor
    score: np.ndarray


class Oracle(Protocol):
    """Answers the costs of a parity problem; ``exact`` if it minimises them over its class."""

    exact: bool

    def respond(self, costs: Costs) -> Response:
        """Return a predictor whose rounded values have small costs."""
        ...


class RiskOracle(Protocol):
    """Minimises Σ_a m_a Σ_{i: a_i = a} w_i ℓ(y_i, f(x_i)) for factors m of the groups."""

    exact: bool

    def minimise(self, factor: np.ndarray) -> Response:
        """Return a predictor of small weighted loss."""
        ...


class LeastSquaresOracle:
    """LS with linear functions: one factorisation, then a call is a product with the targets.

    Targets are equal within each cell. O(n d²) once; a call takes O(d · n_cells) for the
    coefficients and O(n d) for the values.
    """

    exact = False

    def __init__(self, X: np.ndarray, weight: np.ndarray, cell: np.ndarray, n_cells: int) -> None:
        everyone = np.zeros(len(X), dtype=np.int64)
        self.X = X
        self.factor = factorise(sum_moments(X, weight, everyone, 1))
        self.sums = sum_by_cell(X, weight, cell, n_cells)

    def respond(self, costs: Costs) -> Response:
        """Return the least-squares fit of U."""
        sums = self.sums @ costs.target.reshape(-1)
        coefficient, intercept = self.factor.solve(sums[:-1], float(sums[-1]))
        return _linear_response(self.X, coefficient, intercept)


class TargetOracle:
    """Base of the oracles that fit a learner: LS, a regressor on U; LR, a classifier on copies.

    Parameters
    ----------
    weight : ndarray of float64, shape (n_samples,)
    sharpness : float
        C of a classifier, for which p = σ(C(2u − 1)); 0 for a regressor.
    variant : {"paper", "authors"}
        See `weigh_copies`.
    """

    exact = False

    def __init__(self, weight: np.ndarray, sharpness: float, variant: Variant) -> None:
        self.weight, self.sharpness, self.variant = weight, sharpness, variant

    def respond(self, costs: Costs) -> Response:
        """Return the learner fitted on U, or on two weighted copies of each row."""
        target = costs.targets
        if self.sharpness:
            target = weigh_copies(target, self.sharpness, self.variant)
        return self.fit(target, self.weight)

    def fit(self, target: np.ndarray, weight: np.ndarray) -> Response:
        """Return the learner fitted on targets in [0, 1]."""
        raise NotImplementedError


class LogisticOracle(TargetOracle):
    """LR with linear functions: logistic regression on two weighted copies of each row."""

    def __init__(
        self,
        regressor: LogisticRegressor,
        weight: np.ndarray,
        sharpness: float,
        variant: Variant = "paper",
    ) -> None:
        super().__init__(weight, sharpness, variant)
        self.regressor = regressor

    def fit(self, target: np.ndarray, weight: np.ndarray) -> Response:
        """Return the logistic fit of labels in [0, 1]."""
        theta = self.regressor.solve(target, weight) / (2.0 * self.sharpness)
        return _linear_response(self.regressor.X, theta[:-1], 0.5 + float(theta[-1]))


class TreeOracle(TargetOracle):
    """LS or LR with XGBoost: by default the paper's 200 trees of depth 4, or 150 of depth 3.

    gamma is 1 and 2, the learning rate .1: the default of XGBoost's scikit-learn wrapper when the
    paper was written. XGBoost takes labels between 0 and 1 for the two copies of a row.
    """

    def __init__(
        self,
        X: np.ndarray,
        weight: np.ndarray,
        *,
        sharpness: float = 0.0,
        variant: Variant = "paper",
        n_estimators: int | None = None,
        max_depth: int | None = None,
        n_jobs: int = 1,
        random_state: int = 0,
    ) -> None:
        super().__init__(weight, sharpness, variant)
        self.rounds = n_estimators or (150 if sharpness else 200)
        self.parameters = {
            "objective": "binary:logistic" if sharpness else "reg:squarederror",
            "max_depth": max_depth or (3 if sharpness else 4),
            "gamma": 2.0 if sharpness else 1.0,
            "learning_rate": 0.1,
            "base_score": 0.5,
            "tree_method": "hist",
            "nthread": n_jobs,
            "seed": random_state,
            "disable_default_eval_metric": 1,
        }
        self.data = xgboost.DMatrix(X, weight=weight, nthread=n_jobs)
        # Scale and shift that turn a margin into a prediction.
        self.units = (0.5 / sharpness, 0.5) if sharpness else (1.0, 0.0)

    def fit(self, target: np.ndarray, weight: np.ndarray) -> Response:
        """Return the ensemble grown on targets in [0, 1]."""
        self.data.set_label(target)
        self.data.set_weight(weight)
        return self.answer(xgboost.train(self.parameters, self.data, self.rounds))

    def answer(self, booster: xgboost.Booster) -> Response:
        """Return the predictor of an ensemble, and its values on the training rows."""
        scale, shift = self.units
        margin = booster.predict(self.data, output_margin=True).astype(np.float64)
        return Response(TreePredictor(booster, scale, shift), margin * scale + shift)


class LearnerOracle(TargetOracle):
    """LS or LR with a learner of scikit-learn that takes ``sample_weight``; it is cloned.

    LS takes a regressor, LR a classifier with ``predict_proba``.
    """

    def __init__(
        self,
        X: np.ndarray,
        weight: np.ndarray,
        learner: Any,
        sharpness: float = 0.0,
        variant: Variant = "paper",
    ) -> None:
        super().__init__(weight, sharpness, variant)
        self.X, self.learner = X, learner

    def fit(self, target: np.ndarray, weight: np.ndarray) -> Response:
        """Return the learner fitted on targets in [0, 1]."""
        learner = clone(self.learner)
        if not self.sharpness:
            learner.fit(self.X, target, sample_weight=weight)
        else:
            both = np.concatenate([weight * (1.0 - target), weight * target])
            label = np.repeat([0, 1], len(target))
            used = both > 0
            rows = np.concatenate([self.X, self.X])[used]
            learner.fit(rows, label[used], sample_weight=both[used])
        predictor = LearnerPredictor(learner, self.sharpness)
        return Response(predictor, predictor.score(self.X))


class GroupSquareOracle:
    """Weighted least squares on the labels for bounded group loss: one Gram matrix per group.

    Exact for the square loss of linear functions, before predictions are clipped to [0, 1].
    """

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        group: np.ndarray,
        n_groups: int,
        *,
        exact: bool = True,
    ) -> None:
        self.X, self.exact = X, exact
        self.moments: Moments = sum_moments(X, weight, group, n_groups)
        self.cross = sum_by_cell(X, weight * y, group, n_groups)

    def minimise(self, factor: np.ndarray) -> Response:
        """Return the fit with the rows of group a weighted by ``factor[a]``."""
        solver = factorise(self.moments.combine(factor))
        sums = self.cross @ factor
        return _linear_response(self.X, *solver.solve(sums[:-1], float(sums[-1])))


class WeightedOracle:
    """Any fit of labels with row weights, for bounded group loss; not exact."""

    exact = False

    def __init__(
        self,
        fit: Callable[[np.ndarray, np.ndarray], Response],
        y: np.ndarray,
        weight: np.ndarray,
        group: np.ndarray,
    ) -> None:
        self.fit, self.y, self.weight, self.group = fit, y, weight, group
        self.total = float(weight.sum())

    def minimise(self, factor: np.ndarray) -> Response:
        """Return the fit with the rows of group a weighted by ``factor[a]``."""
        weight = self.weight * factor[self.group]
        # Learners with penalties of their own must not see weights that grow with λ.
        return self.fit(self.y, weight * (self.total / weight.sum()))


def weigh_copies(target: np.ndarray, sharpness: float, variant: Variant = "paper") -> np.ndarray:
    """Return the weight W₂ of each row's copy with label 1; that with label 0 has 1 − W₂.

    The derivative condition of appendix F.3, (1 − W₂) ∂ℓ(0, U)/∂u + W₂ ∂ℓ(1, U)/∂u = 0, gives for
    the logistic loss W₂ = σ(C(2U − 1)), so that the weighted copies are fitted best by u = U.
    ``authors`` takes W₂ = U, as the paper's example and its code do: u = ½ + logit(U) / (2C) is
    what fits those best, which is not U.
    """
    if variant == "authors":
        return target
    chance: np.ndarray = expit(sharpness * (2.0 * target - 1.0))
    return chance


def make_learner(learner: str | Any, *, classifier: bool, random_state: int, n_jobs: int) -> Any:
    """Return an unfitted learner of scikit-learn, by its short name or from an object.

    ConfigError for an unknown name, or an object without the methods that its oracle calls.
    """
    if isinstance(learner, str):
        if learner not in LEARNERS:
            known = ["linear", "xgboost", *LEARNERS]
            raise ConfigError(f"There is no learner {learner!r}.", nearest(learner, known))
        made = LEARNERS[learner][int(classifier)]()
        accepted = made.get_params()
        settings = {"random_state": random_state, "n_jobs": n_jobs}
        return made.set_params(**{key: settings[key] for key in settings if key in accepted})
    wanted = "predict_proba" if classifier else "predict"
    if not hasattr(learner, "fit") or not hasattr(learner, wanted):
        raise ConfigError(
            f"The learner {learner!r} has no fit or no {wanted}.",
            f"Give a {'classifier' if classifier else 'regressor'} with scikit-learn's interface.",
        )
    return learner


def _linear_response(X: np.ndarray, coefficient: np.ndarray, intercept: float) -> Response:
    predictor = LinearPredictor(coefficient, intercept)
    return Response(predictor, predictor.score(X))
