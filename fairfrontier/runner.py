"""Running a study in this process: what each stage of the chain does, and the public verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.choose.select import Choice, select
from fairfrontier.report.files import describe_results, keep_results, restore_results, write_results
from fairfrontier.runtime.cluster import open_cluster
from fairfrontier.study.config import DEFAULT_PROFILE
from fairfrontier.study.option import RunOptions
from fairfrontier.study.publication import Reproduction
from fairfrontier.study.results import StudyResults
from fairfrontier.study.run import StudyRun, ThreadRunner, choose_frontier, run_stages, start_study
from fairfrontier.study.stage import (
    Observer,
    RunContext,
    SilentObserver,
    fit_group,
    learn_metric,
    measure_group,
    prepare_split,
)


def compare_with_paper(context: RunContext, results: StudyResults) -> Reproduction:
    """Check the claims of a study, and set published numbers beside ours, where it has any."""
    if not results.study.claims and results.study.published is None:
        return Reproduction()
    # An ordinary run imports none of it.
    from fairfrontier.reproduce.reproduction import hold_to_paper

    return hold_to_paper(results, context.store, context.home)


def write_report(
    context: RunContext, study: StudyRun, results: StudyResults, reproduction: Reproduction
) -> int:
    """Write what a study leaves behind, keep a copy, and return how many files there are."""
    files = write_results(
        results,
        study.folder,
        study.seconds,
        home=context.home,
        store=context.store,
        reproduction=reproduction,
    )
    keep_results(files, context.store, _describe(study))
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
    """Put the files of a study back that the store holds whole; False where it does not."""
    return study.is_complete and restore_results(study.folder, study.store, _describe(study))


def run_plain(
    study: StudyRun, observe: Callable[[StudyRun], AbstractContextManager[Observer]] | None = None
) -> dict[str, Any]:
    """Run a study in this process, or on the workers of the cluster that is asked for.

    Parameters
    ----------
    study : StudyRun
        From `start_study`.
    observe : callable, optional
        Makes what shows how far the run is.

    Returns
    -------
    dict
        ``study``, ``profile``, ``folder``, ``fits``, ``trained``, ``skipped``, ``seconds``.

    Raises
    ------
    FairfrontierError
        For whatever the user can mend.
    """
    if restore(study):
        return study.summarise()
    with ExitStack() as stack:
        client = stack.enter_context(open_cluster(study.cluster))
        watched = observe(study) if observe else nullcontext(SilentObserver())
        observer = stack.enter_context(watched)
        context = RunContext(study.store, study.home, client, observer)
        runner = stack.enter_context(ThreadRunner(context, STAGES))
        return run_stages(study, runner)


@dataclass(frozen=True)
class Study:
    """A study that was run, and what it left behind.

    Attributes
    ----------
    folder : Path
        Its results.
    home : Path
        The project root.
    facts : mapping
        ``study``, ``profile``, ``folder``, ``fits``, ``trained``, ``skipped``, ``seconds``.
    """

    folder: Path
    home: Path
    facts: Mapping[str, Any]

    @cached_property
    def frontier(self) -> pd.DataFrame:
        """The frontier: one row per fairness measure × method × setting."""
        return pd.read_csv(self.folder / "frontier.csv")

    @cached_property
    def points(self) -> pd.DataFrame:
        """Every measure of every fit."""
        return pd.read_parquet(self.folder / "points.parquet")

    @cached_property
    def models(self) -> pd.DataFrame:
        """The folder of every model, by method, setting and seed."""
        return pd.read_csv(self.folder / "models.csv", keep_default_na=False)

    def select(
        self,
        measure: str,
        subject_to: Mapping[str, float] | None = None,
        *,
        seed: int | None = None,
    ) -> Choice:
        """Choose the best setting within bounds; see `fairfrontier.choose.select.select`."""
        return select(self, measure, subject_to, seed=seed)


def run_study(
    study: str | Path,
    *,
    profile: str = DEFAULT_PROFILE,
    cluster: str = "auto",
    out: str | Path | None = None,
    home: str | Path | None = None,
) -> Study:
    """Run a study and return what it left behind.

    Parameters
    ----------
    study : str or Path
        A name in ``conf/studies``, or a YAML file.
    profile : str, default "default"
        How much is run.
    cluster : str, default "auto"
        A name in ``conf/clusters`` or a YAML file; ``auto`` fits in this process where little is to
        be trained, else on one process per core.
    out : str or Path, optional
        The folder that gets the study's folder; ``data/results`` by default.
    home : str or Path, optional
        The project root; found from the current folder by default.

    Returns
    -------
    Study

    Raises
    ------
    FairfrontierError
        For whatever the user can mend.

    Notes
    -----
    What is finished is kept in ``data/cache/store``: an interrupted call goes on where it stopped,
    and a second one takes a second.
    """
    options = RunOptions(study=str(study), profile=profile, cluster=cluster, out=out, conf=home)
    facts = run_plain(start_study(options))
    return Study(Path(facts["folder"]), options.home, facts)


def _describe(study: StudyRun) -> dict[str, Any]:
    return describe_results(study.study, study.plan, study.points, study.home, study.store)
