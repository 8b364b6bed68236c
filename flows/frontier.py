"""The frontier flow: the chain of a study, in which every stage is a task."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from prefect import Task, flow
from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import ThreadPoolTaskRunner

from fairfrontier.cli.progress import FitProgress
from fairfrontier.runner import restore as put_back
from fairfrontier.runtime.cluster import open_cluster
from fairfrontier.study.option import RunOptions
from fairfrontier.study.run import StudyRun, run_stages, start_study
from fairfrontier.study.stage import RunContext
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
    """Carries every stage out as a Prefect task, which waits for those whose results it needs.

    Parameters
    ----------
    context : RunContext
        What the stages share.
    """

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self._tasks: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(
            # One more: Prefect warns where a task that waits could hold the only thread.
            max_workers=context.slots + 1
        )

    def __enter__(self) -> FlowRunner:
        self._tasks.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.context.stop()
        self._tasks.__exit__(kind, *rest)

    def submit(
        self, stage: str, *arguments: Any, label: str, after: Sequence[PrefectFuture[Any]] = ()
    ) -> PrefectFuture[Any]:
        """Submit the task of a stage; see `fairfrontier.study.run.Runner`."""
        task = STAGES[stage]
        parameters = inspect.signature(task.fn).bind(label, self.context, *arguments).arguments
        return self._tasks.submit(task, parameters, wait_for=list(after))

    def as_completed(self, futures: Sequence[PrefectFuture[Any]]) -> Iterable[PrefectFuture[Any]]:
        """Yield futures as they are carried out."""
        return as_completed(list(futures))


class ProgressArtifact:
    """Shows fits on the terminal and, every few seconds, as an artifact of the run.

    Parameters
    ----------
    slug : str
        Names the artifact.
    shown : FitProgress
        What shows them on the terminal.
    """

    def __init__(self, slug: str, shown: FitProgress) -> None:
        self._shown = shown
        self._artifact = start_progress(slug)
        self._published = time.monotonic()

    def expect(self, total: int) -> None:
        """Take how many fits there are."""
        self._shown.expect(total)

    def watch(self, label: str) -> AbstractContextManager[Any]:
        """Show a fit while it runs."""
        return self._shown.watch(label)

    def note(self, method: str, remarks: Sequence[str]) -> None:
        """Take what a fit warned of."""
        self._shown.note(method, remarks)

    def advance(self) -> None:
        """Count a fit as done."""
        self._shown.advance()
        now = time.monotonic()
        if self._shown.share == 100.0 or now - self._published > PUBLISH_SECONDS:
            self._published = now
            show_progress(self._artifact, self._shown.share)


@flow(name="frontier", flow_run_name="{run.study} {run.profile}", persist_result=False)
def frontier(run: RunOptions) -> dict[str, Any]:
    """Train what a study asks for, measure it, and leave its frontier behind.

    Parameters
    ----------
    run : RunOptions
        Which study, how much of it, and where.

    Returns
    -------
    dict
        ``study``, ``profile``, ``folder``, ``fits``, ``trained``, ``skipped``, ``seconds``.

    Raises
    ------
    FairfrontierError
        For whatever the user can mend; before anything is trained where that can be known.
    """
    mark_run()
    study = start_study(run)
    facts = study.summarise() if put_back(study) else _run(study)
    publish_results(study.slug, study.folder)
    return facts


def restore(run: RunOptions) -> dict[str, Any] | None:
    """Put the results of a study back that the store holds whole, within the flow that calls this.

    Returns
    -------
    dict or None
        What `frontier` returns; None where something is to be done, which is left to it.

    Raises
    ------
    FairfrontierError
        What `frontier` raises before anything is trained.
    """
    study = start_study(run)
    return study.summarise() if put_back(study) else None


def _run(study: StudyRun) -> dict[str, Any]:
    with ExitStack() as stack:
        client = stack.enter_context(open_cluster(study.cluster))
        shown = stack.enter_context(FitProgress(study.slug))
        observer = ProgressArtifact(study.slug, shown)
        progress = FetchArtifact(Path(study.study.dataset).stem)
        context = RunContext(study.store, study.home, client, observer, progress)
        return run_stages(study, stack.enter_context(FlowRunner(context)))
