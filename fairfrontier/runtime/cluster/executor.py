"""Rows that an executor holds: in this process, computed block by block, or on Dask's workers.

Functions go to the blocks of rows, and values or sums come back. Blocks are added in pairs of
neighbours, then these sums, and so on: the same bits on any number of workers.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import operator
import os
import sys
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from fairfrontier.runtime.arrays import to_host, to_numpy
from fairfrontier.runtime.errors import ClusterError, DataError

if TYPE_CHECKING:
    from distributed import Client, Future

Fitted = TypeVar("Fitted")

# The share of the workers' memory that rows may keep from one pass to the next.
SHARE = 0.3
# What a container may take, of cgroups of version 2 and 1.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
# Seconds that one request may take: a live worker that never answers must not stop a run.
TIMEOUT = 1800.0
# Seconds between checks of the workers, while waiting for them.
LOOK = 1.0
# Seconds within which a cluster has a worker, at first and after a restart, and has all of them.
COMING, RETURN = 60.0, 20.0
# Seconds within which all workers must have started: the others would wait for a dead one.
MEETING = 120
_HELD: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


class WorkerLostError(Exception):
    """A worker that holds rows is gone, or does not answer."""


@dataclass(eq=False)
class Block:
    """Consecutive rows of a table.

    Attributes
    ----------
    number, start : int
        Position among the blocks, and of the first row among all rows.
    X : ndarray, shape (n_rows, n_features)
    columns : dict of str to ndarray
        What else belongs to the rows, one entry each; ``block["y"]`` is one of them.
    """

    number: int
    start: int
    X: np.ndarray
    columns: dict[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.X)

    def __sizeof__(self) -> int:
        # Dask estimates memory and transfers by it.
        return self.X.nbytes + sum(each.nbytes for each in self.columns.values())


# What makes a block of another, and further arguments for each of the blocks.
Make = Callable[..., Block]
Each = Sequence[tuple[Any, ...]] | None


class Rows:
    """Rows in blocks of so many ``sizes``: the base of what holds them somewhere.

    ``remote`` says whether that is in other processes.
    """

    remote = False

    def __init__(self, sizes: Sequence[int], n_features: int) -> None:
        self.sizes, self.n_features = tuple(map(int, sizes)), n_features

    @property
    def n_samples(self) -> int:
        """Number of rows of all blocks."""
        return sum(self.sizes)

    @abstractmethod
    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return ``function(block, *arguments)`` of every block, in order."""

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the sum of what `map` returns, of tuples entry by entry."""
        terms = self.map(function, *arguments)
        return fold([(0, k, term) for k, term in enumerate(terms)], len(terms))[0][2]

    @abstractmethod
    def derive(
        self, function: Make, *arguments: Any, each: Each = None, width: int | None = None
    ) -> Self:
        """Return the rows of blocks ``function(block, *each[number], *arguments)``.

        ``width`` is their number of features where it is another.
        """

    @abstractmethod
    def together(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return ``function(blocks, *arguments)`` of each process that holds blocks.

        All run at once, and know the sums over all of them by `add_up`.
        """

    @abstractmethod
    def make(self, function: Callable[..., Any], *arguments: Any) -> Team:
        """Return what `together` returns as objects that stay in their processes."""

    def drop(self) -> None:
        """Release these rows alone, where others were derived from the same."""

    def attach(self, **columns: np.ndarray) -> Self:
        """Return the rows with further columns, ndarrays of n_samples entries."""
        cuts = list(itertools.pairwise(np.cumsum([0, *self.sizes])))
        each = [({key: v[a:b] for key, v in columns.items()},) for a, b in cuts]
        return self.derive(_attach, each=each)

    def take(self, chosen: np.ndarray) -> Self:
        """Return some of the rows, by their numbers, which ascend."""
        ends = np.cumsum([0, *self.sizes])
        parts = np.split(chosen, np.searchsorted(chosen, ends[1:-1]))
        starts = np.cumsum([0, *map(len, parts)])
        each = [
            (part - first, int(start))
            for part, first, start in zip(parts, ends[:-1], starts[:-1], strict=True)
        ]
        taken = self.derive(_take, each=each)
        taken.sizes = tuple(map(len, parts))
        return taken

    def read(self, chosen: np.ndarray, dtype: Any = None) -> np.ndarray:
        """Return the features of some rows, by their ascending numbers, in this process."""
        blocks = self.take(chosen).map(_read, dtype)
        return np.concatenate(blocks)


