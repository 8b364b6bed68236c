"""Fair classification by reductions, whose classifiers' scores are used as a regression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import xgboost
from fairlearn.reductions import DemographicParity, ExponentiatedGradient, GridSearch
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from fairfrontier.models.base import Regressor
from fairfrontier.models.baseline.linear_regression import shrink_margin
from fairfrontier.models.baseline.reductions import SOLVERS, choose_classifiers, search_classifiers
from fairfrontier.models.group import take_attribute
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.errors import InputError

LEARNERS = ("linear", "xgboost")


@method("fair_classification")
@dataclass(kw_only=True, eq=False, repr=False)
class FairClassification(Regressor):
    """A randomised classifier with parity of decisions, scored by its classifiers' log-odds.

    min_Q  P(h(X) ≠ Y')   subject to   |P(h(X) = 1 | A = a) − P(h(X) = 1)| ≤ budget for all a,

    over distributions Q of classifiers, where Y' = 1{Y ≥ threshold}. Every classifier h_k, drawn
    with probability q_k, decides by its log-odds, 1{m_k(x) ≥ 0}; the regression draws k with q_k
    and predicts u_k(x) = clip(1/2 + m_k(x)/10, 0, 1), for which p = σ(5 (2u − 1)). Parity holds for
    the decisions at 1/2 alone, not for all thresholds.

    Parameters
    ----------
    attribute : int
        Column of the attribute in ``sensitive_features``; a study's YAML may name it.
    budget : float
        How far a group's share of positive decisions may be from that of all rows, 0 to 1.
    learner : {"linear", "xgboost"}
        Logistic regression, or boosted trees on the logistic loss.
    solver : {"exponentiated_gradient", "grid_search"}
        fairlearn's; the grid gives a single classifier: of those within the budget the most
        accurate, else the nearest to it.
    threshold : float
        Targets of at least this are positive. The method is meant for targets 0 and 1.
    max_iter : int
        Iterations of the exponentiated gradient.
    tolerance : float
        fairlearn's ``eps``: multipliers add up to 1/tolerance at most.
    grid_size : int
        Multipliers tried by the grid search.
    penalty : float
        ℓ2 penalty on the mean loss of logistic regression; > 0.
    n_estimators, max_depth, learning_rate, gamma
        Of the trees, as XGBoost's; by default those of the paper, with the learning rate that was
        XGBoost's default then.
    n_jobs : int
        Threads of the trees.
    random_state : int
        XGBoost's seed; without subsampling it has no effect.

    Attributes
    ----------
    probability_ : ndarray of float64, shape (n_components,)
        q, of the classifiers that are drawn.
    coefficient_ : ndarray of float64, shape (n_components, n_features)
        Of the log-odds; 0 for trees.
    intercept_ : ndarray of float64, shape (n_components,)
        Likewise; infinite for a constant classifier.
    boosters_ : tuple of (xgboost.Booster or None)
        The trees of every component.
    n_iter_ : int
        Iterations of the exponentiated gradient; 1 for a grid.
    report_ : dict
        ``oracle_calls``, ``oracle_seconds``, those of a whole grid for every budget that uses it;
        and ``gap`` and ``iterations`` of the exponentiated gradient: the gap is relative to the
        learner, which is not an exact minimiser of errors.

    Raises
    ------
    InputError
        From ``fit``, when all targets are on one side of the threshold.

    Notes
    -----
    One fit of the learner per iteration, and some more; Newton's method for logistic regression,
    O(n d² + d³) a step. The paper's curves come from a grid search. fairlearn takes no case
    weights: tables whose weights differ are refused. When the gradient ends after ``max_iter``
    steps, parity holds up to 2 (budget + gap) only.

    References
    ----------
    A. Agarwal, A. Beygelzimer, M. Dudík, J. Langford, H. Wallach. A reductions approach to fair
    classification. ICML 2018. A. Agarwal, M. Dudík, Z. S. Wu. Fair regression: quantitative
    definitions and reduction-based algorithms. ICML 2019, section 6.
    """

    group_parameters: ClassVar[tuple[str, ...]] = ("attribute",)
    weights_are_counts: ClassVar[bool] = False
    batched: ClassVar[bool] = True
    across_splits: ClassVar[bool] = False
    state_arrays: ClassVar[tuple[str, ...]] = ("probability", "coefficient", "intercept")
    paper: ClassVar[str] = "Agarwal et al., A reductions approach to fair classification, ICML 2018"
    example: ClassVar[Mapping[str, Any]] = {"max_iter": 2}

    probability_: np.ndarray = field(init=False)
    coefficient_: np.ndarray = field(init=False)
    intercept_: np.ndarray = field(init=False)
    boosters_: tuple[Any, ...] = field(init=False)
    n_iter_: int = field(init=False)
    report_: dict[str, Any] = field(init=False)

    attribute: int = 0
    budget: float = 0.05
    learner: Literal["linear", "xgboost"] = "linear"
    solver: Literal["exponentiated_gradient", "grid_search"] = "exponentiated_gradient"
    threshold: float = 0.5
    max_iter: int = 50
    tolerance: float = 0.01
    grid_size: int = 20
    penalty: float = 1e-6
    n_estimators: int = 150
    max_depth: int = 3
    learning_rate: float = 0.1
    gamma: float = 2.0
    n_jobs: int = 1
    random_state: int = 0

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: predictions are transformed log-odds, in [0, 1]."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        self.require("learner", self.learner in LEARNERS, " or ".join(LEARNERS))
        self.require("solver", self.solver in SOLVERS, " or ".join(SOLVERS))
        self.require("budget", 0 <= self.budget <= 1, "a number from 0 to 1")
        self.require("max_iter", self.max_iter >= 1, "1 or more")
        self.require("grid_size", self.grid_size >= 2, "2 or more")
        self.require("tolerance", 1e-9 <= self.tolerance <= 1, "a number from 1e-9 to 1")
        for name in ("penalty", "learning_rate"):
            self.require(name, getattr(self, name) > 0, "a number above 0")
        self.require("n_estimators", self.n_estimators >= 1, "1 or more")
        for name in ("max_depth", "gamma"):
            self.require(name, getattr(self, name) >= 0, "0 or more")

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        reason = super().supports(split)
        if reason is None and np.ptp(split.train.weight) > 0:
            return f"{self.name} takes no case weights, and {split.dataset} has some."
        return reason

    def structure(self) -> tuple[tuple[str, Any], ...]:
        """Return what models of a batch share: a grid does not depend on the budget."""
        parameters = self.get_params(deep=False)
        if self.solver == "grid_search":
            del parameters["budget"]
        return tuple(sorted(parameters.items()))

    def fit(self, X: np.ndarray, y: np.ndarray, *, sensitive_features: np.ndarray) -> Self:
        """Reduce parity of decisions to weighted classification, by fairlearn."""
        type(self).fit_batch([self], [{"X": X, "y": y, "sensitive_features": sensitive_features}])
        return self

    @classmethod
    def fit_batch(
        cls,
        models: Sequence[Self],
        data: Sequence[Mapping[str, Any]],
        *,
        progress: Callable[[int, int], None] | None = None,  # noqa: ARG003 - as the base has it
    ) -> None:
        """Fit several models; those of one grid on one table choose from the same classifiers.

        ``data`` has ``X``, ``y`` and ``sensitive_features`` of each model. Models share a grid if
        these are the same objects and their ``structure`` is the same. ``progress`` is not called.
        """
        grids: dict[tuple[Any, ...], GridSearch] = {}
        for model, table in zip(models, data, strict=True):
            model.check()
            X, y, groups = table["X"], table["y"], table["sensitive_features"]
            key = (id(X), id(y), id(groups), model.structure())
            X, y = model.validate_training(X, y, groups)
            search = grids.get(key) or model._search(X, y, groups)
            if isinstance(search, GridSearch):
                grids[key] = search
            reduced = choose_classifiers(search, model.budget)
            model.report_ = reduced.report
            model.n_iter_ = reduced.report.get("iterations", 1)
            parts = [_read_classifier(each, model.n_features_in_) for each in reduced.classifiers]
            model.coefficient_ = np.array([part[0] for part in parts])
            model.intercept_ = np.array([part[1] for part in parts])
            model.boosters_ = tuple(part[2] for part in parts)
            model.probability_ = reduced.probability

    def _search(
        self, X: np.ndarray, y: np.ndarray, groups: np.ndarray
    ) -> GridSearch | ExponentiatedGradient:
        """Return fairlearn's fitted reduction."""
        label = (y >= self.threshold).astype(np.int64)
        if label.min() == label.max():
            side = "at or above" if label[0] else "below"
            raise InputError(
                f"{self.name} was given targets of one class only: {side} {self.threshold:g}.",
                "Give a threshold that separates them, or more rows.",
            )
        return search_classifiers(
            self._make_learner(len(y)),
            DemographicParity(difference_bound=self.budget),
            X,
            label,
            take_attribute(groups, self.attribute),
            solver=self.solver,
            grid_size=self.grid_size,
            tolerance=self.tolerance,
            max_iter=self.max_iter,
        )

    def _make_learner(self, n_samples: int) -> Any:
        if self.learner == "linear":
            return LogisticRegression(
                C=1 / (self.penalty * n_samples), solver="newton-cholesky", max_iter=1000, tol=1e-6
            )
        return xgboost.XGBClassifier(
            n_estimators=self.n_estimators,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            gamma=self.gamma,
            base_score=0.5,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )

    def predict_components(self, X: np.ndarray) -> np.ndarray:
        """Return every classifier's prediction, float64, shape (n_samples, n_components)."""
        X = self.validate_rows(X)
        margin = X @ self.coefficient_.T + self.intercept_
        trees = {k: booster for k, booster in enumerate(self.boosters_) if booster is not None}
        if trees:
            data = xgboost.DMatrix(X, nthread=self.n_jobs)
        for k, booster in trees.items():
            booster.set_param({"nthread": self.n_jobs})
            margin[:, k] = booster.predict(data, output_margin=True)
        return shrink_margin(margin)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the mean prediction over the draw, float64, shape (n_samples,)."""
        mean: np.ndarray = self.predict_components(X) @ self.probability_
        return mean

    def get_state(self) -> State:
        """Return the classifiers and their probabilities."""
        boosters = {
            f"trees_{k}": trees for k, trees in enumerate(self.boosters_) if trees is not None
        }
        return replace(super().get_state(), boosters=boosters, facts={"iterations": self.n_iter_})

    def set_state(self, state: State) -> None:
        """Restore the classifiers and their probabilities."""
        super().set_state(state)
        self.n_iter_ = state.facts["iterations"]
        count = self.probability_.size
        self.boosters_ = tuple(state.boosters.get(f"trees_{k}") for k in range(count))


def _read_classifier(classifier: Any, n_features: int) -> tuple[np.ndarray, float, Any]:
    """Return coefficients and intercept of the log-odds, and the trees of a tree ensemble."""
    if isinstance(classifier, DummyClassifier):
        # fairlearn uses it when the weighted rows have one label.
        return np.zeros(n_features), np.inf if classifier.constant else -np.inf, None
    if isinstance(classifier, LogisticRegression):
        return classifier.coef_[0], float(classifier.intercept_[0]), None
    booster = classifier.get_booster()
    # fairlearn names the columns by numbers; predictions are made of arrays without names.
    booster.feature_names, booster.feature_types = None, None
    return np.zeros(n_features), 0.0, booster
