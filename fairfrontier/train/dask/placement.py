"""Objects that lie on Dask workers: functions go to them, and sums come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client, Future

# Seconds that one request may take: a worker that lives but never answers must not stop a run.
TIMEOUT = 1800.0
# Seconds between looks at whether the workers are there, while waiting for them.
LOOK = 1.0
# Seconds of waiting while no worker does anything: what is missing can be had nowhere.
IDLE = 30.0
# Seconds within which a failure of the others shows which worker is gone.
GRACE = 5.0


class WorkerLostError(Exception):
    """A worker that holds rows is gone, or does not answer."""


class Placement:
    """Partitions of rows, or what became of them, and where they lie.

    Parameters
    ----------
    client : distributed.Client
    held : sequence of (str, Future)
        For each worker its address, and the list of its partitions or one object there.
    timeout : float
        Seconds that one request may take.
    kept : list of Future, optional
        Where the futures of this placement and of those made of it are noted.

    Notes
    -----
    Every request goes to all workers that hold something: one task each, some milliseconds. Tasks
    are bound to their workers, so that no row travels.
    """

    def __init__(
        self,
        client: Client,
        held: Sequence[tuple[str, Future]],
        timeout: float = TIMEOUT,
        kept: list[Future] | None = None,
    ) -> None:
        self.client, self.held, self.timeout = client, list(held), timeout
        self.kept = [] if kept is None else kept
        self.kept.extend(future for _, future in held if future not in self.kept)

    def collect(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what the function says of each partition, worker by worker."""
        answers = self._ask(_each, function, arguments)
        return [each for answer in answers for each in answer]

    def sum(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the sum over partitions of what the function says of each.

        Sums of tuples are taken entry by entry. Each worker sends one.
        """
        return add_up(self._ask(_sum, function, arguments))

    def replace(self, function: Callable[..., Any], *arguments: Any) -> Placement:
        """Return the partitions that the function makes of these, where they are."""
        return self._make(self._submit(_each, function, arguments))

    def make_each(self, function: Callable[..., Any], *arguments: Any) -> Placement:
        """Return one object a worker, which the function makes of what the worker holds."""
        made = self._make(self._submit(function, *arguments))
        made.wait()
        return made

    def wait(self) -> None:
        """Wait until all is there."""
        addresses, futures = zip(*self.held, strict=True)
        wait_for(self.client, futures, addresses, self.timeout)

    def call(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what the function says of each worker's object; all workers run it at once."""
        return self._ask(function, *arguments)

    def keep(self, those: Sequence[bool]) -> Placement:
        """Return those workers alone."""
        held = [each for each, kept in zip(self.held, those, strict=True) if kept]
        return Placement(self.client, held, self.timeout, self.kept)

    def drop(self) -> None:
        """Let go of these objects alone."""
        for _, future in self.held:
            self.kept.remove(future)
            future.release()

    def release(self) -> None:
        """Let go of the rows and all made of them, also where a lost worker was to hold them."""
        # One by one, the last first: Dask stumbles over wanted work of which dropped work was made.
        with guarded(self.client):
            for future in reversed(self.kept):
                self.client.cancel([future], force=True)
        self.kept.clear()

    def _make(self, held: Sequence[tuple[str, Future]]) -> Placement:
        return Placement(self.client, held, self.timeout, self.kept)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> list[tuple[str, Future]]:
        return [
            (
                address,
                self.client.submit(
                    function, parts, *arguments, workers=[address], pure=False, retries=0
                ),
            )
            for address, parts in self.held
        ]

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        futures = [future for _, future in self._submit(function, *arguments)]
        addresses = [address for address, _ in self.held]
        return fetch(self.client, futures, addresses, self.timeout)


def wait_for(
    client: Client, futures: Sequence[Future], addresses: Sequence[str], timeout: float
) -> None:
    """Wait until the work is done, or say that a worker is lost.

    Raises
    ------
    WorkerLostError
        When a worker is gone, or the time is over.
    Exception
        What the work raises.
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
    """Return what the work has come to; see ``wait_for``."""
    wait_for(client, futures, addresses, timeout)

    async def gather() -> list[Any]:
        found: list[Any] = await client.gather(list(futures), asynchronous=True)
        return found

    end, patience = time.monotonic() + timeout, LOOK
    with guarded(client, futures):
        while True:
            try:
                results: list[Any] = client.sync(gather, callback_timeout=patience)
            except TimeoutError:
                _look_for(client, addresses)
                if time.monotonic() > end:
                    raise WorkerLostError("a worker gave no answer in time") from None
                patience *= 2.0  # what is large takes its time
            except Exception as error:
                if _comes_from(error, "distributed"):
                    raise WorkerLostError(" ".join(str(error).split())) from error
                raise
            else:
                return results


@contextmanager
def guarded(client: Client, futures: Sequence[Future] = ()) -> Iterator[None]:
    """Cancel work that failed: what waits for a worker that is gone would wait for ever."""
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
        return tuple(add_up(each) for each in zip(*terms, strict=True))
    total = terms[0]
    for each in terms[1:]:
        total = total + each
    return total


def _each(parts: Sequence[Any], function: Callable[..., Any], arguments: Any) -> list[Any]:
    return [function(part, *arguments) for part in parts]


def _sum(parts: Sequence[Any], function: Callable[..., Any], arguments: Any) -> Any:
    return add_up(_each(parts, function, arguments))


def _await_end(
    client: Client, futures: Sequence[Future], addresses: Sequence[str], end: float
) -> BaseException | None:
    """Return the first failure or that there was none, looking after the workers meanwhile."""
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
        # Whichever failed: the first may wait for it in vain.
        for each in [future for future in pending if future.done()]:
            pending.remove(each)
            error: BaseException | None = each.exception()
            if error is not None:
                _require_workers(client, error, addresses)
                return error
    return None


def _require_workers(client: Client, error: BaseException, addresses: Sequence[str]) -> None:
    """Raise that a worker was lost, where that is why work failed."""
    if _comes_from(error, "distributed"):
        raise WorkerLostError(" ".join(str(error).split())) from error
    if _comes_from(error, "xgboost"):
        # The others feel the death of a worker before the scheduler does.
        grace = time.monotonic() + GRACE
        while time.monotonic() < grace:
            _look_for(client, addresses)
            time.sleep(0.1)


def _look_for(client: Client, addresses: Sequence[str]) -> None:
    gone = sorted(set(addresses) - set(client.nthreads()))
    if gone:
        raise WorkerLostError(f"{', '.join(gone)} is gone")


def _comes_from(error: BaseException, library: str) -> bool:
    return any(cls.__module__.partition(".")[0] == library for cls in type(error).__mro__)
