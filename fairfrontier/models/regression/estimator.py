"""Fair regression by reductions: statistical parity or bounded group loss, as an estimator.

Estimators that draw one of several predictors: expectations, distributions, draws.

Which oracle a method's parameters name.

Fair regression of two classes, whose predictions are probabilities.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import expit

from fairfrontier.models.base import Classifier, Estimator, Regressor
from fairfrontier.models.group import take_attribute
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.regression.envelope import EnvelopeOracle, EnvelopeTreeOracle, HingeOracle
from fairfrontier.models.regression.grid import level_values, measure_disparity, round_down
from fairfrontier.models.regression.loss import LOSSES, Loss, find_loss, scale_labels
from fairfrontier.models.regression.oracle import (
    GroupSquareOracle,
    LearnerOracle,
    LeastSquaresOracle,
    LogisticOracle,
    LogisticRegressor,
    Oracle,
    TargetOracle,
    TreeOracle,
    Variant,
    WeightedOracle,
    make_learner,
    weigh_copies,
)
from fairfrontier.models.regression.predictor import (
    Predictor,
    restore_predictors,
    score_all,
    store_predictors,
)
from fairfrontier.models.regression.problem import (
    BoundedLossProblem,
    ParityProblem,
    Solution,
    build_bounded_loss,
    build_parity,
    solve_bounded_loss,
    solve_parity,
)
from fairfrontier.models.regression.saddle import Progress
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.cluster.executor import Block, Rows, fit_rows
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.runtime.seeds import uniforms

if TYPE_CHECKING:
    from distributed import Client

View = Literal["randomised", "mean", "unrounded"]

MISSED = "No mixture was found whose group losses are within the budget."


@dataclass(frozen=True, eq=False)
class Distribution:
    """The distribution of each row's prediction under a randomised predictor.

    ``value``, on the labels' range, has shape (n_values,) where predictions are levels of the grid,
    else (n_samples, n_values); ``probability``, shape (n_samples, n_values), sums to 1 in every
    row.
    """

    value: np.ndarray
    probability: np.ndarray


class MixtureEstimator(Estimator):
    """Base of the methods that predict by predictor k with probability q_k.

    Attributes
    ----------
    predictors_ : tuple of Predictor
        Their values, clipped to [0, 1], are predictions; empty where there is none.
    probability_ : ndarray of float64, shape (n_predictors,)
        q.
    reachable_ : ndarray of float64, shape (n_groups,)
        Budgets that could be met.
    """

    predictors_: tuple[Predictor, ...]
    probability_: np.ndarray
    reachable_: np.ndarray
    multiplier_: np.ndarray
    levels_: np.ndarray
    loss_: float
    group_value_: np.ndarray
    alone_: np.ndarray
    report_: dict[str, float]
    gap_: float
    exact_: bool
    converged_: bool
    iterations_: int
    calls_: int
    constraint: str
    attribute: int
    n_grid: int
    rounded: bool
    label_range: Sequence[float] | None
    random_state: int

    def predict_components(self, X: np.ndarray) -> np.ndarray:
        """Return the prediction of every predictor, on the labels' range, shape (n_samples, K).

        Raises
        ------
        DataError
            When bounded group loss was infeasible, so that there is no predictor.
        """
        return self._unscale(self._components(X))

    def predict_mean(self, X: np.ndarray) -> np.ndarray:
        """Return the exact expected prediction, float64, shape (n_samples,)."""
        mean: np.ndarray = self.predict_components(X) @ self.probability_
        return mean

    def predict_distribution(self, X: np.ndarray) -> Distribution:
        """Return the exact distribution of each row's prediction.

        Its values are levels of the grid where predictions are rounded, else those of the
        predictors.
        """
        if not self._on_grid():
            value = self.predict_components(X)
            share = np.broadcast_to(self.probability_, value.shape)
            return Distribution(value, share)
        level = round_down(self._raw(X), self.n_grid)
        probability = np.zeros((len(level), self.n_grid + 1))
        rows = np.arange(len(level))
        for k, share in enumerate(self.probability_):
            probability[rows, level[:, k]] += share
        return Distribution(self._unscale(level_values(self.n_grid, probability)), probability)

    def sample(self, X: np.ndarray, ids: np.ndarray | None = None) -> np.ndarray:
        """Return drawn predictions, float64, shape (n_samples,).

        Parameters
        ----------
        X : ndarray of float64, shape (n_samples, n_features)
        ids : ndarray of int64, shape (n_samples,), optional
            Row ids, by which a row's predictor is drawn whatever the batch; positions of the rows
            when None. Variants of a row that share its id share its predictor.
        """
        component = self.predict_components(X)
        rows = np.arange(len(component)) if ids is None else to_numpy(ids)
        steps = np.cumsum(self.probability_)
        drawn = np.searchsorted(steps[:-1], uniforms(self.random_state, rows), side="right")
        prediction: np.ndarray = component[np.arange(len(component)), drawn]
        return prediction

    def disparity(
        self, X: np.ndarray, groups: np.ndarray, *, view: View = "randomised"
    ) -> np.ndarray:
        """Return sup_z |P[f ≥ z | A = a] − P[f ≥ z]| over all real z for each group of the rows.

        Parameters
        ----------
        X : ndarray of float64, shape (n_samples, n_features)
        sensitive_features : ndarray of int64, shape (n_samples, n_attributes)
        view : {"randomised", "mean", "unrounded"}
            f is the draw; its expectation, ``predict_mean``; or the draw without rounding to the
            grid, which no budget bounds.

        Returns
        -------
        ndarray of float64, shape (n_groups,)
            In the order of the codes that occur.
        """
        codes, group = np.unique(take_attribute(groups, self.attribute), return_inverse=True)
        if view == "mean":
            value, share = self.predict_mean(X), np.ones(len(X))
        else:
            value = self._components(X) if view == "randomised" else self._raw(X)
            share = np.broadcast_to(self.probability_, value.shape)
        disparity: np.ndarray = measure_disparity(value, group, share, codes.size)
        return disparity

    @property
    def infeasible_(self) -> str | None:
        """Why there is no predictor, and which budgets can be met; None where there is one."""
        if self.predictors_:
            return None
        return f"{MISSED} {self._mend()}"

    def _mend(self) -> str:
        reachable = ", ".join(f"{budget:.4g}" for budget in self.reachable_)
        return f"Budgets that can be met are {reachable} for the groups in their order."

    def _raw(self, X: np.ndarray) -> np.ndarray:
        rows = self.validate_rows(X)
        if not self.predictors_:
            raise DataError(MISSED, self._mend())
        return score_all(self.predictors_, rows)

    def _components(self, X: np.ndarray) -> np.ndarray:
        """Return predictions in [0, 1], on the grid where they are rounded."""
        value = self._raw(X)
        if not self._on_grid():
            return value
        rounded: np.ndarray = level_values(self.n_grid, value)[round_down(value, self.n_grid)]
        return rounded

    def _unscale(self, value: np.ndarray) -> np.ndarray:
        low, high = self._range()
        return value if (low, high) == (0.0, 1.0) else low + (high - low) * value

    def _on_grid(self) -> bool:
        return self.rounded and self.constraint == "statistical_parity"

    def _range(self) -> tuple[float, float]:
        """Return the lowest and the highest label."""
        if self.label_range is None:
            return 0.0, 1.0
        return float(self.label_range[0]), float(self.label_range[1])


class TimedOracle:
    """An oracle of which ``seconds`` are those of all its calls."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self.exact = oracle.exact
        self.seconds = 0.0

    def respond(self, asked: Any) -> Predictor:
        """Return the oracle's response."""
        started = time.perf_counter()
        answer = self._oracle.respond(asked)
        self.seconds += time.perf_counter() - started
        return answer


