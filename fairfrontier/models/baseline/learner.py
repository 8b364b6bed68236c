"""Learners within a method: made by their names, and saved with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairfrontier.models.base import Classifier, Estimator
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import METHODS, create
from fairfrontier.runtime.errors import ConfigError


def make_learner(owner: Any, parameters: Mapping[str, Any] | None) -> Any:
    """Return the unfitted learner that ``owner.learner`` names, with the owner's threads and seed.

    ConfigError is raised where it is unknown, or needs more than rows, labels and weights.
    """
    cls = METHODS.find(owner.learner)
    if lack := explain_refusal(cls):
        raise ConfigError(
            f"The learner {owner.learner!r} of {owner.name!r} {lack}.",
            "Choose one of rows and weights alone: gbdt, linear, random_forest, nn.",
        )
    known = inspect.signature(cls).parameters
    shared = {"n_jobs": owner.n_jobs, "random_state": owner.random_state}
    taken = {name: value for name, value in shared.items() if name in known}
    return create(owner.learner, **{**taken, **(parameters or {})})


def explain_refusal(cls: type[Estimator]) -> str | None:
    """Return why a method is no learner within another, or None when it is one."""
    if needs := sorted(cls.fit_needs | cls.predict_needs):
        return f"needs {' and '.join(needs)}"
    taught = "binary" in cls.task and "sample_weight" in cls.fit_takes
    return None if taught else "learns no weighted classes"


def pack_classifiers(classifiers: Sequence[Classifier | int]) -> State:
    """Return the state of fitted classifiers, each with its number before its names.

    An integer stands for the one label of all rows.
    """
    states = [State() if isinstance(each, int) else each.pack_state() for each in classifiers]
    merged: Any = {
        kind: {
            f"{k}_{name}": value
            for k, state in enumerate(states)
            for name, value in getattr(state, kind).items()
        }
        for kind in ("arrays", "boosters", "learners")
    }
    facts = [
        each if isinstance(each, int) else dict(state.facts)
        for each, state in zip(classifiers, states, strict=True)
    ]
    return State(**merged, facts={"classifiers": facts})


def unpack_classifiers(state: State, make: Callable[[int], Any]) -> tuple[Any, ...]:
    """Return the classifiers of `pack_classifiers`; ``make`` returns the unfitted k-th."""
    classifiers: list[Any] = []
    for k, facts in enumerate(state.facts["classifiers"]):
        if not isinstance(facts, int):
            learner = make(k)
            learner.unpack_state(state.take(f"{k}_", facts))
            facts = learner
        classifiers.append(facts)
    return tuple(classifiers)
