"""Runs that were killed, which the server would show as running forever."""

from __future__ import annotations

import os
import socket

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import StateType
from prefect.context import FlowRunContext
from prefect.states import Crashed

MARK = "process"


def mark_run() -> None:
    """Tag the calling flow run with its machine and process."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    tags = {*context.flow_run.tags, f"{MARK}:{socket.gethostname()}:{os.getpid()}"}
    with get_client(sync_client=True) as client:
        client.update_flow_run(context.flow_run.id, tags=sorted(tags))


def crash_dead_runs() -> int:
    """Mark as crashed the flow runs whose process on this machine is gone; return how many."""
    waiting = FlowRunFilter(
        state=FlowRunFilterState(
            type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.CANCELLING])
        )
    )
    crashed = 0
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=waiting):
            marks = [tag.split(":") for tag in run.tags if tag.startswith(f"{MARK}:")]
            if any(_is_gone(host, process) for _, host, process in marks):
                message = "The process of this run ended without reporting it."
                client.set_flow_run_state(run.id, Crashed(message=message), force=True)
                crashed += 1
    return crashed


def flush_workers() -> None:
    """Send what Prefect's threads have queued, because their server is about to stop."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=10, at_exit=False)


def _is_gone(host: str, process: str) -> bool:
    if host != socket.gethostname() or int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
