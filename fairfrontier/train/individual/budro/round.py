"""BuDRO's rounds: the worst transport of the losses, then a boosting step with its weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import xgboost

from fairfrontier.runtime.arrays import Backend, as_backend, to_numpy
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.individual.budget import Budget, find_budget, measure_spread
from fairfrontier.train.individual.budro.geometry import build_geometry, keep_columns
from fairfrontier.train.individual.budro.objective import (
    balance_classes,
    boost_step,
    predict_margin,
)
from fairfrontier.train.individual.budro.search import count_operations
from fairfrontier.train.individual.budro.shared import Process
from fairfrontier.train.individual.budro.solver import Setting, WorstCases
from fairfrontier.train.stopping import Watch
from fairfrontier.train.tree.boosting import PositiveWeight, positive_weight, tree_parameters


@dataclass(frozen=True)
class BoostingSetting:
    """Parameters of `BuDRO`; ``transport`` holds those of the solvers."""

    budget: float | None
    budget_share: float
    solver: str
    variant: str
    n_estimators: int
    max_depth: int
    learning_rate: float
    reg_lambda: float
    min_child_rows: float
    scale_pos_weight: PositiveWeight
    tree_method: str
    backend: Backend
    n_jobs: int
    random_state: int
    transport: Setting


@dataclass(frozen=True, eq=False)
class Boosted:
    """Trees, and per round but the first η, cost, objective, gap and passes of the transport."""

    booster: xgboost.Booster
    history: Mapping[str, np.ndarray]
    n_classes: int
    budget: Budget

    def take(self, rounds: int) -> Self:
        """Return the first so many rounds."""
        history = {name: values[: rounds - 1] for name, values in self.history.items()}
        return replace(self, booster=self.booster[:rounds], history=history)


@dataclass(frozen=True, eq=False)
class WorkerGroup(Process):
    """A process that boosts together with others; ``rows`` are which of all rows are its own."""

    rows: np.ndarray


class BoostingState:
    """Boosting in progress, after its first round.

    Every process knows the points z, labels y, weights and losses of all rows, moves its share of
    the columns (each ``size``-th), and grows trees together with the others on its own rows X. What
    they exchange are sums: the losses, each from its row's owner; gain and cost of a map; the mass
    that arrives at each point; histograms of gradients.
    """

    def __init__(
        self,
        setting: BoostingSetting,
        X: np.ndarray,
        y: np.ndarray,
        z: np.ndarray,
        weight: np.ndarray,
        workers: WorkerGroup | None = None,
    ) -> None:
        self.setting, self.X = setting, X
        self.data: xgboost.DMatrix | None = None
        self.workers: Process | None = workers
        self.n_classes = max(2, int(y.max()) + 1)
        self.scale = scale_classes(setting, y, weight, self.n_classes)
        mass = weight / weight.sum()
        self.budget = find_budget(setting, measure_spread(z, mass))
        geometry = build_geometry(
            as_backend(z, setting.backend, work=count_operations(z)),
            y,
            n_labels=self.n_classes,
            mass=mass,
        )
        self.rows: slice | np.ndarray = slice(None)
        if workers is not None:
            number = np.arange(workers.rank, geometry.column_point.shape[0], workers.size)
            geometry = keep_columns(geometry, number, workers.add_up)
            self.rows = workers.rows
        self.worst_cases = WorstCases(
            geometry,
            self.budget.budget,
            setting.solver,
            setting.transport,
            setting.backend,
            setting.random_state,
        )
        self.start(y[self.rows], weight[self.rows], mass[self.rows], len(y))

    def start(self, y: np.ndarray, weight: np.ndarray, mass: np.ndarray, n_samples: int) -> None:
        """Take the first round, with the labels, weights and masses of this process's rows."""
        self.booster = xgboost.Booster(self._parameters(n_samples), [self._require_data()])
        if self.setting.variant == "paper":
            first = np.repeat(mass[:, None] / self.n_classes, self.n_classes, axis=1)
        else:
            first = (y[:, None] == np.arange(self.n_classes)) * weight[:, None]
        boost_step(self.booster, self._require_data(), 0, first, self.scale)
        self.iteration = 1

    def play(self) -> None:
        """Solve the transport for the present margins, and boost with its weights."""
        data = self._require_data()
        margin = self._gather(predict_margin(self.booster, data))
        weight = to_numpy(self.worst_cases.solve(margin).weight)[self.rows]
        boost_step(self.booster, data, self.iteration, weight, self.scale)
        self.iteration += 1

    def advance(self, rounds: int) -> Self:
        """Return the state after more rounds; this one must not be used any more."""
        later = copy.copy(self)
        later.data = self.data
        later.worst_cases = copy.copy(self.worst_cases)
        later.worst_cases.table = list(self.worst_cases.table)
        later._match_bins()
        for _ in range(rounds):
            later.play()
        return later

    def finish(self) -> Boosted:
        """Return the trees and the history."""
        history = self.worst_cases.read_history()
        return Boosted(self.booster, history, self.n_classes, self.budget)

    def __sizeof__(self) -> int:
        # Dask estimates memory by it.
        geometry = self.worst_cases.geometry
        arrays = (geometry.point, geometry.row_mass, geometry.column_mass)
        return int(self.X.nbytes + 5 * sum(to_numpy(array).nbytes for array in arrays))

    def __getstate__(self) -> dict[str, Any]:
        # XGBoost's matrix cannot be pickled; it is made again where it is needed.
        return {**self.__dict__, "data": None}

    def _require_data(self) -> xgboost.DMatrix:
        if self.data is None:
            self.data = self._make_data()
        return self.data

    def _make_data(self) -> xgboost.DMatrix:
        return xgboost.DMatrix(self.X, nthread=self.setting.n_jobs)

    def _match_bins(self) -> None:
        """Drop all matrices if one process has none: they agree on bins together."""
        if self.workers is not None:
            missing = self.workers.add_up(np.array([float(self.data is None)]))
            if missing[0] > 0:
                self.data = None

    def _gather(self, margin: np.ndarray) -> np.ndarray:
        """Return the margins of all rows."""
        if self.workers is None:
            return margin
        n_samples = self.worst_cases.geometry.row_point.shape[0]
        margins = np.zeros((n_samples, *margin.shape[1:]))
        margins[self.rows] = margin
        return self.workers.add_up(margins)

    def _parameters(self, n_samples: int) -> dict[str, Any]:
        setting = self.setting
        parameters = tree_parameters(
            max_depth=setting.max_depth,
            learning_rate=setting.learning_rate,
            reg_lambda=setting.reg_lambda,
            min_child_weight=setting.min_child_rows / n_samples,
            tree_method=setting.tree_method,
            base_score=0.5,
            n_jobs=setting.n_jobs,
            random_state=setting.random_state,
        )
        if self.n_classes > 2:
            parameters |= {"objective": "multi:softprob", "num_class": self.n_classes}
        return parameters


