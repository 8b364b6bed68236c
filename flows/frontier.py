"""The frontier flow: a study in, its folder of results out."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from prefect import flow
from prefect.futures import as_completed
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import BaseModel, ConfigDict, Field

from fairfrontier.cli.progress import FitProgress
from fairfrontier.report.files import describe_results, restore_results
from fairfrontier.runtime.cluster import load_cluster, open_cluster
from fairfrontier.runtime.errors import FairfrontierError, StoreError
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.store import Store
from fairfrontier.study.config import DEFAULT_PROFILE, StudyConfig
from fairfrontier.study.plan import Planned, expand, load_study
from fairfrontier.study.points import KIND as POINTS
from fairfrontier.study.points import points_key
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.input import load_split
from fairfrontier.train.fit.kept import KIND, read_facts
from fairfrontier.train.fit.key import key
from fairfrontier.train.postprocess.model import require_calibration
from fairfrontier.train.registry import METHODS
from flows.artifact import publish_results, show_progress, start_progress
from flows.encoding import CHANGES, encode_texts, settle_encoders, write_changes
from flows.history import mark_run
from tasks.evaluate import tabulate, write_study
from tasks.fit import fit_group
from tasks.metric import learn_metric
from tasks.prepare import prepare_table

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

# The progress artifact is for people: more often would only load the server.
PUBLISH_SECONDS = 2.0


class FrontierParameters(BaseModel):
    """What a frontier run is asked for; the form that the Prefect server shows.

    Attributes
    ----------
    study : str
        A name in conf/studies, or the path of a YAML file.
    profile : str
        How much is run.
    cluster : str
        A name in conf/clusters, or the path of a YAML file.
    out : str or None
        The folder that gets the study's folder; data/results by default.
    home : str or None
        The project root; found from the current folder by default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: str = Field(min_length=1)
    profile: str = DEFAULT_PROFILE
    cluster: str = "local"
    out: str | None = None
    home: str | None = None

    @property
    def root(self) -> Path:
        """The project root."""
        return Path(self.home) if self.home else find_home()

    @property
    def store(self) -> Store:
        """Where the fits are kept."""
        return Store(self.root / "data" / "cache" / "store")

    def load(self) -> StudyConfig:
        """Return the study, checked."""
        return load_study(self.study, self.profile, self.root)

    def check(self) -> None:
        """Raise a FairfrontierError for what can be known to be wrong before anything runs."""
        self.unfold()

    def unfold(self) -> tuple[StudyConfig, tuple[Planned, ...]]:
        """Return the study and what it trains; see ``check`` for what it raises."""
        study = self.load()
        load_cluster(self.cluster, self.root)
        plan = expand(study, self.root)
        check_folder(self.folder(study))
        self.store.check_writable()
        return study, plan

    def folder(self, study: StudyConfig) -> Path:
        """Return the folder of the study's results."""
        base = Path(self.out).expanduser() if self.out else self.root / "data" / "results"
        return base.absolute() / study.slug


class InterruptedRun(Exception):  # noqa: N818
    """The run was interrupted before this fit started."""


class Place:
    """Where the fits of a run happen; see `tasks.fit.Workplace`."""

    def __init__(self, store: Store, home: Path, client: Client | None, shown: FitProgress) -> None:
        self.store = store
        self.home = home
        self.client = client
        self.shown = shown
        self._stopped = False

    def watch(self, group: FitGroup) -> AbstractContextManager[None]:
        """Show a fit while it runs; no fit starts in a run that was interrupted."""
        if self._stopped:
            raise InterruptedRun(f"{name_fit(group)} was not started.")
        return self.shown.watch(name_fit(group))

    def note(self, group: FitGroup, remarks: Sequence[str]) -> None:
        """Have what a fit warned of shown in the end, once for its method."""
        self.shown.note(group.method, remarks)

    def stop(self) -> None:
        """Let no further fit start, and wait for none that runs on a worker."""
        self._stopped = True
        if self.client is not None:
            self.client.close()

    @property
    def slots(self) -> int:
        """How many fits run at once."""
        if self.client is None:
            return 1
        return max(1, sum(self.client.nthreads().values()))


def name_fit(group: FitGroup) -> str:
    """Return a fit's short name for the terminal."""
    return f"{group.method}/{name_seeds(group)}"


def name_seeds(group: FitGroup) -> str:
    """Return the splits of a fit group in a word: ``3``, or ``0-9`` for a batch."""
    return "-".join(str(each) for each in dict.fromkeys((group.seeds[0], group.seeds[-1])))


