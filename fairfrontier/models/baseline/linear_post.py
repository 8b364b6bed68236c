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
from fairfrontier.models.group import EVENTS, Attributes, Criterion, check_bound, number_groups
from fairfrontier.models.objective import Objective, read_costs
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.response import (
    cross_fit,
    list_fit_keywords,
    name_estimator,
    score_rows,
    score_training,
    unfreeze,
)
from fairfrontier.models.tree.boosting import TreesOfBlocks, grow, predict_margins, tree_parameters
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
# Probabilities are not taken for smaller ones.
LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class RateProblem:
    """Gains of decision 1, and what a row adds to each cell's rate.

        max_h  E[g h]   subject to   max_k E[s_ek h] − min_k E[s_ek h] ≤ ε   for each event e

    over h from 0 to 1. ``gain`` g has shape (n_samples,); ``share`` s, (n_samples, n_cells), is
    P(row in the cell)/P(cell), of mean 1; ``event``, int64 (n_cells,), says which cells are
    compared; ``weight``, (n_samples,), adds up to 1; ``bound`` is ε.
    """

    gain: np.ndarray
    share: np.ndarray
    event: np.ndarray
    weight: np.ndarray
    bound: float


@dataclass(frozen=True, eq=False)
class RateOptimum:
    """Prices λ of the cells' rates, which add up to 0 in each event.

    h = 1{g > Σ λ s} is best, but for rows on which both sides are equal. ``value``, of the dual
    problem, is what no rule within the bound exceeds, and ``gap`` is how far it may be from the
    least such value.
    """

    price: np.ndarray
    value: float
    gap: float
    iterations: int


def solve_rates(problem: RateProblem, tolerance: float = 1e-5) -> RateOptimum:
    """Minimise the dual D(λ) = E[(g − Σ λ s)₊] + ε Σ |λ|/2 by cutting planes.

    D is convex and piecewise linear: each plane touches it at the minimum of the planes before.
    Ends when that is within ``tolerance`` of the least value found. O(n m) for each plane and m
    cells, some ten planes for two groups.

    References
    ----------
    J. E. Kelley. The cutting-plane method for solving convex programs. SIAM Journal 8, 1960.
    """
    n_cells = problem.share.shape[1]
    cost = np.append(np.full(2 * n_cells, problem.bound / 2.0), 1.0)
    balanced = problem.event == np.unique(problem.event)[:, None]
    fixed = np.column_stack([balanced, -balanced.astype(float), np.zeros(len(balanced))])
    box = BOX * float(np.abs(problem.gain).max())
    limits = [(0.0, box)] * (2 * n_cells) + [(0.0, None)]
    price, best, gap = np.zeros(n_cells), np.zeros(n_cells), np.inf
    least, planes, heights = np.inf, list[np.ndarray](), list[float]()
    while gap > tolerance and len(planes) < MOST_PLANES:
        margin = problem.gain - problem.share @ price
        chosen = problem.weight * (margin > 0)
        surplus = float(chosen @ margin)
        value = surplus + problem.bound / 2.0 * float(np.abs(price).sum())
        if value < least:
            least, best = value, price
        slope = -chosen @ problem.share
        planes.append(np.concatenate([slope, -slope, [-1.0]]))
        heights.append(float(slope @ price) - surplus)
        found = linprog(
            cost,
            A_ub=np.array(planes),
            b_ub=np.array(heights),
            A_eq=fixed,
            b_eq=np.zeros(len(fixed)),
            bounds=limits,
        )
        price = found.x[:n_cells] - found.x[n_cells:-1]
        gap = least - found.fun
    return RateOptimum(best, least, max(gap, 0.0), len(planes))


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
        """Return P(class, group), float64, shape (n_samples, 2, n_groups)."""
        margins = ask_trees(self.label_trees, self.group_trees, X, n_jobs)
        return join(self.label, self.group, *margins)


@dataclass(frozen=True, eq=False)
class Behind:
    """What an estimator says of the class, and a copy of it of class and group, in place of trees.

    The copy learns 2 n_groups classes, the class's code times n_groups and the group's.
    """

    label_model: Any
    cell_model: Any
    positive: Any
    n_groups: int
    label: Logistic
    group: Logistic

    def guess(self, X: Any, n_jobs: int) -> np.ndarray:  # noqa: ARG002
        """Return P(class, group) as `Guesser.guess` does."""
        name = name_estimator(self.label_model)
        own = as_margin(*score_rows(self.label_model, X, self.positive, name))
        table = self.cell_model.predict_proba(X)
        others = list_margins(table, self.cell_model.classes_, self.n_groups)
        return join(self.label, self.group, own, others)


def as_margin(score: np.ndarray, known: bool) -> np.ndarray:
    """Return log odds of probabilities, or scores as they are, (n_samples, 1)."""
    return np.asarray(logit(score.clip(LEAST, 1.0 - LEAST)) if known else score)[:, None]


