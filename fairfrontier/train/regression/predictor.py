"""Predictors of which mixtures are made: linear functions, boosted trees, learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import xgboost
from scipy.special import logit

from fairfrontier.runtime.errors import StoreError
from fairfrontier.train.persistence import State

# Probabilities of a learner are kept so far from 0 and 1 before their logarithm is taken.
FAINT = 1e-12


class Predictor(Protocol):
    """A fitted function of the features; its values mean predictions once clipped to [0, 1]."""

    def score(self, X: np.ndarray) -> np.ndarray:
        """Return its values, float64, shape (n_samples,)."""
        ...


@dataclass(frozen=True, eq=False)
class ConstantPredictor:
    """The same value for every row.

    Attributes
    ----------
    value : float
    """

    value: float

    def score(self, X: np.ndarray) -> np.ndarray:
        """Return the value of every row."""
        return np.full(len(X), self.value)


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """x ↦ xᵀβ + b.

    Attributes
    ----------
    coefficient : ndarray of float64, shape (n_features,)
        β.
    intercept : float
        b.
    """

    coefficient: np.ndarray
    intercept: float

    def score(self, X: np.ndarray) -> np.ndarray:
        """Return xᵀβ + b; a row's value is the same in any batch to rounding."""
        value: np.ndarray = X @ self.coefficient + self.intercept
        return value


@dataclass(frozen=True, eq=False)
class TreePredictor:
    """x ↦ scale · margin(x) + shift of an XGBoost ensemble.

    Attributes
    ----------
    booster : xgboost.Booster
    scale, shift : float
        1 and 0 of a regressor; 1/(2C) and ½ of a classifier, which undoes p = σ(C(2u − 1)).
    """

    booster: Any
    scale: float = 1.0
    shift: float = 0.0

    def score(self, X: np.ndarray) -> np.ndarray:
        """Return the ensemble's values, computed by one thread."""
        self.booster.set_param({"nthread": 1})
        margin = self.booster.predict(xgboost.DMatrix(X, nthread=1), output_margin=True)
        value: np.ndarray = margin.astype(np.float64) * self.scale + self.shift
        return value


@dataclass(frozen=True, eq=False)
class LearnerPredictor:
    """A fitted learner of scikit-learn: a regressor's value, or a classifier's ½ + logit(p) / (2C).

    Attributes
    ----------
    learner : estimator
    sharpness : float
        C; 0 of a regressor.
    """

    learner: Any
    sharpness: float = 0.0

    def score(self, X: np.ndarray) -> np.ndarray:
        """Return its values."""
        if not self.sharpness:
            return np.asarray(self.learner.predict(X), dtype=np.float64)
        classes = list(self.learner.classes_)
        if len(classes) == 1:
            return np.full(len(X), float(classes[0]))
        positive = self.learner.predict_proba(X)[:, classes.index(1)]
        value: np.ndarray = 0.5 + logit(np.clip(positive, FAINT, 1 - FAINT)) / (2 * self.sharpness)
        return value


def score_all(predictors: Sequence[Predictor], X: np.ndarray) -> np.ndarray:
    """Return the predictions of every predictor, clipped to [0, 1], shape (n_samples, n)."""
    X = np.asarray(X, dtype=np.float64)
    values: np.ndarray = np.stack([each.score(X) for each in predictors], axis=1)
    return values.clip(0.0, 1.0)


def store_predictors(predictors: Sequence[Predictor]) -> State:
    """Return what predictors consist of, to be saved without pickle."""
    arrays: dict[str, np.ndarray] = {}
    boosters: dict[str, Any] = {}
    learners: dict[str, Any] = {}
    kinds: list[dict[str, Any]] = []
    for i, each in enumerate(predictors):
        if isinstance(each, ConstantPredictor):
            kinds.append({"kind": "constant", "value": each.value})
        elif isinstance(each, LinearPredictor):
            arrays[f"coefficient_{i}"] = each.coefficient
            kinds.append({"kind": "linear", "intercept": each.intercept})
        elif isinstance(each, TreePredictor):
            boosters[f"trees_{i}"] = each.booster
            kinds.append({"kind": "trees", "scale": each.scale, "shift": each.shift})
        elif isinstance(each, LearnerPredictor):
            learners[f"learner_{i}"] = each.learner
            kinds.append({"kind": "learner", "sharpness": each.sharpness})
        else:
            raise StoreError(
                f"A {type(each).__name__} cannot be saved.", "Use a learner of the house."
            )
    return State(arrays, boosters, learners, {"predictors": kinds})


def restore_predictors(state: State) -> tuple[Predictor, ...]:
    """Return the predictors of which ``store_predictors`` made a state.

    Raises
    ------
    StoreError
        When a tree of scikit-learn's has nodes that lead nowhere.
    """
    restored: list[Predictor] = []
    for i, facts in enumerate(state.facts["predictors"]):
        if facts["kind"] == "constant":
            restored.append(ConstantPredictor(facts["value"]))
        elif facts["kind"] == "linear":
            coefficient = state.arrays[f"coefficient_{i}"]
            restored.append(LinearPredictor(coefficient, facts["intercept"]))
        elif facts["kind"] == "trees":
            booster = state.boosters[f"trees_{i}"]
            restored.append(TreePredictor(booster, facts["scale"], facts["shift"]))
        else:
            learner = state.learners[f"learner_{i}"]
            _refuse_broken_trees(learner)
            restored.append(LearnerPredictor(learner, facts["sharpness"]))
    return tuple(restored)


def _refuse_broken_trees(learner: Any) -> None:
    for part in np.ravel(getattr(learner, "estimators_", [learner])):
        if hasattr(part, "tree_") and not _leads_to_leaves(part.tree_, learner.n_features_in_):
            raise StoreError(
                "A saved learner has trees with nodes that lead nowhere.",
                "Train it again, or restore the folder from where it was saved.",
            )


def _leads_to_leaves(tree: Any, n_features: int) -> bool:
    """Return whether every walk down the tree ends in one of its leaves."""
    place = np.arange(tree.node_count)
    inner = tree.children_left != -1
    # Trees are numbered downwards, so children that come later rule out circles.
    for child in (tree.children_left, tree.children_right):
        below = (child > place) & (child < tree.node_count)
        if not np.array_equal(below, inner) or (child[~inner] != -1).any():
            return False
    feature = tree.feature[inner]
    return bool(((feature >= 0) & (feature < n_features)).all())