# C of the copies' logistic regression where the loss has none.
SHARPNESS = 5.0
# Losses that a mean minimises, as it does the squared distance from targets.
MEANS = ("poisson", "square")


def choose_oracle(model: Reduction, problem: ParityProblem) -> Oracle:
    """Return the oracle for a parity problem."""
    kind, sharpness = read_oracle(model)
    if kind in ("cs", "envelope"):
        block, loss = take_block(problem.rows), model.resolved_loss
        weight, cell = block["weight"], block["cell"]
        if kind == "cs":
            return HingeOracle(block.X, weight, cell, problem.n_grid)
        if model.learner == "xgboost":
            trees = _make_trees(model, problem.rows, loss.sharpness)
            return EnvelopeTreeOracle(trees, weight, cell, loss.scale)
        # The penalty of lr is on log-odds 2C (f − ½), in units of −log p.
        unit = loss.scale * (2.0 * loss.sharpness) ** 2 if loss.sharpness else 1.0
        return EnvelopeOracle(block.X, weight, cell, model.penalty * unit)
    if model.learner == "linear" and kind == "ls":
        return LeastSquaresOracle(problem.rows, problem.n_cells)
    return _make_target_oracle(model, problem.rows, sharpness)


def choose_risk_oracle(
    model: Reduction, problem: BoundedLossProblem, weight: np.ndarray, group: np.ndarray
) -> Oracle:
    """Return the oracle for a problem of bounded group loss of rows of these weights and groups."""
    kind, sharpness = read_oracle(model)
    rows = problem.rows
    if model.learner == "linear" and kind != "lr":
        return GroupSquareOracle(
            rows, problem.share.size, exact=model.resolved_loss.name == "square"
        )
    if sharpness and not model.resolved_loss.sharpness:
        # A probability p stands for the prediction ½ + logit(p) / (2C), which is to be the label.
        rows = rows.derive(_weigh_labels, sharpness)
    return WeightedOracle(_make_target_oracle(model, rows, sharpness).fit, weight, group)