def list_margins(table: np.ndarray, classes: np.ndarray, n_groups: int) -> np.ndarray:
    """Return margins of the groups by class, as `ask_trees` does, from P(class, group)."""
    joint = np.full((len(table), 2 * n_groups), LEAST)
    joint[:, np.asarray(classes, dtype=np.int64)] += table
    margin = np.log(joint.reshape(-1, 2, n_groups)).transpose(1, 0, 2)
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

    max_h  E[g(X) h(X)]   subject to   max_k r_ek(h) − min_k r_ek(h) ≤ ε  for each event e,
    r_ek(h) = E[h(X) P(A = k, e | X)] / P(A = k, e),

    where g is the objective's expected gain of decision 1 and e the rows of one label, or all rows.
    The best h is linear in the probabilities: h(x) = 1{g(x) > Σ λ_ek P(A = k, e | x)/P(A = k, e)}.
    Boosted trees learn P(Y | X), and P(A | X, Y) with the label as one more feature; λ is the
    optimum for their probabilities on rows that were held out, calibrated there.

    Parameters
    ----------
    estimator : estimator or None
        A classifier of two classes, of any library, in place of the trees for P(Y | X); a copy of
        it with a ``predict_proba`` learns class and group, with one class for every pair, and gives
        P(A | X, Y). It takes the rows as they are.
    prefit, cv
        As in `PostProcessor`: whether the estimator is fitted, and the folds.
    criterion : {"parity", "equal_opportunity", "predictive_equality", "equalized_odds"}
        Which rows make the events: all; those of class 1 (true positive rates); those of class 0
        (false positive rates); each class for itself.
    objective : {"accuracy", "balanced_accuracy"} or mapping
        What is maximised; a mapping is ``{"costs": {"false_positive": 1, "false_negative": 5}}``.
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
        λ/P(A = k, e); 0 for groups without a row in an event, which are not bounded there.
    gain_ : ndarray of float64, shape (2,)
        Gain of decision 1 on a row of class 0, below 0, and of class 1, above; 2 apart.
    report_ : dict
        ``dual_value``, above the gain of every rule within the bound; ``gap``, its distance from
        the optimum; ``iterations`` of the solver. Not saved.

    Notes
    -----
    (folds + 1) fits of boosting and as many with a tree for each group, 1 for two groups; settings
    of one table that differ in criterion, objective and bound share them in a study. O(n) for λ,
    some milliseconds. The bound holds as far as the probabilities are right, and up to rows of
    equal features: that it holds on others is not guaranteed. ``predict_proba`` is a score whose
    order and side of 1/2 count; it is no probability of class 1.

    References
    ----------
    R. Xian, H. Zhao. A unified post-processing framework for group fairness in classification.
    2024. A. K. Menon, R. C. Williamson. The cost of fairness in binary classification. FAT* 2018.
    """

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
        """Learn the trees on rows X with labels y of two classes and their groups, and decide.

        X may be a Dask array, whose rows the workers of a ``client`` hold, if there is one.
        ``sensitive_features``, int64, has shape (n_samples, n_attributes). ConfigError is raised
        for invalid parameters, and for ``attributes`` that are no columns of
        ``sensitive_features``; DataError when all rows are in one group; InputError for tables that
        are not numbers, weights of 0 alone, and other than two classes.
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
            list_margins(table, np.unique(cell), len(cells)),
        )
        maps = fit_maps(own, others, codes, group, weight)
        return Learnt(
            guesser=Behind(scored.estimator, model, self.classes_[1], len(cells), *maps),
            chance=join(*maps, own, others),
            weight=weight,
            cells=cells,
            rows=np.bincount(cell, weight, 2 * len(cells)).reshape(2, -1),
        )

    def decide(self, learnt: Learnt) -> None:
        """Set the trees, and the best rule for what they say of the held-out rows."""
        self.guesser_, self.cells_ = learnt.guesser, learnt.cells
        self.gain_, self.price_, self.report_ = self._solve(learnt)

    def _solve(self, learnt: Learnt) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Return gains, prices and the report of the best rule on the held-out rows."""
        events = [[0, 1] if label is None else [label] for label in EVENTS[self.criterion]]
        chance, weight = learnt.chance, learnt.weight / learnt.weight.sum()
        class_share = weight @ chance.sum(axis=2)
        alarm, miss = read_costs(self.objective) or (1.0, 1.0)
        if self.objective == "balanced_accuracy":
            alarm, miss = 1.0 / class_share
        gain = np.array([-alarm, miss]) * 2.0 / (alarm + miss)
        # A cell without a row has no rate to be bounded.
        kept = np.array([learnt.rows[event].sum(axis=0) > 0 for event in events])
        cell = np.stack([chance[:, event].sum(axis=1) for event in events], axis=1)
        mass = np.where(kept, np.einsum("n,nek->ek", weight, cell), np.inf)
        problem = RateProblem(
            gain=chance.sum(axis=2) @ gain,
            share=(cell / mass)[:, kept],
            event=np.nonzero(kept)[0],
            weight=weight,
            bound=self.bound,
        )
        optimum = solve_rates(problem)
        price = np.zeros_like(mass)
        price[kept] = optimum.price
        report = {"dual_value": optimum.value, "gap": optimum.gap, "iterations": optimum.iterations}
        return gain, price / mass, report

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return (1 − s, s) with scores s in (0, 1) that are above 1/2 where 1 is decided."""
        rows = X if isinstance(vars(self).get("guesser_"), Behind) else self.validate_rows(X)
        chance = self.guesser_.guess(rows, self.n_jobs)
        margin = chance.sum(axis=2) @ self.gain_
        for label, price in zip(EVENTS[self.criterion], self.price_, strict=True):
            margin -= (chance.sum(axis=1) if label is None else chance[:, label]) @ price
        score = expit(2.0 * margin)
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
            self.guesser_ = Behind(label, cell, self.classes_[1], size, *maps)
        else:
            self.guesser_ = Guesser(boosters["label"], boosters["group"], *maps)
        self.cells_, self.price_, self.gain_ = arrays["cells"], arrays["price"], arrays["gain"]


