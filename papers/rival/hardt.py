"""Randomised thresholds of Hardt et al., fitted by fairlearn, or exactly where weights differ."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.base import BaseEstimator

from fairfrontier.models.base import training_weight
from fairfrontier.models.group import Attributes
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.thresholds.base import PostProcessor
from fairfrontier.models.thresholds.curve import build_curves
from fairfrontier.models.thresholds.programme import solve_curves
from fairfrontier.models.thresholds.rule import FittedRule, MixtureRule, Scale
from fairfrontier.runtime.errors import ConfigError, InputError

Criterion = Literal["parity", "equal_opportunity", "equalized_odds"]
CONSTRAINTS: Mapping[str, str] = MappingProxyType(
    {
        "parity": "demographic_parity",
        "equal_opportunity": "true_positive_rate_parity",
        "equalized_odds": "equalized_odds",
    }
)
OBJECTIVES: Mapping[str, str] = MappingProxyType(
    {"accuracy": "accuracy_score", "balanced_accuracy": "balanced_accuracy_score"}
)
FIELDS = ("share", "threshold", "above", "ignored", "constant")


@method("hardt")
class Hardt(PostProcessor):
    """The most accurate mixture of two thresholds per group that meets a fairness criterion.

    h_k(f) = c_k q_k + (1 − c_k) Σ_{j=0,1} p_kj 1{f > t_kj}   (or 1{f < t_kj}, by ``flip``)

    For every value of the equal rate, on a grid, each group takes the best point on the upper hull
    of what its thresholds reach: a mixture of two of them. The value that is best over all groups
    is kept. Equalised odds moves every group to the lowest of the groups' hulls by a decision that
    ignores the score with probability c_k. With case weights that differ, which fairlearn does not
    take, thresholds are the optimum of the same problem without a grid, see `solve_curves`.

    Parameters
    ----------
    attributes, scale, random_state
        As in `PostProcessor`.
    criterion : {"parity", "equal_opportunity", "equalized_odds"}
        What is the same in all groups: E[h], E[h | y=1], or E[h | y=1] and E[h | y=0].
    objective : {"accuracy", "balanced_accuracy"}
        What is maximised on the fitted rows. Under parity and equal opportunity fairlearn averages
        the groups' balanced accuracies by their sizes; with weights it is that of all rows.
    tolerance : float
        Largest difference of that rate between groups, in [0, 1]; 0 for equalised odds.
    grid_size : int
        Steps of the grid of rates over [0, 1].
    flip : bool
        Whether decision 1 may lie below a threshold, for groups whose scores are reversed.

    Attributes
    ----------
    share_, threshold_ : ndarray of float64, shape (n_groups, 2), or up to 3 columns with weights
        p, and t on the signed scale [−1, 1]; t may be infinite.
    above_ : ndarray of bool, of the same shape
        Whether decision 1 lies above the threshold, or below it.
    ignored_, constant_ : ndarray of float64, shape (n_groups,)
        c and q.
    result_ : dict or None
        Fitted ``rows`` of each group and its ``rates`` E[h] on them, weighted; None where the model
        was saved without them.

    Raises
    ------
    InputError
        From ``fit``, when a group has rows of one label only: fairlearn's curves need both; and for
        ``flip`` with weights that differ.

    Notes
    -----
    O(n log n), by fairlearn with an iteration in Python over the distinct scores of every group (16
    s for 1,000,000).

    References
    ----------
    M. Hardt, E. Price, N. Srebro. Equality of opportunity in supervised learning. NeurIPS 2016.
    H. Weerts et al. Fairlearn: assessing and improving fairness of AI systems. JMLR 24, 2023.
    """

    randomized: ClassVar[bool] = True
    weights_are_counts: ClassVar[bool] = False
    paper: ClassVar[str] = "Hardt et al., Equality of opportunity, NeurIPS 2016"
    example: ClassVar[Mapping[str, Any]] = {"attributes": 0, "grid_size": 100}

    share_: np.ndarray
    threshold_: np.ndarray
    above_: np.ndarray
    ignored_: np.ndarray
    constant_: np.ndarray
    result_: dict[str, Any] | None

    def __init__(
        self,
        *,
        attributes: Attributes = None,
        scale: Scale = "probability",
        criterion: Criterion = "parity",
        objective: Literal["accuracy", "balanced_accuracy"] = "accuracy",
        tolerance: float = 0.0,
        grid_size: int = 1000,
        flip: bool = False,
        random_state: int = 0,
    ) -> None:
        self.attributes = attributes
        self.scale = scale
        self.criterion = criterion
        self.objective = objective
        self.tolerance = tolerance
        self.grid_size = grid_size
        self.flip = flip
        self.random_state = random_state

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        self.require("criterion", self.criterion in CONSTRAINTS, " or ".join(CONSTRAINTS))
        self.require("objective", self.objective in list(OBJECTIVES), " or ".join(OBJECTIVES))
        self.require("tolerance", 0 <= self.tolerance <= 1, "a number from 0 to 1")
        strict = self.criterion != "equalized_odds" or self.tolerance == 0
        self.require("tolerance", strict, "0: fairlearn relaxes parity and equal opportunity only")
        self.require("grid_size", self.grid_size >= 1, "1 or more")

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
    ) -> Self:
        """Find the thresholds on scores X, labels y and group codes."""
        self.check()
        score, y = self.validate_training(X, y, sensitive_features, sample_weight=sample_weight)
        weight = training_weight(sample_weight, len(score))
        code = self.learn_cells(sensitive_features)
        self.require_weight(code, weight, "fitted")
        positive, total = (
            np.bincount(code, weights=mass, minlength=len(self.cells_))
            for mass in (weight * y, weight)
        )
        lacking = (positive == 0) | (positive == total)
        if lacking.any():
            raise self.refuse_cell(
                self.cells_[lacking][0],
                f"{self.name} needs rows of both classes in every group, and all rows of the group "
                "{group} are of one class.",
                "Merge small groups in the dataset's YAML, or choose fewer attributes.",
            )
        if np.ptp(weight) > 0:
            self._fit_weighted(score, y, code, weight)
        else:
            self._fit_grid(score, y, code)
        self.result_ = self.count_rates(self.probability(score, code), code, weight)
        return self

    def _fit_grid(self, score: np.ndarray, y: np.ndarray, code: np.ndarray) -> None:
        """Find the thresholds for rows that count alike."""
        optimizer = ThresholdOptimizer(
            estimator=_Scores(),
            constraints=CONSTRAINTS[self.criterion],
            objective=OBJECTIVES[self.objective],
            grid_size=self.grid_size,
            flip=self.flip,
            prefit=True,
            predict_method="decision_function",
            tol=self.tolerance or None,
        ).fit(score[:, None], y, sensitive_features=code)
        by_group = optimizer.interpolated_thresholder_.interpolation_dict
        rules = [by_group[group] for group in range(len(self.cells_))]
        pairs = [(rule.operation0, rule.operation1) for rule in rules]
        self.share_ = np.array([[rule.p0, rule.p1] for rule in rules], dtype=np.float64)
        self.threshold_ = np.array([[float(step.threshold) for step in pair] for pair in pairs])
        self.above_ = np.array([[step.operator == ">" for step in pair] for pair in pairs])
        self.ignored_ = np.array([float(rule.get("p_ignore", 0.0)) for rule in rules])
        self.constant_ = np.array([float(rule.get("prediction_constant", 0.0)) for rule in rules])

    def _fit_weighted(
        self, score: np.ndarray, y: np.ndarray, code: np.ndarray, weight: np.ndarray
    ) -> None:
        """Find the thresholds for rows that count differently."""
        if self.flip:
            raise InputError(
                f"{self.name} cannot flip decisions where rows have different weights.",
                "Leave out flip, or the weights.",
            )
        curves = build_curves(score, y, code, len(self.cells_), weight)
        rule = solve_curves(
            curves, objective=self.objective, criterion=self.criterion, bound=self.tolerance
        ).rule
        self.share_, self.threshold_ = rule.share, rule.threshold
        self.above_ = np.ones(rule.share.shape, dtype=bool)
        self.ignored_ = self.constant_ = np.zeros(len(self.cells_))

    def probability(self, signed: np.ndarray, code: np.ndarray) -> np.ndarray:
        """Return P(decision = 1) for scores f ∈ [−1, 1] and codes of ``cells_``, float64."""
        if (mixture := self.mixture()) is not None:
            return np.asarray(mixture.probability(signed, code))
        score, threshold = signed[:, None], self.threshold_[code]
        passed = np.where(self.above_[code], score > threshold, score < threshold)
        mixed = (self.share_[code] * passed).sum(axis=1)
        ignored = self.ignored_[code]
        # Shares add up to 1 up to rounding only.
        chance = ignored * self.constant_[code] + (1.0 - ignored) * mixed
        return np.asarray(np.clip(chance, 0.0, 1.0))

    def mixture(self) -> MixtureRule | None:
        """Return h without operators 1{f < t}: c q at −∞, c (1 − q) at ∞, (1 − c) p_j at t_j.

        None where a group has them.
        """
        kept, constant = 1.0 - self.ignored_, self.constant_
        share = kept[:, None] * self.share_
        if ((share > 0) & np.logical_not(self.above_)).any():
            return None
        always = self.ignored_ * constant, self.ignored_ * (1.0 - constant)
        share = np.column_stack([share, *always])
        ends = np.tile([-np.inf, np.inf], (len(share), 1))
        used = (share > 0).any(axis=0)
        threshold = np.column_stack([self.threshold_, ends])[:, used]
        # Differences of rates are shares up to rounding only.
        return MixtureRule(threshold, np.clip(share[:, used], 0.0, 1.0)).clip()

    def describe_rule(self) -> FittedRule:
        """Return the mixture with its rates on the fitted rows; ConfigError where it is flipped."""
        mixture = self.mixture()
        if mixture is None:
            raise ConfigError(
                f"A rulebook decides 1 above thresholds, but this {self.name} flips decisions.",
                "Fit without flip.",
            )
        return FittedRule(mixture, self.result_, self.tolerance, self.criterion)

    def get_state(self) -> State:
        """Return the thresholds and facts."""
        arrays = {key: getattr(self, f"{key}_") for key in FIELDS}
        return State(arrays={"cells": self.cells_, **arrays}, facts={"result": self.result_})

    def set_state(self, state: State) -> None:
        """Restore them."""
        self.cells_, self.result_ = state.arrays["cells"], state.facts.get("result")
        for key in FIELDS:
            setattr(self, f"{key}_", state.arrays[key])


class _Scores(BaseEstimator):  # type: ignore[misc]
    """A fitted model whose decision function is its one feature."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:  # noqa: ARG002 - as scikit-learn has it
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(X)[:, 0]
