"""Work on the workers of a cluster that may lose them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

from fairfrontier.runtime.errors import ClusterError

# Seconds within which workers that are started anew are expected.
RETURN = 20.0
# Seconds between checks that the scheduler is there.
LOOK = 1.0


def connect(cluster: Any, **options: Any) -> Any:
    """Return a new client of a cluster, or of the scheduler of an address.

    What Dask computes by it waits for workers as `call_worker` does. OSError is raised when no
    scheduler answers.
    """
    from distributed import Client, futures_of

    class CheckedClient(Client):
        def get(self, dsk: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
            sync = options.pop("sync", True)
            packed = super().get(dsk, keys, *arguments, sync=False, **options)
            if not sync:
                return packed
            futures = futures_of(packed)
            try:
                with _naming_losses():
                    _wait(self, futures)
                    return self.gather(packed)
            finally:
                for future in futures:
                    future.release()

    return CheckedClient(cluster, set_as_default=False, **options)


def call_worker(client: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns on a worker.

    Raises
    ------
    ClusterError
        When the scheduler is gone, no worker comes back, or several in a row were lost with the
        function.
    """
    with _naming_losses():
        _require_scheduler(client)
        future = client.submit(function, *arguments, pure=False)
        try:
            _wait(client, [future])
            return future.result()
        finally:
            future.release()


@contextmanager
def _naming_losses() -> Iterator[None]:
    """Turn Dask's errors about lost workers and schedulers into a ClusterError."""
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"{error.allowed_failures + 1} workers in a row were lost at the same work.",
            "Check their memory and their logs, and run it again.",
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise ClusterError(
            "The scheduler of the cluster does not answer any more.",
            "Start it, and run this again, or choose another cluster with --cluster.",
        ) from error


def _require_scheduler(client: Any) -> None:
    """Raise CommClosedError for a client that would keep what is submitted, and wait for ever."""
    from distributed.comm import CommClosedError

    if client.status != "running":
        raise CommClosedError("the connection is closed")


def _wait(client: Any, futures: Sequence[Any]) -> None:
    """Wait until work is done, or some of it has failed; raise where no worker is left to do it."""
    watch = _watch_workers(client)
    while (pending := [each for each in futures if not each.done()]) and not any(
        each.status == "error" for each in futures
    ):
        _require_scheduler(client)
        next(watch)
        with suppress(TimeoutError):
            pending[0].exception(timeout=LOOK)


def _watch_workers(client: Any) -> Iterator[None]:
    """Look at each step whether there are workers; where none is, start new ones, or give up.

    A nanny that is told to restart its worker while the worker starts never starts another. Workers
    of a clock that is set back are silent until it is as late again: Dask counts by that clock.
    """
    import dask
    from dask.utils import parse_timedelta
    from distributed.comm import CommClosedError

    patience = parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout"))
    seen, asked = time.monotonic(), False
    offset = time.time() - seen
    while True:
        yield
        before, offset = offset, time.time() - time.monotonic()
        back = before - offset
        if back > patience:
            raise ClusterError(
                f"The clock was set back by {back:.0f} s, by which Dask's workers count.",
                "Run it again.",
            )
        try:
            workers = client.scheduler_info(n_workers=1)["workers"]
        except OSError as error:
            raise CommClosedError("the scheduler is gone") from error
        missing = 0.0 if workers else time.monotonic() - seen
        if workers:
            seen, asked = time.monotonic(), False
        elif missing > patience + max(patience, RETURN):
            raise ClusterError(
                f"The cluster has had no worker for {missing:.0f} s.",
                "Check the workers' memory and their logs, and run it again.",
            )
        elif missing > patience + LOOK and not asked:
            # By now Dask has removed the lost ones from what it believes to run.
            asked, wanted = True, getattr(client.cluster, "worker_spec", ())
            if wanted:
                client.cluster.scale(len(wanted))
