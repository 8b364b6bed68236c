"""When retrying can help: a worker or a connection was lost."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun

from fairfrontier.runtime.errors import ClusterError


def is_infrastructure_fault(_: Task[Any, Any], __: TaskRun, state: State[Any]) -> bool:
    """Return whether a task failed because a worker or a connection was lost."""
    try:
        state.result()
    except (CancelledError, ClusterError, ConnectionError, TimeoutError):
        return True
    except BaseException as error:
        # KilledWorker, CommClosedError and their like, without importing Dask for an inline run.
        return any(cls.__module__.startswith("distributed") for cls in type(error).__mro__)
    return False
