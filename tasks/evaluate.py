"""Prefect's door to evaluating: the points of fits, what a study leaves, debiasing and audits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.audit.auditing import Findings, run_audit
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.files import write_audit
from fairfrontier.debias.debiasing import DebiasConfig, Debiasing, Progress, fit_debiasing
from fairfrontier.debias.files import write_debiasing

if TYPE_CHECKING:
    pass


@task(
    name="fit_thresholds",
    task_run_name="fit thresholds on {name}",
    tags=["evaluate"],
    cache_policy=NO_CACHE,
)
def fit_thresholds(name: str, config: DebiasConfig, progress: Progress) -> Debiasing:  # noqa: ARG001
    """Read a table of scores once and fit its thresholds; see `fit_debiasing`."""
    return fit_debiasing(config, progress)


@task(name="decide", task_run_name="decide on {name}", tags=["evaluate"], cache_policy=NO_CACHE)
def write_decisions(
    name: str,  # noqa: ARG001
    debiasing: Debiasing,
    folder: Path,
    started: float,
    progress: Progress,
) -> dict[str, Any]:
    """Read the table again, decide, and write what debiasing leaves; see `write_debiasing`."""
    return write_debiasing(debiasing, folder, started, progress)


@task(name="audit", task_run_name="audit {name}", tags=["evaluate"], cache_policy=NO_CACHE)
def bound_rates_of(
    name: str,  # noqa: ARG001
    config: AuditConfig,
    home: Path,
    progress: Progress,
) -> Findings:
    """Audit decisions on rows whose groups are noisy; see `run_audit`."""
    return run_audit(config, home, progress)


@task(name="report", task_run_name="report on {name}", tags=["evaluate"], cache_policy=NO_CACHE)
def write_bounds(
    name: str,  # noqa: ARG001
    findings: Findings,
    folder: Path,
    started: float,
) -> dict[str, Any]:
    """Write what an audit leaves; see `write_audit`."""
    return write_audit(findings, folder, started)
