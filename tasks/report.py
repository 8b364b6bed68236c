"""Comparing with papers and writing the report, as tasks."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.runner import compare_with_paper, write_report
from fairfrontier.study.frontier import StudyResults
from fairfrontier.study.reproduction import Reproduction
from fairfrontier.study.run import RunContext, StudyRun


@task(name="compare", task_run_name="compare {label}", tags=["report"], cache_policy=NO_CACHE)
def compare(
    label: str,  # noqa: ARG001
    context: RunContext,
    results: StudyResults,
) -> Reproduction:
    """Check claims and published numbers; see `compare_with_paper`."""
    return compare_with_paper(context, results)


@task(name="report", task_run_name="report on {label}", tags=["report"], cache_policy=NO_CACHE)
def report(
    label: str,  # noqa: ARG001
    context: RunContext,
    study: StudyRun,
    results: StudyResults,
    reproduction: Reproduction,
) -> int:
    """Write the results of a study; see `write_report`."""
    return write_report(context, study, results, reproduction)
