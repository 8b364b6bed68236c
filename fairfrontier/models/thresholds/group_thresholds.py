"""Exact thresholds by group on labels, as a post-processor, and curves of groups with few rows.

The ROC curves of groups with few rows are pooled with those of the groups that they are part of.

What few rows say about a group's rates is largely chance, and thresholds that make such rates equal
drive groups apart on fresh rows. The rates of group k at every threshold t are therefore shrunk to
those of its parent,

    r_k(t) = (1 − B_k) r_own(t) + B_k r_parent(t),   B_k = v_k / (v_k + τ²),

where v_k = r(1 − r)/n_k is the chance variance of a rate r, and τ² the variance between groups that
is left beyond chance, at the threshold that chooses as many of all rows as are positive. The parent
of a level is all rows; that of a crossed group adds what its levels, pooled themselves, differ from
all rows. For parity r is the share of all rows that are chosen and of one class, so that base rates
are pooled too; for other criteria it is the share of its class.

References
----------
B. Efron, C. Morris. Data analysis using Stein's estimator and its generalizations. JASA 70, 1975.
R. DerSimonian, N. Laird. Meta-analysis in clinical trials. Controlled Clinical Trials 7, 1986 (τ²).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.models.base import FEATURES, TrainingWarning, training_weight
from fairfrontier.models.group import Attributes, choose_columns
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.thresholds.base import PostProcessor, is_number
from fairfrontier.models.thresholds.bound import (
    RATES,
    Bound,
    pool_strata,
    read_bound,
    require_groups,
)
from fairfrontier.models.thresholds.bounded import Problem, solve_bounds
from fairfrontier.models.thresholds.calibration import smooth_labels
from fairfrontier.models.thresholds.curve import (
    BOUNDED,
    Criterion,
    Curve,
    Objective,
    build_curves,
    make_curve,
    weigh_objective,
)
from fairfrontier.models.thresholds.programme import (
    GroupSolution,
    apply_rule,
    draw_rule,
    find_rates,
    measure_gap,
    pool_groups,
    solve_curves,
)
from fairfrontier.models.thresholds.rule import FittedRule, MixtureRule, Scale
from fairfrontier.runtime.errors import ConfigError

if TYPE_CHECKING:
    from fairfrontier.models.thresholds.rulebook import Rulebook

# Scores of the parent at which a pooled curve has a point, beside the group's own.
GRID = 1000
# Cuts that choose no more, as a share of a group's weight, are left out.
LEAST = 1e-12
# The gap to the dual value that counts as closed under bounds, of an objective up to 1.
CONVERGED = 1e-5


def pool_curves(
    curves: Sequence[Curve],
    build: Callable[[np.ndarray], Sequence[Curve]],
    columns: Sequence[np.ndarray],
    counts: np.ndarray,
    criterion: Criterion,
    below: int,
) -> tuple[list[Curve], np.ndarray]:
    """Pool the curves of groups that have fewer rows than ``below``.

    Parameters
    ----------
    curves : sequence of Curve
        Of each group; see `build_curves`.
    build : callable
        From new codes of the groups, int64, shape (n_groups,), to the curves of these.
    columns : sequence of ndarray
        The code of each group's level in every attribute, int64, shape (n_groups,).
    counts : ndarray of int64, shape (n_groups,)
        Rows of each group.
    criterion : str
        Its rates say how far groups differ. For odds each class has a B of its own.

    Returns
    -------
    list of Curve
        Of each group. Nothing is pooled where the criterion's rate of a group is 0/0.
    pooled : ndarray of float64, shape (n_groups,)
        B, for odds the larger one; 0 for groups that are not pooled.

    Notes
    -----
    O(n log n) for a sort of all rows and one for each attribute, and O(K m log m) for K pooled
    groups whose curves have m points.
    """
    bounded = BOUNDED[criterion]
    # The rate that counts for negatives, and that for positives.
    events = bounded[::-1] if len(bounded) == 2 else bounded * 2
    size, none = counts.size, np.zeros(counts.size)
    if (counts >= below).all():
        return list(curves), none
    (whole,) = build(np.zeros(size, dtype=np.int64))
    chosen = np.searchsorted(whole.positive + whole.negative, whole.positive[-1])
    threshold = whole.threshold(int(np.clip(chosen, 1, max(1, whole.score.size - 1))))

    def measure(some: Sequence[Curve]) -> np.ndarray:
        """Return the rates of each class's event at the threshold, (2, n_curves)."""
        rule = MixtureRule(np.full((len(some), 1), threshold), np.ones((len(some), 1)))
        return find_rates(some, apply_rule(some, rule))[:, events].T

    def shrink(
        some: Sequence[Curve], expected: np.ndarray, rows: np.ndarray, freedom: np.ndarray
    ) -> np.ndarray:
        """Return B of each class, (2, n_curves)."""
        shares = np.array([(1.0, *_total(curve)[::-1] / _total(curve).sum()) for curve in some]).T
        pairs = zip(measure(some), expected, shares[list(events)], freedom, strict=True)
        found = [
            find_pooling(rate, rate - mean, rows * share, free) for rate, mean, share, free in pairs
        ]
        return np.where(rows < below, found, 0.0)

    if np.isnan(measure(curves)).any():
        return list(curves), none
    top = measure([whole])
    expected, freedom = np.tile(top, size), np.full(2, size - 1.0)
    terms: list[tuple[np.ndarray, Sequence[Curve], np.ndarray]] = []
    for codes in columns if len(columns) > 1 else ():
        levels, rows = build(codes), np.bincount(codes, counts)
        kept = 1.0 - shrink(levels, np.tile(top, rows.size), rows, np.full(2, rows.size - 1.0))
        expected += (kept * (measure(levels) - top))[:, codes]
        # What the levels keep of their own is no chance between the crossed groups.
        freedom -= kept.sum(axis=1) * (1.0 - 1.0 / rows.size)
        terms.append((kept, levels, codes))
    pooled = shrink(curves, expected, counts, np.maximum(freedom, 1.0))
    found = list(curves)
    for k in np.flatnonzero(pooled.any(axis=0)).tolist():
        parts, left = [(1.0 - pooled[:, k], curves[k])], pooled[:, k]
        for kept, levels, codes in terms:
            factor = pooled[:, k] * kept[:, codes[k]]
            parts, left = [*parts, (factor, levels[codes[k]])], left - factor
        parts.append((left, whole))
        found[k] = _blend(parts, whole, joint=criterion == "parity")
    return found, pooled.max(axis=0)