def extend(X: np.ndarray, label: np.ndarray | int) -> np.ndarray:
    """Return rows with their class, or one class for all, as the last feature."""
    return np.column_stack([X, np.broadcast_to(label, len(X))])


def ask_trees(
    label: xgboost.Booster, group: xgboost.Booster, X: np.ndarray, n_jobs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return margins of the class, (n_samples, 1), and by class of the groups, (2, n_samples, m).

    There is one for two groups, and one for each of more.
    """

    def ask(booster: xgboost.Booster, rows: np.ndarray) -> np.ndarray:
        return predict_margins(booster, rows, n_jobs).reshape(len(rows), -1)

    return ask(label, X), np.stack([ask(group, extend(X, code)) for code in (0, 1)])


def join(label: Logistic, group: Logistic, own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return P(class, group), (n_samples, 2, n_groups), from the margins of `ask_trees`."""
    chance = label.apply(np.column_stack([own, *others]))
    given = [group.apply(extend(np.column_stack([others[c], own]), c)) for c in (0, 1)]
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
    given = np.where(y[:, None] == 1, others[1], others[0])
    return (
        calibrate(np.column_stack([own, *others]), y, weight),
        calibrate(extend(np.column_stack([given, own]), y), group, weight),
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
    many = {"objective": "multi:softprob", "num_class": len(cells)} if len(cells) > 2 else {}
    rows = rows.attach(group=group)

    def grow_both(kept: np.ndarray) -> tuple[xgboost.Booster, xgboost.Booster]:
        some = rows.take(kept)
        label = grow(some, parameters, rounds)
        labelled = some.derive(_extend, width=rows.n_features + 1)
        both = label, grow(labelled, parameters | many, rounds, label="group")
        for each in (labelled, some):
            each.drop()
        return both

    drawn = derive_generator("linear_post", "fold", model.random_state).random(len(y))
    fold = np.empty(len(y), dtype=np.int64)
    fold[np.lexsort([drawn, y, group])] = np.arange(len(y)) % model.folds
    own, others = np.zeros((len(y), 1)), np.zeros((2, len(y), len(cells) if many else 1))
    for each in range(min(model.folds, len(y))):
        out = np.flatnonzero(fold == each)
        trees = grow_both(np.flatnonzero(fold != each))
        unseen = rows.take(out)
        asked = unseen.map(_ask, *(bytes(e.save_raw("ubj")) for e in trees), model.n_jobs)
        margins = list(zip(*(found for found in asked if found is not None), strict=True))
        own[out], others[:, out] = np.concatenate(margins[0]), np.concatenate(margins[1], axis=1)
        unseen.drop()
    maps = fit_maps(own, others, y, group, weight)
    counted = np.zeros((2, len(cells)))
    np.add.at(counted, (y, group), weight)
    return Learnt(
        guesser=Guesser(*grow_both(np.arange(len(y))), *maps),
        chance=join(*maps, own, others),
        weight=weight,
        cells=cells,
        rows=counted,
    )


def _ask(
    block: Block, label: bytes, group: bytes, n_jobs: int
) -> tuple[np.ndarray, np.ndarray] | None:
    if not len(block):
        return None
    label_trees, group_trees = (xgboost.Booster(model_file=bytearray(r)) for r in (label, group))
    return ask_trees(label_trees, group_trees, block.X, n_jobs)


def _extend(block: Block) -> Block:
    """Return a block whose rows have their class as the last feature."""
    return replace(block, X=extend(block.X, block["y"].astype(block.X.dtype)))
