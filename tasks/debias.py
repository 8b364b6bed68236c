"""Debiasing, as tasks."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.auditing.debias import Debiasing, Progress, fit_debiasing
from fairfrontier.auditing.debiased import write_debiasing
from fairfrontier.auditing.option import DebiasConfig


@task(task_run_name="fit thresholds on {config.name}", tags=["evaluate"], cache_policy=NO_CACHE)
def fit_thresholds(config: DebiasConfig, progress: Progress) -> Debiasing:
    """Read a table of scores once and fit its thresholds; see `fit_debiasing`."""
    return fit_debiasing(config, progress)


@task(task_run_name="decide on {debiasing.config.name}", tags=["evaluate"], cache_policy=NO_CACHE)
def decide(debiasing: Debiasing, started: float, progress: Progress) -> dict[str, Any]:
    """Read the table again, decide, and write the results; see `write_debiasing`."""
    return write_debiasing(debiasing, debiasing.config.folder, started, progress)
