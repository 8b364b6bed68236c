"""BuDRO's rounds: the losses' worst transport, then a boosting step with the weights it gives."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import xgboost

from fairfrontier.runtime.arrays import Backend, as_backend, to_numpy
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.individual.budro.geometry import build_geometry, keep_columns
from fairfrontier.train.individual.budro.objective import (
    balance_classes,
    boost_step,
    evaluate_losses,
    predict_margin,
)
from fairfrontier.train.individual.budro.solver import Problem, Setting, solve
from fairfrontier.train.tree.boosting import PositiveWeight, positive_weight, tree_parameters

if TYPE_CHECKING:
    from fairfrontier.train.individual.budro.transport import Transport

HISTORY = ("eta", "cost", "objective", "gap", "iterations")


@dataclass(frozen=True)
class BoostingSetting:
    """How trees are boosted: parameters of `BuDRO`, see there; ``transport`` has its solvers'."""

    budget: float
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


@dataclass(frozen=True)
class WorkerGroup:
    """One of several processes that boost together, each on its own rows.

    Attributes
    ----------
    rank, size : int
        Its number, and how many there are.
    rows : int64 ndarray
        Which of all rows are its own.
    add_up : callable
        float64 ndarray -> its sum over the processes, to the same bits on each of them.
    """

    rank: int
    size: int
    rows: np.ndarray
    add_up: Callable[[np.ndarray], np.ndarray]


class BoostingState:
    """Boosting in progress.

    Every process knows the points, labels and losses of all rows, moves its share of the columns
    (each ``size``-th), and grows trees together with the others on the rows that it has. What they
    exchange are sums: the losses, each from its row's owner; gain and cost of a map; the mass that
    arrives at each point; histograms of gradients.

    Parameters
    ----------
    setting : BoostingSetting
    X : float64 ndarray of shape (n_own, n_features)
        Rows of this process, all where there is one.
    y, weight : ndarrays of shape (n_samples,)
        Labels and case weights of all rows.
    z : float64 ndarray of shape (n_samples, k)
        All rows, embedded.
    workers : WorkerGroup, optional
        The others, where there are some.

    Attributes
    ----------
    booster : xgboost.Booster
        The trees so far, the same on every process.
    iteration : int
        Rounds done; the first one is done here.
    table : list of list of float
        ``HISTORY`` of the others.

    Raises
    ------
    ConfigError
        For a factor on class 1 where there are more than two classes.
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
        self.setting, self.X, self.workers = setting, X, workers
        self.n_classes = max(2, int(y.max()) + 1)
        self.scale = scale_classes(setting, y, weight, self.n_classes)
        mass = weight / weight.sum()
        work = float(len(y)) ** 2 * z.shape[1] * setting.n_estimators
        self.geometry = build_geometry(
            as_backend(z, setting.backend, work=work), y, n_labels=self.n_classes, mass=mass
        )
        self.rows: slice | np.ndarray = slice(None)
        if workers is not None:
            number = np.arange(workers.rank, self.geometry.column_point.shape[0], workers.size)
            self.geometry = keep_columns(self.geometry, number, workers.add_up)
            self.rows = workers.rows
        self.data: xgboost.DMatrix | None = None
        self.booster = xgboost.Booster(self._parameters(len(y)), [self._require_data()])
        self.generator = np.random.default_rng(setting.random_state)
        self.found: Transport | None = None
        self.table: list[list[float]] = []
        if setting.variant == "paper":
            first = np.repeat(mass[:, None] / self.n_classes, self.n_classes, axis=1)
        else:
            first = (y[:, None] == np.arange(self.n_classes)) * weight[:, None]
        boost_step(self.booster, self._require_data(), 0, first[self.rows], self.scale)
        self.iteration = 1

    def play(self) -> None:
        """Solve the transport for the present margins, and boost with its weights."""
        data = self._require_data()
        margin = self._gather(predict_margin(self.booster, data))
        losses = as_backend(evaluate_losses(margin), self.setting.backend, work=self._work())
        problem = Problem(self.geometry, losses, self.setting.budget)
        self.found = solve(
            problem,
            self.setting.solver,
            self.setting.transport,
            start=self.found,
            generator=self.generator,
        )
        self.table.append([float(getattr(self.found, key)) for key in HISTORY])
        weight = to_numpy(self.found.weight)[self.rows]
        boost_step(self.booster, data, self.iteration, weight, self.scale)
        self.iteration += 1

    def advance(self, rounds: int) -> Self:
        """Return what so many rounds more make of this, which is of no use then."""
        later = copy.copy(self)
        later.data, later.table = self.data, list(self.table)
        later._match_bins()
        for _ in range(rounds):
            later.play()
        return later

    def finish(self) -> Boosted:
        """Return the trees and how they came about."""
        return Boosted(self.booster, self.read_history(), self.n_classes)

    def read_history(self) -> Mapping[str, np.ndarray]:
        """Return float64 arrays of shape (iteration - 1,), one for each of ``HISTORY``."""
        table = np.asarray(self.table, dtype=np.float64).reshape(-1, len(HISTORY))
        return dict(zip(HISTORY, table.T, strict=True))

    def __sizeof__(self) -> int:
        # By which Dask judges memory.
        geometry = self.geometry
        held = (geometry.point, geometry.row_mass, geometry.column_mass)
        return int(self.X.nbytes + 5 * sum(to_numpy(each).nbytes for each in held))

    def __getstate__(self) -> dict[str, Any]:
        # XGBoost's matrix cannot travel; it is made again where it is needed.
        return {**self.__dict__, "data": None}

    def _require_data(self) -> xgboost.DMatrix:
        if self.data is None:
            self.data = xgboost.DMatrix(self.X, nthread=self.setting.n_jobs)
        return self.data

    def _match_bins(self) -> None:
        """Make all matrices anew where one process has none: they agree on bins together."""
        if self.workers is not None:
            lacking = self.workers.add_up(np.array([float(self.data is None)]))
            if lacking[0] > 0:
                self.data = None

    def _gather(self, margin: np.ndarray) -> np.ndarray:
        """Return the margins of all rows."""
        if self.workers is None:
            return margin
        n_samples = self.geometry.row_point.shape[0]
        held = np.zeros((n_samples, *margin.shape[1:]))
        held[self.rows] = margin
        return self.workers.add_up(held)

    def _work(self) -> float:
        """Return the work by which losses go where the geometry is."""
        return 0.0 if isinstance(self.geometry.point, np.ndarray) else float("inf")

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
) -> Boosted:
    """Boost on rows in memory.

    Parameters
    ----------
    setting : BoostingSetting
    X, y, z, weight
        As `BoostingState`.
    progress : callable, optional
        Called with (rounds done, rounds) after each round.
    """
    state = BoostingState(setting, X, y, z, weight)
    while True:
        if progress is not None:
            progress(state.iteration, setting.n_estimators)
        if state.iteration >= setting.n_estimators:
            return state.finish()
        state.play()


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
