"""BuDRO's rounds: the worst transport of the losses, then a boosting step with its weights.

Validation of the training rows of fair boosting, and removal of rows without weight.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import xgboost

from fairfrontier.models.individual.budget import Budget, find_budget, measure_spread
from fairfrontier.models.individual.budro.geometry import build_geometry, keep_columns
from fairfrontier.models.individual.budro.search import blocks as cut
from fairfrontier.models.individual.budro.search import count_operations
from fairfrontier.models.individual.budro.shared import (
    WEIGHED,
    Process,
    SharedRows,
    share_rows,
    solve_shared,
)
from fairfrontier.models.individual.budro.solver import (
    WorstCases,
    boost_step,
    evaluate_losses,
    predict_margin,
)
from fairfrontier.models.individual.budro.transport import Setting, Transport
from fairfrontier.models.stopping import Watch
from fairfrontier.models.tree.boosting import (
    Batches,
    PositiveWeight,
    scale_classes,
    tree_parameters,
)
from fairfrontier.runtime.arrays import Backend, as_backend, to_numpy
from fairfrontier.runtime.cluster.executor import Block, Rows, add_up, hold, open_rows
from fairfrontier.runtime.errors import ClusterError, DataError, InputError
from fairfrontier.similarity.fair_metric import FairMetric

# Seconds that one request to workers for rounds takes, about; an interrupt waits so long.
SPELL = 10.0
CODES = "Give codes 0, 1, …, K − 1 of K classes, each with a row of weight above 0."


def check_rows(codes: np.ndarray) -> None:
    """Raise DataError unless every code up to the last occurs; one code alone may be 0 or 1."""
    if not codes.size:
        raise InputError(
            "There is no row with a weight above 0: all case weights are zero.",
            "Give some rows a weight above 0.",
        )
    present = np.unique(codes)
    if present[-1] >= max(2, present.size):
        missing = int(np.setdiff1d(np.arange(present.size + 1), present)[0])
        raise DataError(
            f"The labels go up to {present[-1]}, but no row has the label {missing}.", CODES
        )


@dataclass(frozen=True, kw_only=True)
class BoostingSetting(Setting):
    """Parameters of `BuDRO`, with those of the solvers."""

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


@dataclass(frozen=True, eq=False)
class Boosted:
    """Trees, and per round but the first η, cost, objective, gap and passes of the transport."""

    booster: xgboost.Booster
    history: Mapping[str, np.ndarray]
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
            setting,
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
        """Return the trees and the history, of which all processes have the same."""
        return Boosted(self.booster, self.worst_cases.read_history(), self.budget)

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
        share = setting.min_child_rows / n_samples
        parameters = tree_parameters(setting, base_score=0.5, min_child_weight=share)
        if self.n_classes > 2:
            parameters |= {"objective": "multi:softprob", "num_class": self.n_classes}
        return parameters


class SharedCases(WorstCases):
    """The worst cases of successive rounds, of which each process has those of its rows."""

    def __init__(
        self, rows: SharedRows, budget: float, sources: int, tolerance: float, random_state: int
    ) -> None:
        self.held, self.budget, self.sources, self.tolerance = rows, budget, sources, tolerance
        self.generator = np.random.default_rng([random_state, rows.process.rank])
        self.last: Transport | None = None
        self.table: list[list[float]] = []

    def solve(self, margin: np.ndarray) -> Transport:
        """Return the worst case for the margins of this process's rows."""
        self.last = solve_shared(
            self.held,
            evaluate_losses(margin),
            self.budget,
            sources=self.sources,
            generator=self.generator,
            tolerance=self.tolerance,
            start=0.0 if self.last is None else self.last.eta,
        )
        self.add_history(self.last)
        return self.last