@dataclass(frozen=True)
class Standing:
    """What a study asks for, and how much of it the store holds.

    Attributes
    ----------
    plan : tuple of Planned
        What is to be trained.
    keys : tuple of str
        Where the store keeps each fit, in the order of the plan.
    missing : dict of str to FitGroup
        What it does not hold, by key, with models of which only post-processed rows show.
    is_complete : bool
        Whether it held all fits and their points from the start.
    description : dict
        What the study's files depend on.
    started : float
        When it was asked, by the monotonic clock.
    """

    run: FrontierParameters
    study: StudyConfig
    plan: tuple[Planned, ...]
    keys: tuple[str, ...]
    missing: Mapping[str, FitGroup]
    is_complete: bool
    description: Mapping[str, Any]
    started: float

    @classmethod
    def of(cls, run: FrontierParameters) -> Self:
        """Read the study and ask the store."""
        started = time.monotonic()
        home, store = run.root, run.store
        study, plan = run.unfold()
        groups = [each.group for each in plan]
        settle_encoders(groups, home)
        keys = tuple(key(group, store, home) for group in groups)
        points = [
            points_key(found, each, store, home) for found, each in zip(keys, groups, strict=True)
        ]
        missing = _list_missing(plan, keys, store, home)
        measured = all(store.path(POINTS, each).is_dir() for each in points)
        description = describe_results(study, plan, points, home, store)
        return cls(run, study, plan, keys, missing, not missing and measured, description, started)

    @property
    def slug(self) -> str:
        """The study's name, with its profile where that is not the default."""
        return self.study.slug

    @property
    def folder(self) -> Path:
        """The folder of the study's results."""
        return self.run.folder(self.study)

    @property
    def groups(self) -> list[FitGroup]:
        """What is to be trained, without the blocks that ask for it."""
        return [each.group for each in self.plan]

    @property
    def jobs(self) -> list[tuple[FitGroup, str]]:
        """All fits with their keys, models of which only post-processed rows show first."""
        bases = [(group, found) for found, group in self.missing.items() if found not in self.keys]
        return [*bases, *zip(self.groups, self.keys, strict=True)]

    def restore(self) -> bool:
        """Put the kept files in their folder; False where they are not all there."""
        return self.is_complete and restore_results(self.folder, self.run.store, self.description)

    def write(self, table: pd.DataFrame | None) -> None:
        """Write the study's files from its points; without them they were restored."""
        write_study(
            self.study,
            table,
            self.folder,
            self._seconds(),
            self.plan,
            self._skipped,
            self.run.store,
            self.run.root,
            self.description,
        )
        if not self.is_complete or not (self.folder / CHANGES).is_file():
            write_changes(self.groups, self.folder, self.run.root)

    def report(self) -> dict[str, Any]:
        """Return what the flow returns."""
        return {
            "study": self.study.study,
            "profile": self.study.profile,
            "folder": str(self.folder),
            "fits": len(self.plan),
            "trained": len(self.missing),
            "skipped": self._skipped,
            "seconds": round(self._seconds(), 3),
        }

    def _seconds(self) -> float:
        return time.monotonic() - self.started

    @cached_property
    def _skipped(self) -> dict[str, str]:
        return _list_skipped(self.plan, self.keys, self.run.store)


