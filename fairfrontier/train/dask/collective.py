"""XGBoost's collective among workers: how they meet, and sums over all of them."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.train.dask.placement import guarded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairfrontier.train.dask.placement import Placement

# Seconds within which all workers have begun: those that came would wait for a dead one.
MEETING = 120


def convene(placed: Placement) -> Mapping[str, Any]:
    """Let the workers that hold something find each other.

    Returns
    -------
    mapping
        Keywords of ``xgboost.dask.CommunicatorContext``, for one task on each of those workers.
        All of them must run at once: each needs a free thread.
    """
    with guarded(placed.client):
        told: dict[str, Any] = placed.client.run_on_scheduler(
            _start_tracker, len(placed.held), int(placed.timeout)
        )
    return told


def add_up(values: np.ndarray) -> np.ndarray:
    """Return the sum over all workers, to the same bits on each of them; inside a communicator.

    Notes
    -----
    A ring: each worker sends and gets the array's size twice, whatever their number.
    """
    from xgboost.collective import Op, allreduce

    # XGBoost's answer is flat.
    total: np.ndarray = allreduce(values, Op.SUM).reshape(values.shape)
    return total


def _start_tracker(n_workers: int, timeout: int, dask_scheduler: Any = None) -> dict[str, Any]:
    """Start a tracker; runs where Dask's scheduler does, which all can reach."""
    from distributed.comm import get_address_host
    from xgboost.tracker import RabitTracker

    host = get_address_host(dask_scheduler.address)
    tracker = RabitTracker(n_workers=n_workers, host_ip=host, sortby="task", timeout=MEETING)
    tracker.start()
    Thread(target=_end_tracker, args=(tracker,), daemon=True).start()
    # Workers wait for each other's sums as long as a request may take.
    return {**tracker.worker_args(), "dmlc_timeout": timeout}


def _end_tracker(tracker: Any) -> None:
    # A worker that died ends it with an error, which the request to the workers tells better; it
    # comes again when the tracker is freed, which must not be left to Python's collector.
    for end in (tracker.wait_for, tracker.free):
        with suppress(Exception):
            end()
