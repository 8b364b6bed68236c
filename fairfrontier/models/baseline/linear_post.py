"""Fair decisions by thresholds on what a row's features say of its label and its group."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import xgboost
from scipy.optimize import linprog
from scipy.special import expit, logit, softmax
from sklearn.utils.validation import check_consistent_length, validate_data

from fairfrontier.models.base import Classifier, explaining, training_weight
from fairfrontier.models.baseline.linear import Linear
from fairfrontier.models.group import Attributes, Criterion, check_bound, number_groups
from fairfrontier.models.objective import Objective, read_costs
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.response import (
    choose_asked,
    cross_fit,
    list_fit_keywords,
    name_estimator,
    score_rows,
    score_training,
    unfreeze,
)
from fairfrontier.models.tree.boosting import TreesOfBlocks, grow, predict_margins, tree_parameters
from fairfrontier.prepare.split import Task
from fairfrontier.runtime.cluster.executor import Block, Rows, fit_rows
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.seeds import derive_generator

if TYPE_CHECKING:
    from distributed import Client

# What models that learn the same trees may differ in.
RULE = ("criterion", "objective", "bound")
TABLE = ("X", "y", "sensitive_features", "sample_weight")
# Planes that are cut before the minimum is given up.
MOST_PLANES = 500
# Width of the box of prices, in the largest gain of a row.
BOX = 4.0
# Of three decisions or more prices are looked for in a box around the best, from this plane on.
FIRST = 5
# That box narrows so much where its minimum is no better than the best prices, and widens so much
# where it is at its edge and better by so much of what the planes promised.
NARROWER, WIDER, WORTH = 0.5, 2.0, 0.1
# And so much where its minimum is as good as the best prices, until it is the whole box.
FARTHER = 10.0
# A plane that touched no minimum for so many others is left out, but of the last minimum.
IDLE = 30
# Distance of the values that is left of three decisions or more.
TOLERANCE = 3e-5
# Probabilities are not taken for smaller ones.
LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class RateProblem:
    """Gains of decisions, and what a row adds to each cell's rate of a decision.

        max_h  E[Σ_k g_k h_k]   subject to   max_c r_c − min_c r_c ≤ ε   among the cells c of each
        event,   r_c = E[s_c h_k(c)]

    over h_k ≥ 0 with Σ_k h_k = 1. ``gain`` g, (n_samples, n_decisions), has a best decision of 0 or
    more on average; ``share``, (n_samples, n_columns), is P(row in the cell)/P(cell), of mean 1.
    ``column``, ``decision`` and ``event``, int64 (n_cells,), say of each cell where its share
    stands, of which decision its rate is, and with which cells it is compared. ``weight``,
    (n_samples,), adds up to 1; ``bound`` is ε.
    """

    gain: np.ndarray
    share: np.ndarray
    column: np.ndarray
    decision: np.ndarray
    event: np.ndarray
    weight: np.ndarray
    bound: float


@dataclass(frozen=True, eq=False)
class RateOptimum:
    """Prices λ of the cells' rates, which add up to 0 in each event, and what they lead to.

    The decision argmax_k g_k − Σ λ_c s_c over the cells c of k is best, but for rows on which
    several are. ``value``, of the dual problem, is what no rule within the bound exceeds, and
    ``gap`` is how far it may be from the least such value. ``attained`` is the gain of that
    decision, the first of equal ones, and ``difference`` its largest one between two cells.
    """

    price: np.ndarray
    value: float
    gap: float
    iterations: int
    attained: float
    difference: float


def solve_rates(problem: RateProblem, tolerance: float = 1e-5) -> RateOptimum:
    """Minimise the dual D(λ) = E[max_k (g_k − Σ λ_c s_c)] + ε Σ |λ|/2 by cutting planes.

    D is convex and piecewise linear: each plane touches it at the minimum of the planes before. Of
    three decisions or more that is the minimum within a box around the best prices, which widens
    and narrows as it does well or badly, without planes that have long not mattered. Ends when the
    minimum is within ``tolerance`` of the least value found, or after ``MOST_PLANES``. O(n m) for
    each plane, m columns and decision: some ten planes for two groups and decisions, some hundred
    for four groups and five.

    References
    ----------
    J. E. Kelley. The cutting-plane method for solving convex programs. SIAM Journal 8, 1960.
    R. E. Marsten, W. W. Hogan, J. W. Blankenship. The Boxstep method for large-scale optimization.
    Operations Research 23, 1975.
    """
    n_cells, several = len(problem.event), problem.gain.shape[1] > 2
    cost = np.append(np.full(2 * n_cells, problem.bound / 2.0), 1.0)
    balanced = problem.event == np.unique(problem.event)[:, None]
    fixed = np.column_stack([balanced, -balanced.astype(float), np.zeros(len(balanced))])
    box = BOX * float(np.abs(problem.gain).max())
    reach, price = box, np.zeros(n_cells)
    best, gap, least, optimum = price, np.inf, np.inf, None
    planes, heights, last = np.empty((0, 2 * n_cells + 1)), np.empty(0), np.empty(0)
    iterations, hit, expected = 0, False, np.inf
    while gap > tolerance and iterations < MOST_PLANES:
        iterations += 1
        surplus, rate = _evaluate(problem, price)
        value = surplus + problem.bound / 2.0 * float(np.abs(price).sum())
        if several and iterations > FIRST:
            if value >= least:
                reach = NARROWER * min(reach, float(np.abs(price - best).max()))
            elif hit and least - value >= WORTH * expected:
                reach = min(WIDER * reach, box)
        if value < least:
            least, best = value, price
            spread = [float(np.ptp(rate[each])) for each in balanced]
            optimum = surplus + float(price @ rate), max(spread, default=0.0)
        planes = np.vstack([planes, np.concatenate([-rate, rate, [-1.0]])])
        heights = np.append(heights, float(-rate @ price) - surplus)
        last = np.append(last, iterations)
        while True:
            narrow = several and reach < box and iterations < MOST_PLANES
            recent = last > (iterations - IDLE if narrow else 0)
            low, high = np.zeros(2 * n_cells + 1), np.full(2 * n_cells + 1, box)
            if narrow:
                both = np.concatenate([best, -best])
                low[:-1], high[:-1] = (np.maximum(both + d, 0.0) for d in (-reach, reach))
            high[-1] = np.inf
            found = linprog(
                cost,
                A_ub=planes[recent],
                b_ub=heights[recent],
                A_eq=fixed,
                b_eq=np.zeros(len(fixed)),
                bounds=np.column_stack([low, high]),
            )
            price = found.x[:n_cells] - found.x[n_cells:-1]
            expected = least - found.fun
            hit = narrow and bool((np.abs(price - best) >= (1.0 - 1e-9) * reach).any())
            if not hit or expected > tolerance:
                break
            # Nothing is to be gained nearby: what of farther away?
            reach = min(FARTHER * reach, box)
        gap = np.inf if hit else expected
        last[np.flatnonzero(recent)[found.ineqlin.marginals < 0]] = iterations
    assert optimum is not None  # noqa: S101 - the first price has one
    return RateOptimum(best, least, max(gap, 0.0), iterations, *optimum)


def _evaluate(problem: RateProblem, price: np.ndarray) -> tuple[float, np.ndarray]:
    """Return E[max_k (g_k − Σ λ_c s_c)] and the rates of the decisions that attain it."""
    # Of two decisions the first one has no price.
    first, n_decisions = int(problem.decision.min()), problem.gain.shape[1]
    table = np.zeros((problem.share.shape[1], n_decisions - first))
    np.add.at(table, (problem.column, problem.decision - first), price)
    margin = problem.gain.copy()
    margin[:, first:] -= problem.share @ table
    chosen = margin.argmax(axis=1)[:, None]
    taken = problem.weight[:, None] * (chosen == np.arange(first, n_decisions))
    rate = (taken.T @ problem.share)[problem.decision - first, problem.column]
    return float(problem.weight @ np.take_along_axis(margin, chosen, axis=1)[:, 0]), rate


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fitted logistic regression: W, (n_classes, n_features), and b, (n_classes,)."""

    coefficient: np.ndarray
    intercept: np.ndarray

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Return the classes' probabilities, (n_samples, n_classes)."""
        chance: np.ndarray = softmax(features @ self.coefficient.T + self.intercept, axis=1)
        return chance