def take_block(rows: Rows) -> Block:
    """Return all rows, which are in one block."""
    [block] = rows.map(lambda block: block)
    taken: Block = block
    return taken


def _weigh_labels(block: Block, sharpness: float) -> Block:
    labels = weigh_copies(block["y"], sharpness)
    return replace(block, columns={**block.columns, "y": labels})


def read_oracle(model: Reduction) -> tuple[str, float]:
    """Return the kind of oracle, and the C of a classifier or 0."""
    loss, kind = model.resolved_loss, model.oracle
    if kind is None and loss.sharpness:
        kind = "lr"
    elif kind is None:
        sloped = isinstance(model.learner, str) and model.learner in ("linear", "xgboost")
        parity = model.constraint == "statistical_parity"
        kind = "envelope" if sloped and parity and loss.name not in MEANS else "ls"
    return kind, (loss.sharpness or SHARPNESS) if kind == "lr" else 0.0


def _make_trees(model: Reduction, rows: Rows, sharpness: float) -> TreeOracle:
    names = ("variant", "n_estimators", "max_depth", "n_jobs", "random_state")
    parameters = {name: getattr(model, name) for name in names}
    return TreeOracle(rows, rows.sum(_weigh), sharpness=sharpness, **parameters)


def _weigh(block: Block) -> float:
    return float(block["weight"].sum())


def _make_target_oracle(model: Reduction, rows: Rows, sharpness: float) -> TargetOracle:
    if model.learner == "linear":
        regressor = LogisticRegressor(rows, model.penalty)
        return LogisticOracle(regressor, rows.sum(_weigh), sharpness, model.variant)
    if model.learner == "xgboost":
        return _make_trees(model, rows, sharpness)
    learner = make_learner(
        model.learner,
        classifier=sharpness > 0,
        random_state=model.random_state,
        n_jobs=model.n_jobs,
    )
    return LearnerOracle(take_block(rows), learner, sharpness, model.variant)


CONSTRAINTS = ("bounded_group_loss", "statistical_parity")
ORACLES = ("cs", "envelope", "lr", "ls")


