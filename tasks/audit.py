"""The audit of noisy groups, as tasks."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.audit.auditing import Findings, Progress, run_audit
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.files import write_audit


@task(task_run_name="bound rates of {config.name}", tags=["evaluate"], cache_policy=NO_CACHE)
def bound_rates(config: AuditConfig, progress: Progress) -> Findings:
    """Audit decisions on rows whose groups are noisy; see `run_audit`."""
    return run_audit(config, progress)


@task(task_run_name="report on {findings.config.name}", tags=["evaluate"], cache_policy=NO_CACHE)
def report(findings: Findings, started: float) -> dict[str, Any]:
    """Write the results of an audit; see `write_audit`."""
    return write_audit(findings, findings.config.folder, started)
