"""Fair decisions by other libraries, run by the Python of an environment that has them: PEER.

Knows nothing of this project. Reads lines "IN.npz OUT.npz" until there are no more, and answers
each with a line once OUT is written. IN holds ``criteria``, ``objectives``, ``budgets``,
``threads``, and arrays ``X_PART``, ``y_PART``, ``group_PART`` and ``score_PART_OBJECTIVE`` of the
parts train, calibration, validation and test; `decide_all` says what OUT holds.
"""

from __future__ import annotations

import inspect
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

Given = dict[str, Any]
# From the name of a part to the probability of decision 1.
Rule = Callable[[str], np.ndarray]

TREES = {"n_estimators": 300, "max_depth": 4, "learning_rate": 0.1}
# A reduction trains up to four models in each iteration.
REDUCED = {"n_estimators": 50, "max_depth": 4, "learning_rate": 0.3}
ITERATIONS = 5


def weigh_costs(y: np.ndarray, objective: str) -> tuple[float, float]:
    """Return the costs of a false positive and a false negative."""
    if objective == "accuracy":
        return 1.0, 1.0
    return 0.5 / (1.0 - y.mean()), 0.5 / y.mean()


def fit_fairlearn(given: Given, criterion: str, objective: str) -> Iterator[Rule]:
    """Yield ThresholdOptimizer's rules, which are relaxed to a budget but for equalized odds."""
    from fairlearn.postprocessing import ThresholdOptimizer
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Passage(ClassifierMixin, BaseEstimator):
        """A fitted model whose prediction is the one column it is given."""

        def __sklearn_is_fitted__(self) -> bool:
            return True

        def fit(self, X: np.ndarray, y: np.ndarray) -> Passage:  # noqa: ARG002
            return self

        def predict(self, X: np.ndarray) -> np.ndarray:
            return np.asarray(X)[:, 0]

    names = {
        "parity": "demographic_parity",
        "equal_opportunity": "true_positive_rate_parity",
        "equalized_odds": "equalized_odds",
    }

    def decide(optimiser: Any, part: str) -> np.ndarray:
        score, group = given[f"score_{part}"], given[f"group_{part}"]
        return optimiser._pmf_predict(score[:, None], sensitive_features=group)[:, 1]

    for budget in [0.0] if criterion == "equalized_odds" else given["budgets"]:
        optimiser = ThresholdOptimizer(
            estimator=Passage(),
            constraints=names[criterion],
            objective=f"{objective}_score",
            prefit=True,
            predict_method="predict",
            tol=float(budget) or None,
        )
        optimiser.fit(
            given["score_calibration"][:, None],
            given["y_calibration"],
            sensitive_features=given["group_calibration"],
        )
        yield partial(decide, optimiser)


def expect(rule: Any, score: np.ndarray) -> np.ndarray:
    """Return the probability of decision 1 of an error-parity classifier of one group."""
    from error_parity import classifiers

    if isinstance(rule, classifiers.RandomizedClassifier):
        pairs = zip(rule.probabilities, rule.classifiers, strict=True)
        return sum(p * expect(each, score) for p, each in pairs)
    if isinstance(rule, classifiers.BinaryClassifierAtROCDiagonal):
        return np.full(len(score), rule.target_fpr)
    if isinstance(rule, classifiers.BinaryClassifier):
        return rule(score)
    # A function that draws with a probability of its own, whatever the row.
    return np.full(len(score), inspect.getclosurevars(rule).nonlocals["fpr_rand"])


def fit_error_parity(given: Given, criterion: str, objective: str) -> Iterator[Rule]:
    """Yield RelaxedThresholdOptimizer's rules."""
    from error_parity import RelaxedThresholdOptimizer

    names = {
        "parity": "demographic_parity",
        "equal_opportunity": "true_positive_rate_parity",
        "equalized_odds": "equalized_odds",
    }
    y = given["y_calibration"]
    alarm, miss = weigh_costs(y, objective)

    def decide(optimiser: Any, part: str) -> np.ndarray:
        score, group = given[f"score_{part}"], given[f"group_{part}"]
        probability = np.full(len(score), np.nan)
        for level, rule in optimiser._realized_classifier.group_to_clf.items():
            probability[group == level] = expect(rule, score[group == level])
        return probability

    for budget in given["budgets"]:
        optimiser = RelaxedThresholdOptimizer(
            predictor=lambda score: score,
            constraint=names[criterion],
            tolerance=float(budget),
            false_pos_cost=alarm,
            false_neg_cost=miss,
        )
        optimiser.fit(given["score_calibration"], y, group=given["group_calibration"])
        yield partial(decide, optimiser)


