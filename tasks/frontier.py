"""Choosing the frontier, as a task."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.study.frontier import StudyResults
from fairfrontier.study.run import RunContext, StudyRun, choose_frontier


@task(name="frontier", task_run_name="frontier of {label}", cache_policy=NO_CACHE)
def choose(
    label: str,  # noqa: ARG001
    context: RunContext,
    study: StudyRun,
    tables: Sequence[pd.DataFrame],
) -> StudyResults:
    """Put all points together and find the frontier; see `choose_frontier`."""
    return choose_frontier(context, study, tables)
