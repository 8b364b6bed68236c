"""Strong scaling: the same fit on 1, 2, 3 worker processes, threads fixed.

Run ``python -m benchmarks.scaling [--rows N] [--rounds T] [--tree-rows N] [--processes W ...]
[--threads K]``. BuDRO with the exact transport on rows shaped like Adult, and fair regression with
trees (``ls`` oracle, statistical parity) on rows of the same shape. Ours are so many processes of a
local Dask cluster, the peer is one of them; every process computes with K threads. The rows lie
persisted on the workers, cut into one contiguous piece for each; seconds are those of ``fit``, from
the placed rows to the model, the best of ``--repeat``, after a small fit has warmed the processes.
A further line compares one process with a fit in memory, without Dask: what distribution costs.

All fits must come to the same, or the run stops: BuDRO's η, costs and objectives of every round to
1e-6, the loss of the regression to 1e-9. BuDRO gets one feature more, with some hundred values:
without it rows tie as destinations, and broken otherwise such ties give other trees. Memory is not
measured. More processes than cores only share them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.budro import make_rows
from benchmarks.record import Record, Timed, compare, show_records, write_records
from fairfrontier.models.individual.budro.estimator import BuDRO
from fairfrontier.models.regression.estimator import FairRegression
from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.runtime.cluster.open import open_cluster
from fairfrontier.runtime.thread import count_cores, limited_threads
from fairfrontier.similarity.fair_metric import FairMetric

if TYPE_CHECKING:
    from distributed import Client

# Seconds that processes may take to come.
COMING = 120.0
Fit = Callable[..., Any]


def place(array: np.ndarray, count: int, client: Client) -> Any:
    """Return the array as one contiguous piece on each of so many workers."""
    import dask.array as da

    workers = sorted(client.nthreads())[:count]
    pieces = [
        client.persist(da.from_array(part, chunks=-1), workers=[worker])
        for part, worker in zip(np.array_split(array, count), workers, strict=True)
    ]
    return da.concatenate(pieces)


def time_fits(fit: Fit, arrays: Sequence[np.ndarray], repeat: int, **told: Any) -> Timed[Any]:
    """Return the best of some fits."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        model = fit(*arrays, **told)
        best = min(best, time.perf_counter() - start)
    return Timed(best, 0.0, model)


def measure(
    name: str,
    fit: Fit,
    arrays: Sequence[np.ndarray],
    agree: Callable[[Any, Any], None],
    *,
    client: Client,
    processes: Sequence[int],
    repeat: int,
) -> list[Record]:
    """Return the records of one fit on every number of processes.

    Parameters
    ----------
    name : str
        Of the fit.
    fit : callable
        (*arrays, client=) -> model.
    arrays : sequence of ndarray
        Rows and what belongs to them.
    agree : callable
        Raises where two models differ.
    client : distributed.Client
    processes : sequence of int
        The first is what the others are compared with.
    repeat : int
    """
    n = len(arrays[0])
    memory = time_fits(fit, arrays, repeat, client=None)
    records: list[Record] = []
    for count in processes:
        placed = [place(each, count, client) for each in arrays]
        # Imports and connections are not what is measured.
        fit(*(place(each[:200], count, client) for each in arrays), client=client)
        timed = time_fits(fit, placed, repeat, client=client)
        agree(timed.result, memory.result)
        case = f"{name}, {count} process" + "es" * (count > 1)
        if count == processes[0]:
            first = timed
            records.append(compare(case, n, timed, "in memory, no Dask", memory))
        records.append(compare(case, n, timed, f"{processes[0]} process(es)", first))
    return records


def agree_on_history(ours: BuDRO, theirs: BuDRO) -> None:
    """Stop the run where two fits of BuDRO took different ways."""
    for key in ("eta", "cost", "objective"):
        np.testing.assert_allclose(ours.history_[key], theirs.history_[key], 1e-6, err_msg=key)


def agree_on_loss(ours: FairRegression, theirs: FairRegression) -> None:
    """Stop the run where two regressions came to different losses."""
    np.testing.assert_allclose(ours.loss_, theirs.loss_, 1e-9, err_msg="loss")


def measure_budro(
    n: int, rounds: int, threads: int, *, client: Client, processes: Sequence[int], repeat: int
) -> list[Record]:
    """Return the records of BuDRO."""
    z, label, _ = make_rows(n)
    z = np.column_stack([z, np.round(np.random.default_rng(1).normal(size=n), 2)])
    metric = FairMetric(np.eye(z.shape[1]), np.eye(z.shape[1]), np.zeros((0, z.shape[1])))

    def fit(X: Any, y: Any, client: Client | None) -> BuDRO:
        model = BuDRO(n_estimators=rounds, max_depth=6, n_jobs=threads)
        return model.fit(X, y, metric=metric, client=client)

    return measure(
        f"BuDRO, {rounds} rounds", fit, (z, label), agree_on_history,
        client=client, processes=processes, repeat=repeat,
    )  # fmt: skip


def measure_trees(
    n: int, threads: int, *, client: Client, processes: Sequence[int], repeat: int
) -> list[Record]:
    """Return the records of fair regression with trees."""
    X, label, margin = make_rows(n)
    target = 1 / (1 + np.exp(-margin))
    groups = (X[:, :1] > 0).astype(np.int64) + label[:, None]

    def fit(X: Any, y: Any, groups: Any, client: Client | None) -> FairRegression:
        model = FairRegression(
            learner="xgboost", oracle="ls", budget=0.05, iterations=2,
            n_estimators=50, max_depth=6, n_jobs=threads,
        )  # fmt: skip
        return model.fit(X, y, sensitive_features=groups, client=client)

    return measure(
        "fair regression, trees", fit, (X, target, groups), agree_on_loss,
        client=client, processes=processes, repeat=repeat,
    )  # fmt: skip


def main() -> None:
    """Run the benchmark, print its table and write data/results/benchmarks/scaling.json."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=12_000, help="of BuDRO")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tree-rows", type=int, default=200_000, help="of fair regression")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=2)
    chosen = parser.parse_args()
    most = max(chosen.processes)
    config = ClusterConfig(kind="local", workers=most, threads=chosen.threads)
    with limited_threads(chosen.threads), open_cluster(config) as client:
        client.wait_for_workers(most, timeout=COMING)
        told = {"client": client, "processes": chosen.processes, "repeat": chosen.repeat}
        records = measure_budro(chosen.rows, chosen.rounds, chosen.threads, **told)
        records += measure_trees(chosen.tree_rows, chosen.threads, **told)
    title = f"scaling on {count_cores()} cores, {chosen.threads} thread(s) a process"
    show_records(title, records)
    print(write_records("scaling", records))


if __name__ == "__main__":
    main()
