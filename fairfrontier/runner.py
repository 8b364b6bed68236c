"""Running a study in this process: the function of each stage of the chain, and the public verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

from fairfrontier.choose.select import Study
from fairfrontier.report.files import describe_results, keep_results, restore_results, write_results
from fairfrontier.runtime.cluster.open import open_cluster
from fairfrontier.runtime.store import CACHE
from fairfrontier.runtime.writer import sharing
from fairfrontier.study.config import DEFAULT_PROFILE, RunOptions
from fairfrontier.study.frontier import StudyResults
from fairfrontier.study.reproduction import Reproduction, find_laboratory
from fairfrontier.study.run import (
    Observer,
    RunContext,
    SilentObserver,
    StudyRun,
    ThreadRunner,
    choose_frontier,
    fit_group,
    learn_metric,
    measure_group,
    prepare_split,
    run_stages,
    start_study,
)


def compare_with_paper(context: RunContext, results: StudyResults) -> Reproduction:
    """Check the claims of a study, and compare its results with published numbers, if any."""
    laboratory = find_laboratory(results.study)
    compared = Reproduction()
    if laboratory is not None:
        compared = laboratory.hold_to_paper(results, context.store, context.home)
    return compared


def write_report(
    context: RunContext, study: StudyRun, results: StudyResults, reproduction: Reproduction
) -> int:
    """Write the files of a study, keep a copy in the store, and return how many there are."""
    files = write_results(
        results,
        study.folder,
        study.seconds,
        home=context.home,
        store=context.store,
        reproduction=reproduction,
        asked=study.options.shown,
    )
    keep_results(files, context.store, describe_results(study))
    return len(files)


STAGES: Mapping[str, Callable[..., Any]] = {
    "prepare": prepare_split,
    "metric": learn_metric,
    "fit": fit_group,
    "measure": measure_group,
    "frontier": choose_frontier,
    "compare": compare_with_paper,
    "report": write_report,
}


def restore(study: StudyRun) -> bool:
    """Restore the files of a complete study from the store; False where it lacks them."""
    return study.is_complete and restore_results(study.folder, study.store, describe_results(study))


def run_plain(
    study: StudyRun, observe: Callable[[StudyRun], AbstractContextManager[Observer]] | None = None
) -> dict[str, Any]:
    """Run a study in this process, or on the workers of its cluster, and return its summary.

    ``observe`` makes what shows the progress of a run.
    """
    with ExitStack() as stack:
        stack.enter_context(sharing(study.home / CACHE))
        if restore(study):
            return study.summarise()
        client = stack.enter_context(open_cluster(study.cluster))
        watched = observe(study) if observe else nullcontext(SilentObserver())
        observer = stack.enter_context(watched)
        context = RunContext(study.store, study.home, client, observer)
        runner = stack.enter_context(ThreadRunner(context, STAGES))
        return run_stages(study, runner)


def run_study(
    study: str | Path,
    *,
    profile: str = DEFAULT_PROFILE,
    cluster: str = "auto",
    out: str | Path | None = None,
    home: str | Path | None = None,
) -> Study:
    """Run a study and return its results.

    Parameters
    ----------
    study : str or Path
        A name in ``conf/studies``, or a YAML file.
    profile : str, default "default"
        How much is run.
    cluster : str, default "auto"
        A name in ``conf/clusters`` or a YAML file; ``auto`` trains few fits in this process, and
        more, or those of a search, on one process per core. These import the main module again: a
        script without ``if __name__ == "__main__":`` trains in its own process.
    out : str or Path, optional
        The parent of the study's folder; ``data/results`` by default.
    home : str or Path, optional
        The project root; found from the current folder by default.

    Returns
    -------
    Study

    Raises
    ------
    FairfrontierError
        For faults that the user can correct.

    Notes
    -----
    Finished work is kept in ``data/cache/store``: an interrupted call resumes where it stopped,
    and a second one takes a second.
    """
    options = RunOptions(study=str(study), profile=profile, cluster=cluster, out=out, conf=home)
    facts = run_plain(start_study(options))
    return Study(Path(facts["folder"]), options.home, facts)