def read_oxonfair(criterion: str, objective: str) -> tuple[Any, Any]:
    """Return OxonFair's objective and what is bounded, by default a largest difference."""
    from oxonfair import group_metrics

    if " " in criterion:
        # A form and a rate, as "min_ratio pos_pred_rate".
        form, rate = criterion.split()
        return getattr(group_metrics, objective), getattr(getattr(group_metrics, rate), form)
    bounded = {
        "parity": group_metrics.pos_pred_rate.max_diff,
        "equal_opportunity": group_metrics.true_pos_rate.max_diff,
        "equalized_odds": group_metrics.equalized_odds_max,
    }
    return getattr(group_metrics, objective), bounded[criterion]


def follow_frontier(
    predictor: Any,
    given: Given,
    rows: Callable[[str], dict[str, Any]],
    *metrics: Any,
    at_least: bool | None = None,
) -> Iterator[Rule]:
    """Yield the rules of one OxonFair frontier, computed once."""

    def decide(offset: np.ndarray, part: str) -> np.ndarray:
        predictor.offset = offset
        return np.asarray(predictor.predict(rows(part)), dtype=float)

    for i, budget in enumerate(given["budgets"]):
        predictor.fit(*metrics, float(budget), recompute=i == 0, greater_is_better_const=at_least)
        yield partial(decide, predictor.offset.copy())


def fit_oxonfair(given: Given, criterion: str, objective: str) -> Iterator[Rule]:
    """Yield OxonFair's thresholds by group."""
    from oxonfair import FairPredictor

    def rows(part: str) -> dict[str, Any]:
        score = given[f"score_{part}"]
        return {
            "data": np.column_stack([1 - score, score]),
            "target": given[f"y_{part}"],
            "groups": given[f"group_{part}"],
        }

    predictor = FairPredictor(None, rows("calibration"))
    at_least = criterion.startswith("min") if " " in criterion else None
    metrics = read_oxonfair(criterion, objective)
    yield from follow_frontier(predictor, given, rows, *metrics, at_least=at_least)


def fit_inferred(given: Given, criterion: str, objective: str) -> Iterator[Rule]:
    """Yield OxonFair's thresholds by groups that a second model infers."""
    from oxonfair import FairPredictor
    from xgboost import XGBClassifier

    threads = int(given["threads"])
    groups = XGBClassifier(**TREES, n_jobs=threads).fit(given["X_train"], given["group_train"])
    inferred = {part: groups.predict_proba(given[f"X_{part}"]) for part in PARTS}

    # The scores and the inferred groups of a part stand in for its features.
    def rows(part: str) -> dict[str, Any]:
        score = given[f"score_{part}"]
        return {
            "data": np.column_stack([1 - score, score, inferred[part]]),
            "target": given[f"y_{part}"],
            "groups": given[f"group_{part}"],
        }

    predictor = FairPredictor(
        lambda data: data[:, :2], rows("calibration"), inferred_groups=lambda data: data[:, 2:]
    )
    yield from follow_frontier(predictor, given, rows, *read_oxonfair(criterion, objective))


def stack_training(given: Given) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and groups of train and calibration together."""
    names = ("X", "y", "group")
    return tuple(np.concatenate([given[f"{name}_{part}"] for part in PARTS[:2]]) for name in names)


def fit_reductions(given: Given, criterion: str, objective: str) -> Iterator[Rule]:
    """Yield fairlearn's exponentiated gradients on XGBoost, for every second budget."""
    from fairlearn import reductions
    from xgboost import XGBClassifier

    constraints = {
        "parity": reductions.DemographicParity,
        "equal_opportunity": reductions.TruePositiveRateParity,
        "equalized_odds": reductions.EqualizedOdds,
    }
    X, y, group = stack_training(given)
    alarm, miss = weigh_costs(y, objective)

    def decide(reduction: Any, part: str) -> np.ndarray:
        return reduction._pmf_predict(given[f"X_{part}"])[:, 1]

    for budget in given["budgets"][::2]:
        reduction = reductions.ExponentiatedGradient(
            XGBClassifier(**REDUCED, n_jobs=int(given["threads"])),
            constraints[criterion](difference_bound=max(float(budget), 1e-3)),
            objective=reductions.ErrorRate(costs={"fp": alarm, "fn": miss}),
            max_iter=ITERATIONS,
        )
        reduction.fit(X, y, sensitive_features=group)
        yield partial(decide, reduction)


