"""Prefect's door to training: one task per fit group, cached by what the store holds."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from prefect import task

from fairfrontier.runtime.errors import ClusterError
from fairfrontier.runtime.store import Store
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.kept import KIND
from fairfrontier.train.fit.remark import fit_telling
from fairfrontier.train.registry import METHODS

if TYPE_CHECKING:
    from distributed import Client
    from prefect import Task
    from prefect.client.schemas.objects import State, TaskRun
    from prefect.context import TaskRunContext


class Workplace(Protocol):
    """Where fits run: the store, the project root, the client if any, and who watches."""

    store: Store
    home: Path
    client: Client | None

    def watch(self, group: FitGroup) -> AbstractContextManager[Any]:
        """Show a fit while it runs; raise where the run has been interrupted."""
        ...

    def note(self, group: FitGroup, remarks: Sequence[str]) -> None:
        """Take what a fit warned of."""
        ...


def find_stored(_: TaskRunContext, parameters: dict[str, Any]) -> str | None:
    """Return a cache key when the store holds the fit and its digest verifies, else None."""
    digest = parameters["place"].store.digest(KIND, parameters["key"])
    return None if digest is None else f"{parameters['key']}-{digest}"


def is_infrastructure_fault(_: Task[Any, Any], __: TaskRun, state: State[Any]) -> bool:
    """Tell whether a fit failed for lack of a worker or a wire: only then another try can help."""
    try:
        state.result()
    except (CancelledError, ClusterError, ConnectionError, TimeoutError):
        return True
    except BaseException as error:
        # KilledWorker, CommClosedError and their like, without importing Dask for an inline run.
        return any(cls.__module__.startswith("distributed") for cls in type(error).__mro__)
    return False


@task(
    name="fit",
    task_run_name="fit {method} on {dataset} seed {seed}",
    tags=["fit"],
    retries=2,
    retry_delay_seconds=2,
    retry_condition_fn=is_infrastructure_fault,
    cache_key_fn=find_stored,
    persist_result=True,
    result_serializer="json",
)
def fit_group(
    method: str,  # noqa: ARG001
    dataset: str,  # noqa: ARG001
    seed: str,  # noqa: ARG001
    key: str,  # noqa: ARG001
    group: FitGroup,
    place: Workplace,
) -> str:
    """Train a fit group into the store, on a worker where there is one; return its key.

    ``method``, ``dataset`` and ``seed`` name the run; ``key`` is what the store is asked for.
    """
    with place.watch(group):
        if place.client is None:
            found, remarks = fit_telling(group, place.store, place.home)
        elif METHODS.find(group.estimator).distributed:
            # It spreads itself over the cluster, which it has to itself.
            found, remarks = fit_telling(group, place.store, place.home, client=place.client)
        else:
            future = place.client.submit(fit_telling, group, place.store, place.home, pure=False)
            try:
                found, remarks = future.result()
            finally:
                future.release()
        place.note(group, remarks)
        return found