def _blend(parts: Sequence[tuple[np.ndarray, Curve]], whole: Curve, *, joint: bool) -> Curve:
    """Return the first curve with rates that are sums of those of all, times factors by class."""
    own = parts[0][1]
    spread = np.linspace(0, whole.score.size - 1, min(GRID, whole.score.size)).astype(np.int64)
    score = np.unique(np.concatenate([own.score, whole.score[spread]]))[::-1]
    rates, ends = np.zeros((2, score.size)), np.zeros((2, 1))
    for factor, curve in parts:
        total = _total(curve)[:, None]
        scale = factor[:, None] / np.where(total > 0, total.sum() if joint else total, 1.0)
        cuts = curve.score.size - np.searchsorted(curve.score[::-1], score)
        rates += scale * np.stack([curve.negative[cuts], curve.positive[cuts]])
        ends += scale * total
    # What levels add need not rise with every score, as rates do.
    rates = np.clip(np.maximum.accumulate(rates, axis=1), 0.0, ends)
    mass = rates * (_total(own).sum() if joint else _total(own)[:, None])
    kept = np.diff(mass.sum(axis=0), prepend=0.0) > LEAST * mass[:, -1].sum()
    negative, positive = np.diff(mass[:, kept], prepend=0.0)
    return make_curve(score[kept], positive, negative)


def measure_again(
    solution: GroupSolution, curves: Sequence[Curve], criterion: Criterion
) -> GroupSolution:
    """Return a solution with the rates of its rule, and their gap, on other curves."""
    rates = find_rates(curves, apply_rule(curves, solution.rule))
    return replace(solution, rates=rates, gap=measure_gap(rates, criterion))


