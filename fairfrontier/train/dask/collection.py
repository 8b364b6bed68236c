"""Fits of Dask arrays: rows go to workers once, and a fit that lost one is tried again."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fairfrontier.runtime.cluster import renew
from fairfrontier.runtime.errors import ClusterError, ConfigError, DataError
from fairfrontier.train.dask.placement import TIMEOUT, Placement, WorkerLostError, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distributed import Client

Fitted = TypeVar("Fitted")

# Seconds within which a cluster has its workers, at first and after they were started afresh.
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
    """Fit, and once more on fresh workers where one was lost on the way.

    Parameters
    ----------
    fit : callable
        Takes the client whose workers are to hold the rows; WorkerLostError says that one is lost.
    client : distributed.Client or None
        Of the first try.
    name : str
        Of the method.
    arrays : sequence
        The Dask arrays: where some are persisted, which ties them to their client, the second try
        is by the same client.
    timeout : float
        Seconds that one request to the workers may take.

    Returns
    -------
    object
        What ``fit`` returns.

    Raises
    ------
    ConfigError
        Without a client.
    ClusterError
        When a worker was lost again, or none is left.
    Exception
        What the fit raises else, at either try.

    Notes
    -----
    Workers that live may be stuck in what they did together with the dead one, so before the second
    try ``renew`` starts all of them anew where they have a nanny. Dask then makes the rows again
    from their graph; rows that were scattered from memory are gone with their worker.
    """
    if client is None:
        raise ConfigError(
            f"{name} is given Dask arrays without a client.",
            "Pass client=, of the cluster whose workers are to hold the rows.",
        )
    from distributed import futures_of

    patience, workers = min(timeout, COMING), 1
    try:
        with _reaching_workers():
            client.wait_for_workers(1, timeout=patience)
            workers = len(client.nthreads())
        return fit(client)
    except WorkerLostError:
        pass  # once is no reason to give up
    held = bool(futures_of([each for each in arrays if is_collection(each)]))
    try:
        with ExitStack() as stack:
            with _reaching_workers():
                renewed = renew(client, workers, keep=held, timeout=patience)
                fresh = stack.enter_context(renewed)
            return fit(fresh)
    except WorkerLostError as error:
        raise ClusterError(
            f"{name} lost a worker that held rows, and again when it was tried anew: {error}.",
            "Look at the workers' logs and their memory, and run it again.",
        ) from error


def place_partitions(
    make: Callable[..., Any],
    arrays: Sequence[Any],
    told: Sequence[Any] = (),
    *,
    names: Sequence[str],
    client: Client,
    timeout: float = TIMEOUT,
) -> Placement:
    """Make the partitions of Dask arrays, each where its rows are.

    Parameters
    ----------
    make : callable
        (number, block of X, block of each other array or None, *told) -> partition.
    arrays : sequence
        X, a Dask array of shape (n_samples, n_features), and others that are cut as X is: Dask
        arrays, ndarrays or None. A persisted X stays where it is; the partitions of another one are
        dealt to the workers in their order, as evenly as can be.
    told : sequence
        Further arguments of ``make``.
    names : sequence of str
        What the others are called.
    client : distributed.Client
    timeout : float
        Seconds that one request may take.

    Raises
    ------
    DataError
        For arrays of different lengths, and what ``make`` raises.
    WorkerLostError
        When a worker is gone, or the time is over.
    """
    columns = _align(arrays[0], dict(zip(names, arrays[1:], strict=True)))
    with guarded(client):
        homes = _find_homes(arrays[0], client)
    held = []
    for address in sorted(set(homes)):
        here = [number for number, home in enumerate(homes) if home == address]
        parts = _send(make, columns, here, told)
        held.append((address, client.compute(parts, workers=[address], optimize_graph=True)))
    rows = Placement(client, held, timeout)
    rows.wait()
    return rows


@contextmanager
def _reaching_workers() -> Iterator[None]:
    """Tell Dask's own faults from those of a fit, which may raise the same classes."""
    try:
        yield
    except OSError as error:  # time-outs and closed connections are such
        raise WorkerLostError(f"no worker came ({' '.join(str(error).split())})") from error


def _align(X: Any, others: Mapping[str, Any]) -> list[Any]:
    """Return X and the others as lists of blocks with the same rows."""
    import dask.array as da

    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    columns = [X.to_delayed().reshape(-1).tolist()]
    for name, each in others.items():
        if each is None:
            columns.append([None] * X.numblocks[0])
            continue
        known = not np.isnan([each.shape[0], X.shape[0]]).any()
        matched = known and each.shape[0] == X.shape[0]
        array = each
        if not is_collection(each):
            # Cut at once, so that a worker is sent its own rows alone.
            array = da.from_array(
                np.asarray(each), (X.chunks[0], -1)[: each.ndim] if matched else -1
            )
        if matched:
            array = array.rechunk((X.chunks[0], *((size,) for size in array.shape[1:])))
        elif known or array.numblocks[0] != X.numblocks[0]:
            raise DataError(
                f"The rows of {name} cannot be matched with those of X.",
                "Give arrays of the same length; compute_chunk_sizes() tells unknown ones.",
            )
        columns.append(array.to_delayed().reshape(-1).tolist())
    return columns


def _find_homes(X: Any, client: Client) -> list[str]:
    """Return the worker of every partition: where it lies, or the next in order."""
    from distributed import futures_of

    workers = sorted(client.nthreads())
    n = X.numblocks[0]
    homes = [workers[number * len(workers) // n] for number in range(n)]
    futures = {each.key: each for each in futures_of(X)}
    keys = [key for row in X.__dask_keys__() for key in row[:1]]
    if X.numblocks[1] == 1 and all(key in futures for key in keys):
        found = client.who_has([futures[key] for key in keys])
        holders = [found.get(key) or found.get(str(key)) for key in keys]
        homes = [held[0] if held else home for held, home in zip(holders, homes, strict=True)]
    return homes


def _send(
    make: Callable[..., Any], columns: Sequence[Any], here: Sequence[int], told: Sequence[Any]
) -> Any:
    """Return the list of one worker's partitions, not computed yet."""
    from dask.delayed import delayed

    made = delayed(make, pure=False)
    return delayed(list)(
        [made(number, *(each[number] for each in columns), *told) for number in here]
    )