def boost(
    setting: BoostingSetting,
    X: np.ndarray,
    y: np.ndarray,
    z: np.ndarray,
    weight: np.ndarray,
    progress: Callable[[int, int], None] | None = None,
    watch: Watch | None = None,
) -> Boosted:
    """Boost on rows in memory; ``progress`` is called with (rounds done, rounds)."""
    state = BoostingState(setting, X, y, z, weight)
    rows = None if watch is None else xgboost.DMatrix(watch.X, nthread=setting.n_jobs)
    while True:
        if progress is not None:
            progress(state.iteration, setting.n_estimators)
        if watch is not None:
            follow(watch, state.booster, rows)
        if state.iteration >= setting.n_estimators or (watch is not None and watch.is_over):
            return state.finish() if watch is None else state.finish().take(watch.best)
        state.play()


def follow(watch: Watch, booster: xgboost.Booster, rows: xgboost.DMatrix) -> None:
    """Record the rounds of a booster that a watch has not seen, until it is over."""
    while len(watch.losses) < booster.num_boosted_rounds() and not watch.is_over:
        seen = (0, len(watch.losses) + 1)
        watch.add(booster.predict(rows, output_margin=True, iteration_range=seen))


def scale_classes(
    setting: BoostingSetting, y: np.ndarray, weight: np.ndarray, n_classes: int
) -> np.ndarray:
    """Return the factor on every class's weights, float64 (n_classes,).

    Raises
    ------
    ConfigError
        For a factor on class 1 where there are more than two classes.
    """
    if n_classes == 2:
        return np.array([1.0, positive_weight(setting.scale_pos_weight, y, weight)])
    if setting.scale_pos_weight == "balanced":
        return balance_classes(y, weight, n_classes)
    if setting.scale_pos_weight != 1:
        raise ConfigError(
            f"scale_pos_weight is {setting.scale_pos_weight!r}, but there are {n_classes} classes "
            "and no positive one.",
            "Give balanced or 1.",
        )
    return np.ones(n_classes)
