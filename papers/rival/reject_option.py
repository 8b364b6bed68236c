"""Reject option: rows that the model is unsure of are decided by their group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fairfrontier.models.base import training_weight
from fairfrontier.models.group import Attributes
from fairfrontier.models.objective import Objective, read_costs, weigh_rows
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.thresholds.base import PostProcessor
from fairfrontier.models.thresholds.rule import FittedRule, MixtureRule, Scale
from fairfrontier.prepare.split import Part

# Rounding makes 2·0.6 − 1 differ from 0.2: scores this near to an edge count as equal to it.
ROUNDING = 1e-9
GRID = tuple(step / 100 for step in range(1, 101))


@dataclass(frozen=True, eq=False)
class RejectCurve:
    """Bias and objective of every width θ of the critical region, float64, (n_widths,).

    ``theta`` is ascending from 0, the model itself; ``bias`` is max_k − min_k of E[decision | k];
    ``objective`` is the share of what right decisions could gain.
    """

    theta: np.ndarray
    bias: np.ndarray
    objective: np.ndarray

    def choose(self, budget: float) -> int:
        """Return the position of the best θ within the budget; the smallest of equal ones.

        Where no θ is within the budget, those of least bias compete.
        """
        allowed = self.bias <= max(budget, self.bias.min()) + ROUNDING
        best = self.objective >= self.objective[allowed].max() - ROUNDING
        return int(np.argmax(allowed & best))


def trace_curve(
    score: np.ndarray,
    code: np.ndarray,
    positive: np.ndarray,
    gain: np.ndarray,
    weight: np.ndarray,
    theta: np.ndarray,
) -> tuple[RejectCurve, np.ndarray]:
    """Return the curve over θ, and bool (K,): the groups whose selection rate is above that of all.

    ``score`` is f ∈ [−1, 1], ``code`` has no empty group, ``positive`` is y = 1, ``gain`` is what a
    correct decision on a row adds to the objective, and ``theta`` is ascending from 0. A row
    changes its decision once, at the first θ whose region contains it, so that the sums of those
    changes by (group, θ) suffice: O(n log n_widths + K n_widths).
    """
    n_groups, n_widths = int(code.max()) + 1, len(theta)
    before = score >= 0
    total = np.bincount(code, weights=weight, minlength=n_groups)
    selected = np.bincount(code, weights=weight * before, minlength=n_groups)
    favoured = selected / total > selected.sum() / total.sum() + ROUNDING
    after = ~favoured[code]
    # The first θ with |f| < θ; n_widths for rows in no region.
    first = np.searchsorted(theta - ROUNDING, np.abs(score), side="right")
    cell = code * (n_widths + 1) + first
    change = weight * (after.astype(np.float64) - before)
    shape = (n_groups, n_widths + 1)
    added = np.bincount(cell, weights=change, minlength=shape[0] * shape[1]).reshape(shape)
    rate = (selected[:, None] + np.cumsum(added[:, :-1], axis=1)) / total[:, None]
    improved = gain * ((after == positive).astype(np.float64) - (before == positive))
    moved = np.bincount(first, weights=improved, minlength=n_widths + 1)[:-1]
    objective = (gain * (before == positive)).sum() + np.cumsum(moved)
    return RejectCurve(theta, rate.max(axis=0) - rate.min(axis=0), objective), favoured


@method("reject_option")
class RejectOption(PostProcessor):
    """Inside the critical region |2p − 1| < θ the group decides, outside it the score.

    decision(x, k) = 1{k is deprived}   where max(p, 1 − p) < (1 + θ)/2,   else 1{p ≥ 1/2}

    The favoured groups are those whose rate of decision 1 under the model is above the rate of all
    rows; the others are deprived. Which decision is the desirable one does not matter: where it is
    0, the same rule gives 0 to the groups that the model gives it less often.

    Parameters
    ----------
    attributes, scale, random_state
        As in `PostProcessor`.
    budget : float
        Largest bias max_k − min_k of E[decision | k] on the rows that θ is chosen on. The default
        .01 is about one standard error of that difference on 10,000 rows in two groups at a rate of
        .25, as in the published experiments: rows cannot show much less.
    objective : {"accuracy", "balanced_accuracy"} or mapping
        What is maximised among the θ that meet the budget; of costs, written
        ``{"costs": {"false_positive": 1, "false_negative": 5}}``, the sum that is saved.
    thetas : sequence of float or None
        Widths θ in (0, 1] to choose from, beside 0; None is .01, .02, …, 1.

    Attributes
    ----------
    theta_ : float
        The chosen θ: the best of those within the budget; where there is none, that of least bias.
    met_ : bool
        Whether θ meets the budget.
    favoured_ : ndarray of bool, shape (n_groups,)
        Favoured groups.
    curve_ : RejectCurve
        Bias and objective of every θ.
    result_ : dict or None
        ``rows`` of each group among those that θ is chosen on, and its ``rates`` of decision 1,
        weighted; None where the model was saved without them.

    Raises
    ------
    DataError
        From ``fit``, when a group has no row, or no weight, among those that θ is chosen on.

    Notes
    -----
    Favoured groups and θ are determined on ``validation`` where it is given, else on the fitted
    rows. O(n log n_widths).

    Kamiran et al. define the region by max(p, 1 − p) < θ with ½ < θ < 1; the grid .01, …, 1 of
    Alabdulmohsin and Lucic has no meaning there below ½. Here θ is the half-width of the region on
    the scale f = 2p − 1 ∈ [−1, 1] on which they state their algorithm, so that every value of the
    grid counts. It covers the other definition, where 2θ' − 1 is θ here, and θ' ≤ ½ is 0. AIF360's
    margin is θ/2. At θ = 1 the group decides on all scores but −1 and 1; a deterministic rule
    cannot split rows of equal score.

    References
    ----------
    F. Kamiran, A. Karim, X. Zhang. Decision theory for discrimination-aware classification. ICDM
    2012, section III (ROC). I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing
    trained machine learning models. NeurIPS 2021, section 5 (the grid).
    """

    paper: ClassVar[str] = "Kamiran et al., Decision theory for discrimination-aware, ICDM 2012"
    example: ClassVar[Mapping[str, Any]] = {"attributes": 0}

    theta_: float
    met_: bool
    favoured_: np.ndarray
    curve_: RejectCurve
    result_: dict[str, Any] | None

    def __init__(
        self,
        *,
        attributes: Attributes = None,
        scale: Scale = "probability",
        budget: float = 0.01,
        objective: Objective = "accuracy",
        thetas: Sequence[float] | None = None,
        random_state: int = 0,
    ) -> None:
        self.attributes = attributes
        self.scale = scale
        self.budget = budget
        self.objective = objective
        self.thetas = thetas
        self.random_state = random_state

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        self.require("budget", self.budget >= 0, "0 or more")
        known = not isinstance(self.objective, str) or self.objective in self.objectives
        self.require("objective", known, "accuracy, balanced_accuracy or costs")
        read_costs(self.objective)
        grid = GRID if self.thetas is None else self.thetas
        inside = len(grid) > 0 and min(grid) > 0 and max(grid) <= 1
        self.require("thetas", inside, "numbers above 0 and up to 1, or null")

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
    ) -> Self:
        """Choose θ from scores X, labels y and group codes, or from those of ``validation``."""
        self.check()
        score, y = self.validate_training(X, y, sensitive_features, sample_weight=sample_weight)
        code = self.learn_cells(sensitive_features)
        weight = training_weight(sample_weight, len(y))
        rows = "fitted"
        if validation is not None:
            score, y = self.validate_rows(validation.X), self.encode_labels(validation.y)
            code, weight = self.encode(validation.groups), validation.weight
            rows = "validation"
        self.require_weight(code, weight, rows)
        theta = np.unique([0.0, *(GRID if self.thetas is None else self.thetas)])
        positive = y == 1
        gain = weigh_rows(self.objective, positive, weight)
        self.curve_, self.favoured_ = trace_curve(score, code, positive, gain, weight, theta)
        chosen = self.curve_.choose(self.budget)
        self.theta_ = float(theta[chosen])
        self.met_ = bool(self.curve_.bias[chosen] <= self.budget + ROUNDING)
        self.result_ = self.count_rates(self.probability(score, code), code, weight)
        return self

    def probability(self, signed: np.ndarray, code: np.ndarray) -> np.ndarray:
        """Return the decisions, 0.0 or 1.0, for scores f ∈ [−1, 1] and codes of ``cells_``."""
        critical = np.abs(signed) < self.theta_ - ROUNDING
        return np.where(critical, ~self.favoured_[code], signed >= 0).astype(np.float64)

    def mixture(self) -> MixtureRule:
        """Return the decisions as 1{f > t_k}.

        Deprived groups get 1 where f ≥ 0 or f > −θ, favoured ones where f ≥ 0 and f ≥ θ; f ≥ t is
        f > t⁻, the next number below t.
        """
        edge = self.theta_ - ROUNDING
        deprived = min(-edge, np.nextafter(0.0, -1.0))
        favoured = np.nextafter(max(edge, 0.0), -1.0)
        threshold = np.where(self.favoured_, favoured, deprived)[:, None]
        return MixtureRule(threshold, np.ones_like(threshold))

    def describe_rule(self) -> FittedRule:
        """Return the rule with its rates; where no θ met the budget, it is the least bias."""
        budget = max(self.budget, float(self.curve_.bias.min()))
        return FittedRule(self.mixture(), self.result_, budget)

    def get_state(self) -> State:
        """Return θ, the favoured groups, the curve and facts."""
        arrays = {"cells": self.cells_, "favoured": self.favoured_, **vars(self.curve_)}
        facts = {"chosen": self.theta_, "met": self.met_, "result": self.result_}
        return State(arrays=arrays, facts=facts)

    def set_state(self, state: State) -> None:
        """Restore them."""
        self.cells_, self.favoured_ = state.arrays["cells"], state.arrays["favoured"]
        curve = {key: state.arrays[key] for key in ("theta", "bias", "objective")}
        self.curve_ = RejectCurve(**curve)
        self.theta_, self.met_ = state.facts["chosen"], state.facts["met"]
        self.result_ = state.facts.get("result")
