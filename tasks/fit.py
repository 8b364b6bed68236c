"""Fitting, as a task: one per fit group, cached by what the store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefect import task

from fairfrontier.models.fit.group import KIND, FitGroup
from fairfrontier.study.run import RunContext, fit_group
from tasks.retry import is_infrastructure_fault

if TYPE_CHECKING:
    from prefect.context import TaskRunContext


def find_stored(_: TaskRunContext, parameters: dict[str, Any]) -> str | None:
    """Return a cache key when the store holds the fit and its digest verifies, else None."""
    digest = parameters["context"].store.digest(KIND, parameters["key"])
    return None if digest is None else f"{parameters['key']}-{digest}"


@task(
    name="fit",
    task_run_name="fit {label}",
    tags=["fit"],
    retries=2,
    retry_delay_seconds=2,
    retry_condition_fn=is_infrastructure_fault,
    cache_key_fn=find_stored,
    persist_result=True,
    result_serializer="json",
)
def fit(label: str, context: RunContext, group: FitGroup, key: str) -> str:  # noqa: ARG001
    """Train a fit group into the store; see `fit_group`."""
    return fit_group(context, group, key)