@dataclass(frozen=True, eq=False)
class Guesser:
    """Trees for the class and, given the class, for the group, and what calibrates their margins.

    Both regressions see the margins of both kinds of trees: probabilities are then right on average
    wherever a threshold on them leads, which probabilities calibrated each for itself are not.
    """

    label_trees: xgboost.Booster
    group_trees: xgboost.Booster
    label: Logistic
    group: Logistic

    def guess(self, X: np.ndarray, n_jobs: int) -> np.ndarray:
        """Return P(class, group), float64, shape (n_samples, n_classes, n_groups)."""
        n_classes = len(self.label.intercept)
        margins = ask_trees(self.label_trees, self.group_trees, X, n_classes, n_jobs)
        return join(self.label, self.group, *margins)


@dataclass(frozen=True, eq=False)
class Behind:
    """What an estimator says of the class, and a copy of it of class and group, in place of trees.

    The copy learns n_classes n_groups classes, the class's code times n_groups and the group's.
    ``asked`` is the label of which the estimator has a score, or of several classes all of them.
    """

    label_model: Any
    cell_model: Any
    asked: Any
    n_groups: int
    label: Logistic
    group: Logistic

    def guess(self, X: Any, n_jobs: int) -> np.ndarray:  # noqa: ARG002
        """Return P(class, group) as `Guesser.guess` does."""
        name = name_estimator(self.label_model)
        own = as_margin(*score_rows(self.label_model, X, self.asked, name))
        table, n_classes = self.cell_model.predict_proba(X), len(self.label.intercept)
        others = list_margins(table, self.cell_model.classes_, n_classes, self.n_groups)
        return join(self.label, self.group, own, others)


