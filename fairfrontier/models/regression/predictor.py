"""Predictors of which mixtures are made: linear functions, boosted trees, learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import xgboost
from scipy.special import logit

from fairfrontier.models.persistence import State

# Probabilities of a learner are kept this far from 0 and 1 before their logarithm is taken.
FAINT = 1e-12


class Predictor(Protocol):
    """A fitted function of the features; its values mean predictions once clipped to [0, 1]."""

    kind: ClassVar[str]

    def score(self, X: np.ndarray) -> np.ndarray:
        """Return its values, float64, shape (n_samples,)."""
        ...


@dataclass(frozen=True, eq=False)
class ConstantPredictor:
    """The same value for every row."""

    kind: ClassVar[str] = "constant"
    value: float

    def score(self, X: np.ndarray) -> np.ndarray:
        """Return the value of every row."""
        return np.full(len(X), self.value)


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """x ↦ xᵀβ + b."""

    kind: ClassVar[str] = "linear"
    coefficient: np.ndarray
    intercept: float

    def score(self, X: np.ndarray) -> np.ndarray:
        """Return xᵀβ + b; a row's value is the same in any batch to rounding."""
        value: np.ndarray = X @ self.coefficient + self.intercept
        return value


@dataclass(frozen=True, eq=False)
class TreePredictor:
    """x ↦ scale · margin(x) + shift of an XGBoost ensemble.

    Scale and shift are 1 and 0 of a regressor; 1/(2C) and ½ of a classifier, which inverts
    p = σ(C(2u − 1)).
    """

    kind: ClassVar[str] = "trees"
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

    ``sharpness`` is C, and 0 of a regressor.
    """

    kind: ClassVar[str] = "learner"
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
    values: np.ndarray = np.stack([predictor.score(X) for predictor in predictors], axis=1)
    return values.clip(0.0, 1.0)


# Kind: its class, the field that is no plain value, and the part of a State that it goes to with
# the prefix of its name there.
_KINDS: dict[str, tuple[type[Any], str, str, str]] = {
    "constant": (ConstantPredictor, "", "", ""),
    "linear": (LinearPredictor, "coefficient", "arrays", "coefficient"),
    "trees": (TreePredictor, "booster", "boosters", "trees"),
    "learner": (LearnerPredictor, "learner", "learners", "learner"),
}


def store_predictors(predictors: Sequence[Predictor]) -> State:
    """Return the parts of predictors, to be saved without pickle."""
    parts: dict[str, dict[str, Any]] = {"arrays": {}, "boosters": {}, "learners": {}}
    descriptions: list[dict[str, Any]] = []
    for i, predictor in enumerate(predictors):
        _, field, part, prefix = _KINDS[predictor.kind]
        values = dict(vars(predictor))
        if field:
            parts[part][f"{prefix}_{i}"] = values.pop(field)
        descriptions.append({"kind": predictor.kind, **values})
    return State(**parts, facts={"predictors": descriptions})


def restore_predictors(state: State) -> tuple[Predictor, ...]:
    """Return the predictors of which ``store_predictors`` made a state."""
    restored: list[Predictor] = []
    for i, description in enumerate(state.facts["predictors"]):
        values = dict(description)
        made, field, part, prefix = _KINDS[values.pop("kind")]
        if field:
            values[field] = getattr(state, part)[f"{prefix}_{i}"]
        restored.append(made(**values))
    return tuple(restored)
