"""Exact thresholds by group on labels, as a post-processor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.models.base import training_weight
from fairfrontier.models.group import Attributes
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.thresholds.base import PostProcessor, Scale
from fairfrontier.models.thresholds.calibration import smooth_labels
from fairfrontier.models.thresholds.curve import BOUNDED, Criterion, Curve, Objective, build_curves
from fairfrontier.models.thresholds.pooling import measure_again, pool_curves
from fairfrontier.models.thresholds.programme import pool_groups, solve_curves
from fairfrontier.models.thresholds.rule import FittedRule, MixtureRule

COSTS = {"false_positive", "false_negative"}


@method("group_thresholds")
class GroupThresholds(PostProcessor):
    """The best thresholds by group whose rates differ by at most a bound.

        max objective(h)   s.t.  max_k rate_k(h) − min_k rate_k(h) ≤ bound,
        h(f) = Σ_j p_kj 1{f > t_kj} for a row of group k

    over all thresholds t and all probabilities p of drawing one of them. It is the linear programme
    on the groups' ROC hulls, solved exactly on the fitted rows; its dual value bounds every such
    rule.

    Parameters
    ----------
    attributes, scale, random_state
        As in `PostProcessor`.
    objective : {"accuracy", "balanced_accuracy", "f1"} or {"costs": {...}}
        What is maximised; costs are ``false_positive`` and ``false_negative``, of which the mean
        over the rows is minimised.
    criterion : str
        What differs by at most the bound: ``parity``, the rate of decision 1;
        ``equal_opportunity``, the true positive rate; ``predictive_equality``, the false positive
        rate; ``equalized_odds``, both of these; ``average_odds``, the mean of their differences.
    bound : float
        Largest difference between two groups, ≥ 0; 0 for equal rates.
    randomized : bool
        Whether a threshold may be drawn. Without, every group has one threshold: the best ones for
        the criteria on one rate, and for odds where ``converged`` in ``result_`` is true; else the
        best of those tried, with ``dual_value`` as a bound on all others.
    no_harm : bool
        Whether no group's rate may get worse than under the best thresholds without a bound: its
        selection rate, or its true positive rate under opportunity and odds, does not fall; its
        false positive rate does not rise under predictive equality.
    labels : {"observed", "smoothed"}
        What rates and objective are counted by. With ``smoothed`` a row counts as P(Y=1 | score,
        group), from a logistic regression on the fitted rows with a slope that the groups share:
        rules from some hundred rows vary less, and are biased where its shape is wrong.
    pool_below : int
        Groups with fewer rows of the fit are pooled with those that they are part of, as far as
        their difference may be chance; 0 pools none. Rules from some hundred rows keep groups
        closer on fresh rows, and miss the bound on those of the fit; see `pooling`.
    unseen : {"refuse", "pooled"}
        What becomes of groups without a row in the fit: an error, or the best threshold for all
        fitted rows together whose rate (under odds the true positive rate) is among the groups'.

    Attributes
    ----------
    rule_ : MixtureRule
        h by code of ``cells_``, and with ``pooled`` for unseen groups in the last row.
    result_ : dict
        Plain facts: ``value`` of the objective and its upper bound ``dual_value``, the ``gap``
        reached, ``rates`` (selection, true and false positive rate of each group, None where there
        are none), ``rows`` of each group, whether no rule of the kind is better (``converged``),
        and by how much each group is ``pooled``, from 0 to 1. With pooled groups all but ``gap``
        and ``rates`` are of the pooled rates.

    Raises
    ------
    InputError
        From ``fit``, when the criterion's rate is 0/0 in a group: its rows are of one class.

    Notes
    -----
    O(n log n) for a sort within each group; afterwards as many steps as the hulls have vertices,
    some hundred each with labels and as many as scores without. 1,000,000 rows of ten groups take
    .1 to .3 s. Without y the scores are taken as P(Y=1|x) and count as expected labels: they have
    to be calibrated. What holds on the fitted rows holds on others up to sampling error.

    References
    ----------
    M. Hardt, E. Price, N. Srebro. Equality of opportunity in supervised learning. NIPS 2016.
    R. Xian, L. Yin, H. Zhao. Fair and optimal classification via post-processing. ICML 2023.
    A. F. Cruz, M. Hardt. Unprocessing seven years of algorithmic fairness. ICLR 2024.
    """

    paper: ClassVar[str] = "Hardt et al., Equality of opportunity, NeurIPS 2016"
    example: ClassVar[Mapping[str, Any]] = {"attributes": 0}
    objectives: ClassVar[tuple[str, ...]] = ("accuracy", "balanced_accuracy", "f1")
    monotone: ClassVar[bool] = True

    rule_: MixtureRule
    result_: dict[str, Any]

    def __init__(
        self,
        *,
        attributes: Attributes = None,
        scale: Scale = "probability",
        objective: Objective = "accuracy",
        criterion: Criterion = "parity",
        bound: float = 0.0,
        randomized: bool = True,
        no_harm: bool = False,
        labels: Literal["observed", "smoothed"] = "observed",
        pool_below: int = 0,
        unseen: Literal["refuse", "pooled"] = "refuse",
        random_state: int = 0,
    ) -> None:
        self.attributes = attributes
        self.scale = scale
        self.objective = objective
        self.criterion = criterion
        self.bound = bound
        self.randomized = randomized  # type: ignore[misc]  # the base's is of the class
        self.no_harm = no_harm
        self.labels = labels
        self.pool_below = pool_below
        self.unseen = unseen
        self.random_state = random_state

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        self.require(
            "objective",
            self.objective in self.objectives
            if isinstance(self.objective, str)
            else self._has_costs(),
            f"{', '.join(self.objectives)}, or costs: {{false_positive: 1, false_negative: 5}} "
            "with numbers from 0 that are not both 0",
        )
        self.require("criterion", self.criterion in BOUNDED, f"one of {', '.join(BOUNDED)}")
        self.require("bound", _is_number(self.bound) and self.bound >= 0, "a number from 0")
        for name in ("randomized", "no_harm"):
            self.require(name, isinstance(getattr(self, name), bool), "true or false")
        self.require("labels", self.labels in ("observed", "smoothed"), "observed or smoothed")
        below: Any = self.pool_below
        whole = isinstance(below, int) and not isinstance(below, bool) and below >= 0
        self.require("pool_below", whole, "a whole number from 0")
        self.require("unseen", self.unseen in ("refuse", "pooled"), "refuse or pooled")

    def _has_costs(self) -> bool:
        objective: Any = self.objective
        if not (isinstance(objective, Mapping) and set(objective) == {"costs"}):
            return False
        costs = objective["costs"]
        if not (isinstance(costs, Mapping) and set(costs) == COSTS):
            return False
        values = list(costs.values())
        return all(_is_number(value) and value >= 0 for value in values) and sum(values) > 0

    @property
    def takes_unseen(self) -> bool:
        """Whether groups without a row in the fit are decided."""
        return self.unseen == "pooled"

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray | None = None,
        *,
        sensitive_features: Any,
        sample_weight: np.ndarray | None = None,
    ) -> Self:
        """Find the thresholds on scores X, labels y (or None) and group codes."""
        self.check()
        signed, labels = self.validate_training(
            X, np.zeros(len(X)) if y is None else y, sensitive_features, sample_weight=sample_weight
        )
        expected = (1.0 + signed) / 2.0 if y is None else labels
        weight = None if sample_weight is None else training_weight(sample_weight, len(signed))
        code = self.learn_cells(sensitive_features)
        size = len(self.cells_)
        self.require_weight(code, np.ones(len(code)) if weight is None else weight, "fitted")
        if self.labels == "smoothed" and y is not None:
            expected = smooth_labels(signed, labels, code, weight)

        def build(cells: np.ndarray) -> tuple[Curve, ...]:
            """Return the curves of groups with new codes."""
            return build_curves(signed, expected, cells[code], int(cells.max()) + 1, weight)

        curves, counts = build(np.arange(size)), np.bincount(code, minlength=size)
        levels = [np.unique(column, return_inverse=True)[1] for column in self.cells_.T]
        shared, pooled = pool_curves(curves, build, levels, counts, self.criterion, self.pool_below)
        solution = solve_curves(
            shared,
            objective=self.objective,
            criterion=self.criterion,
            bound=self.bound,
            randomized=self.randomized,
            no_harm=self.no_harm,
        )
        lacking = np.isnan(solution.rates[:, BOUNDED[self.criterion]]).any(axis=1)
        if lacking.any():
            raise self.refuse_cell(
                self.cells_[lacking][0],
                f"{self.name} needs rows of both classes in every group, and all rows of the group "
                "{group} are of one class.",
                "Merge small groups in the dataset's YAML, or choose fewer attributes.",
            )
        rule = solution.rule
        if self.unseen == "pooled":
            whole = build(np.zeros(size, dtype=np.int64))[0]
            rule = pool_groups(
                whole, solution, self.objective, self.criterion, randomized=self.randomized
            )
        if pooled.any():
            solution = measure_again(solution, curves, self.criterion)
        self.rule_ = rule.clip()
        rates = [[None if math.isnan(r) else r for r in row] for row in solution.rates.tolist()]
        self.result_ = {
            "value": solution.value,
            "dual_value": solution.dual_value,
            "gap": solution.gap,
            "rates": rates,
            "rows": counts.tolist(),
            "converged": solution.converged,
            "pooled": pooled.tolist(),
        }
        return self

    def probability(self, signed: np.ndarray, code: np.ndarray) -> np.ndarray:
        """Return h for scores f ∈ [−1, 1] and codes of ``cells_``, float64, (n_samples,)."""
        return np.asarray(self.rule_.probability(signed, code))

    def describe_rule(self) -> FittedRule:
        """Return the rule with its rates on the fitted rows."""
        facts = {**self.result_, "rates": [row[0] for row in self.result_["rates"]]}
        return FittedRule(self.rule_, facts, self.bound, self.criterion)

    def get_state(self) -> State:
        """Return the rule and the cells."""
        facts = {"rule": self.rule_.to_json(), "result": self.result_}
        return State(arrays={"cells": self.cells_}, facts=facts)

    def set_state(self, state: State) -> None:
        """Restore them."""
        self.rule_ = MixtureRule.from_json(state.facts["rule"])
        self.cells_ = state.arrays["cells"]
        self.result_ = state.facts["result"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
