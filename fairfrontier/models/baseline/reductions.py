"""Fair classification by reduction to weighted classification, with any method as the learner."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from sklearn.dummy import DummyClassifier

from fairfrontier.models.base import Classifier
from fairfrontier.models.baseline.ensemble import make_learner, pack_classifiers, unpack_classifiers
from fairfrontier.models.group import Attributes, Criterion, check_bound, number_groups
from fairfrontier.models.objective import Objective, weigh_rows
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.errors import need
from fairfrontier.runtime.seeds import uniforms

if TYPE_CHECKING:
    from fairlearn.reductions import ExponentiatedGradient, GridSearch, UtilityParity

# fairlearn's classes.
CONSTRAINTS: Mapping[str, str] = MappingProxyType(
    {
        "parity": "DemographicParity",
        "equal_opportunity": "TruePositiveRateParity",
        "predictive_equality": "FalsePositiveRateParity",
        "equalized_odds": "EqualizedOdds",
    }
)
SOLVERS = ("exponentiated_gradient", "grid_search")


@dataclass(frozen=True, eq=False)
class Reduced:
    """Classifiers that are drawn, their probabilities, and numbers about the search."""

    classifiers: Sequence[Any]
    probability: np.ndarray
    report: dict[str, Any]


def search_classifiers(
    learner: Any,
    constraint: UtilityParity,
    X: np.ndarray,
    label: np.ndarray,
    group: np.ndarray,
    *,
    solver: str,
    grid_size: int,
    tolerance: float,
    max_iter: int,
) -> GridSearch | ExponentiatedGradient:
    """Return fairlearn's fitted reduction for labels 0 and 1."""
    from fairlearn.reductions import ExponentiatedGradient, GridSearch

    if solver == "grid_search":
        search = GridSearch(learner, constraint, grid_size=grid_size)
    else:
        search = ExponentiatedGradient(learner, constraint, eps=tolerance, max_iter=max_iter)
    with warnings.catch_warnings():
        # fairlearn 0.15 uses what pandas 4 removes.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="fairlearn")
        return search.fit(X, label, sensitive_features=group)


def choose_classifiers(search: GridSearch | ExponentiatedGradient, budget: float) -> Reduced:
    """Return what is drawn: the gradient's mixture, or one classifier of the grid.

    The grid's is the most accurate within the budget of the constraints, else the nearest to it.
    """
    from fairlearn.reductions import GridSearch

    report: dict[str, Any] = {"oracle_seconds": float(sum(search.oracle_execution_times_))}
    if isinstance(search, GridSearch):
        error = np.array(search.objectives_)
        excess = np.array([gamma.max() for _, gamma in search.gammas_.items()]) - budget
        within = np.flatnonzero(excess <= 0)
        best = within[error[within].argmin()] if within.size else excess.argmin()
        report |= {"oracle_calls": len(search.predictors_)}
        return Reduced([search.predictors_[int(best)]], np.ones(1), report)
    drawn = {k: share for k, share in search.weights_.items() if share > 0}
    share = np.array([*drawn.values()], dtype=np.float64)
    report |= {
        "oracle_calls": int(search.n_oracle_calls_),
        "iterations": int(search.last_iter_) + 1,
        "gap": float(search.best_gap_),
    }
    return Reduced([search.predictors_[k] for k in drawn], share / share.sum(), report)