def fit_fairgbm(given: Given, criterion: str, objective: str) -> Iterator[Rule]:
    """Yield FairGBM's boosted trees, which know no parity."""
    from fairgbm import FairGBMClassifier

    kinds = {"equal_opportunity": "FNR", "equalized_odds": "FPR,FNR"}
    if criterion not in kinds:
        return
    X, y, group = stack_training(given)
    if objective == "balanced_accuracy":
        # It takes no weights: rows of the rarer class are repeated instead.
        rare = y == (y.mean() < 0.5)
        times = np.where(rare, (~rare).sum() / rare.sum(), 1.0)
        times = np.floor(times + np.random.default_rng(0).random(len(y))).astype(int)
        X, y, group = (np.repeat(column, times, axis=0) for column in (X, y, group))

    def decide(model: Any, part: str) -> np.ndarray:
        return (model.predict_proba(given[f"X_{part}"])[:, 1] > 0.5).astype(float)

    for budget in given["budgets"]:
        model = FairGBMClassifier(
            **TREES,
            num_leaves=16,
            constraint_type=kinds[criterion],
            constraint_fpr_tolerance=float(budget),
            constraint_fnr_tolerance=float(budget),
            n_jobs=int(given["threads"]),
            random_state=0,
        )
        model.fit(X, y, constraint_group=group)
        yield partial(decide, model)


PARTS = ("train", "calibration", "validation", "test")
PEERS = {
    "fairlearn": fit_fairlearn,
    "error-parity": fit_error_parity,
    "oxonfair": fit_oxonfair,
    "oxonfair-inferred": fit_inferred,
    "fairlearn-reductions": fit_reductions,
    "fairgbm": fit_fairgbm,
}


def decide_all(
    given: Given, fit: Callable[[Given, str, str], Iterator[Rule]]
) -> dict[str, np.ndarray]:
    """Return the decisions of one contender, by its function from IN to a rule for every budget.

    Returns
    -------
    dict of ndarray
        ``validation``, ``test``: P(decision 1), (n_criteria, n_objectives, n_budgets, n_samples),
        NaN where there is no rule. ``seconds`` of the fits for all budgets, (n_criteria,
        n_objectives), NaN where the contender has no such constraint. ``failed``: sentences.
    """
    criteria, objectives = given["criteria"].tolist(), given["objectives"].tolist()
    scored = {
        objective: given | {f"score_{part}": given[f"score_{part}_{objective}"] for part in PARTS}
        for objective in objectives
    }
    # The first fit also imports.
    with suppress(Exception):
        next(fit(scored[objectives[0]], criteria[-1], objectives[0]), None)
    shape = (len(criteria), len(objectives), len(given["budgets"]))
    decided = {
        part: np.full((*shape, len(given[f"y_{part}"])), np.nan, dtype=np.float32)
        for part in PARTS[2:]
    }
    seconds, failed = np.full(shape[:2], np.nan), []
    for i, criterion in enumerate(criteria):
        for j, objective in enumerate(objectives):
            start = time.perf_counter()
            rules, fault = [], ""
            try:
                rules.extend(fit(scored[objective], criterion, objective))
            except ImportError:
                raise
            except Exception as error:  # what one fit lacks must not end the run
                fault = f"{criterion}, {objective}: {type(error).__name__}: {error}"[:200]
                failed.append(fault)
            if rules or fault:
                seconds[i, j] = time.perf_counter() - start
            for k, rule in enumerate(rules):
                for part, probability in decided.items():
                    probability[i, j, k] = rule(part)
    return {**decided, "seconds": seconds, "failed": np.array(failed, dtype=str)}


def main(peer: str) -> None:
    """Answer the lines of standard input."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for line in sys.stdin:
        source, target = line.split()
        with np.load(source, allow_pickle=False) as given:
            np.savez(target, **decide_all(dict(given), PEERS[peer]))
        print(target, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