class SharedState(BoostingState):
    """Boosting in progress on rows of which no process has all.

    ``batches`` are this process's rows, float32 arrays one after the other, and ``z`` (n_rows, k),
    float32, the same embedded, which are centred in place. Where the tree method is ``hist``,
    batches become bins, and the list is emptied, also for the caller. What processes exchange are
    the sources of a round, the columns that are checked, a few sums, and histograms of gradients.
    """

    def __init__(
        self,
        setting: BoostingSetting,
        batches: list[np.ndarray],
        y: np.ndarray,
        z: np.ndarray,
        weight: np.ndarray,
        process: Process,
        sources: int,
    ) -> None:
        self.setting, self.batches, self.workers = setting, batches, process
        self.bin_bytes = sum(each.size for each in batches)
        finite = np.isfinite(z).all(axis=1)
        if process.add_up(np.array([float((~finite).sum())]))[0] > 0:
            raise DataError(
                "The embedding of a row is not finite.",
                "Give rows, and a metric, of finite numbers.",
            )
        self.data = None
        self._require_data()
        self.n_classes = max(2, int(process.find_largest(np.array([float(y.max())]))[0]) + 1)
        count, total = (
            process.add_up(np.bincount(y, each, minlength=self.n_classes).astype(np.float64))
            for each in (None, weight)
        )
        check_rows(np.flatnonzero(count))
        self.scale = scale_classes(setting, np.arange(self.n_classes), total, self.n_classes)
        mass = weight / total.sum()
        # A product of the whole would hold z in double precision.
        spans = cut(len(z), WEIGHED)
        z -= process.add_up(sum(mass[a:b] @ z[a:b] for a, b in spans)).astype(np.float32)
        rows = share_rows(z, y, mass, self.n_classes, sources, process)
        spread = 2.0 * float(process.add_up(np.array([mass @ rows.square]))[0])
        self.budget = find_budget(setting, spread)
        self.worst_cases = SharedCases(
            rows, self.budget.budget, sources, setting.tolerance, setting.random_state
        )
        self.rows, self.embedded_bytes = slice(None), z.nbytes
        self.start(y, weight, mass, int(count.sum()))

    def __sizeof__(self) -> int:
        kept = sum(each.nbytes for each in self.batches)
        return int(kept + self.bin_bytes + 1.5 * self.embedded_bytes)

    def __copy__(self) -> Self:
        later = object.__new__(type(self))
        vars(later).update(vars(self))
        return later

    def __getstate__(self) -> dict[str, Any]:
        if self.batches:
            return super().__getstate__()
        # Bins cannot be stored, and what cannot be stored Dask keeps in memory.
        raise ClusterError(
            "budro's rows do not fit into a worker's memory.",
            "Give the workers more memory, or choose more of them.",
        )

    def _make_data(self) -> xgboost.DMatrix:
        if self.setting.tree_method != "hist":
            return xgboost.DMatrix(np.concatenate(self.batches), nthread=self.setting.n_jobs)
        batches = Batches(lambda: ({"data": each} for each in self.batches))
        data = xgboost.QuantileDMatrix(batches, nthread=self.setting.n_jobs)
        self.batches.clear()
        return data

    def _gather(self, margin: np.ndarray) -> np.ndarray:
        return margin


def embed(block: Block, metric: FairMetric, *, single: bool) -> Block:
    """Return a block with the column z, its embedded rows, in ``single`` precision or double."""
    z = metric.embed(np.asarray(block.X, dtype=np.float64))
    z = np.asarray(z, dtype=np.float32 if single else np.float64)
    return replace(block, columns={**block.columns, "z": z})


