"""XGBoost's collective among workers: rendezvous, and sums over all of them."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.train.dask.placement import guarded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairfrontier.train.dask.placement import Placement

# Seconds within which all workers must have started: the others would wait for a dead one.
MEETING = 120


def convene(placed: Placement) -> Mapping[str, Any]:
    """Start a tracker for the workers that hold something.

    Returns keywords of ``xgboost.dask.CommunicatorContext``, for one task on each of those workers.
    All tasks must run at once: each needs a free thread.
    """
    with guarded(placed.client):
        keywords: dict[str, Any] = placed.client.run_on_scheduler(
            _start_tracker, len(placed.objects), int(placed.timeout)
        )
    return keywords


def add_up(values: np.ndarray) -> np.ndarray:
    """Return the sum over all workers, to the same bits on each of them; inside a communicator.

    A ring: each worker sends and receives the array's size twice, whatever their number.
    """
    from xgboost.collective import Op, allreduce

    # XGBoost returns a flat array.
    total: np.ndarray = allreduce(values, Op.SUM).reshape(values.shape)
    return total


def _start_tracker(n_workers: int, timeout: int, dask_scheduler: Any = None) -> dict[str, Any]:
    """Start a tracker on the scheduler's host, which all workers can reach."""
    from distributed.comm import get_address_host
    from xgboost.tracker import RabitTracker

    host = get_address_host(dask_scheduler.address)
    tracker = RabitTracker(n_workers=n_workers, host_ip=host, sortby="task", timeout=MEETING)
    tracker.start()
    Thread(target=_end_tracker, args=(tracker,), daemon=True).start()
    # Workers wait for each other's sums as long as a request may take.
    return {**tracker.worker_args(), "dmlc_timeout": timeout}


def _end_tracker(tracker: Any) -> None:
    # A dead worker ends it with an error, which the request to the workers reports better. The
    # error recurs when the tracker is freed, which must not be left to Python's garbage collector.
    for end in (tracker.wait_for, tracker.free):
        with suppress(Exception):
            end()
