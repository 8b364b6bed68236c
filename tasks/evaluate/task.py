"""Prefect's door to evaluating: the points of all fits, and what a study leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.evaluate.plan import Planned
from tasks.evaluate.points import tabulate_group
from tasks.evaluate.result import keep_results, write_results
from tasks.evaluate.study import StudyConfig
from tasks.runtime.thread import call_limited
from tasks.train.fit_group import FitGroup

if TYPE_CHECKING:
    from distributed import Client


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


@task(name="write", task_run_name="write {study.study}", tags=["evaluate"], cache_policy=NO_CACHE)
def write_study(
    study: StudyConfig,
    points: pd.DataFrame,
    folder: Path,
    seconds: float,
    plan: Sequence[Planned],
    skipped: Mapping[str, str],
    place: Any,
    description: Mapping[str, Any],
) -> list[str]:
    """Write what the study leaves behind, keep a copy, and return the names of the files.

    ``place`` has the ``store`` and the ``home``; ``description`` is that of the copy.
    """
    files = write_results(
        study,
        points,
        folder,
        seconds,
        plan=plan,
        skipped=skipped,
        home=place.home,
        store=place.store,
    )
    keep_results(files, place.store, description)
    return sorted(files)
