"""Preparing, as a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.prepare.description import describe_split
from fairfrontier.prepare.loader import SplitRequest
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.study.run import RunContext, prepare_split


@task(name="prepare", task_run_name="prepare {label}", tags=["prepare"], cache_policy=NO_CACHE)
def prepare(label: str, context: RunContext, request: SplitRequest) -> str:  # noqa: ARG001
    """Prepare a split; see `prepare_split`."""
    return prepare_split(context, request)


@task(task_run_name="prepare {dataset} seed {seed}", tags=["prepare"], cache_policy=NO_CACHE)
def prepare_table(
    dataset: str, seed: int, home: str, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Load a dataset and return what its parts hold; see `describe_split`."""
    return describe_split(SplitRequest(dataset, seed).load(Path(home), progress))