@dataclass(kw_only=True, eq=False, repr=False)
class Reduction(MixtureEstimator):
    """Base of fair regression of numbers and of classes, which differ in their default loss.

    min_Q E[ℓ(Y, f(X))]  s.t.  |P[f(X) ≥ z | A = a] − P[f(X) ≥ z]| ≤ ε_a for all a, z, or
                               E[ℓ(Y, f(X)) | A = a] ≤ ζ_a for all a,

    over distributions Q of predictors f, by a game in which an oracle, a learner without fairness
    constraints, answers multipliers.

    Parameters
    ----------
    constraint : {"statistical_parity", "bounded_group_loss"}
        Which of the two.
    loss : str, Loss or None
        ``square``, ``absolute``, ``quantile``, ``logistic``, ``poisson``, a registered name or an
        object; None is ``square`` for numbers and ``logistic`` for classes.
    shape : float or None
        τ of ``quantile``, C of ``logistic``, κ of ``poisson``; the loss's default when None, for
        ``poisson`` that of a label range that starts above 0.
    oracle : {"ls", "lr", "cs", "envelope"} or None
        Least squares on targets; logistic regression on two weighted copies of each row; the
        hinge loss over all thresholds (parity and linear only). ``envelope`` is ours: the convex
        envelope of the reduced costs, then the smoothed costs (parity, ``linear`` and ``xgboost``
        only); see ``envelope.EnvelopeOracle``. None: ``lr`` for the logistic loss, ``ls`` for the
        square and the Poisson loss, which means minimise; for others ``envelope`` where possible,
        else ``ls``.
    learner : str or estimator
        ``linear``, ``xgboost``, ``ridge``, ``decision_tree``, ``random_forest``, ``extra_trees``,
        or an object with scikit-learn's interface whose ``fit`` takes ``sample_weight``: a
        regressor for ``ls``, a classifier for ``lr``.
    budget : float or sequence of float
        ε, or ζ in units of the scaled loss, whose values lie in [0, 1]; one for each group code, or
        one for all.
    attribute : int
        Column of the attribute in ``sensitive_features``; a study's YAML may name it.
    n_grid : int
        N: thresholds 1/N, …, 1 on the scaled range.
    radius : float or None
        B ≥ ‖λ‖₁; by default 1 / max{ε, .01}, and 100 / max{ζ, .001} for bounded group loss.
    tolerance : float or None
        ν; by default half a standard error of the loss of the best constant.
    iterations : int
        Cap on the iterations, of two oracle calls each.
    inflation : float
        C' of assumptions 1 and 2: budgets grow by C' / sqrt(n_a).
    rounded : bool
        Whether predictions are the points at which the grid's levels were judged, (k + ½)/N, to
        which alone the parity guarantee applies. No effect on bounded group loss.
    variant : {"paper", "authors"}
        Weights of the copies under ``lr``: from the derivative condition, or U itself.
    label_range : pair of float or None
        Lowest and highest label; [0, 1] when None.
    penalty : float
        ℓ2 penalty on the mean loss of linear ``lr`` and ``envelope``.
    n_estimators, max_depth : int or None
        Of XGBoost; those of the paper when None.
    n_jobs : int
        Threads of XGBoost and of scikit-learn's learners.
    random_state : int
        Seed of learners and of ``sample``.

    Attributes
    ----------
    predictors_ : tuple of Predictor
        Predictors of positive probability; empty when bounded group loss is infeasible.
    probability_ : ndarray of float64, shape (n_predictors,)
        Their probabilities.
    multiplier_ : ndarray of float64
        λ⁺ − λ⁻, shape (n_groups, N), or λ, shape (n_groups,), of the best lower bound.
    levels_ : ndarray of int64, shape (n_groups,)
        Group codes of the rows of ``multiplier_`` and ``group_value_``.
    loss_ : float
        Mean loss of the mixture on the training rows, scaled to [0, 1]; infinite if infeasible.
    group_value_ : ndarray of float64, shape (n_groups,)
        max_z |γ̂_{a,z}|, or the mean loss of each group.
    reachable_ : ndarray of float64, shape (n_groups,)
        For bounded group loss: ζ̂_a + s for the least s ≥ 0 with which some mixture meets all
        bounds.
    alone_ : ndarray of float64, shape (n_groups,)
        For bounded group loss: least loss of each group among the predictors found, some of which
        were fitted to it alone; with an exact oracle no ζ_a below it can be met.
    gap_ : float
        By how much a mixture within the budgets could be better. Unless ``exact_`` it is relative:
        0 says that no response of the oracle is better, not that no predictor is.
    exact_, converged_ : bool
        Whether the oracle is exact, and the tolerance was met.
    iterations_, calls_ : int
        Iterations, oracle calls.
    report_ : dict
        ``oracle_calls``, ``oracle_seconds``, ``iterations`` and ``gap`` of ``fit``; not saved.

    Notes
    -----
    ``predict`` is the expectation over the draw. Its loss is no larger for a convex loss, but its
    disparity differs from that of the draw and is bounded by no budget; ``disparity`` measures it.
    O(n + |A| N²) beside two oracle calls an iteration.

    ``ls`` fits means of targets whatever the loss: for an asymmetric one, as ``quantile`` with
    τ = .9, it may end at the best constant with a gap of 0. ``envelope`` does better where labels
    spread over many cells of the grid, and ``cs`` where they fill a few. Under bounded group loss
    no built-in oracle minimises quantile losses; an object that does, such as scikit-learn's
    QuantileRegressor, can be the learner.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression: quantitative definitions and reduction-based
    algorithms. ICML 2019, algorithms 1 and 2.
    """

    group_parameters: ClassVar[tuple[str, ...]] = ("attribute",)
    # Rounding to levels can turn a difference in the last digits into another best response.
    weights_are_counts: ClassVar[bool] = False
    takes_blocks: ClassVar[bool] = True
    # Of the paper's steps, which needed far more iterations.
    retired: ClassVar[frozenset[str]] = frozenset({"schedule"})
    paper: ClassVar[str] = "Agarwal, Dudík and Wu, Fair regression, ICML 2019"
    example: ClassVar[Mapping[str, Any]] = {"budget": 0.2, "n_grid": 10, "iterations": 5}
    state_arrays: ClassVar[tuple[str, ...]] = (
        "probability",
        "multiplier",
        "levels",
        "group_value",
        "reachable",
        "alone",
    )
    state_facts: ClassVar[tuple[str, ...]] = ("gap", "exact", "converged", "iterations", "calls")
    default_loss: ClassVar[str]

    constraint: str = "statistical_parity"
    loss: str | Loss | None = None
    shape: float | None = None
    oracle: str | None = None
    learner: str | Any = "linear"
    budget: float | Sequence[float] = 0.05
    attribute: int = 0
    n_grid: int = 40
    radius: float | None = None
    tolerance: float | None = None
    iterations: int = 50
    inflation: float = 0.0
    rounded: bool = True
    variant: Variant = "paper"
    label_range: Sequence[float] | None = None
    penalty: float = 1e-4
    n_estimators: int | None = None
    max_depth: int | None = None
    n_jobs: int = 1
    random_state: int = 0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        self.require("constraint", self.constraint in CONSTRAINTS, " or ".join(CONSTRAINTS))
        self.require("oracle", self.oracle in (None, *ORACLES), f"{', '.join(ORACLES)} or null")
        parity = self.constraint == "statistical_parity"
        hinge = self.oracle != "cs" or (self.learner == "linear" and parity)
        self.require("oracle", hinge, "ls or lr: cs is for statistical parity of linear functions")
        slopes = isinstance(self.learner, str) and self.learner in ("linear", "xgboost")
        self.require(
            "oracle",
            self.oracle != "envelope" or (slopes and parity),
            "ls or lr: envelope is for statistical parity of linear functions and XGBoost",
        )
        self.require("variant", self.variant in ("paper", "authors"), "paper or authors")
        budgets = np.atleast_1d(np.asarray(self.budget))
        numbers = budgets.size > 0 and budgets.dtype.kind in "iuf"
        allowed = numbers and bool(((budgets >= 0) & (budgets <= 1)).all())
        self.require("budget", allowed, "numbers from 0 to 1")
        for name in ("n_grid", "iterations"):
            self.require(name, getattr(self, name) >= 1, "1 or more")
        for name in ("radius", "tolerance", "n_estimators", "max_depth"):
            value = getattr(self, name)
            self.require(name, value is None or 0 < value < np.inf, "a number above 0, or null")
        self.require("penalty", 0 < self.penalty < np.inf, "a number above 0")
        self.require("inflation", 0 <= self.inflation < np.inf, "a number of 0 or more")
        if self.label_range is not None:
            self.require("label_range", len(self.label_range) == 2, "[lowest, highest]")

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        reason = super().supports(split)
        if reason is None and self.attribute >= len(split.train.attributes):
            return f"{split.dataset} has no attribute in column {self.attribute} of its groups."
        if reason is None and split.task == "regression":
            y, (low, high) = split.train.y, self._range()
            if y.min() < low or y.max() > high:
                return f"{self.name} needs a label_range that holds the labels of {split.dataset}."
            if self.loss == "logistic" and ((y != low) & (y != high)).any():
                return f"{split.dataset} has labels between the two of the logistic loss."
        return reason

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any,
        sample_weight: np.ndarray | None = None,
        client: Client | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Play the game on rows X.

        Parameters
        ----------
        X : ndarray or dask array of float64, shape (n_samples, n_features)
            The rows of a Dask array stay with the workers, and sums over them come back: in a call
            of least squares the histograms of the predictions alone.
        y : ndarray or dask array, shape (n_samples,)
            Numbers within ``label_range``, or labels of two classes.
        sensitive_features : ndarray or dask array of int64, shape (n_samples, n_attributes)
        sample_weight : ndarray or dask array of float64, shape (n_samples,), optional
            How many rows each stands for: their sum is the sample size of the default tolerance and
            of ``inflation``, and scales the trees' penalties.
        client : distributed.Client, optional
            For the workers that hold the rows of a Dask array; without one its blocks are computed
            here at every pass. Not used for rows in memory.
        progress : callable, optional
            Called with (iterations done, iterations).

        Raises
        ------
        ConfigError
            For invalid parameters.
        DataError
            For labels outside their range, when all rows are in one group, and for weights that
            add up to no more than one row.
        ClusterError
            When workers that hold rows were lost, and again at a second try.
        """
        self.check()
        X, y, weight, sensitive_features = self.read_training(
            X, y, sample_weight, sensitive_features, client
        )
        label = scale_labels(y, *self._range())
        if self.resolved_loss.sharpness and not np.isin(label, (0.0, 1.0)).all():
            raise DataError(
                "Some labels lie between the two of the logistic loss.",
                "Choose the square loss, or labels 0 and 1.",
            )
        used = np.flatnonzero(weight > 0)
        label, weight = label[used], weight[used]
        levels, group = np.unique(
            take_attribute(sensitive_features, self.attribute)[used], return_inverse=True
        )
        terms = self.find_terms(levels)

        def play(rows: Rows) -> tuple[Solution, float]:
            if used.size < rows.n_samples:
                rows = rows.take(used)
            if self.constraint == "statistical_parity":
                parity = build_parity(rows, label, group, weight, n_grid=self.n_grid, **terms)
                timed = TimedOracle(choose_oracle(self, parity))
                return solve_parity(parity, timed, progress), timed.seconds
            bounded = build_bounded_loss(rows, label, group, weight, **terms)
            timed = TimedOracle(choose_risk_oracle(self, bounded, weight, group))
            return solve_bounded_loss(bounded, timed, progress), timed.seconds

        solution, seconds = fit_rows(play, X, client=client, name=self.name, prepare=_widen)
        for name, value in vars(solution).items():
            setattr(self, f"{name}_", value)
        self.levels_ = levels
        self.report_ = {
            "oracle_calls": solution.calls,
            "oracle_seconds": seconds,
            "iterations": solution.iterations,
        }
        if np.isfinite(solution.gap):
            self.report_["gap"] = solution.gap
        return self

    def find_terms(self, levels: np.ndarray) -> dict[str, Any]:
        """Return the keywords that both problems take, for groups with these codes.

        ConfigError for fewer budgets than groups.
        """
        budget: np.ndarray = np.asarray(self.budget, dtype=np.float64)
        if budget.ndim and budget.size <= int(levels.max()):
            raise ConfigError(
                f"There are {budget.size} budgets, and the groups have codes up to "
                f"{int(levels.max())}.",
                "Give one budget for each group, or one for all.",
            )
        names = ("radius", "tolerance", "iterations", "inflation")
        return {
            **{name: getattr(self, name) for name in names},
            "loss": self.resolved_loss,
            "budget": budget[levels] if budget.ndim else float(budget),
        }

    def needs_all_rows(self, n_samples: int, n_features: int, n_classes: int) -> str | None:  # noqa: ARG002
        """Return why rows in blocks do not suit the parameters; see `Estimator`."""
        kind, _ = read_oracle(self)
        able = isinstance(self.learner, str) and self.learner in ("linear", "xgboost")
        if kind in ("ls", "lr") and able:
            return None
        what = f"oracle {kind}" if able else f"learner {self.learner!r}"
        return (
            f"{self.name} needs all rows in one process's memory for the {what}; in partitions "
            "there are the oracles ls and lr of the learners linear and xgboost."
        )

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model; see ``Estimator.save``.

        StoreError when the loss or the learner is an object: names are written, never code.
        """
        if isinstance(self.loss, Loss) or not isinstance(self.learner, str):
            raise StoreError(
                f"This {self.name} has a loss or a learner that is an object.",
                "Register the loss and name it, and name one of the built-in learners.",
            )
        return super().save(folder)

    def get_state(self) -> State:
        """Return the predictors and the other fitted attributes."""
        state, stored = super().get_state(), store_predictors(self.predictors_)
        loss = None if np.isinf(self.loss_) else self.loss_  # JSON has no infinity
        return replace(
            stored,
            arrays={**stored.arrays, **state.arrays},
            facts={**stored.facts, "loss": loss, **state.facts},
        )

    def set_state(self, state: State) -> None:
        """Restore what ``get_state`` returned."""
        super().set_state(state)
        self.predictors_ = restore_predictors(state)
        loss = state.facts["loss"]
        self.loss_ = np.inf if loss is None else loss

    @property
    def resolved_loss(self) -> Loss:
        """The loss, by its name and shape or as it was given."""
        if isinstance(self.loss, Loss):
            return self.loss
        low, high = self._range()
        if self.loss == "poisson" and self.shape is None and low > 0:
            return LOSSES["poisson"](low / (high - low))
        return find_loss(self.loss or self.default_loss, self.shape)


