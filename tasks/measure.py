"""Measuring, as a task."""

from __future__ import annotations

import pandas as pd
from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.models.fit.group import FitGroup
from fairfrontier.study.run import RunContext, measure_group
from tasks.retry import is_infrastructure_fault


@task(
    name="measure",
    task_run_name="measure {label}",
    tags=["evaluate"],
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=2,
    retry_condition_fn=is_infrastructure_fault,
)
def measure(label: str, context: RunContext, group: FitGroup) -> pd.DataFrame:  # noqa: ARG001
    """Measure the models of a fit; see `measure_group`."""
    return measure_group(context, group)
