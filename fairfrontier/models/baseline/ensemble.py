"""Learners within a method, made by their names and saved with it, and the mean of several."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from fairfrontier.models.base import Classifier, Estimator
from fairfrontier.models.objective import RANKED, Objective, read_costs, weigh_classes
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import METHODS, create, method
from fairfrontier.prepare.split import Split, Task
from fairfrontier.runtime.errors import ConfigError

# How many of the settings that a search tried make an ensemble.
MEMBERS = 5


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


@method("ensemble")
@dataclass(kw_only=True, eq=False, repr=False)
class Ensemble(Classifier):
    """The mean of the probabilities of one learner's classifiers at M settings.

    P(k | x) = (1/M) Σ_m P_m(k | x)

    Errors that the settings do not share cancel in part, and it matters less which of them were
    best by chance. In a study with a search, the settings that a row leaves out are the best five
    that were tried of the learner, and where it leaves out the learner too, of the best learner.

    Parameters
    ----------
    learner : str
        A registered method of classes that needs rows, labels and weights alone: ``gbdt``,
        ``linear``, ``random_forest``, ``nn`` and so on.
    settings : sequence of mappings
        The parameters of each member that differ from the learner's defaults. In a study's YAML the
        sequence is within another one, as a list of values is a sweep.
    objective : {"accuracy", "balanced_accuracy", "f1", "auc", "log_loss"} or mapping
        Chooses the learner's class weights where a setting has none: classes count alike for the
        balanced accuracy, and rows for all else, costs included.
    n_jobs, random_state : int
        The learner's, where it has them.

    Attributes
    ----------
    classifiers_ : tuple of Classifier
        The members.

    Notes
    -----
    Time and memory are the sums of the members'.

    References
    ----------
    R. Caruana, A. Niculescu-Mizil, G. Crew, A. Ksikes. Ensemble selection from libraries of models.
    ICML 2004, whose selection this simplifies to the best few.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    takes_missing: ClassVar[bool] = True
    weights_are_counts: ClassVar[bool] = False
    learner_parameter: ClassVar[str | None] = "learner"
    objectives: ClassVar[tuple[str, ...]] = RANKED
    paper: ClassVar[str] = "Caruana et al., Ensemble selection from libraries of models, ICML 2004"
    example: ClassVar[Mapping[str, Any]] = {
        "settings": [{"n_estimators": 5, "max_depth": depth} for depth in (2, 3)]
    }

    classifiers_: tuple[Any, ...] = field(init=False)

    learner: str = "gbdt"
    settings: Sequence[Mapping[str, Any]] = ({},)
    objective: Objective = "accuracy"
    n_jobs: int = 1
    random_state: int = 0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters, those of the members included."""
        listed = isinstance(self.settings, Sequence) and not isinstance(self.settings, str)
        whole = listed and all(isinstance(each, Mapping) for each in self.settings)
        self.require("settings", bool(self.settings) and whole, "a list of mappings, not empty")
        read_costs(self.objective)
        for position in range(len(self.settings)):
            self._make_member(position).check()

    def fit(self, X: np.ndarray, y: np.ndarray, *, sample_weight: np.ndarray | None = None) -> Self:
        """Fit the members on rows X with labels y.

        ConfigError is raised for invalid parameters, an unknown learner, or one that needs more
        than rows, labels and weights.
        """
        self.check()
        X, codes = self.validate_training(X, y)
        members = [self._make_member(position) for position in range(len(self.settings))]
        self.classifiers_ = tuple(
            member.fit(X, codes, sample_weight=sample_weight) for member in members
        )
        return self

    @classmethod
    def of(cls, classifiers: Sequence[Classifier], **parameters: Any) -> Self:
        """Return the ensemble of classifiers that are fitted already, one for every setting."""
        ensemble = cls(**parameters)
        ensemble.check()
        ensemble.classifiers_ = tuple(classifiers)
        ensemble.classes_ = classifiers[0].classes_
        ensemble.n_features_in_ = classifiers[0].n_features_in_
        return ensemble

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        return super().supports(split) or self._make_member(0).supports(split)

    def _make_member(self, position: int) -> Any:
        served = weigh_classes(self.objective, METHODS.find(self.learner))
        return make_learner(self, {**served, **self.settings[position]})

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return the means of the members' probabilities, float64, shape (n_samples, n_classes)."""
        rows = self.validate_rows(X)
        total = np.zeros((len(rows), self.classes_.size))
        for classifier in self.classifiers_:
            total += classifier.predict_proba(rows)
        return total / len(self.classifiers_)

    def get_state(self) -> State:
        """Return the members, each with its number before its names."""
        return pack_classifiers(self.classifiers_)

    def set_state(self, state: State) -> None:
        """Restore the members."""
        self.classifiers_ = unpack_classifiers(state, self._make_member)
        if len(self.classifiers_) != len(self.settings):
            raise ValueError("it has not one member for every setting")
