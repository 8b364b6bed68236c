"""XGBoost's collective among processes: how they meet, and sums over all of them."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds within which all workers must have started: the others would wait for a dead one.
MEETING = 120


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
