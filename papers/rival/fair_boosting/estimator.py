"""Fair gradient boosting with any weak learner: Algorithm 1 of BuDRO as the paper states it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.base import clone

from fairfrontier.models.base import Classifier, training_weight
from fairfrontier.models.individual.budget import find_budget, measure_spread
from fairfrontier.models.individual.budro.geometry import build_geometry
from fairfrontier.models.individual.budro.round import check_rows
from fairfrontier.models.individual.budro.search import count_operations
from fairfrontier.models.individual.budro.solver import HISTORY, WorstCases, check_transport
from fairfrontier.models.individual.budro.transport import SOLVERS, Setting
from fairfrontier.models.persistence import State, read_state, restoring, write_state
from fairfrontier.models.registry import method
from fairfrontier.models.stopping import check_stopping, watch
from fairfrontier.models.tree.boosting import PositiveWeight, positive_weight
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.arrays import as_backend, to_numpy
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.registry import Registry
from fairfrontier.runtime.seeds import derive_integer
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.similarity.fair_metric import FairMetric
from papers.rival.fair_boosting.learner import (
    fit_learner,
    make_learner,
    predict_rows,
    require_rows,
    weight_keyword,
)

# That of p (1 − p) in XGBoost's logistic loss.
SMALLEST_CURVATURE = 1e-16
# Beyond it Newton's steps diverge: probabilities are 0 or 1, and curvatures the smallest.
LARGEST_MARGIN = 1e6


@method("fair_boosting")
@dataclass(kw_only=True, eq=False, repr=False)
class FairBoosting(Classifier):
    """Individually fair boosting of any scikit-learn regressor.

    min_f L(f),   L(f) = sup { E_P ℓ(f(X), Y) : W(P, P_n) ≤ ε },   ℓ the logistic loss

    Every round finds the worst P* for the present f, as `BuDRO` does, fits a learner h to

        −n ∂L/∂f(x_i) = n (P*(x_i, 1) (1 − p_i) − P*(x_i, 0) p_i),   p_i = σ(f(x_i)),   (2.6)

    by least squares over the rows, and adds α h to f. With ``order=2`` the learner is fitted to
    Newton's steps −g_i / h_i with weights h_i instead, where g and h are the first and second
    derivatives of E_P* ℓ; with ``learner="newton_tree"`` that is BuDRO's own path.

    Parameters
    ----------
    learner : str or estimator
        ``tree``, ``stump``, ``newton_tree``, ``spline``, ``linear`` or ``k_neighbors``; or, from
        Python, a regressor with scikit-learn's interface, loaded where ``trusted`` names it.
    learner_parameters : mapping or None
        Parameters of the learner that differ from its defaults.
    order : {1, 2}
        Whether learners are fitted to pseudo-residuals (Algorithm 1) or to Newton's steps; 2
        requires a learner that takes weights.
    step : {"constant", "search"}
        Whether α is ``learning_rate``, or the best one up to that for the P* of the round.
    budget, budget_share, early_stopping
        As in `BuDRO`.
    n_estimators : int
        Maximum number of rounds; they end when the search finds no step that helps.
    learning_rate : float
        α > 0, or the longest step that the search may take.
    start : float
        Margin of the initial predictor f_0.
    scale_pos_weight : float or "balanced"
        Factor on the weights of class 1 in the boosting step, as in `BuDRO`.
    solver, tolerance, entropy_weight, dual_start, batch_size, steps, momentum, dual_learning_rate
        Of the transport, as in `BuDRO`.
    backend : {"auto", "numpy", "cupy"}
        Where the transport is computed.
    random_state : int
        Seed of the learners and of the stochastic solvers' batches.

    Attributes
    ----------
    learners_ : list of estimator
        h_0, h_1, …
    rate_ : ndarray of float64, shape (n_rounds,)
        α_0, α_1, …
    report_ : dict of str to float
        As in `BuDRO`.
    history_ : dict of str to ndarray of shape (n_rounds,)
        Per round, before its step: η, cost, objective, duality gap and passes of the transport.

    Notes
    -----
    A round costs O(n² k) operations for k embedded dimensions, in blocks of O(n k) memory, and a
    fit and n predictions of the learner, O(n² d) for neighbours. Every learner is kept, neighbours
    with all rows: beyond some 20,000 rows use `BuDRO`.

    The search minimises E_P* ℓ(f + αh) over α, a convex function, with the P* of the round fixed,
    as in the analysis of Appendix A.1. That L itself falls is not guaranteed: L has kinks where the
    worst case is not unique, as at a constant f, and a learner fitted to one of its subgradients
    there may raise it, however small the step.

    References
    ----------
    A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
    Algorithm 1, (2.6) and Appendix A.1.
    """

    plain: ClassVar[str] = "gbdt"
    solvers: ClassVar[Registry[Any] | None] = SOLVERS
    trusted: ClassVar[tuple[str, ...]] = (
        "papers.rival.fair_boosting.newton_tree.NewtonTree",
        "papers.rival.fair_boosting.spline.Spline",
    )
    backends: ClassVar[tuple[str, ...]] = ("numpy", "cupy")
    # Pseudo-residuals are fitted over rows, each counting once.
    weights_are_counts: ClassVar[bool] = False
    paper: ClassVar[str] = "Vargo et al., Individually fair gradient boosting, ICLR 2021"
    example: ClassVar[Mapping[str, Any]] = {"n_estimators": 4, "budget": 0.2, "learning_rate": 0.5}

    learner: str | Any = "tree"
    learner_parameters: Mapping[str, Any] | None = None
    order: Literal[1, 2] = 1
    step: Literal["constant", "search"] = "constant"
    budget: float | None = None
    budget_share: float = 0.003
    early_stopping: int | None = None
    n_estimators: int = 100
    learning_rate: float = 0.1
    start: float = 0.0
    scale_pos_weight: PositiveWeight = 1.0
    solver: str = "exact"
    tolerance: float = 1e-3
    entropy_weight: float = 5e-5
    dual_start: float = 0.1
    batch_size: int = 200
    steps: int = 100
    momentum: float = 0.9
    dual_learning_rate: float = 1e-4
    backend: Literal["auto", "numpy", "cupy"] = "auto"
    random_state: int = 0
    learners_: list[Any] = field(init=False)
    rate_: np.ndarray = field(init=False)
    history_: dict[str, np.ndarray] = field(init=False)
    report_: dict[str, float] = field(init=False)

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        balance = self.scale_pos_weight
        self.require("order", self.order in (1, 2), "1 or 2")
        self.require("step", self.step in ("constant", "search"), "constant or search")
        self.require("n_estimators", self.n_estimators >= 1, "1 or more")
        self.require("learning_rate", 0 < self.learning_rate < math.inf, "a number above 0")
        self.require("start", bool(np.isfinite(self.start)), "a margin that is finite")
        self.require(
            "scale_pos_weight",
            balance == "balanced" or (not isinstance(balance, str) and 0 < balance < math.inf),
            "a number above 0, or balanced",
        )
        check_transport(self)
        check_stopping(self)
        learner = make_learner(self.learner, self.learner_parameters)
        if self.order == 2 and weight_keyword(learner) is None:
            raise ConfigError(
                f"The learner {self.learner!r} of {self.name!r} takes no weights.",
                "Choose order: 1, or a learner whose fit takes sample_weight.",
            )

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        metric: FairMetric,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Boost on rows X with labels y of two classes under a fair metric.

        ``sample_weight``, ``validation`` and ``progress`` as in `BuDRO`.

        Raises
        ------
        ConfigError
            For invalid parameters, an unknown learner or one that needs more rows, margins that
            diverge beyond 1e6, or more rows than the linear programme takes.
        DataError
            When the numbers of rows, labels and weights differ, or a class has no weight.
        """
        self.check()
        X, y = self.validate_training(X, y)
        weight = training_weight(sample_weight, len(y))
        X, y, weight = (each[weight > 0] for each in (X, y, weight))
        check_rows(y)
        factor = np.array([1.0, positive_weight(self.scale_pos_weight, y, weight)])
        z = np.asarray(metric.embed(X))
        mass = weight / weight.sum()
        budget = find_budget(self, measure_spread(z, mass))
        z = as_backend(z, self.backend, work=count_operations(z))
        worst_cases = WorstCases(
            build_geometry(z, y, n_labels=2, mass=mass),
            budget.budget,
            self.solver,
            Setting.of(self),
            self.backend,
            self.random_state,
        )
        template = make_learner(self.learner, self.learner_parameters)
        require_rows(template, len(y))
        rows = np.array(X, dtype=np.float64, order="C")
        margin = np.full(len(y), float(self.start))
        watched = watch(self, validation)
        if watched is not None:
            watched_margin = np.full(len(watched.X), float(self.start))
            watched.weight *= factor[watched.y]
        learners: list[Any] = []
        rates: list[float] = []
        for iteration in range(self.n_estimators):
            share = to_numpy(worst_cases.solve(margin).weight) * factor
            seed = derive_integer("fair boosting", iteration, self.random_state)
            with limited_threads(1):
                target = find_target(margin, share, self.order)
                learner = fit_learner(template, rows, *target, seed)
                prediction = predict_rows(learner, rows)
            rate = float(self.learning_rate)
            if self.step == "search":
                rate = search_step(margin, prediction, share, rate)
            if rate == 0:
                break
            learners.append(learner)
            rates.append(rate)
            with np.errstate(over="ignore", invalid="ignore"):
                margin = margin + rate * prediction
            if not np.abs(margin).max() <= LARGEST_MARGIN:
                raise ConfigError(
                    f"The margins of {self.name} diverge: after round {iteration + 1} one is "
                    f"{np.abs(margin).max():.3g}.",
                    f"Lower learning_rate, which is {self.learning_rate:g}.",
                )
            if progress is not None:
                progress(iteration + 1, self.n_estimators)
            if watched is not None:
                with limited_threads(1):
                    watched_margin += rate * predict_rows(learner, watched.X)
                watched.add(watched_margin)
                if watched.is_over:
                    break
        if watched is not None and learners:
            learners, rates = learners[: watched.best], rates[: watched.best]
        if progress is not None and len(learners) < self.n_estimators:
            progress(self.n_estimators, self.n_estimators)
        self.learners_, self.rate_ = learners, np.asarray(rates, dtype=np.float64)
        self.report_ = {**budget._asdict(), "rounds": float(len(rates))}
        # The last round has none when the search found no step.
        self.history_ = {
            name: values[: len(rates)] for name, values in worst_cases.read_history().items()
        }
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Return margins f(x), float64, shape (n_samples,)."""
        rows = np.array(self.validate_rows(X), dtype=np.float64, order="C")
        margin = np.full(len(rows), float(self.start))
        with limited_threads(1):
            for rate, learner in zip(self.rate_, self.learners_, strict=True):
                margin += rate * predict_rows(learner, rows)
        return margin

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities, float64, shape (n_samples, 2)."""
        positive = expit(self.decision_function(X))
        return np.stack([1.0 - positive, positive], axis=1)

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model to a new folder; see `Estimator`.

        Raises
        ------
        StoreError
            When the folder is not empty or cannot be written, or the learner has types that
            are never read, such as functions.
        """
        parameters, state = self.get_params(deep=False), self.pack_state()
        learners = dict(state.learners)
        if not isinstance(self.learner, str):
            parameters["learner"] = None
            learners["template"] = clone(self.learner)
        full = State(state.arrays, state.boosters, learners, state.facts)
        trusted = self.trusted if isinstance(self.learner, str) else None
        return write_state(Path(folder), self.name, parameters, full, trusted)

    @classmethod
    def load(cls, folder: str | Path, *, trusted: Collection[str] = ()) -> Self:
        """Read what ``save`` wrote; see `Estimator`."""
        parameters, state = read_state(Path(folder), cls.name, {*cls.trusted, *trusted})
        with restoring(Path(folder)):
            if parameters.get("learner") is None:
                parameters["learner"] = state.learners.get("template")
            model = cls(**parameters)
            model.unpack_state(state)
        return model

    def get_state(self) -> State:
        """Return the learners, their rates and the history."""
        return State(
            arrays={"rate": self.rate_, **self.history_}, learners={"rounds": self.learners_}
        )

    def set_state(self, state: State) -> None:
        """Restore the learners, their rates and the history."""
        self.learners_, self.rate_ = list(state.learners["rounds"]), state.arrays["rate"]
        self.history_ = {key: state.arrays[key] for key in HISTORY}


def differentiate(margin: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return g_i = w_i1 (p_i − 1) + w_i0 p_i and h_i = (w_i1 + w_i0) p_i (1 − p_i), p = σ(margin).

    They are derivatives of E_P ℓ(f) for the weights w, (n_samples, 2). In h, p (1 − p) is at least
    1e-16.
    """
    p = expit(margin)
    lower, upper = weight.T
    curvature = np.maximum(p * (1.0 - p), SMALLEST_CURVATURE)
    return upper * (p - 1.0) + lower * p, (upper + lower) * curvature


def find_target(
    margin: np.ndarray, weight: np.ndarray, order: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return what a learner is fitted to, pseudo-residuals or Newton's steps, and its weights."""
    first, second = differentiate(margin, weight)
    if order == 1:
        return -len(first) * first, None
    # A row that has lost all its mass has no weight.
    step = np.divide(-first, second, out=np.zeros_like(first), where=second > 0)
    return step, second


def search_step(
    margin: np.ndarray, prediction: np.ndarray, weight: np.ndarray, longest: float
) -> float:
    """Return the α in [0, longest] that minimises Σ_i Σ_k w_ik ℓ(f_i + α h_i, k).

    Here h is ``prediction``. The function is convex: the root of its slope is found by Brent's
    method, O(n) for each step.
    """

    def slope(rate: float) -> float:
        return float(differentiate(margin + rate * prediction, weight)[0] @ prediction)

    if slope(0.0) >= 0:
        return 0.0
    if slope(longest) <= 0:
        return longest
    return float(brentq(slope, 0.0, longest))