def as_margin(score: np.ndarray, known: bool) -> np.ndarray:
    """Return log odds of probabilities, (n_samples, 1), or logarithms of those of every class.

    Scores of another kind are returned as they are.
    """
    if known:
        score = score.clip(LEAST, 1.0 - LEAST)
        score = logit(score) if score.ndim == 1 else np.log(score)
    return np.asarray(score.reshape(len(score), -1))


def list_margins(
    table: np.ndarray, classes: np.ndarray, n_classes: int, n_groups: int
) -> np.ndarray:
    """Return margins of the groups by class, as `ask_trees` does, from P(class, group)."""
    joint = np.full((len(table), n_classes * n_groups), LEAST)
    joint[:, np.asarray(classes, dtype=np.int64)] += table
    margin = np.log(joint.reshape(-1, n_classes, n_groups)).transpose(1, 0, 2)
    return np.asarray(margin[..., 1:] - margin[..., :1] if n_groups == 2 else margin)


@dataclass(frozen=True, eq=False)
class Learnt:
    """What the trees say of training rows that they have not seen, and the trees of all rows."""

    guesser: Guesser | Behind
    chance: np.ndarray
    weight: np.ndarray
    cells: np.ndarray
    rows: np.ndarray


@method("linear_post")
@dataclass(kw_only=True, eq=False, repr=False)
class LinearPost(TreesOfBlocks, Classifier):
    """Thresholds on the inferred label and group, which need no group to decide.

    max_h  E[Σ_k g_k(X) h_k(X)]   subject to   max_a r_ea(h) − min_a r_ea(h) ≤ ε  for each event e,
    r_ea(h) = E[h_k(X) P(A = a, Y ∈ J | X)] / P(A = a, Y ∈ J),  e = (J, k),

    where g_k is the objective's expected gain of decision k, and an event is one decision k and the
    rows of some labels J. Of two classes k is 1; of more every class is one. The best h is linear
    in the probabilities: h(x) = argmax_k g_k(x) − Σ λ_ea P(A = a, Y ∈ J | x)/P(A = a, Y ∈ J), the
    sum over the events of k. Boosted trees learn P(Y | X), and P(A | X, Y) with the label as a
    further feature; λ is the optimum for their probabilities on rows that were held out, calibrated
    there.

    Parameters
    ----------
    estimator : estimator or None
        A classifier of any library, of several classes with a ``predict_proba``, in place of the
        trees for P(Y | X); a copy of it with a ``predict_proba`` learns class and group, with one
        class for every pair, and gives P(A | X, Y). It takes the rows as they are.
    prefit, cv
        As in `PostProcessor`: whether the estimator is fitted, and the folds.
    criterion : {"parity", "equal_opportunity", "predictive_equality", "equalized_odds"}
        Which rows J make the events: all; those of class k (true positive rates); those of other
        classes (false positive rates); each class for itself.
    objective : {"accuracy", "balanced_accuracy"} or mapping
        What is maximised; a mapping is ``{"costs": {"false_positive": 1, "false_negative": 5}}``,
        of two classes.
    bound : float
        ε, from 0 to 1: largest difference between two groups, by the inferred groups.
    attributes : int, list of int or None
        Columns of ``sensitive_features`` whose cross product makes the groups; None crosses all. A
        study's YAML may name them.
    folds : int
        Parts of the training rows that are held out in turn; 2 or more.
    **parameters
        Those of `TreesOfBlocks`, of both kinds of trees, 4 deep and with a rate of 0.1 by default.
    random_state : int
        Draws the folds, too.

    Attributes
    ----------
    guesser_ : Guesser or Behind
        The trees or estimators, fitted on all rows, and what calibrates them.
    cells_ : ndarray of int64, shape (n_groups, n_attributes)
        The combinations of codes that make the groups, in ascending order.
    price_ : ndarray of float64, shape (n_events, n_groups)
        λ/P(A = a, Y ∈ J), by decision and then by label; 0 for groups without a row in an event,
        which are not bounded there.
    gain_ : ndarray of float64, shape (2,) or (n_classes,)
        Of two classes the gain of decision 1 on a row of class 0, below 0, and of class 1, above;
        2 apart. Of more that of a right decision on a row of each class.
    report_ : dict
        ``dual_value``, above the gain of every rule within the bound; ``gap``, its distance from
        the optimum, which is more than 1e-5, or 3e-5 of several classes, where ``iterations`` of
        the solver were too few; ``value`` and ``difference`` of this rule, by the probabilities.
        Not saved.

    Notes
    -----
    (folds + 1) fits of boosting and as many with a tree for each group, 1 for two groups; settings
    of one table that differ in criterion, objective and bound share them in a study. O(n) for λ,
    some milliseconds; of 5 classes and 4 groups within seconds for 100,000 rows, but for odds that
    are equal exactly. The bound holds as far as the probabilities are right, and up to rows of
    equal features: that it holds on others is not guaranteed. ``predict_proba`` is a score whose
    order and side of 1/2 count, of several classes the largest; it is no probability of a class.

    References
    ----------
    R. Xian, H. Zhao. A unified post-processing framework for group fairness in classification.
    2024. A. K. Menon, R. C. Williamson. The cost of fairness in binary classification. FAT* 2018.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    constrains_decisions: ClassVar[bool] = True
    weights_are_counts: ClassVar[bool] = False  # repeated rows are other folds
    batched: ClassVar[bool] = True
    across_splits: ClassVar[bool] = False
    group_parameters: ClassVar[tuple[str, ...]] = ("attributes",)
    plain: ClassVar[str] = "gbdt"
    paper: ClassVar[str] = "Xian and Zhao, A unified post-processing framework, 2024"
    example: ClassVar[Mapping[str, Any]] = {"n_estimators": 5, "max_depth": 3, "folds": 3}

    guesser_: Guesser | Behind = field(init=False)
    cells_: np.ndarray = field(init=False)
    price_: np.ndarray = field(init=False)
    gain_: np.ndarray = field(init=False)
    report_: dict[str, Any] = field(init=False)

    estimator: Any = field(default=None, kw_only=False)
    prefit: bool = False
    cv: Any = None
    criterion: Criterion = "equalized_odds"
    objective: Objective = "accuracy"
    bound: float = 0.05
    attributes: Attributes = None
    folds: int = 3
    max_depth: int = 4
    learning_rate: float = 0.1

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        check_bound(self)
        self.check_objective()
        self.require("folds", self.folds >= 2, "2 or more")

    def structure(self) -> tuple[Any, ...]:
        """Return the parameters of the trees: models that share them share the trees."""
        own = self.get_params(deep=False)
        return tuple((name, own[name]) for name in sorted(own) if name not in RULE)

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
        client: Client | None = None,
    ) -> Self:
        """Learn the trees on rows X with labels y and their groups, and decide.

        X may be a Dask array, whose rows the workers of a ``client`` hold, if there is one.
        ``sensitive_features``, int64, has shape (n_samples, n_attributes). ConfigError is raised
        for invalid parameters, and for ``attributes`` that are no columns of
        ``sensitive_features``, and for costs of several classes; DataError when all rows are in one
        group; InputError for tables that are not numbers, weights of 0 alone, and one class.
        """
        if self.estimator is not None:
            self.check()
            self.decide(self._learn_behind(X, y, sensitive_features, sample_weight))
            return self
        given = dict(zip(TABLE, (X, y, sensitive_features, sample_weight), strict=True))
        type(self).fit_batch([self], [{**given, "client": client}])
        return self

    @classmethod
    def fit_batch(
        cls,
        models: Sequence[Self],
        data: Sequence[Mapping[str, Any]],
        *,
        progress: Any = None,  # noqa: ARG003
    ) -> None:
        """Fit models of one ``structure``; those whose mappings hold the same table share trees."""
        shared: dict[tuple[int, ...], Learnt] = {}
        for model, given in zip(models, data, strict=True):
            model.check()
            X, codes, weight, groups = model.read_training(**given)
            client, table = given.get("client"), tuple(id(given.get(name)) for name in TABLE)
            if table not in shared:
                cells, group = number_groups(groups, model.attributes)
                shared[table] = fit_rows(
                    partial(learn, model, y=codes, cells=cells, group=group, weight=weight),
                    X,
                    client=client,
                    name=model.name,
                    dtype=np.float32,
                    y=codes,
                    weight=weight,
                )
            model.decide(shared[table])

    def _learn_behind(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> Learnt:
        """Return what the estimator and its copy say of rows that they were not trained on."""
        with explaining():
            check_consistent_length(X, y, groups, sample_weight)
            validate_data(self, X, skip_check_array=True)
        scored = score_training(self, X, y, groups, sample_weight)
        codes = scored.codes
        weight = training_weight(sample_weight, len(codes))
        cells, group = number_groups(groups, self.attributes)
        copy, cell = unfreeze(self.estimator), codes * len(cells) + group
        if not hasattr(copy, "predict_proba"):
            raise ConfigError(
                f"{name_estimator(copy)} has no predict_proba, by which groups are inferred.",
                "Wrap it in CalibratedClassifierCV, for example.",
            )
        keywords = list_fit_keywords(
            copy,
            name_estimator(copy),
            sample_weight=None if sample_weight is None else weight,
            sensitive_features=groups,
        )
        with warnings.catch_warnings():
            # Pairs of few rows may lack in a fold: they are as good as impossible there.
            warnings.simplefilter("ignore")
            folds = max(2, min(5, int(np.bincount(cell).max()))) if self.cv is None else self.cv
            model, table = cross_fit(copy, X, cell, "predict_proba", folds, keywords)
        own, others = (
            as_margin(scored.score, scored.probability),
            list_margins(table, np.unique(cell), self.classes_.size, len(cells)),
        )
        maps = fit_maps(own, others, codes, group, weight)
        return Learnt(
            guesser=Behind(scored.estimator, model, choose_asked(self), len(cells), *maps),
            chance=join(*maps, own, others),
            weight=weight,
            cells=cells,
            rows=np.bincount(cell, weight, maps[0].intercept.size * len(cells)).reshape(
                -1, len(cells)
            ),
        )

    def decide(self, learnt: Learnt) -> None:
        """Set the trees, and the best rule for what they say of the held-out rows."""
        self.guesser_, self.cells_ = learnt.guesser, learnt.cells
        self.gain_, self.price_, self.report_ = self._solve(learnt)

    def _solve(self, learnt: Learnt) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Return gains, prices and the report of the best rule on the held-out rows."""
        chance, weight = learnt.chance, learnt.weight / learnt.weight.sum()
        class_share, n_classes = weight @ chance.sum(axis=2), chance.shape[1]
        costs = read_costs(self.objective)
        balanced = self.objective == "balanced_accuracy"
        if n_classes > 2:
            self.require("objective", costs is None, "a name where there are several classes")
            gain = 1.0 / (n_classes * class_share) if balanced else np.ones(n_classes)
        else:
            alarm, miss = 1.0 / class_share if balanced else costs or (1.0, 1.0)
            gain = np.array([-alarm, miss]) * 2.0 / (alarm + miss)
        events = list_events(self.criterion, n_classes)
        labels = list(dict.fromkeys(among for among, _ in events))
        place = [labels.index(among) for among, _ in events]
        # A cell without a row has no rate to be bounded.
        kept = np.array([learnt.rows[list(among)].sum(axis=0) > 0 for among in labels])
        cell = np.stack([chance[:, list(among)].sum(axis=1) for among in labels], axis=1)
        mass = np.where(kept, np.einsum("n,nek->ek", weight, cell), np.inf)
        column = np.cumsum(kept).reshape(kept.shape) - 1
        event, group = np.nonzero(kept[place])
        problem = RateProblem(
            gain=gain_decisions(chance, gain),
            share=(cell / mass)[:, kept],
            column=column[place][event, group],
            decision=np.array([decision for _, decision in events])[event],
            event=event,
            weight=weight,
            bound=self.bound,
        )
        optimum = solve_rates(problem, *([TOLERANCE] if n_classes > 2 else []))
        price = np.zeros((len(events), len(learnt.cells)))
        price[event, group] = optimum.price
        report = {
            "dual_value": optimum.value,
            "gap": optimum.gap,
            "iterations": optimum.iterations,
            "value": optimum.attained,
            "difference": optimum.difference,
        }
        return gain, price / mass[place], report

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return (1 − s, s) with scores s in (0, 1) that are above 1/2 where 1 is decided.

        Of several classes the largest score is that of the decision.
        """
        rows = X if isinstance(vars(self).get("guesser_"), Behind) else self.validate_rows(X)
        chance = self.guesser_.guess(rows, self.n_jobs)
        margin = gain_decisions(chance, self.gain_)
        events = list_events(self.criterion, chance.shape[1])
        for (among, decision), price in zip(events, self.price_, strict=True):
            margin[:, decision] -= chance[:, list(among)].sum(axis=1) @ price
        if chance.shape[1] > 2:
            return np.asarray(softmax(2.0 * margin, axis=1))
        score = expit(2.0 * margin[:, 1])
        return np.stack([1.0 - score, score], axis=1)

    def try_prediction(self) -> None:
        """Predict rows of zeros; estimators take rows of kinds that are not known here."""
        if not isinstance(self.guesser_, Behind):
            super().try_prediction()

    def get_state(self) -> State:
        """Return the trees, regressions, groups and prices."""
        guesser = self.guesser_
        maps = {"label": guesser.label, "group": guesser.group}
        arrays = {f"{name}_{key}": value for name, each in maps.items()
                  for key, value in vars(each).items()}  # fmt: skip
        arrays |= {"cells": self.cells_, "price": self.price_, "gain": self.gain_}
        if isinstance(guesser, Behind):
            models = {"label": unfreeze(guesser.label_model), "cell": guesser.cell_model}
            return State(arrays=arrays, learners=models)
        return State(
            arrays=arrays, boosters={"label": guesser.label_trees, "group": guesser.group_trees}
        )

    def set_state(self, state: State) -> None:
        """Restore the trees, regressions, groups and prices."""
        arrays, boosters = state.arrays, state.boosters
        maps = [
            Logistic(arrays[f"{name}_coefficient"], arrays[f"{name}_intercept"])
            for name in ("label", "group")
        ]
        if state.learners:
            label, cell = state.learners["label"], state.learners["cell"]
            size = len(arrays["cells"])
            self.guesser_ = Behind(label, cell, choose_asked(self), size, *maps)
        else:
            self.guesser_ = Guesser(boosters["label"], boosters["group"], *maps)
        self.cells_, self.price_, self.gain_ = arrays["cells"], arrays["price"], arrays["gain"]


def list_events(criterion: Criterion, n_classes: int) -> list[tuple[tuple[int, ...], int]]:
    """Return of each event the labels of its rows, and the decision whose rates are compared."""
    every = tuple(range(n_classes))
    found: list[tuple[tuple[int, ...], int]] = []
    for k in every if n_classes > 2 else (1,):
        among: dict[str, list[tuple[int, ...]]] = {
            "parity": [every],
            "equal_opportunity": [(k,)],
            "predictive_equality": [tuple(j for j in every if j != k)],
            "equalized_odds": [(j,) for j in every],
        }
        found += [(each, k) for each in among[criterion]]
    return found


def gain_decisions(chance: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Return the expected gain of every decision, (n_samples, n_classes), from P(class, group)."""
    label = chance.sum(axis=2)
    if label.shape[1] > 2:
        return np.asarray(label * gain)
    return np.stack([np.zeros(len(label)), label @ gain], axis=1)