def find_pooling(
    rate: np.ndarray, deviation: np.ndarray, counts: np.ndarray, freedom: float
) -> np.ndarray:
    """Return B of every group, float64 in [0, 1], shape (n_groups,); 1 for groups without weight.

    ``rate`` and ``deviation`` are a group's rate, NaN without weight, and how far it is from its
    parent's; ``freedom`` the number of deviations that are free. τ² is by how much
    Σ deviation²/v exceeds what chance alone would give it (DerSimonian and Laird's estimator), its
    mean and one standard deviation: with few groups it exceeds the mean too often.
    """
    known = np.isfinite(rate)
    mean = float(np.average(rate[known], weights=counts[known]))
    weight = np.where(known, counts, 0.0) / max(mean * (1.0 - mean), 1e-12)
    excess = float((weight * np.where(known, deviation, 0.0) ** 2).sum())
    excess -= freedom + np.sqrt(2.0 * freedom)
    total = float(weight.sum())
    between = max(excess, 0.0) / max(total - float((weight**2).sum()) / total, 1e-12)
    return np.asarray(1.0 / (1.0 + weight * between))


def _total(curve: Curve) -> np.ndarray:
    """Return the weight of negatives and positives, (2,)."""
    return np.array([curve.negative[-1], curve.positive[-1]])


COSTS = {"false_positive", "false_negative"}
# Parameters of a criterion, which bounds replace.
SINGLE: Mapping[str, Any] = {
    "criterion": "parity",
    "bound": 0.0,
    "no_harm": False,
    "pool_below": 0,
    "flip": False,
}


