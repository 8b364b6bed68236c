"""Prefect's door to evaluating: the points of fits, what a study leaves, debiasing and audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.audit.auditing import Findings, run_audit
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.files import write_audit
from fairfrontier.debias.debiasing import DebiasConfig, Debiasing, Progress, fit_debiasing
from fairfrontier.debias.files import write_debiasing
from fairfrontier.report.files import KIND, keep_results, write_results
from fairfrontier.runtime.store import Store
from fairfrontier.runtime.thread import call_limited
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.plan import Planned
from fairfrontier.study.points import tabulate_group
from fairfrontier.train.fit.group import FitGroup

if TYPE_CHECKING:
    from distributed import Client
    from prefect.context import TaskRunContext


@task(name="tabulate", task_run_name="measure {study}", tags=["evaluate"], cache_policy=NO_CACHE)
def tabulate(
    study: str,  # noqa: ARG001
    place: Any,
    groups: Sequence[FitGroup],
) -> pd.DataFrame:
    """Return the points of all fit groups in one table, measured on the workers if there are any.

    ``place`` has the ``store``, the ``home`` and the ``client``; ``study`` names the run.
    """
    client: Client | None = place.client
    if client is None:
        tables = [
            call_limited(group.threads, tabulate_group, group, place.store, place.home)
            for group in groups
        ]
    else:
        futures = [
            client.submit(
                call_limited,
                group.threads,
                tabulate_group,
                group,
                place.store,
                place.home,
                pure=False,
            )
            for group in groups
        ]
        tables = client.gather(futures)
    return pd.concat(tables, ignore_index=True)


def find_kept(_: TaskRunContext, parameters: dict[str, Any]) -> str | None:
    """Return a cache key when the store holds the study's files and their digest verifies."""
    if parameters["points"] is not None:
        return None
    store: Store = parameters["store"]
    return store.digest(KIND, store.key(KIND, parameters["description"]))


@task(
    name="write",
    task_run_name="write {study.study}",
    # No tag: Prefect would ask for a slot of it at every restored study.
    cache_key_fn=find_kept,
    persist_result=True,
    result_serializer="json",
)
def write_study(
    study: StudyConfig,
    points: pd.DataFrame | None,
    folder: Path,
    seconds: float,
    plan: Sequence[Planned],
    skipped: Mapping[str, str],
    store: Store,
    home: Path,
    description: Mapping[str, Any],
) -> int:
    """Write what the study leaves behind, keep a copy, and return how many files there are.

    ``description`` is that of the copy. Without ``points`` the files were restored from it already.
    """
    if points is None:
        return sum(1 for _ in folder.iterdir())
    files = write_results(
        study,
        points,
        folder,
        seconds,
        plan=plan,
        skipped=skipped,
        home=home,
        store=store,
    )
    keep_results(files, store, description)
    return len(files)


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
