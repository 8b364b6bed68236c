"""Functions of the partitions of a Dask array, computed where its rows are."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from fairfrontier.runtime.arrays import to_host

if TYPE_CHECKING:
    from distributed import Client

# The share of the workers' memory that rows may keep from one pass to the next.
SHARE = 0.3
# What a container may take, of cgroups of version 2 and 1.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_HELD: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def count_memory() -> int:
    """Return the memory of this machine, or of the container where that is less, in bytes."""
    limits = [path.read_text().strip() for path in LIMITS if path.is_file()]
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Without a limit the file says "max", or a number larger than any memory.
    return min([physical, *(int(limit) for limit in limits if limit.isdigit())])


class _Scheduler:
    """A client as Dask's setting, of which each process of a worker gets a copy, without it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.client.get(*arguments, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


@contextmanager
def computing_on(client: Client | None) -> Iterator[None]:
    """Let a cluster compute Dask's collections, or this process, block by block, without one.

    It holds for all threads of the process.
    """
    import dask

    settings: dict[str, Any] = {"scheduler": _Scheduler(client) if client else "synchronous"}
    if client is not None:
        # What belongs to rows travels with the functions: O(n) numbers a pass, of which Dask warns.
        # Only now: were distributed not imported yet, its other settings would go with this one.
        settings["distributed.admin.large-graph-warning-threshold"] = "1TiB"
    try:
        with dask.config.set(settings):
            yield
    finally:
        if client is not None:
            _HELD.pop(client, None)


def hold(X: Any) -> Any:
    """Return X with its rows in the memory of the workers, where they have room; else X as it is.

    They are held until `computing_on` is left, and take at most ``SHARE`` of the workers' memory.
    Rows that are not held are read and encoded again at every pass.
    """
    import dask

    scheduler = dask.config.get("scheduler", None)
    if not isinstance(scheduler, _Scheduler):
        return X
    client = scheduler.client
    held = _HELD.setdefault(client, {})
    if X.name not in held:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        room = sum(worker["memory_limit"] or 0 for worker in workers) or count_memory()
        if X.nbytes + sum(array.nbytes for array in held.values()) > SHARE * room:
            return X
        held[X.name] = client.persist(X)
    return held[X.name]


def let_go(client: Client) -> None:
    """Forget what `hold` holds on the workers of a client: a fit that fills them needs the room."""
    _HELD.pop(client, None)


def list_blocks(X: Any) -> list[Any]:
    """Return the blocks of rows of a Dask array as Delayed objects of NumPy arrays."""
    blocks: list[Any] = to_host(X).to_delayed().reshape(-1).tolist()
    return blocks


def plan_partitions(
    function: Callable[..., Any], X: Any, arrays: Sequence[Any] = (), arguments: Sequence[Any] = ()
) -> list[Any]:
    """Return what `map_partitions` computes as Delayed objects."""
    import dask

    edges = np.cumsum([0, *X.chunks[0]])
    lazy = dask.delayed(function, pure=False)
    shared = [dask.delayed(argument, traverse=False) for argument in arguments]
    return [
        lazy(block, *(None if a is None else a[start:end] for a in arrays), *shared)
        for block, (start, end) in zip(list_blocks(X), pairwise(edges), strict=True)
    ]


def map_partitions(
    function: Callable[..., Any], X: Any, arrays: Sequence[Any] = (), arguments: Sequence[Any] = ()
) -> list[Any]:
    """Return ``function(rows of X, rows of each array, *arguments)`` of every partition, in order.

    ``X`` is a Dask array of shape (n_samples, n_features), one chunk along columns; ``arrays`` are
    ndarrays of n_samples rows, or None. Only the values come to this process.
    """
    import dask

    return list(dask.compute(*plan_partitions(function, X, arrays, arguments)))


def sum_partitions(
    function: Callable[..., Any], X: Any, arrays: Sequence[Any] = (), arguments: Sequence[Any] = ()
) -> Any:
    """Return the sums of what `map_partitions` returns: tuples of numbers or arrays, each entry.

    Neighbours are added in pairs, then these sums, and so on: the same bits on any number of
    workers, which add them, so that this process gets one tuple.
    """
    import dask

    add = dask.delayed(_add, pure=False)
    sums = plan_partitions(function, X, arrays, arguments)
    while len(sums) > 1:
        last = sums[-1:] if len(sums) % 2 else []
        sums = [*map(add, sums[::2], sums[1::2]), *last]
    return sums[0].compute()


def average_rows(X: Any, weight: np.ndarray) -> np.ndarray:
    """Return the weighted mean of the rows of a Dask array, float64, shape (n_features,)."""
    (total,) = sum_partitions(_weigh_rows, X, (weight,))
    mean: np.ndarray = total / weight.sum()
    return mean


def _weigh_rows(X: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray]:
    return (weight @ X,)


def _add(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(map(operator.add, left, right))
