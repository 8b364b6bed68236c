"""The watch over a bundle in use, as tasks."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.deployment.config import MonitorConfig
from fairfrontier.deployment.monitoring import MonitorFindings, watch, write_monitor
from fairfrontier.deployment.scoring import Progress


@task(task_run_name="count {config.name}", tags=["evaluate"], cache_policy=NO_CACHE)
def count_rows(config: MonitorConfig, progress: Progress) -> MonitorFindings:
    """Count a new period and compare it with the reference; see `watch`."""
    return watch(config, progress)


@task(task_run_name="report on {findings.config.name}", tags=["evaluate"], cache_policy=NO_CACHE)
def report(findings: MonitorFindings, started: float) -> dict[str, Any]:
    """Write the history and the page; see `write_monitor`."""
    return write_monitor(findings, started)
