"""Fits on Dask arrays: rows go to workers once, and a fit that loses a worker is tried again."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.cluster.call import renew
from fairfrontier.runtime.cluster.partition import let_go, list_blocks
from fairfrontier.runtime.errors import ClusterError, ConfigError, DataError
from fairfrontier.train.dask.placement import TIMEOUT, Placement, WorkerLostError, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distributed import Client

Fitted = TypeVar("Fitted")

# Seconds within which a cluster has its workers, at first and after a restart.
COMING = 60.0


def is_collection(array: Any) -> bool:
    """Return whether an array is a Dask array."""
    return hasattr(array, "__dask_graph__")


def try_twice(
    fit: Callable[[Client], Fitted],
    client: Client | None,
    *,
    name: str,
    arrays: Sequence[Any] = (),
    timeout: float = TIMEOUT,
) -> Fitted:
    """Return ``fit(client)``, tried once more on fresh workers where it raises WorkerLostError.

    Live workers may be stuck in what they did together with the dead one, so before the second try
    ``renew`` restarts all of them where they have a nanny. Dask then recomputes the rows from their
    graph; rows that were scattered from memory are lost with their worker. Persisted ``arrays`` are
    tied to their client, which then also makes the second try. A request to the workers may take
    ``timeout`` seconds.

    ConfigError is raised without a client, ClusterError where a worker is lost again or none
    remains, and other exceptions of the fit at either try. ``name`` is the method's, for messages.
    """
    if client is None:
        raise ConfigError(
            f"{name} is given Dask arrays without a client.",
            "Pass client=, for the cluster whose workers are to hold the rows.",
        )
    from distributed import futures_of

    patience, workers = min(timeout, COMING), 1
    try:
        with _reaching_workers():
            client.wait_for_workers(1, timeout=patience)
            workers = len(client.nthreads())
        return fit(client)
    except WorkerLostError:
        pass  # one loss is no reason to give up
    persisted = bool(futures_of([array for array in arrays if is_collection(array)]))
    try:
        with ExitStack() as stack:
            with _reaching_workers():
                renewed = renew(client, workers, keep=persisted, timeout=patience)
                fresh = stack.enter_context(renewed)
            return fit(fresh)
    except WorkerLostError as error:
        raise ClusterError(
            f"{name} lost a worker that held rows, and again when it was retried: {error}.",
            "Check the workers' logs and their memory, and run it again.",
        ) from error


def place_partitions(
    make: Callable[..., Any],
    arrays: Sequence[Any],
    arguments: Sequence[Any] = (),
    *,
    names: Sequence[str],
    client: Client,
    timeout: float = TIMEOUT,
) -> Placement:
    """Make partitions of Dask arrays on the workers that hold their rows.

    ``make`` maps (number, block of X, block of each other array or None, *arguments) to a
    partition. ``arrays`` are X, a Dask array of shape (n_samples, n_features), and others, called
    ``names``, that are split like X: Dask arrays, ndarrays or None. A persisted X is not moved;
    other partitions are distributed evenly over the workers in order, which then hold no others.

    DataError is raised for arrays of different lengths, WorkerLostError when a worker is gone or
    does not answer within ``timeout`` seconds, and whatever ``make`` raises.
    """
    from distributed import futures_of

    columns = _align(arrays[0], dict(zip(names, arrays[1:], strict=True)))
    if not futures_of(arrays[0]):
        let_go(client)
    with guarded(client):
        homes = _find_homes(arrays[0], client)
    objects = []
    for address in sorted(set(homes)):
        here = [number for number, home in enumerate(homes) if home == address]
        parts = _build(make, columns, here, arguments)
        objects.append((address, client.compute(parts, workers=[address], optimize_graph=True)))
    rows = Placement(client, objects, timeout)
    rows.wait()
    return rows


@contextmanager
def _reaching_workers() -> Iterator[None]:
    """Distinguish Dask's own faults from those of a fit, which may raise the same classes."""
    try:
        yield
    except OSError as error:  # among them time-outs and closed connections
        raise WorkerLostError(f"no worker came ({' '.join(str(error).split())})") from error


def _align(X: Any, others: Mapping[str, Any]) -> list[Any]:
    """Return X and the others as lists of blocks with the same rows."""
    import dask.array as da

    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    columns = [list_blocks(X)]
    for name, array in others.items():
        if array is None:
            columns.append([None] * X.numblocks[0])
            continue
        known = not np.isnan([array.shape[0], X.shape[0]]).any()
        matched = known and array.shape[0] == X.shape[0]
        if not is_collection(array):
            # Split at once, so that a worker is sent its own rows only.
            chunks = (X.chunks[0], -1)[: array.ndim] if matched else -1
            array = da.from_array(to_numpy(array), chunks)
        if matched:
            array = array.rechunk((X.chunks[0], *((size,) for size in array.shape[1:])))
        elif known or array.numblocks[0] != X.numblocks[0]:
            raise DataError(
                f"The rows of {name} cannot be matched with those of X.",
                "Give arrays of the same length; compute_chunk_sizes() finds unknown ones.",
            )
        columns.append(list_blocks(array))
    return columns


def _find_homes(X: Any, client: Client) -> list[str]:
    """Return the worker of every partition: its holder, or the next in order."""
    from distributed import futures_of

    workers = sorted(client.nthreads())
    n = X.numblocks[0]
    homes = [workers[number * len(workers) // n] for number in range(n)]
    futures = {future.key: future for future in futures_of(X)}
    keys = [key for row in X.__dask_keys__() for key in row[:1]]
    if X.numblocks[1] == 1 and all(key in futures for key in keys):
        who = client.who_has([futures[key] for key in keys])
        holders = [who.get(key) or who.get(str(key)) for key in keys]
        homes = [owners[0] if owners else home for owners, home in zip(holders, homes, strict=True)]
    return homes


def _build(
    make: Callable[..., Any], columns: Sequence[Any], here: Sequence[int], arguments: Sequence[Any]
) -> Any:
    """Return the list of one worker's partitions, not computed yet."""
    from dask.delayed import delayed

    lazy = delayed(make, pure=False)
    return delayed(list)(
        [lazy(number, *(column[number] for column in columns), *arguments) for number in here]
    )
