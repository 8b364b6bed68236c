"""Weak learners by their short names, fitted and asked in one way whatever they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeRegressor
from sklearn.tree._tree import Tree
from sklearn.utils.validation import has_fit_parameter

from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.train.individual.fair_boosting.newton_tree import LEAF, NewtonTree
from fairfrontier.train.individual.fair_boosting.spline import Spline
from fairfrontier.train.tree.node import is_downward

LEARNERS: Mapping[str, Callable[..., Any]] = {
    "k_neighbors": partial(KNeighborsRegressor, n_neighbors=25, algorithm="brute"),
    "linear": Ridge,
    "newton_tree": NewtonTree,
    "spline": Spline,
    "stump": partial(DecisionTreeRegressor, max_depth=1),
    "tree": partial(DecisionTreeRegressor, max_depth=3),
}
# Rows of scikit-learn's blocks of distances: other kernels than full blocks round differently.
BLOCK = 256


def make_learner(learner: str | Any, parameters: Mapping[str, Any] | None) -> Any:
    """Return an unfitted regressor.

    Parameters
    ----------
    learner : str or estimator
        A short name of ``LEARNERS``, or a regressor of scikit-learn's shape.
    parameters : mapping or None
        What the learner is told beyond its defaults.

    Raises
    ------
    ConfigError
        For a name or a parameter that there is not, a parameter that cannot be, or an object that
        does not fit and predict.
    """
    if not isinstance(parameters, Mapping | None):
        raise ConfigError(
            f"The learner's parameters are {parameters!r}.", "Give names and their values."
        )
    told = dict(parameters or {})
    if not isinstance(learner, str):
        if not all(hasattr(learner, each) for each in ("fit", "predict", "get_params")):
            raise ConfigError(
                f"The learner {learner!r} is no regressor.",
                f"Give one of scikit-learn's shape, or a name: {', '.join(LEARNERS)}.",
            )
        made = clone(learner)
        known = list(made.get_params())
        _require_known(type(learner).__name__, told, known)
        return _checked(made.set_params(**told) if told else made)
    if learner not in LEARNERS:
        raise ConfigError(f"There is no learner {learner!r}.", nearest(learner, LEARNERS))
    maker = LEARNERS[learner]
    known = list(inspect.signature(maker).parameters)
    _require_known(learner, told, known)
    return _checked(maker(**told))


def _require_known(name: str, told: Mapping[str, Any], known: list[str]) -> None:
    for key in told:
        if key not in known:
            raise ConfigError(
                f"The learner {name!r} has no parameter {key!r}.", nearest(key, known)
            )


def _checked(learner: Any) -> Any:
    """Return a learner whose parameters may be, as far as can be told without rows."""
    if isinstance(learner, NewtonTree | Spline):
        learner.check()
    # Some that are of scikit-learn's shape declare nothing of their parameters.
    elif hasattr(learner, "_parameter_constraints"):
        try:
            learner._validate_params()
        except ValueError as error:
            raise ConfigError(str(error), "Mend learner_parameters.") from error
    return learner


def require_rows(learner: Any, n_samples: int) -> None:
    """Raise ConfigError for a learner that asks for more neighbours than there are rows."""
    last = learner.steps[-1][1] if isinstance(learner, Pipeline) else learner
    if isinstance(last, KNeighborsRegressor) and last.n_neighbors > n_samples:
        raise ConfigError(
            f"The learner asks for {last.n_neighbors} neighbours among {n_samples} rows.",
            "Give a smaller n_neighbors in learner_parameters.",
        )


def weight_keyword(learner: Any) -> str | None:
    """Return the keyword by which ``fit`` takes weights, None where it takes none."""
    if isinstance(learner, Pipeline):
        name, last = learner.steps[-1]
        return f"{name}__sample_weight" if has_fit_parameter(last, "sample_weight") else None
    return "sample_weight" if has_fit_parameter(learner, "sample_weight") else None


def fit_learner(
    template: Any, X: np.ndarray, target: np.ndarray, weight: np.ndarray | None, seed: int
) -> Any:
    """Fit a copy of a learner; all that is random in it comes from the seed."""
    learner = clone(template)
    random = [each for each in learner.get_params() if each.rpartition("__")[2] == "random_state"]
    learner.set_params(**dict.fromkeys(random, seed))
    keyword = weight_keyword(learner)
    given = {} if weight is None or keyword is None else {keyword: weight}
    return learner.fit(X, target, **given)


def ask_learner(learner: Any, X: np.ndarray) -> np.ndarray:
    """Return a fitted learner's values, float64 (n_samples,), row by row the same in any batch."""
    filling = np.zeros((BLOCK - len(X) % BLOCK, X.shape[1]))
    answer = np.asarray(learner.predict(np.concatenate([X, filling])), dtype=np.float64)
    return answer[: len(X)]


def is_sound(learner: Any) -> bool:
    """Return whether every tree in a learner leads to leaves, and asks about features it has.

    scikit-learn follows the nodes of its trees without looking, so this is asked of what was read
    from a file.
    """
    return all(_is_sound_part(each) for each in _parts(learner, set()))


def _is_sound_part(part: Any) -> bool:
    if isinstance(part, NewtonTree):
        arrays = (part.feature_, part.threshold_, part.left_, part.right_, part.value_)
        return len({len(each) for each in arrays}) == 1 and is_downward(
            part.left_, part.right_, part.feature_ != LEAF, part.feature_, part.n_features_in_
        )
    if isinstance(part, Tree):
        inner = part.children_left != LEAF
        return is_downward(
            part.children_left, part.children_right, inner, part.feature, part.n_features
        )
    # The rows that reach a tree are checked against what its owners say, not against the tree.
    below = [part.tree_.n_features] if hasattr(part, "tree_") else []
    below += [each.n_features_in_ for each in np.ravel(getattr(part, "estimators_", []))]
    return all(each <= part.n_features_in_ for each in below)


def _parts(owner: Any, seen: set[int]) -> Iterator[Any]:
    """Yield an object and all that it is made of."""
    if id(owner) in seen or isinstance(owner, str | bytes | int | float | type(None)):
        return
    seen.add(id(owner))
    if isinstance(owner, np.ndarray):
        held = owner.ravel().tolist() if owner.dtype == object else []
    elif isinstance(owner, Mapping):
        held = list(owner.values())
    elif isinstance(owner, list | tuple):
        held = list(owner)
    else:
        yield owner
        held = list(getattr(owner, "__dict__", {}).values())
    for each in held:
        yield from _parts(each, seen)
