"""Rows, and an oracle that tries every predictor there is on a few of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import linprog

from fairfrontier.train.regression.classifier import FairRegressionClassifier
from fairfrontier.train.regression.estimator import FairRegression
from fairfrontier.train.regression.oracle.oracle import Costs, Response
from fairfrontier.train.regression.parity import ParityProblem, judge

SMALL = {"n_grid": 10, "iterations": 8}


@dataclass(frozen=True)
class Assignment:
    """A prediction for each kind of row."""

    level: tuple[int, ...]

    def score(self, X):
        return np.array(self.level)[X[:, 0].astype(int)]


class Enumeration:
    """The class of all functions from kinds of rows to levels, searched one by one."""

    exact = True

    def __init__(self, kind: np.ndarray, weight: np.ndarray, n_grid: int) -> None:
        self.kind, self.weight, self.n_grid = kind, weight, n_grid
        self.all = np.array(list(product(range(n_grid + 1), repeat=int(kind.max()) + 1)))

    def scores(self) -> np.ndarray:
        return self.all[:, self.kind] / self.n_grid

    def respond(self, costs: Costs) -> Response:
        rows = costs.total.reshape(-1, costs.total.shape[-1])[costs.cell]
        by_kind = np.zeros((self.all.shape[1], rows.shape[1]))
        np.add.at(by_kind, self.kind, rows * self.weight[:, None])
        value = by_kind[np.arange(self.all.shape[1]), self.all].sum(axis=1)
        best = int(np.argmin(value))
        return Response(Assignment(tuple(self.all[best])), self.scores()[best])


def solve_over_all(problem: ParityProblem, oracle: Enumeration) -> float:
    """Return the least loss of a mixture of all predictors within the budgets."""
    judged = [judge(problem, score) for score in oracle.scores()]
    loss = np.array([each for each, _ in judged])
    parity = np.stack([each.ravel() for _, each in judged])
    bound = np.tile(np.repeat(problem.budget, problem.n_grid), 2)
    found = linprog(
        loss,
        A_ub=np.vstack([parity.T, -parity.T]),
        b_ub=bound,
        A_eq=np.ones((1, loss.size)),
        b_eq=[1.0],
    )
    return float(found.fun)


def draw_rows(n: int = 200, seed: int = 0, n_groups: int = 2):
    """Draw features, labels in [0, 1] and groups that shift both."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.arange(n) % n_groups)
    X = rng.normal(size=(n, 4)) + 0.6 * group[:, None] * np.array([1.0, 0.0, 0.5, 0.0])
    y = 1 / (1 + np.exp(-(X @ np.array([0.8, -0.5, 0.4, 0.0]) + rng.normal(0, 0.4, n))))
    return X, y, group


def fit(y=None, **changes):
    X, target, group = draw_rows(240)
    groups = np.stack([np.zeros_like(group), group], axis=1)
    target = target if y is None else y(target)
    kind = FairRegressionClassifier if target.dtype == np.int64 else FairRegression
    model = kind(**{"attribute": 1, "budget": 0.04, **SMALL, **changes})
    return X, groups, model.fit(X, target, groups=groups)


def classes(y):
    return (y > 0.55).astype(np.int64)