class Team:
    """One object in this process, or in each of several workers; see `WorkerTeam`."""

    def __init__(self, member: Any) -> None:
        self.member = member

    def together(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return ``function(object, *arguments)`` of each process, which run at once."""
        return [function(self.member, *arguments)]

    def make(self, function: Callable[..., Any], *arguments: Any) -> Team:
        """Return what the function makes of the objects, in their processes."""
        return Team(function(self.member, *arguments))

    def drop(self) -> None:
        """Release these objects alone."""


class RowsHere(Rows):
    """Rows in this process's memory."""

    def __init__(self, blocks: Sequence[Block], n_features: int) -> None:
        super().__init__([len(block) for block in blocks], n_features)
        self.blocks = list(blocks)

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the function's value of every block; see `Rows`."""
        return [function(block, *arguments) for block in self.blocks]

    def derive(
        self, function: Make, *arguments: Any, each: Each = None, width: int | None = None
    ) -> Self:
        """Return the rows of other blocks; see `Rows`."""
        own = [()] * len(self.blocks) if each is None else each
        pairs = zip(self.blocks, own, strict=True)
        made = [function(block, *mine, *arguments) for block, mine in pairs]
        return type(self)(made, width or self.n_features)

    def together(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the function's value of an iterable of all blocks; see `Rows`."""
        return [function(self._iterable, *arguments)]

    def make(self, function: Callable[..., Any], *arguments: Any) -> Team:
        """Return what the function makes of an iterable of all blocks; see `Rows`."""
        return Team(function(self._iterable, *arguments))

    @property
    def _iterable(self) -> Iterable[Block]:
        return self.blocks


class LazyRows(RowsHere):
    """Rows that Dask computes at every pass, by the scheduler of `computing_on`, block by block."""

    def __init__(self, blocks: Sequence[Any], sizes: Sequence[int], n_features: int) -> None:
        Rows.__init__(self, sizes, n_features)
        self.blocks = list(blocks)

    def plan(self, function: Callable[..., Any], *arguments: Any, each: Each = None) -> list[Any]:
        """Return what `map` or `derive` computes as Delayed objects."""
        import dask

        lazy, whole = dask.delayed(function, pure=False), partial(dask.delayed, traverse=False)
        shared = [*map(whole, arguments)]
        own = [()] * len(self.blocks) if each is None else each
        pairs = zip(self.blocks, own, strict=True)
        return [lazy(block, *map(whole, mine), *shared) for block, mine in pairs]

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the function's value of every block; see `Rows`."""
        import dask

        return list(dask.compute(*self.plan(function, *arguments)))

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the sum of what `map` returns, which the workers add; see `Rows`."""
        import dask

        terms = self.plan(function, *arguments)
        numbered = [(0, k, term) for k, term in enumerate(terms)]
        return fold(numbered, len(terms), dask.delayed(_add, pure=False))[0][2].compute()

    def derive(
        self, function: Make, *arguments: Any, each: Each = None, width: int | None = None
    ) -> Self:
        """Return the rows of other blocks, made again at every pass; see `Rows`."""
        made = self.plan(function, *arguments, each=each)
        return type(self)(made, self.sizes, width or self.n_features)

    def __iter__(self) -> Iterator[Block]:
        """Compute block after block."""
        import dask

        for block in self.blocks:
            yield dask.compute(block)[0]

    @property
    def _iterable(self) -> Iterable[Block]:
        return self


class WorkerTeam(Team):
    """One object on each of some Dask workers, to which tasks are bound, so that none is moved.

    ``objects`` has for each worker its address and the future of its object; ``futures`` collects
    those of this team and of all that is made from it. A request is a task for each worker, some
    milliseconds.
    """

    def __init__(
        self,
        client: Client,
        objects: Sequence[tuple[str, Future]],
        futures: list[Future] | None = None,
    ) -> None:
        self.client, self.objects = client, list(objects)
        self.futures = [] if futures is None else futures
        self.futures.extend(future for _, future in objects)

    def call(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the function's value for each worker's object, without sums over workers."""
        return self._fetch(self._submit(function, *arguments))

    def change(self, function: Callable[..., Any], each: Sequence[Any], *arguments: Any) -> Self:
        """Return what the function makes of each worker's object and of its entry of ``each``."""
        made = [
            (address, self._send(address, function, item, own, *arguments))
            for (address, item), own in zip(self.objects, each, strict=True)
        ]
        return self._wait(made)

    def together(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the function's value of each worker's object; see `Team`."""
        return self._fetch(self._submit(_meet, self._convene(), function, *arguments))

    def make(self, function: Callable[..., Any], *arguments: Any) -> Self:
        """Return what the function makes of each worker's object; see `Team`."""
        return self._wait(self._submit(_meet, self._convene(), function, *arguments))

    def keep(self, chosen: Sequence[bool]) -> Self:
        """Return the team on the chosen workers alone."""
        kept = [item for item, wanted in zip(self.objects, chosen, strict=True) if wanted]
        return self._of(kept)

    def drop(self) -> None:
        """Release these objects alone."""
        for _, future in self.objects:
            if future in self.futures:
                self.futures.remove(future)
            future.release()

    def release(self) -> None:
        """Release the objects and all made of them, also where a lost worker was to hold them."""
        # One by one, the last first: Dask fails where work is cancelled before its dependants.
        for future in reversed(self.futures):
            with suppress(OSError):
                self.client.cancel([future], force=True)
        self.futures.clear()

    def _of(self, objects: Sequence[tuple[str, Future]]) -> Self:
        return type(self)(self.client, objects, self.futures)

    def _convene(self) -> Mapping[str, Any]:
        """Let the scheduler's process wait for a task on every worker; keywords of `_meet`."""
        with reaching_workers():
            peers: dict[str, Any] = self.client.run_on_scheduler(
                start_tracker, len(self.objects), math.ceil(TIMEOUT)
            )
        return peers

    def _send(self, address: str, function: Callable[..., Any], *arguments: Any) -> Future:
        return self.client.submit(function, *arguments, workers=[address], pure=False, retries=0)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> list[tuple[str, Future]]:
        return [(to, self._send(to, function, item, *arguments)) for to, item in self.objects]

    def _wait(self, sent: Sequence[tuple[str, Future]]) -> Self:
        wait_for(self.client, sent)
        return self._of(sent)

    def _fetch(self, sent: Sequence[tuple[str, Future]]) -> list[Any]:
        wait_for(self.client, sent)
        try:
            results: list[Any] = self.client.sync(
                self.client._gather, [future for _, future in sent], callback_timeout=TIMEOUT
            )
        except (OSError, CancelledError) as error:
            raise WorkerLostError(f"a worker gave no answer ({error})") from error
        return results


class WorkerRows(Rows):
    """Rows on Dask's workers: each holds a list of blocks."""

    remote = True

    def __init__(
        self,
        team: WorkerTeam,
        numbers: Sequence[Sequence[int]],
        sizes: Sequence[int],
        n_features: int,
    ) -> None:
        super().__init__(sizes, n_features)
        self.team, self.numbers = team, numbers

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the function's value of every block; see `Rows`."""
        found = itertools.chain.from_iterable(self.team.call(_map_blocks, function, arguments))
        return [value for _, _, value in sorted(found, key=operator.itemgetter(1))]

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the sum of what `map` returns, added on the workers as far as possible."""
        n = len(self.sizes)
        found = itertools.chain.from_iterable(self.team.call(_fold_blocks, n, function, arguments))
        return fold(list(found), n)[0][2]

    def derive(
        self, function: Make, *arguments: Any, each: Each = None, width: int | None = None
    ) -> Self:
        """Return the rows of other blocks, on the same workers; see `Rows`."""
        own = [[() if each is None else each[k] for k in mine] for mine in self.numbers]
        made = self.team.change(_derive_blocks, own, function, arguments)
        return type(self)(made, self.numbers, self.sizes, width or self.n_features)

    def together(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the function's value of each worker's blocks; see `Rows`."""
        return self._filled().together(function, *arguments)

    def make(self, function: Callable[..., Any], *arguments: Any) -> Team:
        """Return what the function makes of each worker's blocks; see `Rows`."""
        return self._filled().make(function, *arguments)

    def drop(self) -> None:
        """Release these rows alone; see `Rows`."""
        self.team.drop()

    def _filled(self) -> WorkerTeam:
        """Return the workers that have rows: one without would have no bins to agree on."""
        return self.team.keep([any(self.sizes[k] for k in mine) for mine in self.numbers])


def is_collection(array: Any) -> bool:
    """Return whether an array is a Dask array."""
    return hasattr(array, "__dask_graph__")


def open_rows(X: Any, **columns: np.ndarray | None) -> Rows:
    """Return rows in memory, or those of a Dask array as what is computed at every pass."""
    held = {name: each for name, each in columns.items() if each is not None}
    if not is_collection(X):
        # Products of a frame's columns would be summed in another order than those of an array.
        return RowsHere([Block(0, 0, np.ascontiguousarray(X), held)], X.shape[1])
    import dask

    lazy, sizes = dask.delayed(Block, pure=False), X.chunks[0]
    starts = np.cumsum([0, *sizes])
    blocks = [
        lazy(number, int(start), block, {})
        for number, (start, block) in enumerate(zip(starts[:-1], list_blocks(X), strict=True))
    ]
    rows = LazyRows(blocks, sizes, int(X.shape[1]))
    return rows.attach(**held) if held else rows


def fit_rows(
    fit: Callable[[Rows], Fitted],
    X: Any,
    *,
    client: Client | None = None,
    name: str,
    prepare: Callable[[Block], Block] | None = None,
    dtype: Any = None,
    **columns: np.ndarray | None,
) -> Fitted:
    """Return ``fit(rows)`` of X and its columns, wherever they are.

    An array is one block here. The blocks of a Dask array go to the workers of the ``client``, each
    once; without a client they are computed here at every pass.
    Where a worker is lost, all are restarted that have a nanny, since others may be stuck in what
    they did together, and the fit begins anew, once: Dask computes the rows from their graph.

    Parameters
    ----------
    X : ndarray or dask array, shape (n_samples, n_features)
        A persisted Dask array is not moved.
    name : str
        The method's, for messages.
    prepare : callable, optional
        What makes of each block the one that is fitted.
    dtype : numpy dtype, optional
        What workers hold X in, if not as it is.
    **columns : ndarray or None
        Arrays of n_samples entries.

    Raises
    ------
    ClusterError
        Where a worker is lost again, or none remains; and whatever ``fit`` raises.
    """
    if client is None or not is_collection(X):
        rows = open_rows(X, **columns)
        return fit(rows if prepare is None else rows.derive(prepare))
    workers, lost = 1, ""
    for _ in range(2):
        try:
            with reaching_workers():
                if lost:
                    _restart(client, workers)
                client.wait_for_workers(1, timeout=COMING)
                workers = len(client.nthreads())
            with _placing(X, columns, client, prepare, dtype) as rows:
                return fit(rows)
        except WorkerLostError as error:
            lost = str(error)
    raise ClusterError(
        f"{name} lost a worker that held rows, and again when it was retried: {lost}.",
        "Check the workers' logs and their memory, and run it again.",
    )


def read_columns(client: Client | None, X: Any, **columns: Any) -> list[Any]:
    """Return a Dask array with the sizes of its blocks known, and its columns in this process.

    Columns are Dask arrays, O(n) numbers each, arrays or None. DataError is raised for those of
    other lengths than X.
    """
    import dask

    scheduler = dask.config.get("scheduler", None) or "synchronous"
    with dask.config.set(scheduler=_Scheduler(client) if client else scheduler):
        if np.isnan(X.shape[0]):
            X = X.copy()
            X.compute_chunk_sizes()
        lazy = [to_host(column) for column in columns.values() if is_collection(column)]
        found = iter(dask.compute(*lazy))
    known = {k: next(found) if is_collection(each) else each for k, each in columns.items()}
    for name, column in known.items():
        if column is not None and len(column) != X.shape[0]:
            raise DataError(
                f"The rows of {name} cannot be matched with those of X.",
                "Give arrays of the same length.",
            )
    return [X, *known.values()]


def count_memory() -> int:
    """Return the memory of this machine, or of the container where that is less, in bytes."""
    limits = [path.read_text().strip() for path in LIMITS if path.is_file()]
    physical = count_physical_memory()
    # Without a limit the file says "max", or a number larger than any memory.
    return min([physical, *(int(limit) for limit in limits if limit.isdigit())])


def count_physical_memory() -> int:
    """Return the memory of this machine, in bytes."""
    if sys.platform == "win32":
        kibibytes = ctypes.c_ulonglong()
        ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kibibytes))
        return kibibytes.value * 2**10
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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

    It holds for all threads of the process. Without Dask there are no collections.
    """
    if client is None and find_spec("dask") is None:
        yield
        return
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
    if not is_collection(X):
        return X
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


def list_blocks(X: Any) -> list[Any]:
    """Return the blocks of rows of a Dask array as Delayed objects of NumPy arrays."""
    whole = X.rechunk({1: -1}) if X.ndim > 1 and X.numblocks[1] > 1 else X
    blocks: list[Any] = to_host(whole).to_delayed().reshape(-1).tolist()
    return blocks


def average_rows(rows: Rows) -> np.ndarray:
    """Return the mean of the rows, weighted by their column, float64, shape (n_features,)."""
    total, mass = rows.sum(_weigh_rows)
    mean: np.ndarray = total / mass
    return mean


def wait_for(client: Client, sent: Sequence[tuple[str, Future]]) -> None:
    """Wait until the work that was sent to workers is done.

    WorkerLostError is raised when a worker is gone or the time is over, else what the work raises.
    """
    futures, addresses = [future for _, future in sent], {address for address, _ in sent}
    end = time.monotonic() + TIMEOUT
    try:
        with reaching_workers():
            while pending := [future for future in futures if future.status == "pending"]:
                # The first may be waiting for one that failed.
                if any(future.status != "finished" for future in futures if future.done()):
                    break
                with suppress(TimeoutError):
                    pending[0].exception(timeout=LOOK)
                gone = sorted(addresses - set(client.nthreads()))
                if gone:
                    raise WorkerLostError(f"{', '.join(gone)} is gone")
                if time.monotonic() > end:
                    raise WorkerLostError("a worker gave no answer in time")
        failed = [future for future in futures if future.status != "finished"]
        if not failed:
            return
        errors = [future.exception() for future in failed if future.status == "error"]
        if not errors:
            raise WorkerLostError("the work was cancelled")
        # Others lose touch with a process whose work fails, too.
        error = next((each for each in errors if not _is_loss(each)), errors[0])
        if _is_loss(error):
            raise WorkerLostError(" ".join(str(error).split())) from error
        raise error
    except BaseException:
        # Tasks that wait for a lost worker would wait for ever.
        with suppress(OSError):
            client.cancel(futures, force=True)
        raise


@contextmanager
def reaching_workers() -> Iterator[None]:
    """Tell Dask's own errors from those of a fit, which may raise the same classes."""
    try:
        yield
    except (OSError, CancelledError) as error:  # among them time-outs and closed connections
        raise WorkerLostError(f"no worker came ({' '.join(str(error).split())})") from error


@contextmanager
def _placing(
    X: Any,
    columns: Mapping[str, Any],
    client: Client,
    prepare: Callable[[Block], Block] | None,
    dtype: Any,
) -> Iterator[WorkerRows]:
    """Hold the blocks of a Dask array on the workers that have them, or else evenly, in order."""
    from dask.delayed import delayed
    from distributed import futures_of

    if not futures_of(X):
        _HELD.pop(client, None)  # a fit that fills the workers needs the room of what is held
    blocks, sizes = list_blocks(X), X.chunks[0]
    starts = np.cumsum([0, *sizes])
    with reaching_workers():
        homes = _find_homes(X, client)
    lazy, sent, numbers = delayed(partial(_make_block, prepare, dtype), pure=False), [], []
    given = {key: to_numpy(each) for key, each in columns.items() if each is not None}
    for address in sorted(set(homes)):
        here = [number for number, home in enumerate(homes) if home == address]
        parts = []
        for k in here:
            own = {key: each[starts[k] : starts[k + 1]] for key, each in given.items()}
            parts.append(lazy(k, int(starts[k]), blocks[k], own))
        numbers.append(here)
        made = client.compute(delayed(list)(parts), workers=[address], optimize_graph=True)
        sent.append((address, made))
    team = WorkerTeam(client, sent)
    try:
        wait_for(client, sent)
        yield WorkerRows(team, numbers, sizes, int(X.shape[1]))
    finally:
        team.release()


def _find_homes(X: Any, client: Client) -> list[str]:
    """Return the worker of every block: its holder, or the next in order."""
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


def _restart(client: Client, workers: int) -> None:
    """Restart the workers that have a nanny, and wait a while for as many as there were."""
    known = client.scheduler_info(n_workers=-1)["workers"]
    restartable = [address for address, facts in known.items() if facts["nanny"]]
    if restartable:
        client.restart_workers(restartable, timeout=COMING, raise_for_error=False)
        with suppress(TimeoutError):
            client.wait_for_workers(workers, timeout=RETURN)


def _make_block(
    prepare: Callable[[Block], Block] | None,
    dtype: Any,
    number: int,
    start: int,
    X: np.ndarray,
    columns: dict[str, np.ndarray],
) -> Block:
    block = Block(number, start, np.asarray(X), columns)
    block = block if prepare is None else prepare(block)
    return replace(block, X=np.asarray(block.X, dtype=dtype))


def _attach(block: Block, columns: Mapping[str, np.ndarray]) -> Block:
    return replace(block, columns={**block.columns, **columns})


def _take(block: Block, chosen: np.ndarray, start: int) -> Block:
    columns = {key: each[chosen] for key, each in block.columns.items()}
    return replace(block, start=start, X=block.X[chosen], columns=columns)


def _read(block: Block, dtype: Any) -> np.ndarray:
    return np.asarray(block.X, dtype=dtype)


def _weigh_rows(block: Block) -> tuple[np.ndarray, float]:
    return block["weight"] @ block.X, float(block["weight"].sum())


def _map_blocks(
    blocks: Sequence[Block], function: Callable[..., Any], arguments: Any
) -> list[tuple[int, int, Any]]:
    return [(0, block.number, function(block, *arguments)) for block in blocks]


def _fold_blocks(
    blocks: Sequence[Block], n: int, function: Callable[..., Any], arguments: Any
) -> list[tuple[int, int, Any]]:
    return fold(_map_blocks(blocks, function, arguments), n)


def _derive_blocks(
    blocks: Sequence[Block],
    own: Sequence[tuple[Any, ...]],
    function: Callable[..., Block],
    arguments: Any,
) -> list[Block]:
    pairs = zip(blocks, own, strict=True)
    return [function(block, *mine, *arguments) for block, mine in pairs]


def _meet(item: Any, peers: Mapping[str, Any], function: Callable[..., Any], *rest: Any) -> Any:
    with communicating(**peers):
        return function(item, *rest)


def fold(
    terms: Sequence[tuple[int, int, Any]], n: int, add: Callable[[Any, Any], Any] | None = None
) -> list[tuple[int, int, Any]]:
    """Add what neighbours there are among n terms in pairs, then these sums, and so on.

    A term is its level, its number there, and the value; the whole sum is one term. So whoever adds
    some of them first, the bits are the same.
    """
    add, level = _add if add is None else add, 0
    table: dict[int, dict[int, Any]] = defaultdict(dict)
    for at, number, value in terms:
        table[at][number] = value
    while n > 1:
        here = table[level]
        for number in sorted(here):
            if number % 2 == 0 and number + 1 in here:
                table[level + 1][number // 2] = add(here.pop(number), here.pop(number + 1))
            elif number % 2 == 0 and number + 1 == n:
                table[level + 1][number // 2] = here.pop(number)
        level, n = level + 1, -(-n // 2)
    return [(at, number, value) for at, each in table.items() for number, value in each.items()]


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, tuple):
        return tuple(map(_add, left, right))
    return left + right


def _is_loss(error: BaseException) -> bool:
    """Return whether an error says that a worker was lost: Dask's, or XGBoost's of its peers."""
    libraries = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    # XGBoost's errors have one class, and say the place in its sources.
    return "distributed" in libraries or ("xgboost" in libraries and "/collective/" in str(error))


def start_tracker(n_workers: int, timeout: int, dask_scheduler: Any = None) -> dict[str, Any]:
    """Start a tracker on the scheduler's host, which all workers can reach.

    Returns keywords of `communicating`, for one task on each worker. All tasks must run at once:
    each needs a free thread.
    """
    from distributed.comm import get_address_host
    from xgboost.tracker import RabitTracker

    host = get_address_host(dask_scheduler.address)
    tracker = RabitTracker(n_workers=n_workers, host_ip=host, sortby="task", timeout=MEETING)
    tracker.start()
    Thread(target=_end_tracker, args=(tracker,), daemon=True).start()
    # Workers wait for each other's sums as long as a request may take.
    return {**tracker.worker_args(), "dmlc_timeout": timeout}


@contextmanager
def communicating(**peers: Any) -> Iterator[None]:
    """Join the other processes, whose sums `add_up` returns, by the keywords of `start_tracker`."""
    from xgboost.dask import CommunicatorContext

    with CommunicatorContext(**peers):
        yield


def add_up(values: np.ndarray) -> np.ndarray:
    """Return the sum over all processes that communicate, to the same bits on each of them.

    A ring: each sends and receives the array's size twice, whatever their number. One process alone
    has its own values back.
    """
    from xgboost.collective import Op, allreduce

    # XGBoost returns a flat array.
    total: np.ndarray = allreduce(values, Op.SUM).reshape(values.shape)
    return total


def _end_tracker(tracker: Any) -> None:
    # A dead worker ends it with an error, which the request to the workers reports better. The
    # error recurs when the tracker is freed, which must not be left to Python's garbage collector.
    for end in (tracker.wait_for, tracker.free):
        with suppress(Exception):
            end()
