"""Plain boosting of trees on rows in partitions, by XGBoost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost

from fairfrontier.train.dask.collection import place_partitions, try_twice
from fairfrontier.train.dask.collective import convene

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of a partition in XGBoost's own precision."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    def __sizeof__(self) -> int:
        # Dask estimates memory and transfers by it.
        return self.X.nbytes + self.y.nbytes + self.weight.nbytes


class Batches(xgboost.DataIter):
    """Blocks one after the other, as often as XGBoost asks for them."""

    def __init__(self, make: Callable[[], Iterator[Block]]) -> None:
        super().__init__(release_data=True)
        self.make = make
        self.blocks = make()

    def next(self, input_data: Callable[..., Any]) -> bool:
        """Hand over the next block, if there is one."""
        block = next(self.blocks, None)
        if block is not None:
            input_data(data=block.X, label=block.y, weight=block.weight)
        return block is not None

    def reset(self) -> None:
        """Begin anew."""
        self.blocks = self.make()


def boost_partitions(
    parameters: Mapping[str, Any],
    rounds: int,
    X: Any,
    y: np.ndarray,
    weight: np.ndarray,
    *,
    client: Client | None,
    name: str,
) -> xgboost.Booster:
    """Boost on a Dask array X of shape (n_samples, n_features), float64 or float32.

    With a ``client`` each worker holds its rows in 32 bits, 4 n d bytes over all of them, and their
    bins, n d bytes; it boosts in step with the others (`convene`). Without one, this process reads
    partition by partition, some times, and holds the bins alone. ``name`` is the method's, for
    errors; ClusterError is raised when a worker was lost, and again at a second try.

    Trees are those of the rows in memory to rounding where no feature has more values than there
    are bins; else the bins are approximate quantiles that depend on the partitions.
    """
    if client is None:
        import dask

        blocks = X.to_delayed().reshape(-1)
        ends = np.cumsum(X.chunks[0])

        def make() -> Iterator[Block]:
            for block, end in zip(blocks, ends, strict=True):
                (rows,) = dask.compute(block)
                here = slice(end - len(rows), end)
                yield make_block(0, rows, y[here], weight[here])

        return _train(make, parameters, rounds)

    def fit(workers: Client) -> xgboost.Booster:
        names = ("y", "sample_weight")
        placed = place_partitions(make_block, (X, y, weight), names=names, client=workers)
        try:
            raw = placed.call(_boost, convene(placed), parameters, rounds)
            return xgboost.Booster(model_file=bytearray(raw[0]))
        finally:
            placed.release()

    return try_twice(fit, client, name=name, arrays=(X,))


def make_block(number: int, X: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Block:  # noqa: ARG001
    """Return a partition in 32 bits."""
    return Block(np.asarray(X, dtype=np.float32), np.asarray(y), np.asarray(weight))


def _boost(
    blocks: Sequence[Block], peers: Mapping[str, Any], parameters: Mapping[str, Any], rounds: int
) -> bytes:
    """Return the trees, of which all workers have the same."""
    from xgboost.dask import CommunicatorContext

    with CommunicatorContext(**peers):
        return bytes(_train(lambda: iter(blocks), parameters, rounds).save_raw("ubj"))


def _train(
    make: Callable[[], Iterator[Block]], parameters: Mapping[str, Any], rounds: int
) -> xgboost.Booster:
    data = xgboost.QuantileDMatrix(Batches(make), nthread=parameters["nthread"])
    return xgboost.train(dict(parameters), data, rounds)