def _widen(block: Block) -> Block:
    return replace(block, X=np.asarray(block.X, dtype=np.float64))


@method("fair_regression")
class FairRegression(Reduction, Regressor):
    """A randomised regression within budgets of statistical parity or of the groups' losses.

    The problem, parameters, attributes and notes are those of `Reduction`.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression: quantitative definitions and reduction-based
    algorithms. ICML 2019, algorithms 1 and 2.
    """

    default_loss: ClassVar[str] = "square"

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the exact expected prediction, float64, shape (n_samples,)."""
        return self.predict_mean(X)


@method("fair_regression_classifier")
class FairRegressionClassifier(Reduction, Classifier):
    """Fair regression of two classes: its predictions in [0, 1] are probabilities.

    The problem of `FairRegression` with labels 0 and 1. Parameters, attributes and notes are those
    of `Reduction`.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression: quantitative definitions and reduction-based
    algorithms. ICML 2019, algorithms 1 and 2.
    """

    default_loss: ClassVar[str] = "logistic"

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities in expectation over the draw, float64, (n_samples, 2).

        P(Y=1|x) is E_f[σ(C(2 f(x) − 1))] of the logistic loss, and E_f[f(x)] of the others.
        """
        value, sharpness = self._components(X), self.resolved_loss.sharpness
        chance = expit(sharpness * (2.0 * value - 1.0)) if sharpness else value
        positive = np.clip(chance @ self.probability_, 0.0, 1.0)
        return np.stack([1.0 - positive, positive], axis=1)