@method("reductions")
@dataclass(kw_only=True, eq=False, repr=False)
class Reductions(Classifier):
    """A randomised classifier with bounded group rates, made of any method's classifiers.

    min_Q  E[c_Y 1{h(X) ≠ Y}]
    s.t.   |P(h(X) = 1 | A = k, e) − P(h(X) = 1 | e)| ≤ bound / 2   for all groups k and events e,

    over distributions Q of classifiers h, where the events e are all rows or those of a label. A
    game of multipliers against a learner without constraints, which is fitted again and again to
    other labels and weights, makes the classifiers of which one is drawn for each row.

    Parameters
    ----------
    learner : str
        A registered method for two classes that needs rows, labels and weights alone: ``gbdt``,
        ``linear``, ``random_forest``, ``nn`` and so on.
    learner_parameters : mapping or None
        Its parameters that differ from its defaults.
    criterion : {"parity", "equal_opportunity", "predictive_equality", "equalized_odds"}
        Which rates: among all rows; those of class 1; those of class 0; those of each class.
    objective : {"accuracy", "balanced_accuracy"} or mapping
        What the mixture serves: errors count alike, by the inverse of their class's share, or by
        ``{"costs": {"false_positive": 1, "false_negative": 5}}``.
    bound : float
        Largest difference between two groups' rates, from 0 to 1. fairlearn bounds the distance
        of each from that of all rows, and half of it is always enough.
    attributes : int, list of int or None
        Columns of ``sensitive_features`` whose cross product makes the groups; None crosses all. A
        study's YAML may name them.
    solver : {"exponentiated_gradient", "grid_search"}
        fairlearn's; the grid gives a single classifier: of those within the bound the most
        accurate, else the nearest to it.
    max_iter : int
        Iterations of the exponentiated gradient.
    tolerance : float
        fairlearn's ``eps``: multipliers add up to 1/tolerance at most.
    grid_size : int
        Multipliers tried by the grid search; of K groups 2^(K − 1) or more are needed, and of
        equalised odds the square of that.
    n_jobs, random_state : int
        The learner's, where it has them; the second is the seed of the draws, too.

    Attributes
    ----------
    classifiers_ : tuple of (estimator or int)
        Fitted learners, or the one label of all rows, where the game asked for that.
    probability_ : ndarray of float64, shape (n_classifiers,)
        Q.
    n_iter_ : int
        Iterations of the exponentiated gradient; 1 for a grid.
    report_ : dict
        ``oracle_calls``, ``oracle_seconds``, and of the exponentiated gradient ``iterations`` and
        ``gap``, which is relative to the learner. Not saved.

    Notes
    -----
    The extra ``papers`` brings fairlearn, which takes no case weights: tables whose weights differ
    are refused. One fit of the learner per iteration, and some more; O(n) beside each. When the
    gradient ends after ``max_iter`` iterations, the bound holds up to twice itself and four times
    the gap only.

    References
    ----------
    A. Agarwal, A. Beygelzimer, M. Dudík, J. Langford, H. Wallach. A reductions approach to fair
    classification. ICML 2018. H. Weerts et al. Fairlearn: assessing and improving fairness of AI
    systems. JMLR 24, 2023.
    """

    libraries: ClassVar[tuple[str, ...]] = ("fairlearn",)
    randomized: ClassVar[bool] = True
    weights_are_counts: ClassVar[bool] = False
    group_parameters: ClassVar[tuple[str, ...]] = ("attributes",)
    learner_parameter: ClassVar[str | None] = "learner"
    paper: ClassVar[str] = "Agarwal et al., A reductions approach to fair classification, ICML 2018"
    example: ClassVar[Mapping[str, Any]] = {"max_iter": 2}

    classifiers_: tuple[Any, ...] = field(init=False)
    probability_: np.ndarray = field(init=False)
    n_iter_: int = field(init=False)
    report_: dict[str, Any] = field(init=False)

    learner: str = "linear"
    learner_parameters: Mapping[str, Any] | None = None
    criterion: Criterion = "parity"
    objective: Objective = "accuracy"
    bound: float = 0.05
    attributes: Attributes = None
    solver: Literal["exponentiated_gradient", "grid_search"] = "exponentiated_gradient"
    max_iter: int = 50
    tolerance: float = 0.01
    grid_size: int = 20
    n_jobs: int = 1
    random_state: int = 0

    def check(self) -> None:
        """Raise ConfigError without fairlearn, and for invalid parameters, those of the learner."""
        need("fairlearn")
        check_bound(self)
        self.check_objective()
        self.require("solver", self.solver in SOLVERS, " or ".join(SOLVERS))
        self.require("max_iter", self.max_iter >= 1, "1 or more")
        self.require("grid_size", self.grid_size >= 2, "2 or more")
        self.require("tolerance", 0 < self.tolerance < np.inf, "a finite number above 0")
        self._make_learner().check()

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        reason = super().supports(split)
        if reason is None and np.ptp(split.train.weight) > 0:
            return f"{self.name} takes no case weights, and {split.dataset} has some."
        return reason

    def fit(self, X: np.ndarray, y: np.ndarray, *, sensitive_features: np.ndarray) -> Self:
        """Play the game on rows X with labels y of two classes, and their groups.

        ``sensitive_features`` has shape (n_samples, n_attributes). ConfigError is raised for
        invalid parameters, an unknown learner, or one that needs more than rows, labels and
        weights; DataError when all rows are in one group.
        """
        self.check()
        from fairlearn import reductions

        X, codes = self.validate_training(X, y, sensitive_features)
        _, group = number_groups(sensitive_features, self.attributes)
        constraint = getattr(reductions, CONSTRAINTS[self.criterion])(
            difference_bound=self.bound / 2
        )
        gain = weigh_rows(self.objective, codes, np.ones(len(codes))) * len(codes)
        costs = {"fp": gain[codes == 0][0], "fn": gain[codes == 1][0]}
        # Both solvers ask the constraint; the grid search takes no other objective.
        constraint.default_objective = partial(reductions.ErrorRate, costs=costs)
        search = search_classifiers(
            self._make_learner(),
            constraint,
            X,
            codes,
            group,
            solver=self.solver,
            grid_size=self.grid_size,
            tolerance=self.tolerance,
            max_iter=self.max_iter,
        )
        reduced = choose_classifiers(search, self.bound / 2)
        self.classifiers_ = tuple(
            int(each.constant) if isinstance(each, DummyClassifier) else each
            for each in reduced.classifiers
        )
        self.probability_, self.report_ = reduced.probability, reduced.report
        self.n_iter_ = reduced.report.get("iterations", 1)
        return self

    def _make_learner(self) -> Any:
        return make_learner(self, self.learner_parameters)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return the exact probabilities of the decisions 0 and 1, float64, (n_samples, 2)."""
        X = self.validate_rows(X)
        positive = np.zeros(len(X))
        for classifier, share in zip(self.classifiers_, self.probability_, strict=True):
            decision = classifier if isinstance(classifier, int) else classifier.predict(X)
            positive += share * decision
        positive = np.clip(positive, 0.0, 1.0)
        return np.stack([1.0 - positive, positive], axis=1)

    def predict(self, X: np.ndarray, *, ids: np.ndarray | None = None) -> np.ndarray:
        """Return labels, shape (n_samples,), drawn by (``random_state``, row id).

        ``ids``, int64 (n_samples,), are the row ids; the rows' positions when None.
        """
        positive = self.predict_proba(X)[:, 1]
        rows = np.arange(len(positive)) if ids is None else ids
        decision = uniforms(self.random_state, rows) < positive
        labels: np.ndarray = self.classes_[decision.astype(np.int64)]
        return labels

    def get_state(self) -> State:
        """Return the classifiers, each with its number before its names, and Q."""
        state = pack_classifiers(self.classifiers_)
        return replace(
            state,
            arrays={**state.arrays, "probability": self.probability_},
            facts={**state.facts, "n_iter": self.n_iter_},
        )

    def set_state(self, state: State) -> None:
        """Restore the classifiers and Q."""
        self.classifiers_ = unpack_classifiers(state, lambda _: self._make_learner())
        self.probability_ = state.arrays["probability"]
        self.n_iter_ = state.facts["n_iter"]
