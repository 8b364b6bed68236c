"""Boosting of trees on rows in partitions, by XGBoost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost

from fairfrontier.runtime.cluster.partition import list_blocks
from fairfrontier.train.dask.collection import place_partitions, try_twice
from fairfrontier.train.dask.collective import add_up, communicating, convene

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of a partition in XGBoost's own precision, with the codes of their cells, if any."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    code: np.ndarray | None = None

    def __sizeof__(self) -> int:
        # Dask estimates memory and transfers by it.
        return sum(each.nbytes for each in vars(self).values() if each is not None)

    def batch(self) -> Mapping[str, np.ndarray]:
        """Return what XGBoost bins."""
        return {"data": self.X, "label": self.y, "weight": self.weight}


@dataclass(frozen=True, eq=False)
class Boosting:
    """What boosting works on in one process: bins, labels, weights and codes of its own rows.

    ``add`` sums an array over all processes.
    """

    data: xgboost.QuantileDMatrix
    y: np.ndarray
    weight: np.ndarray
    code: np.ndarray | None
    add: Callable[[np.ndarray], np.ndarray]


Grow = Callable[[Boosting], tuple[xgboost.Booster, Any]]


class Batches(xgboost.DataIter):
    """Rows, labels and weights of partitions, one after the other, as often as XGBoost asks."""

    def __init__(self, make: Callable[[], Iterator[Mapping[str, np.ndarray]]]) -> None:
        super().__init__(release_data=True)
        self.make = make
        self.batches = make()

    def next(self, input_data: Callable[..., Any]) -> bool:
        """Hand over the next batch, if there is one."""
        batch = next(self.batches, None)
        if batch is not None:
            input_data(**batch)
        return batch is not None

    def reset(self) -> None:
        """Begin anew."""
        self.batches = self.make()


def bin_rows(
    make: Callable[[], Iterator[Mapping[str, np.ndarray]]], n_jobs: int, max_bin: int = 256
) -> xgboost.QuantileDMatrix:
    """Return the bins of batches of XGBoost's ``data``, ``label`` and ``weight``, a byte a cell."""
    return xgboost.QuantileDMatrix(Batches(make), max_bin=max_bin, nthread=n_jobs)


def boost_partitions(
    grow: Grow,
    X: Any,
    y: np.ndarray,
    weight: np.ndarray,
    code: np.ndarray | None = None,
    *,
    client: Client | None,
    name: str,
    n_jobs: int = 1,
    max_bin: int = 256,
) -> tuple[xgboost.Booster, Any]:
    """Boost on a Dask array X of shape (n_samples, n_features), float64 or float32.

    ``y``, int64 or float64, ``weight``, float64, and ``code``, int64, have shape (n_samples,).
    ``grow`` makes trees, and whatever else is the same in all processes, of a `Boosting`. With a
    ``client`` each worker holds its rows in 32 bits, 4 n d bytes over all of them, and their bins,
    n d bytes; it boosts in step with the others (`convene`). Without one, this process reads
    partition by partition, some times, and holds the bins alone. ``name`` is the method's, for
    errors; ClusterError is raised when a worker was lost, and again at a second try.

    Trees are those of the rows in memory to rounding where no feature has more than ``max_bin``
    values, which ``grow`` is told, too; else the bins are approximate quantiles that depend on the
    partitions.
    """
    if client is None:
        import dask

        blocks = list_blocks(X)
        ends = np.cumsum(X.chunks[0])

        def make() -> Iterator[Mapping[str, np.ndarray]]:
            for block, end in zip(blocks, ends, strict=True):
                (rows,) = dask.compute(block)
                here = slice(end - len(rows), end)
                yield make_block(0, rows, y[here], weight[here]).batch()

        return grow(Boosting(bin_rows(make, n_jobs, max_bin), y, weight, code, np.asarray))

    def fit(workers: Client) -> tuple[xgboost.Booster, Any]:
        names = ("y", "sample_weight", "codes")
        placed = place_partitions(make_block, (X, y, weight, code), names=names, client=workers)
        try:
            raw, more = placed.call(_boost, convene(placed), grow, n_jobs, max_bin)[0]
            return xgboost.Booster(model_file=bytearray(raw)), more
        finally:
            placed.release()

    return try_twice(fit, client, name=name, arrays=(X,))


def grow_plainly(parameters: Mapping[str, Any], rounds: int) -> Grow:
    """Return what boosts with XGBoost's native parameters."""
    return partial(_grow_plainly, dict(parameters), rounds)


def make_block(
    number: int,  # noqa: ARG001
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    code: np.ndarray | None = None,
) -> Block:
    """Return a partition in 32 bits."""
    rows = None if code is None else np.asarray(code)
    return Block(np.asarray(X, dtype=np.float32), np.asarray(y), np.asarray(weight), rows)


def _grow_plainly(
    parameters: Mapping[str, Any], rounds: int, given: Boosting
) -> tuple[xgboost.Booster, None]:
    return xgboost.train(dict(parameters), given.data, rounds), None


def _boost(
    blocks: Sequence[Block], peers: Mapping[str, Any], grow: Grow, n_jobs: int, max_bin: int
) -> tuple[bytes, Any]:
    """Return the trees and what else was made, of which all workers have the same."""
    y, weight = (np.concatenate([getattr(b, name) for b in blocks]) for name in ("y", "weight"))
    code = None if blocks[0].code is None else np.concatenate([b.code for b in blocks])
    with communicating(**peers):
        data = bin_rows(lambda: (block.batch() for block in blocks), n_jobs, max_bin)
        booster, more = grow(Boosting(data, y, weight, code, add_up))
    return bytes(booster.save_raw("ubj")), more
