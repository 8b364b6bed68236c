"""The audit of decisions or scores, as tasks."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.auditing import audit as verb
from fairfrontier.auditing.option import AuditConfig
from fairfrontier.auditing.subject import Findings, Progress


@task(task_run_name="audit {config.name}", tags=["evaluate"], cache_policy=NO_CACHE)
def examine(config: AuditConfig, progress: Progress) -> Findings:
    """Audit decisions or scores by groups; see `fairfrontier.audit`."""
    return verb.audit(config, progress)


@task(task_run_name="report on {findings.config.name}", tags=["evaluate"], cache_policy=NO_CACHE)
def report(findings: Findings, started: float) -> dict[str, Any]:
    """Write the results of an audit; see `fairfrontier.auditing.audit.write`."""
    return verb.write(findings, findings.config.folder, started)