@method("group_thresholds")
@dataclass(kw_only=True, eq=False, repr=False)
class GroupThresholds(PostProcessor):
    """The best thresholds by group whose rates differ by at most a bound.

        max objective(h)   s.t.  max_k rate_k(h) − min_k rate_k(h) ≤ bound,
        h(f) = Σ_j p_kj 1{f > t_kj} for a row of group k

    over all thresholds t and all probabilities p of drawing one of them. It is the linear programme
    on the groups' ROC hulls, solved exactly on the fitted rows; its dual value bounds every such
    rule.

    Parameters
    ----------
    estimator, prefit, cv, pos_label, attributes, random_state
        As in `PostProcessor`.
    scale : {"probability", "margin", "signed", "points"} or None
        As there. Only the order of scores counts, but with ``smoothed`` labels or without labels;
        None takes given scores within 0 and 1 as probabilities, and others as points.
    objective : {"accuracy", "balanced_accuracy", "f1"} or {"costs": {...}}
        What is maximised; costs are ``false_positive`` and ``false_negative``, of which the mean
        over the rows is minimised.
    criterion : str
        What differs by at most the bound: ``parity``, the rate of decision 1;
        ``equal_opportunity``, the true positive rate; ``predictive_equality``, the false positive
        rate; ``equalized_odds``, both of these; ``average_odds``, the mean of their differences.
    bound : float
        Largest difference between two groups, ≥ 0; 0 for equal rates.
    bounds : sequence of str, optional
        In place of ``criterion`` and ``bound``, any bounds on rates in words, all of which hold at
        once: see `fairfrontier.models.thresholds.bound`. The groups are then the crosses of the
        attributes and strata that they name. Strata with fewer than ten rows of a group are pooled.
        The objective is not f1.
    randomized : bool
        Whether a threshold may be drawn. Without, every group has one threshold: the best ones for
        the criteria on one rate, and for others where ``converged`` in ``result_`` is true; else
        the best of those tried, with ``dual_value`` as a bound on all others.
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
        closer on fresh rows, and miss the bound on those of the fit; see `pool_curves`.
    flip : bool
        Whether a threshold of those that are drawn may decide 1 up to it, not above: for scores
        that predict the opposite of the labels, in all groups or in some.
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
        and ``rates`` are of the pooled rates. With ``bounds`` also each of them with the value
        that it bounds, and the ``strata`` that were pooled; ``gap`` is then by how much the bound
        is passed that is passed most, 0 up to rounding.

    Raises
    ------
    InputError
        From ``fit``, when the criterion's rate is 0/0 in a group: its rows are of one class.
    UnattainableError
        From ``fit``, when no rule keeps all ``bounds``; it names those that contradict each other,
        and by how much all would have to give way.

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
    rule_: MixtureRule = field(init=False)
    result_: dict[str, Any] = field(init=False)

    attributes: Attributes = None
    scale: Scale | None = None
    objective: Objective = "accuracy"
    criterion: Criterion = "parity"
    bound: float = 0.0
    bounds: Sequence[str] | None = None
    randomized: bool = True  # type: ignore[misc]  # the base's is of the class
    no_harm: bool = False
    labels: Literal["observed", "smoothed"] = "observed"
    pool_below: int = 0
    flip: bool = False
    unseen: Literal["refuse", "pooled"] = "refuse"
    random_state: int = 0

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
        self.require("bound", is_number(self.bound) and self.bound >= 0, "a number from 0")
        for name in ("randomized", "no_harm", "flip"):
            self.require(name, isinstance(getattr(self, name), bool | np.bool_), "true or false")
        self.require("flip", self.randomized or not self.flip, "false, or let thresholds be drawn")
        self.require("labels", self.labels in ("observed", "smoothed"), "observed or smoothed")
        below: Any = self.pool_below
        whole = isinstance(below, int | np.integer) and not isinstance(below, bool)
        self.require("pool_below", whole and bool(below >= 0), "a whole number from 0")
        self.require("unseen", self.unseen in ("refuse", "pooled"), "refuse or pooled")
        if self.bounds is not None:
            listed = isinstance(self.bounds, Sequence) and not isinstance(self.bounds, str)
            self.require("bounds", listed and len(self.bounds) > 0, "a list of texts, or null")
            self._read_bounds()
            for name, default in SINGLE.items():
                same = getattr(self, name) == default
                self.require(name, same, f"{default!r} with bounds, which say what holds")
            self.require("objective", self.objective != "f1", "another one with bounds")

    def _has_costs(self) -> bool:
        objective: Any = self.objective
        if not (isinstance(objective, Mapping) and set(objective) == {"costs"}):
            return False
        costs = objective["costs"]
        if not (isinstance(costs, Mapping) and set(costs) == COSTS):
            return False
        values = list(costs.values())
        return all(is_number(value) and value >= 0 for value in values) and sum(values) > 0

    @property
    def monotone(self) -> bool:  # type: ignore[override]
        """Whether P(decision = 1) rises with the score in every group."""
        return not self.flip

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
        """Find the thresholds for the rows X of the estimator, or scores X, and labels y.

        Scores that are probabilities need no y.
        """
        self.check()
        signed, labels = self.validate_training(
            X, y, sensitive_features, sample_weight=sample_weight
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
        facts: dict[str, Any] = {}
        if self.bounds is not None:
            pooled = np.zeros(size)
            solution, facts = self._keep_bounds(curves, counts)
        else:
            levels = [np.unique(column, return_inverse=True)[1] for column in self.cells_.T]
            shared, pooled = pool_curves(
                curves, build, levels, counts, self.criterion, self.pool_below
            )
            solution = self._keep_criterion(shared)
        rule = solution.rule
        if self.unseen == "pooled":
            whole = build(np.zeros(size, dtype=np.int64))[0]
            whole = whole.turn() if self.flip else whole
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
            **facts,
        }
        return self

    def _keep_criterion(self, curves: Sequence[Curve]) -> GroupSolution:
        """Return the best rule whose rates differ by at most the bound."""
        solution = solve_curves(
            curves,
            objective=self.objective,
            criterion=self.criterion,
            bound=self.bound,
            randomized=self.randomized,
            no_harm=self.no_harm,
            flip=self.flip,
        )
        lacking = np.isnan(solution.rates[:, BOUNDED[self.criterion]]).any(axis=1)
        if lacking.any():
            raise self.refuse_cell(
                self.cells_[lacking][0],
                f"{self.name} needs rows of both classes in every group, and all rows of the group "
                "{group} are of one class.",
                "Merge small groups in the dataset's YAML, or choose fewer attributes.",
            )
        return solution

    def _read_bounds(self) -> list[Bound]:
        return [read_bound(text) for text in self.bounds or ()]

    def cross(self, groups: np.ndarray) -> np.ndarray:
        """Return the columns of ``groups`` that make the groups: those that bounds name."""
        read = self._read_bounds()
        named = dict.fromkeys(name for each in read for name in each.attributes + each.strata)
        if self.attributes is not None or not named:
            return super().cross(groups)
        known = getattr(groups, "names", ())
        columns = [int(n) if n.isdecimal() and n not in known else n for n in named]
        return choose_columns(groups, columns)  # type: ignore[arg-type]

    def _keep_bounds(
        self, curves: Sequence[Curve], counts: np.ndarray
    ) -> tuple[GroupSolution, dict[str, Any]]:
        """Return the best rule that keeps all bounds, and facts of these."""
        bounds, features = self._read_bounds(), vars(self).get(FEATURES)
        given = features.names if features is not None else ()
        described = [*self._describe_groups().values()]
        levels = {
            given[column] if given else str(column): np.array(
                [str(described[column][code]) for code in self.cells_[:, k].tolist()]
            )
            for k, column in enumerate(self.columns)
        }
        require_groups(bounds, levels)
        pooled = [pool_strata(bound, levels, counts) for bound in bounds]
        problem = Problem(curves, bounds, [own for own, _ in pooled])
        gain = weigh_objective(self.objective, *problem.totals.sum(axis=0))
        found = solve_bounds(curves, problem, gain, randomized=self.randomized)
        values = problem.list_values(found.counts)
        for bound, (own, _) in zip(bounds, pooled, strict=True):
            self._warn_of_none(bound, own, found.counts)
        solution = GroupSolution(
            rule=draw_rule(curves, found.draws),
            value=found.value,
            dual_value=found.dual_value,
            rates=find_rates(curves, found.counts[:, :2]),
            gap=max(problem.find_excess(found.counts), 0.0),
            converged=found.dual_value - found.value <= CONVERGED,
        )
        return solution, {
            "bounds": {
                str(bound): None if math.isnan(value) else value
                for bound, value in zip(bounds, values, strict=True)
            },
            "strata": sorted({name for _, small in pooled for name in small}),
        }

    def _warn_of_none(
        self, bound: Bound, levels: Mapping[str, np.ndarray], counts: np.ndarray
    ) -> None:
        """Warn where nobody is left of whom a bounded rate is a share."""
        for compared in bound.compare(levels):
            masks = compared.masks.astype(np.float64)
            own = masks @ counts
            for rate in bound.rates:
                none = (own @ RATES[rate][1] <= 0) & (own[:, 2:].sum(axis=1) > 0)
                if none.any():
                    warnings.warn(
                        f"{bound} says nothing of {compared.names[int(none.argmax())]}, of whom "
                        f"the best rule leaves {rate} 0/0. Bound selection_rate_min, too.",
                        TrainingWarning,
                        stacklevel=4,
                    )

    def probability(self, signed: np.ndarray, code: np.ndarray) -> np.ndarray:
        """Return h for scores f ∈ [−1, 1] and codes of ``cells_``, float64, (n_samples,)."""
        return np.asarray(self.rule_.probability(signed, code))

    def describe_rule(self) -> FittedRule:
        """Return the rule with its rates on the fitted rows."""
        facts = {**self.result_, "rates": [row[0] for row in self.result_["rates"]]}
        return FittedRule(self.rule_, facts, self.bound, self.criterion)

    def to_rulebook(self, *arguments: Any, **keywords: Any) -> Rulebook:
        """Return a document of the rule; ConfigError with ``bounds``, which it has no words for."""
        if self.bounds is not None:
            raise ConfigError(
                "A rulebook states one criterion, and these thresholds keep bounds in words.",
                "Save the rule, or read its thresholds_.",
            )
        return super().to_rulebook(*arguments, **keywords)

    def get_state(self) -> State:
        """Return the rule and the cells."""
        facts = {"rule": self.rule_.to_json(), "result": self.result_}
        return State(arrays={"cells": self.cells_}, facts=facts)

    def set_state(self, state: State) -> None:
        """Restore them."""
        self.rule_ = MixtureRule.from_json(state.facts["rule"])
        self.cells_ = state.arrays["cells"]
        self.result_ = state.facts["result"]
