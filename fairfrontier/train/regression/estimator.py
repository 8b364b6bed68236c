"""Fair regression by reductions: statistical parity or bounded group loss, as an estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairfrontier.prepare.split import Split
from fairfrontier.runtime.cluster.executor import Block, Rows, fit_rows
from fairfrontier.runtime.errors import DataError, StoreError
from fairfrontier.train.base import Regressor
from fairfrontier.train.group import take_attribute
from fairfrontier.train.persistence import State
from fairfrontier.train.registry import method
from fairfrontier.train.regression.bounded_loss import build_bounded_loss
from fairfrontier.train.regression.loss import LOSSES, Loss, find_loss, scale_labels
from fairfrontier.train.regression.mixture import MixtureEstimator
from fairfrontier.train.regression.oracle.oracle import Variant
from fairfrontier.train.regression.oracle_choice import (
    choose_oracle,
    choose_risk_oracle,
    read_oracle,
)
from fairfrontier.train.regression.parity import build_parity
from fairfrontier.train.regression.predictor import restore_predictors, store_predictors
from fairfrontier.train.regression.problem import Solution
from fairfrontier.train.regression.reduction import ReductionSetting, Report, solve_reduction
from fairfrontier.train.regression.saddle import Progress, Schedule

if TYPE_CHECKING:
    from distributed import Client

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
        Column of the attribute in ``groups``; a study's YAML may name it.
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
    schedule : {"adaptive", "theory"}
        Steps of the multipliers; see ``saddle.SaddleProblem``. ``theory`` is the paper's, which
        needs far more iterations.
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
    schedule: Schedule = "adaptive"
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
        self.require("schedule", self.schedule in ("adaptive", "theory"), "adaptive or theory")
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
        groups: Any,
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
        groups : ndarray or dask array of int64, shape (n_samples, n_attributes)
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
        X, y, weight, groups = self.read_training(X, y, sample_weight, groups, client)
        setting = self.setting()
        label, loss = scale_labels(y, *setting.label_range), setting.loss
        if loss.sharpness and not np.isin(label, (0.0, 1.0)).all():
            raise DataError(
                "Some labels lie between the two of the logistic loss.",
                "Choose the square loss, or labels 0 and 1.",
            )
        used = np.flatnonzero(weight > 0)
        label, weight = label[used], weight[used]
        levels, group = np.unique(take_attribute(groups, self.attribute)[used], return_inverse=True)
        terms = setting.find_terms(levels)

        def play(rows: Rows) -> tuple[Solution, Report]:
            if used.size < rows.n_samples:
                rows = rows.take(used)
            if self.constraint == "statistical_parity":
                parity = build_parity(rows, label, group, weight, n_grid=self.n_grid, **terms)
                return solve_reduction(parity, choose_oracle(setting, parity), progress)
            bounded = build_bounded_loss(rows, label, group, weight, **terms)
            oracle = choose_risk_oracle(setting, bounded, weight, group)
            return solve_reduction(bounded, oracle, progress)

        solved = fit_rows(play, X, client=client, name=self.name, prepare=_widen)
        self._keep(levels, *solved)
        return self

    def needs_all_rows(self, n_samples: int, n_features: int, n_classes: int) -> str | None:  # noqa: ARG002
        """Return why rows in blocks do not suit the parameters; see `Estimator`."""
        kind, _ = read_oracle(self.setting())
        able = isinstance(self.learner, str) and self.learner in ("linear", "xgboost")
        if kind in ("ls", "lr") and able:
            return None
        what = f"oracle {kind}" if able else f"learner {self.learner!r}"
        return (
            f"{self.name} needs all rows in one process's memory for the {what}; in partitions "
            "there are the oracles ls and lr of the learners linear and xgboost."
        )

    def setting(self) -> ReductionSetting:
        """Return the parameters, with the loss and the label range resolved."""
        resolved: dict[str, Any] = {
            "name": self.name,
            "loss": self._loss(),
            "label_range": self._range(),
        }
        names = {each.name for each in fields(ReductionSetting)} - resolved.keys()
        return ReductionSetting(**resolved, **{name: getattr(self, name) for name in names})

    def _keep(self, levels: np.ndarray, solution: Solution, report: Report) -> None:
        for name, value in vars(solution).items():
            setattr(self, f"{name}_", value)
        self.levels_, self.report_ = levels, report

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

    def _loss(self) -> Loss:
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
