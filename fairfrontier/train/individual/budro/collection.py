"""BuDRO of Dask arrays: workers keep their rows and boost together, in step."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost

from fairfrontier.runtime.cluster.partition import hold, map_partitions
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.dask.collection import place_partitions, try_twice
from fairfrontier.train.dask.collective import add_up, communicating, convene
from fairfrontier.train.dask.placement import TIMEOUT
from fairfrontier.train.individual.budro.round import (
    Boosted,
    BoostingSetting,
    BoostingState,
    WorkerGroup,
)
from fairfrontier.train.individual.budro.rows import check_rows, take_rows
from fairfrontier.train.individual.budro.shared import Process
from fairfrontier.train.individual.budro.shared_round import SharedState
from fairfrontier.train.stopping import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client

    from fairfrontier.metric.fair_metric import FairMetric

# Seconds that one request for rounds takes, about; an interrupt waits so long.
SPELL = 10.0


@dataclass(eq=False)
class Block:
    """Rows of the partition of a number, X in XGBoost's own precision, and embedded as z."""

    number: int
    X: np.ndarray
    z: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    def __sizeof__(self) -> int:
        # Dask estimates memory and transfers by it.
        return self.X.nbytes + self.z.nbytes + self.y.nbytes + self.weight.nbytes

    def give_up(self, name: str) -> np.ndarray:
        """Return X or z, which is gone from the block then."""
        values: np.ndarray = getattr(self, name)
        # A view would keep them.
        setattr(self, name, values[:0].copy())
        return values


def fit_collection(
    setting: BoostingSetting,
    X: Any,
    y: Any,
    metric: FairMetric,
    sample_weight: Any,
    client: Client | None,
    progress: Callable[[int, int], None] | None = None,
    timeout: float = TIMEOUT,
) -> Boosted:
    """Boost on Dask arrays, with the result of a fit in one process to rounding.

    ``X`` (n_samples, n_features) stays where it is if it is persisted; otherwise its partitions are
    distributed over the workers. ``y`` and ``sample_weight`` are Dask arrays or ndarrays,
    partitioned like X. Each worker that holds rows needs a free thread. ``progress`` is called in
    this process, and ``timeout`` limits the seconds of one request to the workers.

    Raises
    ------
    ConfigError
        Without a client, for the linear programme, and for the tree method ``exact``.
    DataError
        When there is no row of a weight above 0, arrays have different lengths, labels are no
        codes, or embedded rows are not finite.
    ClusterError
        When a worker was lost, and again at the second try.

    Notes
    -----
    With ``sources`` below n each of W workers holds its rows alone; see `shared` for the memory,
    and for what sources lose by it.

    Otherwise each holds its rows of X and, of all n rows, the k embedded dimensions, labels,
    weights and losses: O(n (k + K)) memory besides its own rows. A round costs it O(n² k / W)
    operations, since it moves each W-th of the columns, and the trees of n / W rows. It exchanges
    n K losses and n_points K masses once a round, two numbers per pass over the columns (or
    stochastic step), and XGBoost's histograms; the embedded rows once a fit.

    "To rounding" has exceptions. Rows that are equally good destinations, as is common with
    discrete features, get the mass by a rule, see `tie`; but if two splits of a tree gain the same,
    XGBoost's rounding chooses, which the number of workers changes, as does the order of rows. Its
    bins are approximate if a worker has more than 2,048 values of a feature, and always with
    ``approx``.

    A request is some rounds, about ``SPELL`` seconds of them. A worker that dies ends the try
    within seconds, and the fit begins anew on fresh workers, see ``try_twice``.
    """
    if setting.solver == "linear_program":
        raise ConfigError(
            "The linear programme needs all rows in one place, and these are Dask arrays.",
            "Choose another solver, or compute the arrays.",
        )
    if setting.tree_method == "exact":
        raise ConfigError(
            "The tree method 'exact' needs all rows in one place, and these are Dask arrays.",
            "Choose hist or approx, or compute the arrays.",
        )
    arrays = (X, y, sample_weight)
    return try_twice(
        lambda workers: _fit(setting, arrays, metric, workers, progress, timeout),
        client,
        name="budro",
        arrays=arrays,
        timeout=timeout,
    )


def _fit(
    setting: BoostingSetting,
    arrays: Sequence[Any],
    metric: FairMetric,
    client: Client,
    progress: Callable[[int, int], None] | None,
    timeout: float,
) -> Boosted:
    names, sources = ("y", "sample_weight"), setting.transport.sources
    single = sources is not None and sources < arrays[0].shape[0]
    placed = place_partitions(
        make_block, arrays, (metric, single), names=names, client=client, timeout=timeout
    )
    try:
        counts = placed.call(count_rows)
        starts, total = {}, 0
        for number, size in sorted(itertools.chain.from_iterable(counts)):
            starts[number], total = total, total + size
        if not total:
            check_rows(np.zeros(0, dtype=np.int64))
        # A worker without rows would have no bins to agree on.
        placed = placed.keep([any(size for _, size in blocks) for blocks in counts])
        state = placed.make_each(begin, setting, starts, total, convene(placed))
        # Whatever is needed of the rows is in the state.
        placed.drop()
        done, count = 1, 1
        if progress is not None:
            progress(done, setting.n_estimators)
        while done < setting.n_estimators:
            count = min(count, setting.n_estimators - done)
            begun = time.monotonic()
            later = state.make_each(advance, count, convene(state))
            state.drop()
            state, seconds = later, time.monotonic() - begun
            for _ in range(count):
                done += 1
                if progress is not None:
                    progress(done, setting.n_estimators)
            count = max(1, count * 2 if seconds < SPELL / 2 else int(count * SPELL / seconds))
        boosted: Boosted = next(result for result in state.call(finish) if result is not None)
        return boosted
    finally:
        placed.release()


