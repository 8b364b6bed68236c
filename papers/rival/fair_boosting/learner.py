"""Weak learners by their short names, with one way to fit them and to predict."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import has_fit_parameter

from fairfrontier.runtime.errors import ConfigError, nearest
from papers.rival.fair_boosting.newton_tree import NewtonTree
from papers.rival.fair_boosting.spline import Spline

LEARNERS: Mapping[str, Callable[..., Any]] = {
    "k_neighbors": partial(KNeighborsRegressor, n_neighbors=25, algorithm="brute"),
    "linear": Ridge,
    "newton_tree": NewtonTree,
    "spline": Spline,
    "stump": partial(DecisionTreeRegressor, max_depth=1),
    "tree": partial(DecisionTreeRegressor, max_depth=3),
}
# Rows of scikit-learn's blocks of distances: partial blocks use kernels that round differently.
BLOCK = 256


def make_learner(learner: str | Any, parameters: Mapping[str, Any] | None) -> Any:
    """Return an unfitted regressor: one of ``LEARNERS`` by its name, or a copy of a regressor.

    ``parameters`` differ from the defaults.

    Raises
    ------
    ConfigError
        For an unknown name or parameter, an invalid parameter, or an object that is not a
        regressor.
    """
    if not isinstance(parameters, Mapping | None):
        raise ConfigError(
            f"The learner's parameters are {parameters!r}.", "Give names and their values."
        )
    chosen = dict(parameters or {})
    if not isinstance(learner, str):
        if not all(hasattr(learner, method) for method in ("fit", "predict", "get_params")):
            raise ConfigError(
                f"The learner {learner!r} is not a regressor.",
                f"Give one with scikit-learn's interface, or a name: {', '.join(LEARNERS)}.",
            )
        made = clone(learner)
        known = list(made.get_params())
        _require_known(type(learner).__name__, chosen, known)
        return _checked(made.set_params(**chosen) if chosen else made)
    if learner not in LEARNERS:
        raise ConfigError(f"There is no learner {learner!r}.", nearest(learner, LEARNERS))
    maker = LEARNERS[learner]
    known = list(inspect.signature(maker).parameters)
    _require_known(learner, chosen, known)
    made = _checked(maker(**chosen))
    if getattr(made, "algorithm", "brute") != "brute":
        raise ConfigError(
            f"The parameter 'algorithm' of {learner!r} is {made.algorithm!r}, whose search trees "
            "cannot be saved.",
            "Give brute, which finds the same neighbours.",
        )
    return made


def _require_known(name: str, chosen: Mapping[str, Any], known: list[str]) -> None:
    for key in chosen:
        if key not in known:
            raise ConfigError(
                f"The learner {name!r} has no parameter {key!r}.", nearest(key, known)
            )


def _checked(learner: Any) -> Any:
    """Return a learner after checking its parameters, as far as possible without rows."""
    if isinstance(learner, NewtonTree | Spline):
        learner.check()
    # Regressors of other libraries may declare no constraints.
    elif hasattr(learner, "_parameter_constraints"):
        try:
            learner._validate_params()
        except ValueError as error:
            raise ConfigError(str(error), "Correct learner_parameters.") from error
    return learner


def require_rows(learner: Any, n_samples: int) -> None:
    """Raise ConfigError for a learner that needs more neighbours than there are rows."""
    last = learner.steps[-1][1] if isinstance(learner, Pipeline) else learner
    if isinstance(last, KNeighborsRegressor) and last.n_neighbors > n_samples:
        raise ConfigError(
            f"The learner needs {last.n_neighbors} neighbours, but there are {n_samples} rows.",
            "Give a smaller n_neighbors in learner_parameters.",
        )


def weight_keyword(learner: Any) -> str | None:
    """Return the keyword by which ``fit`` takes weights, or None."""
    if isinstance(learner, Pipeline):
        name, last = learner.steps[-1]
        return f"{name}__sample_weight" if has_fit_parameter(last, "sample_weight") else None
    return "sample_weight" if has_fit_parameter(learner, "sample_weight") else None


def fit_learner(
    template: Any, X: np.ndarray, target: np.ndarray, weight: np.ndarray | None, seed: int
) -> Any:
    """Fit a copy of a learner; all its random states are the seed."""
    learner = clone(template)
    seeds = [key for key in learner.get_params() if key.rpartition("__")[2] == "random_state"]
    learner.set_params(**dict.fromkeys(seeds, seed))
    keyword = weight_keyword(learner)
    weights = {} if weight is None or keyword is None else {keyword: weight}
    return learner.fit(X, target, **weights)


def predict_rows(learner: Any, X: np.ndarray) -> np.ndarray:
    """Return float64 predictions (n_samples,), the same for a row in any batch."""
    padding = np.zeros((BLOCK - len(X) % BLOCK, X.shape[1]))
    predicted = np.asarray(learner.predict(np.concatenate([X, padding])), dtype=np.float64)
    return predicted[: len(X)]
