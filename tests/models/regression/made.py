"""Rows, and an oracle that tries every predictor there is on a few of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import linprog

from fairfrontier.models.regression.estimator import (
    FairRegression,
    FairRegressionClassifier,
    take_block,
)
from fairfrontier.models.regression.oracle import Costs
from fairfrontier.models.regression.problem import ParityProblem

SMALL = {"n_grid": 10, "iterations": 8}


@dataclass(frozen=True)
class Assignment:
    """A prediction for each kind of row."""

    value: tuple[float, ...]

    def score(self, X):
        return np.array(self.value)[X[:, 0].astype(int)]


class Enumeration:
    """The class of all functions from kinds of rows to levels, searched one by one."""

    exact = True

    def __init__(self, problem: ParityProblem) -> None:
        block = take_block(problem.rows)
        self.kind, self.weight, self.cell = block.X[:, 0].astype(int), block["share"], block["cell"]
        self.n_grid = problem.n_grid
        self.all = np.array(list(product(range(self.n_grid + 1), repeat=self.kind.max() + 1)))

    def list_all(self) -> list[Assignment]:
        return [Assignment(tuple(each / self.n_grid)) for each in self.all]

    def respond(self, costs: Costs) -> Assignment:
        rows = costs.total.reshape(-1, costs.total.shape[-1])[self.cell]
        by_kind = np.zeros((self.all.shape[1], rows.shape[1]))
        np.add.at(by_kind, self.kind, rows * self.weight[:, None])
        value = by_kind[np.arange(self.all.shape[1]), self.all].sum(axis=1)
        return self.list_all()[int(np.argmin(value))]


def solve_over_all(problem: ParityProblem, oracle: Enumeration) -> float:
    """Return the least loss of a mixture of all predictors within the budgets."""
    judged = [problem.judge(each) for each in oracle.list_all()]
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


@dataclass(frozen=True)
class Told:
    """A predictor of given values, one for each row."""

    value: np.ndarray

    def score(self, X):
        return self.value


def read(problem, name):
    """Return a column of the rows of a problem."""
    return take_block(problem.rows)[name]


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
    return X, groups, model.fit(X, target, sensitive_features=groups)


def classes(y):
    return (y > 0.55).astype(np.int64)