def extend(X: np.ndarray, label: np.ndarray | int, n_classes: int) -> np.ndarray:
    """Return rows with their class, or one class for all, as indicators of all but the first."""
    known = np.eye(n_classes, dtype=X.dtype)[label, 1:]
    return np.column_stack([X, np.broadcast_to(known, (len(X), n_classes - 1))])


def ask_trees(
    label: xgboost.Booster, group: xgboost.Booster, X: np.ndarray, n_classes: int, n_jobs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return margins of the class, (n_samples, 1), and by class of the groups, (K, n_samples, m).

    There is one for two classes or groups, and one for each of more.
    """

    def ask(booster: xgboost.Booster, rows: np.ndarray) -> np.ndarray:
        return predict_margins(booster, rows, n_jobs).reshape(len(rows), -1)

    given = [ask(group, extend(X, code, n_classes)) for code in range(n_classes)]
    return ask(label, X), np.stack(given)


def join(label: Logistic, group: Logistic, own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return P(class, group), (n_samples, K, n_groups), from the margins of `ask_trees`."""
    chance = label.apply(np.column_stack([own, *others]))
    given = [
        group.apply(extend(np.column_stack([margin, own]), code, len(others)))
        for code, margin in enumerate(others)
    ]
    return np.asarray(chance[:, :, None] * np.stack(given, axis=1))


def calibrate(features: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> Logistic:
    """Return the logistic regression with a penalty of 1/2 on the sum of the losses."""
    model = Linear(penalty=1.0 / float(weight.sum()))
    model.fit(features, codes, sample_weight=weight)
    return Logistic(model.coefficient_, model.intercept_)


def fit_maps(
    own: np.ndarray, others: np.ndarray, y: np.ndarray, group: np.ndarray, weight: np.ndarray
) -> tuple[Logistic, Logistic]:
    """Return what calibrates the margins of the class and of the groups on held-out rows."""
    given = others[y, np.arange(len(y))]
    return (
        calibrate(np.column_stack([own, *others]), y, weight),
        calibrate(extend(np.column_stack([given, own]), y, len(others)), group, weight),
    )


def learn(
    model: LinearPost,
    rows: Rows,
    y: np.ndarray,
    cells: np.ndarray,
    group: np.ndarray,
    weight: np.ndarray,
) -> Learnt:
    """Return trees for all rows, and what those of the other folds say of each row.

    ``rows`` have the columns y and weight, too.
    """
    parameters, rounds = tree_parameters(model), model.n_estimators
    n_classes, n_groups = model.classes_.size, len(cells)
    of_label, of_group = (
        {"objective": "multi:softprob", "num_class": size} if size > 2 else {}
        for size in (n_classes, n_groups)
    )
    rows = rows.attach(group=group)

    def grow_both(kept: np.ndarray) -> tuple[xgboost.Booster, xgboost.Booster]:
        some = rows.take(kept)
        label = grow(some, parameters | of_label, rounds)
        extended = partial(_extend, n_classes=n_classes)
        labelled = some.derive(extended, width=rows.n_features + n_classes - 1)
        both = label, grow(labelled, parameters | of_group, rounds, label="group")
        for each in (labelled, some):
            each.drop()
        return both

    drawn = derive_generator("linear_post", "fold", model.random_state).random(len(y))
    fold = np.empty(len(y), dtype=np.int64)
    fold[np.lexsort([drawn, y, group])] = np.arange(len(y)) % model.folds
    own = np.zeros((len(y), n_classes if of_label else 1))
    others = np.zeros((n_classes, len(y), n_groups if of_group else 1))
    for each in range(min(model.folds, len(y))):
        out = np.flatnonzero(fold == each)
        trees = grow_both(np.flatnonzero(fold != each))
        unseen = rows.take(out)
        asked = unseen.map(
            _ask, *(bytes(e.save_raw("ubj")) for e in trees), n_classes, model.n_jobs
        )
        margins = list(zip(*(found for found in asked if found is not None), strict=True))
        own[out], others[:, out] = np.concatenate(margins[0]), np.concatenate(margins[1], axis=1)
        unseen.drop()
    maps = fit_maps(own, others, y, group, weight)
    counted = np.zeros((n_classes, n_groups))
    np.add.at(counted, (y, group), weight)
    return Learnt(
        guesser=Guesser(*grow_both(np.arange(len(y))), *maps),
        chance=join(*maps, own, others),
        weight=weight,
        cells=cells,
        rows=counted,
    )


def _ask(
    block: Block, label: bytes, group: bytes, n_classes: int, n_jobs: int
) -> tuple[np.ndarray, np.ndarray] | None:
    if not len(block):
        return None
    label_trees, group_trees = (xgboost.Booster(model_file=bytearray(r)) for r in (label, group))
    return ask_trees(label_trees, group_trees, block.X, n_classes, n_jobs)


def _extend(block: Block, n_classes: int) -> Block:
    """Return a block whose rows have their class as further features."""
    return replace(block, X=extend(block.X, block["y"].astype(np.int64), n_classes))
