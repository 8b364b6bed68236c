"""Learning a fair metric, as a task."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.similarity.kept import MetricRequest
from fairfrontier.study.run import RunContext, learn_metric


@task(name="metric", task_run_name="metric {label}", tags=["metric"], cache_policy=NO_CACHE)
def learn(label: str, context: RunContext, request: MetricRequest) -> str | None:  # noqa: ARG001
    """Learn a fair metric; see `learn_metric`."""
    return learn_metric(context, request)
