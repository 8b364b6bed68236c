"""Objects on Dask workers: functions go to them, and sums come back."""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client, Future

# Seconds that one request may take: a live worker that never answers must not stop a run.
TIMEOUT = 1800.0
# Seconds between checks of the workers, while waiting for them.
LOOK = 1.0
# Seconds to wait while no worker is busy: what is missing cannot be recomputed.
IDLE = 30.0
# Seconds within which the loss of a worker shows after others failed.
GRACE = 5.0


class WorkerLostError(Exception):
    """A worker that holds rows is gone, or does not answer."""


class Placement:
    """Partitions of rows, or objects made of them, by worker.

    ``objects`` has for each worker its address, and the future of the list of its partitions or of
    one object; ``futures`` collects those of this placement and of placements made from it. Every
    request goes to all workers that hold something, as one task each, some milliseconds. Tasks are
    bound to their workers, so that no row is moved.
    """

    def __init__(
        self,
        client: Client,
        objects: Sequence[tuple[str, Future]],
        timeout: float = TIMEOUT,
        futures: list[Future] | None = None,
    ) -> None:
        self.client, self.objects, self.timeout = client, list(objects), timeout
        self.futures = [] if futures is None else futures
        self.futures.extend(future for _, future in objects if future not in self.futures)

    def collect(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the function's value for each partition, worker by worker."""
        return [value for values in self.call(_each, function, arguments) for value in values]

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the sum of the function's values over partitions, of tuples entry by entry.

        Each worker sends one sum.
        """
        return add_up(self.call(_sum, function, arguments))

    def replace(self, function: Callable[..., Any], *arguments: Any) -> Placement:
        """Return the partitions that the function makes of these, on the same workers."""
        return self._make(self._submit(_each, function, arguments))

    def make_each(self, function: Callable[..., Any], *arguments: Any) -> Placement:
        """Return one object per worker, made by the function of what the worker holds."""
        made = self._make(self._submit(function, *arguments))
        made.wait()
        return made

    def wait(self) -> None:
        """Wait until all objects exist."""
        addresses, futures = zip(*self.objects, strict=True)
        wait_for(self.client, futures, addresses, self.timeout)

    def call(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the function's value for each worker's object; all workers run it at once."""
        futures = [future for _, future in self._submit(function, *arguments)]
        addresses = [address for address, _ in self.objects]
        return fetch(self.client, futures, addresses, self.timeout)

    def keep(self, chosen: Sequence[bool]) -> Placement:
        """Return the placement on the chosen workers alone."""
        return self._make(
            [item for item, wanted in zip(self.objects, chosen, strict=True) if wanted]
        )

    def drop(self) -> None:
        """Release these objects alone."""
        for _, future in self.objects:
            self.futures.remove(future)
            future.release()

    def release(self) -> None:
        """Release the rows and all made of them, also where a lost worker was to hold them."""
        # One by one, the last first: Dask fails where work is cancelled before its dependants.
        with guarded(self.client):
            for future in reversed(self.futures):
                self.client.cancel([future], force=True)
        self.futures.clear()

    def _make(self, objects: Sequence[tuple[str, Future]]) -> Placement:
        return Placement(self.client, objects, self.timeout, self.futures)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> list[tuple[str, Future]]:
        return [
            (
                address,
                self.client.submit(
                    function, parts, *arguments, workers=[address], pure=False, retries=0
                ),
            )
            for address, parts in self.objects
        ]


def wait_for(
    client: Client, futures: Sequence[Future], addresses: Sequence[str], timeout: float
) -> None:
    """Wait until the work is done.

    WorkerLostError is raised when a worker is gone or the time is over, else what the work raises.
    """
    end = time.monotonic() + timeout
    with guarded(client, futures):
        error = _await_end(client, futures, addresses, end)
    if error is not None:
        client.cancel(list(futures), force=True)
        raise error


def fetch(
    client: Client, futures: Sequence[Future], addresses: Sequence[str], timeout: float
) -> list[Any]:
    """Return the results of the work; see ``wait_for``."""
    wait_for(client, futures, addresses, timeout)

    async def gather() -> Any:
        return await client.gather(list(futures), asynchronous=True)

    end, patience = time.monotonic() + timeout, LOOK
    with guarded(client, futures):
        while True:
            try:
                results: list[Any] = client.sync(gather, callback_timeout=patience)
            except TimeoutError:
                _look_for(client, addresses)
                if time.monotonic() > end:
                    raise WorkerLostError("a worker gave no answer in time") from None
                patience *= 2.0  # large results take time
            except Exception as error:
                if _comes_from(error, "distributed"):
                    raise WorkerLostError(" ".join(str(error).split())) from error
                raise
            else:
                return results


@contextmanager
def guarded(client: Client, futures: Sequence[Future] = ()) -> Iterator[None]:
    """Cancel work that failed: tasks that wait for a lost worker would wait for ever."""
    try:
        yield
    except OSError as error:
        raise WorkerLostError(f"the scheduler does not answer ({error})") from error
    except BaseException:
        client.cancel(list(futures), force=True)
        raise


def add_up(terms: Sequence[Any]) -> Any:
    """Return the sum, of tuples entry by entry."""
    if isinstance(terms[0], tuple):
        return tuple(add_up(entries) for entries in zip(*terms, strict=True))
    return functools.reduce(operator.add, terms)


def _each(parts: Sequence[Any], function: Callable[..., Any], arguments: Any) -> list[Any]:
    return [function(part, *arguments) for part in parts]


def _sum(parts: Sequence[Any], function: Callable[..., Any], arguments: Any) -> Any:
    return add_up(_each(parts, function, arguments))


def _await_end(
    client: Client, futures: Sequence[Future], addresses: Sequence[str], end: float
) -> BaseException | None:
    """Return the first failure, if any, checking the workers meanwhile."""
    busy, pending = time.monotonic(), list(futures)
    while pending:
        try:
            pending[0].exception(timeout=LOOK)
        except TimeoutError:
            _look_for(client, addresses)
            now = time.monotonic()
            if any(client.processing().values()):
                busy = now
            if now > min(end, busy + IDLE):
                raise WorkerLostError("a worker gave no answer in time") from None
        except CancelledError as cancelled:
            raise WorkerLostError("the work was cancelled") from cancelled
        # Check all of them: the first may be waiting for one that failed.
        for done in [future for future in pending if future.done()]:
            pending.remove(done)
            error: BaseException | None = done.exception()
            if error is not None:
                _require_workers(client, error, addresses)
                return error
    return None


def _require_workers(client: Client, error: BaseException, addresses: Sequence[str]) -> None:
    """Raise WorkerLostError where the loss of a worker is why work failed."""
    if _comes_from(error, "distributed"):
        raise WorkerLostError(" ".join(str(error).split())) from error
    if _comes_from(error, "xgboost"):
        # The other workers notice the death of one before the scheduler does.
        grace = time.monotonic() + GRACE
        while time.monotonic() < grace:
            _look_for(client, addresses)
            time.sleep(0.1)
        # The place in XGBoost's sources: its errors have one class.
        if "/collective/" in str(error):
            raise WorkerLostError("the workers lost touch with each other") from error


def _look_for(client: Client, addresses: Sequence[str]) -> None:
    gone = sorted(set(addresses) - set(client.nthreads()))
    if gone:
        raise WorkerLostError(f"{', '.join(gone)} is gone")


def _comes_from(error: BaseException, library: str) -> bool:
    return any(cls.__module__.partition(".")[0] == library for cls in type(error).__mro__)