def boost(
    setting: BoostingSetting,
    rows: Rows,
    progress: Callable[[int, int], None] | None = None,
    watch: Watch | None = None,
) -> Boosted:
    """Boost on rows, with the columns ``y``, ``weight`` and ``z`` of `embed`; they are dropped.

    ``progress`` is called with (rounds done, rounds).

    Notes
    -----
    Workers boost together, in step, with the result of one process to rounding. With ``sources``
    below n each of W workers holds its rows alone; see `shared` for the memory, and for what
    sources lose by it. Otherwise each holds its rows of X and, of all n rows, the k embedded
    dimensions, labels, weights and losses: O(n (k + K)) memory besides its own rows. A round costs
    it O(n² k / W) operations, since it moves each W-th of the columns, and the trees of n / W rows.
    It exchanges n K losses and n_points K masses once a round, two numbers per pass over the
    columns (or stochastic step), and XGBoost's histograms; the embedded rows once a fit.

    "To rounding" has exceptions. Rows that are equally good destinations, as is common with
    discrete features, get the mass by a rule, see `tie`; but if two splits of a tree gain the same,
    XGBoost's rounding chooses, which the number of workers changes, as does the order of rows. Its
    bins are approximate if a worker has more than 2,048 values of a feature, and always with
    ``approx``. A request to the workers is some rounds, about ``SPELL`` seconds of them.
    """
    team = rows.make(begin, setting, rows.n_samples, rows.remote)
    # Whatever is needed of the rows is in the state.
    rows.drop()
    told, done, count = 0, 1, 1
    while True:
        while told < done:
            told += 1
            if progress is not None:
                progress(told, setting.n_estimators)
        if watch is not None:
            follow(watch, team.together(read_booster)[0], setting.n_jobs)
        if done >= setting.n_estimators or (watch is not None and watch.is_over):
            break
        begun = time.monotonic()
        later = team.make(BoostingState.advance, count)
        team.drop()
        team, seconds, done = later, time.monotonic() - begun, done + count
        if rows.remote:
            count = max(1, count * 2 if seconds < SPELL / 2 else int(count * SPELL / seconds))
            count = min(count, setting.n_estimators - done)
    boosted: Boosted = team.together(BoostingState.finish)[0]
    return boosted if watch is None else boosted.take(watch.best)


def begin(
    blocks: Sequence[Block], setting: BoostingSetting, n_samples: int, remote: bool
) -> BoostingState:
    """Exchange what is needed of these rows with other processes, and take the first round."""
    from xgboost.collective import get_rank, get_world_size

    blocks = [block for block in blocks if len(block)]
    sources = setting.sources
    if not remote:
        [block] = blocks
        return BoostingState(setting, block.X, block["y"], block["z"], block["weight"])
    y, weight = (np.concatenate([block[name] for block in blocks]) for name in ("y", "weight"))
    if sources is not None and sources < n_samples:
        # Dask holds the blocks until the end, and all rows twice may be too much for a worker.
        z = np.empty((len(y), blocks[0]["z"].shape[1]), dtype=np.float32)
        first, batches = 0, []
        for block in blocks:
            last = first + len(block)
            z[first:last], first = block.columns.pop("z"), last
            batches.append(block.X)
            block.X = block.X[:0].copy()
        process = Process(get_rank(), get_world_size(), add_up)
        return SharedState(setting, batches, y, z, weight, process, sources)
    X, z = np.concatenate([block.X for block in blocks]), np.concatenate([b["z"] for b in blocks])
    own = np.concatenate([block.start + np.arange(len(block)) for block in blocks])
    table = np.zeros((n_samples, z.shape[1] + 2))
    table[own, 0], table[own, 1], table[own, 2:] = y, weight, z
    table = add_up(table)
    workers = WorkerGroup(get_rank(), get_world_size(), add_up, own)
    label = table[:, 0].astype(np.int64)
    return BoostingState(setting, X, label, table[:, 2:], table[:, 1], workers)


def read_booster(state: BoostingState) -> xgboost.Booster:
    """Return the trees so far, of which all processes have the same."""
    return state.booster


def follow(watch: Watch, booster: xgboost.Booster, n_jobs: int) -> None:
    """Record the rounds of a booster that a watch has not seen, until it is over.

    A pass over the rows gives the margins of as many rounds as the patience, O(n) numbers each.
    """
    rows, raw = open_rows(hold(watch.X)), bytes(booster.save_raw("ubj"))
    while len(watch.losses) < booster.num_boosted_rounds() and not watch.is_over:
        first = len(watch.losses)
        last = min(first + watch.patience, booster.num_boosted_rounds())
        margins = rows.map(_predict_rounds, raw, first, last, n_jobs)
        for margin in np.concatenate(margins, axis=1):
            if not watch.is_over:
                watch.add(margin)


def _predict_rounds(block: Block, raw: bytes, first: int, last: int, n_jobs: int) -> np.ndarray:
    booster = xgboost.Booster({"nthread": n_jobs}, model_file=bytearray(raw))
    rows = xgboost.DMatrix(block.X, nthread=n_jobs)
    return np.stack(
        [
            booster.predict(rows, output_margin=True, iteration_range=(0, count + 1))
            for count in range(first, last)
        ]
    )