@flow(name="frontier", flow_run_name="{run.study} {run.profile}", persist_result=False)
def frontier(run: FrontierParameters) -> dict[str, Any]:
    """Train what a study asks for, measure it, and leave its frontier behind.

    Parameters
    ----------
    run : FrontierParameters
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
    standing = Standing.of(run)
    if not standing.is_complete:
        encode_texts(standing.groups, run.root)
    if standing.missing:
        _look_first(list(standing.missing.values()), run.root)
    table = None
    with ExitStack() as stack:
        client = None
        if not standing.is_complete:
            client = stack.enter_context(open_cluster(load_cluster(run.cluster, run.root)))
        shown = stack.enter_context(FitProgress(standing.slug, len(standing.jobs)))
        place = Place(run.store, run.root, client, shown)
        # All done before: nothing is measured or drawn again.
        if not standing.restore():
            _train(standing.slug, standing.jobs, place)
            table = tabulate(standing.study.study, place, standing.groups)
    standing.write(table)
    publish_results(standing.slug, standing.folder)
    return standing.report()


def restore(run: FrontierParameters) -> dict[str, Any] | None:
    """Put the results of a study back that the store holds whole, within the flow that calls this.

    Parameters
    ----------
    run : FrontierParameters
        Which study, how much of it, and where.

    Returns
    -------
    dict or None
        What `frontier` returns; None where something is to be done, which is left to it.

    Raises
    ------
    FairfrontierError
        What `frontier` raises before anything is trained.
    """
    standing = Standing.of(run)
    if not standing.restore():
        return None
    standing.write(None)
    return standing.report()


def check_folder(folder: Path) -> None:
    """Raise StoreError when results could not be written, leaving no trace of the question."""
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise StoreError(
            f"The results cannot be written to {folder}: {error.strerror or error}.",
            "Give a folder that you may write to, with --out.",
        ) from error


def _list_missing(
    plan: Sequence[Planned], keys: Sequence[str], store: Store, home: Path
) -> dict[str, FitGroup]:
    """Return what is to be trained, by its key: also models of which only post-processed rows show.

    The models of a post-processed row are listed when the row itself is not there, once however
    many rows decide from their scores.
    """
    groups = dict(zip(keys, (each.group for each in plan), strict=True))
    for group in list(groups.values()):
        if group.then is not None and not store.path(KIND, key(group, store, home)).is_dir():
            groups.setdefault(key(group.base, store, home), group.base)
    return {found: group for found, group in groups.items() if not store.path(KIND, found).is_dir()}


def _look_first(missing: Sequence[FitGroup], home: Path) -> None:
    """Load one split and learn one metric: a fault in either shows before workers are started."""
    first = min(missing, key=lambda group: (group.rows is None, group.rows or 0, group.seeds))
    split = (first.seeds[0], first.rows, first.select_on, str(home))
    prepare_table(first.dataset, *split)
    if any(group.then is not None for group in missing):
        require_calibration(load_split(first, first.members[0], home))
    with_metric = [group for group in missing if group.metric is not None]
    if with_metric:
        learn_metric(dict(with_metric[0].metric or {}), first.dataset, *split)


def _train(slug: str, jobs: Sequence[tuple[FitGroup, str]], place: Place) -> None:
    """Train all fit groups, one Prefect task each.

    Those that need the whole cluster come after those that do not, and post-processors last.
    """
    last = [job for job in jobs if job[0].then is not None]
    models = [job for job in jobs if job[0].then is None]
    spread = [job for job in models if METHODS.find(job[0].estimator).distributed and place.client]
    single = [job for job in models if job not in spread]
    artifact = start_progress(slug)
    published = time.monotonic()
    failures: list[tuple[FitGroup, BaseException]] = []
    for batch, slots in ((single, place.slots), (spread, 1), (last, place.slots)):
        if batch is last and failures:
            break
        with ThreadPoolTaskRunner(max_workers=slots) as runner:
            futures = {
                runner.submit(
                    fit_group,
                    {
                        "method": group.method,
                        "dataset": Path(group.dataset).stem,
                        "seed": name_seeds(group),
                        "key": found,
                        "group": group,
                        "place": place,
                    },
                ): group
                for group, found in batch
            }
            try:
                for future in as_completed(list(futures)):
                    try:
                        future.result()
                    except Exception as error:
                        failures.append((futures[future], error))
                    place.shown.advance()
                    if time.monotonic() - published > PUBLISH_SECONDS:
                        published = time.monotonic()
                        show_progress(artifact, place.shown.share)
            except BaseException:
                place.stop()
                raise
    show_progress(artifact, place.shown.share)
    if failures:
        _raise_first(failures, len(jobs))


def _raise_first(failures: Sequence[tuple[FitGroup, BaseException]], total: int) -> None:
    """Raise the first failure with the name of its fit, and say how many there were."""
    group, error = failures[0]
    where = f"{name_fit(group)} ({len(failures)} of {total} fits failed)"
    if isinstance(error, FairfrontierError):
        raise type(error)(f"{where}: {error.fault}", error.mend) from error
    error.add_note(f"In fit {where}.")
    raise error


def _list_skipped(plan: Sequence[Planned], keys: Sequence[str], store: Store) -> dict[str, str]:
    """Return row label -> why its method could not be trained on this dataset."""
    skipped: dict[str, str] = {}
    for each, found in zip(plan, keys, strict=True):
        if not store.path(KIND, found).is_dir():
            raise StoreError(
                f"{name_fit(each.group)} was kept under another key than it was asked for.",
                "The code or a dataset changed while the study ran: run it again.",
            )
        reason = read_facts(store.path(KIND, found))["skipped"]
        if reason is not None:
            skipped[each.group.method] = str(reason)
    return skipped