def make_block(
    number: int, X: Any, y: Any, sample_weight: Any, metric: FairMetric, single: bool
) -> Block:
    """Return the rows of a partition that have a weight above 0, z in ``single`` precision."""
    rows, codes, weight = take_rows(np.asarray(X, dtype=np.float64), y, sample_weight)
    z = np.asarray(metric.embed(rows), dtype=np.float32 if single else np.float64)
    return Block(number, rows.astype(np.float32), z, codes, weight)


def count_rows(blocks: Sequence[Block]) -> list[tuple[int, int]]:
    """Return the number and the rows of each of a worker's partitions."""
    return [(block.number, len(block.y)) for block in blocks]


def begin(
    blocks: Sequence[Block],
    setting: BoostingSetting,
    starts: Mapping[int, int],
    n_samples: int,
    peers: Mapping[str, Any],
) -> BoostingState:
    """Exchange what is needed of these rows with the other workers, and take the first round."""
    from xgboost.collective import get_rank, get_world_size

    filled = [block for block in blocks if len(block.y)]
    sources = setting.transport.sources
    if sources is not None and sources < n_samples:
        return _begin_shared(filled, setting, sources, peers)
    X, z, y, weight = (
        np.concatenate([getattr(block, name) for block in filled])
        for name in ("X", "z", "y", "weight")
    )
    rows = np.concatenate([starts[block.number] + np.arange(len(block.y)) for block in filled])
    table = np.zeros((n_samples, z.shape[1] + 2))
    table[rows, 0], table[rows, 1], table[rows, 2:] = y, weight, z
    with communicating(**peers):
        table = add_up(table)
        workers = WorkerGroup(get_rank(), get_world_size(), add_up, rows)
        label = table[:, 0].astype(np.int64)
        check_rows(label)
        return BoostingState(setting, X, label, table[:, 2:], table[:, 1], workers)


def _begin_shared(
    blocks: Sequence[Block], setting: BoostingSetting, sources: int, peers: Mapping[str, Any]
) -> SharedState:
    """Take the first round of rows that stay here, in single precision."""
    from xgboost.collective import get_rank, get_world_size

    y, weight = (
        np.concatenate([getattr(block, name) for block in blocks]) for name in ("y", "weight")
    )
    # Dask holds the blocks until the end, and all rows twice may be too much for a worker.
    z = np.empty((len(y), blocks[0].z.shape[1]), dtype=np.float32)
    first = 0
    for block in blocks:
        last = first + len(block.y)
        z[first:last], first = block.give_up("z"), last
    batches = [block.give_up("X") for block in blocks]
    with communicating(**peers):
        process = Process(get_rank(), get_world_size(), add_up)
        return SharedState(setting, batches, y, z, weight, process, sources)


def advance(state: BoostingState, rounds: int, peers: Mapping[str, Any]) -> BoostingState:
    """Return the state after so many rounds with the other workers."""
    with communicating(**peers):
        return state.advance(rounds)


def follow_partitions(watch: Watch, booster: xgboost.Booster, n_jobs: int) -> None:
    """Record the rounds of a booster, as `follow` does, on rows that stay in partitions.

    A pass over the rows gives the margins of as many rounds as the patience, O(n) numbers each.
    """
    X, raw = hold(watch.X), bytes(booster.save_raw("ubj"))
    while len(watch.losses) < booster.num_boosted_rounds() and not watch.is_over:
        first = len(watch.losses)
        last = min(first + watch.patience, booster.num_boosted_rounds())
        margins = map_partitions(_predict_rounds, X, (), (raw, first, last, n_jobs))
        for margin in np.concatenate(margins, axis=1):
            if not watch.is_over:
                watch.add(margin)


def _predict_rounds(X: np.ndarray, raw: bytes, first: int, last: int, n_jobs: int) -> np.ndarray:
    booster = xgboost.Booster({"nthread": n_jobs}, model_file=bytearray(raw))
    rows = xgboost.DMatrix(X, nthread=n_jobs)
    return np.stack(
        [
            booster.predict(rows, output_margin=True, iteration_range=(0, count + 1))
            for count in range(first, last)
        ]
    )


def finish(state: BoostingState) -> Boosted | None:
    """Return trees, history and number of classes from one worker; all have the same."""
    if state.workers is None or state.workers.rank:
        return None
    return state.finish()
