"""The frontier flow: the chain of a study, in which every stage is a task."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from prefect import Task, flow
from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import ThreadPoolTaskRunner

from fairfrontier.cli.progress import FitProgress
from fairfrontier.runner import restore as put_back
from fairfrontier.runtime.cluster.open import open_cluster
from fairfrontier.runtime.store import CACHE
from fairfrontier.runtime.writer import sharing
from fairfrontier.study.config import RunOptions
from fairfrontier.study.run import RunContext, StudyRun, run_stages, start_study
from flows.artifact import (
    PUBLISH_SECONDS,
    FetchArtifact,
    publish_results,
    show_progress,
    start_progress,
)
from flows.history import mark_run
from tasks.fit import fit
from tasks.frontier import choose
from tasks.measure import measure
from tasks.metric import learn
from tasks.prepare import prepare
from tasks.report import compare, report

STAGES: Mapping[str, Task[..., Any]] = {
    "prepare": prepare,
    "metric": learn,
    "fit": fit,
    "measure": measure,
    "frontier": choose,
    "compare": compare,
    "report": report,
}


class FlowRunner:
    """Runs every stage as a Prefect task, which waits for those whose results it needs."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self._tasks: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(
            # One more: Prefect warns where a waiting task could occupy the only thread.
            max_workers=context.slots + 1
        )

    def __enter__(self) -> FlowRunner:
        self._tasks.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        if kind is not None:
            self.context.stop()
        self._tasks.__exit__(kind, *details)

    def submit(
        self, stage: str, *arguments: Any, label: str, after: Sequence[PrefectFuture[Any]] = ()
    ) -> PrefectFuture[Any]:
        """Submit the task of a stage; see `fairfrontier.study.run.Runner`."""
        task = STAGES[stage]
        parameters = inspect.signature(task.fn).bind(label, self.context, *arguments).arguments
        return self._tasks.submit(task, parameters, wait_for=list(after))

    def as_completed(self, futures: Sequence[PrefectFuture[Any]]) -> Iterable[PrefectFuture[Any]]:
        """Yield futures as they complete."""
        return as_completed(list(futures))


class ProgressArtifact(FitProgress):
    """Shows fits on the terminal and, every few seconds, as an artifact of the run."""

    def __init__(self, slug: str) -> None:
        super().__init__(slug)
        self._artifact = start_progress(slug)
        self._published = time.monotonic()

    def advance(self) -> None:
        """Count a fit as done."""
        super().advance()
        now = time.monotonic()
        if self.share == 100.0 or now - self._published > PUBLISH_SECONDS:
            self._published = now
            show_progress(self._artifact, self.share)


@flow(name="frontier", flow_run_name="{run.study} {run.profile}", persist_result=False)
def frontier(run: RunOptions) -> dict[str, Any]:
    """Train and measure the models of a study, and write its frontier.

    Returns ``study``, ``profile``, ``folder``, ``fits``, ``trained``, ``skipped`` and ``seconds``.
    Raises a FairfrontierError for errors of the user's, before anything is trained if possible.
    """
    mark_run()
    study = start_study(run)
    with sharing(study.home / CACHE):
        facts = study.summarise() if put_back(study) else _run(study)
    publish_results(study.slug, study.folder)
    return facts


def restore(run: RunOptions) -> dict[str, Any] | None:
    """Restore the results of a study within the calling flow if the store holds all of them.

    Returns and raises what `frontier` does; None if anything remains to be computed.
    """
    study = start_study(run)
    return study.summarise() if put_back(study) else None


def _run(study: StudyRun) -> dict[str, Any]:
    with ExitStack() as stack:
        client = stack.enter_context(open_cluster(study.cluster))
        observer = stack.enter_context(ProgressArtifact(study.slug))
        progress = FetchArtifact(Path(study.study.dataset).stem)
        context = RunContext(study.store, study.home, client, observer, progress)
        return run_stages(study, stack.enter_context(FlowRunner(context)))
