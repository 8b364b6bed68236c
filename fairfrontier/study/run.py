"""The one chain: prepare, metric, fits, measures, frontier, report.

`run_stages` carries the stages of a study out on a runner, which decides where each runs: in this
process, on the workers of a Dask cluster, or as tasks of a Prefect flow. No stage knows which.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from fairfrontier.models.fit.fitting import fit_with_warnings
from fairfrontier.models.fit.group import KIND, FitGroup, find_metric, read_facts
from fairfrontier.models.fit.key import key
from fairfrontier.models.registry import METHODS
from fairfrontier.prepare.embedding.feature import name_encoder
from fairfrontier.prepare.loader import SplitRequest, digest_split, knows_split
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.runtime.cluster.config import ClusterConfig, load_cluster
from fairfrontier.runtime.cluster.executor import computing_on
from fairfrontier.runtime.cluster.open import call_worker, can_start_processes, clear_killed
from fairfrontier.runtime.errors import ConfigError, DataError, FairfrontierError, StoreError
from fairfrontier.runtime.finder import list_names
from fairfrontier.runtime.home import check_links
from fairfrontier.runtime.option import check_apart
from fairfrontier.runtime.source import file_digest
from fairfrontier.runtime.store import Store, canonical_json, hash_file, open_store
from fairfrontier.runtime.thread import call_limited
from fairfrontier.runtime.writer import check_folder
from fairfrontier.similarity.kept import MetricRequest, digest_metric, knows_metric
from fairfrontier.study.check import load_study, names_levels, refuse_certificates, refuse_levels
from fairfrontier.study.config import FEW, MethodRow, RunOptions, SearchConfig, StudyConfig
from fairfrontier.study.drawing import list_files
from fairfrontier.study.frontier import Searched, StudyResults, build_results
from fairfrontier.study.points import KIND as POINTS
from fairfrontier.study.points import points_key, tabulate_group
from fairfrontier.study.resolve import Planned, Resolver, expand
from fairfrontier.study.search import InterruptedRun, Search, collect_trial, leave_out_searched

if TYPE_CHECKING:
    from distributed import Client


# The stages of a study before its frontier, as functions that run anywhere.

_MEASURING = threading.Lock()


class Observer(Protocol):
    """Shows the progress of a run."""

    def expect(self, total: int) -> None:
        """Set the number of fits."""

    def watch(self, label: str) -> AbstractContextManager[Any]:
        """Show a fit while it runs."""

    def note(self, method: str, remarks: Sequence[str]) -> None:
        """Record the warnings of a fit."""

    def advance(self) -> None:
        """Count a fit as done."""


class SilentObserver:
    """Shows nothing."""

    def expect(self, total: int) -> None:
        """Ignore the number of fits."""

    def watch(self, label: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return an empty context."""
        return nullcontext()

    def note(self, method: str, remarks: Sequence[str]) -> None:
        """Ignore the remarks."""

    def advance(self) -> None:
        """Ignore a finished fit."""


@dataclass
class RunContext:
    """The state that the stages of a run share.

    Fits and measures run on the workers of ``client``, or in this process without one; ``progress``
    is called with (name, done, total) while files are fetched and texts are encoded; once
    ``stopped``, no further fit starts.
    """

    store: Store
    home: Path
    client: Client | None = None
    observer: Observer = field(default_factory=SilentObserver)
    progress: Progress | None = None
    stopped: bool = False

    @property
    def slots(self) -> int:
        """The number of fits that run at once."""
        if self.client is None:
            return 1
        return max(1, int(sum(self.client.nthreads().values())))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on a worker, or in this process without a cluster."""
        if self.client is None:
            return function(*arguments)
        return call_worker(self.client, function, *arguments)

    def stop(self) -> None:
        """Start no further fit, and do not wait for those that run on workers."""
        self.stopped = True
        if self.client is not None:
            self.client.close()


def prepare_split(context: RunContext, request: SplitRequest) -> str:
    """Prepare a split, encode its texts, and return the digest of its arrays."""
    return digest_split(request, context.store, context.home, context.progress).total


def learn_metric(context: RunContext, request: MetricRequest) -> str | None:
    """Learn a fair metric into the store and return its digest; None if the split has no metric."""
    try:
        return digest_metric(request, context.store, context.home)
    except (ConfigError, DataError):
        # The fits that need it report why.
        return None


def fit_group(context: RunContext, group: FitGroup, key: str) -> str:  # noqa: ARG001
    """Train a fit group into the store, on a worker if there are any, and return its key."""
    if context.stopped:
        raise InterruptedRun(f"{name_fit(group)} was not started.")
    with context.observer.watch(name_fit(group)):
        if context.client is not None and takes_cluster(group, context.home):
            # It uses the whole cluster, and runs alone.
            fit_key, remarks = fit_with_warnings(
                group, context.store, context.home, client=context.client
            )
        else:
            fit_key, remarks = context.call(fit_with_warnings, group, context.store, context.home)
    context.observer.note(group.method, remarks)
    return str(fit_key)


def measure_group(context: RunContext, group: FitGroup) -> pd.DataFrame:
    """Return the points of a fit group, measured on a worker if there are any."""
    arguments = (group.threads, tabulate_group, group, context.store, context.home)
    if group.is_collection(context.home):
        # Scores, labels and groups of its rows, O(n) numbers, are in this process alone.
        with _MEASURING:
            return call_limited(*arguments)
    table: pd.DataFrame = context.call(call_limited, *arguments)
    return table


def takes_cluster(group: FitGroup, home: Path) -> bool:
    """Return whether a fit uses the whole cluster, rather than one worker."""
    return METHODS.find(group.estimator).distributed or group.is_collection(home)


def name_fit(group: FitGroup) -> str:
    """Return the short name of a fit: ``budro/0``."""
    return f"{group.method}/{name_seeds(group)}"


def name_seeds(group: FitGroup) -> str:
    """Return the seeds of a fit group as text: ``3``, or ``0-9`` for a batch."""
    return "-".join(str(seed) for seed in dict.fromkeys((group.seeds[0], group.seeds[-1])))


def name_split(request: SplitRequest) -> str:
    """Return the short name of a split: ``loans seed 0``."""
    return f"{Path(request.dataset).stem} seed {request.seed}"


def list_splits(groups: Iterable[FitGroup]) -> dict[SplitRequest, None]:
    """Return the distinct splits that groups are trained on."""
    return dict.fromkeys(group.find_split(member) for group in groups for member in group.members)


def list_metrics(groups: Iterable[FitGroup]) -> dict[MetricRequest, None]:
    """Return the distinct fair metrics that groups need."""
    requests = (find_metric(group, member) for group in groups for member in group.members)
    return dict.fromkeys(request for request in requests if request is not None)


# The outcome of a search in the store: a second run finds its fits without a search.
SEARCH = "search"
SEARCH_FILE = "search.json"


class Runner(Protocol):
    """Where the stages of a run are carried out."""

    context: RunContext

    def submit(self, stage: str, *arguments: Any, label: str, after: Sequence[Any] = ()) -> Any:
        """Schedule a stage for when the futures ``after`` are done, and return its future.

        Stages are ``prepare``, ``metric``, ``fit``, ``measure``, ``frontier``, ``compare`` and
        ``report``. Their functions take the context and ``arguments``; ``label`` names for people
        what a stage works on.
        """

    def as_completed(self, futures: Sequence[Any]) -> Iterable[Any]:
        """Yield futures as they finish, whether they succeeded or not."""


@dataclass(frozen=True)
class StudyRun:
    """A checked study, its fits, and how many of them the store held from the start.

    ``started`` is when it was asked for, by the monotonic clock; ``searched`` counts what a search
    tried, whose fits are in the plan.
    """

    options: RunOptions
    study: StudyConfig
    plan: tuple[Planned, ...]
    started: float
    searched: Searched | None = None

    @cached_property
    def is_known(self) -> bool:
        """Whether the store knew the digest of every split and metric from the start.

        The keys of fits need these; unknown splits and metrics are prepared and learnt first.
        """
        splits, metrics = list_splits(self.groups), list_metrics(self.groups)
        return all(knows_split(request, self.store, self.home) for request in splits) and all(
            knows_metric(request, self.store, self.home) for request in metrics
        )

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The key of each fit in the store, in the order of the plan."""
        return tuple(key(group, self.store, self.home) for group in self.groups)

    @cached_property
    def points(self) -> tuple[str, ...]:
        """The key of each fit's points in the store, in the order of the plan."""
        return tuple(
            points_key(fit_key, group, self.store, self.home)
            for fit_key, group in zip(self.keys, self.groups, strict=True)
        )

    @cached_property
    def fits(self) -> Mapping[str, FitGroup]:
        """The fits of the plan by key, and the models behind post-processed rows, once each."""
        fits = dict(zip(self.keys, self.groups, strict=True))
        for group in self.groups:
            if group.then is not None:
                fits.setdefault(key(group.base, self.store, self.home), group.base)
        return fits

    @cached_property
    def missing(self) -> Mapping[str, FitGroup]:
        """The fits that the store did not hold, by key, and so the models behind them."""
        absent = [name for name in self.keys if not _is_stored(self.store, name)]
        rules = [self.fits[name] for name in absent if self.fits[name].then is not None]
        bases = [key(rule.base, self.store, self.home) for rule in rules]
        absent += [name for name in bases if not _is_stored(self.store, name)]
        return {name: self.fits[name] for name in absent}

    @cached_property
    def is_complete(self) -> bool:
        """Whether the store held all fits and their points from the start."""
        return (
            self.is_known
            and not self.missing
            and all(self.store.path(POINTS, name).is_dir() for name in self.points)
        )

    @property
    def is_collection(self) -> bool:
        """Whether rows stay in the table's files, and fits read them from there."""
        return any(group.is_collection(self.home) for group in self.groups)

    @property
    def home(self) -> Path:
        """The project root."""
        return self.options.home

    @property
    def store(self) -> Store:
        """The project's store."""
        return open_store(self.home)

    @property
    def slug(self) -> str:
        """The study's name, with its profile where that is not the default."""
        return self.study.slug

    @property
    def folder(self) -> Path:
        """The folder of the study's results."""
        return self.options.find_folder(self.study)

    @property
    def groups(self) -> list[FitGroup]:
        """The fit groups of the plan."""
        return [planned.group for planned in self.plan]

    def find_fits(self, plan: Sequence[Planned], fits: Mapping[str, Any]) -> list[Any]:
        """Return what ``fits`` has, by key, of the fits of a plan, after the models behind them."""
        groups = [planned.group for planned in plan]
        bases = [group.base for group in groups if group.then is not None]
        names = (key(group, self.store, self.home) for group in (*bases, *groups))
        return [fits[name] for name in dict.fromkeys(names) if name in fits]

    @property
    def jobs(self) -> dict[str, FitGroup]:
        """All fits by key; missing ones, with the models behind post-processed rows, come first."""
        return {**self.missing, **dict(zip(self.keys, self.groups, strict=True))}

    @property
    def seconds(self) -> float:
        """Seconds since it was asked for."""
        return time.monotonic() - self.started

    @property
    def cluster(self) -> ClusterConfig:
        """Where fits run."""
        if self.options.cluster == "auto":
            fits = len(self.missing) if self.is_known else len(self.plan)
            # How many fits a search will ask for is not known.
            searches = self.study.search is not None and self.searched is None
            many = fits > FEW or searches or self.is_collection
            return ClusterConfig(kind="local" if many and can_start_processes() else "inline")
        return load_cluster(self.options.cluster, self.home)

    def list_skipped(self) -> dict[str, str]:
        """Return row label -> why its method was not trained on this dataset.

        A StoreError names a fit that the store does not hold under its key.
        """
        skipped: dict[str, str] = {}
        for group, name in zip(self.groups, self.keys, strict=True):
            if not _is_stored(self.store, name):
                raise StoreError(
                    f"{name_fit(group)} was stored under another key than expected.",
                    "The code or a dataset changed while the study ran: run it again.",
                )
            reason = read_facts(self.store.path(KIND, name))["skipped"]
            if reason is not None:
                skipped[group.method] = str(reason)
        return skipped | dict(self.searched.absent if self.searched else {})

    def list_budgets(self) -> dict[tuple[str, str], dict[str, float]]:
        """Return (method, setting) -> the mean budgets over the seeds that methods report."""
        reported: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for group, name in zip(self.groups, self.keys, strict=True):
            reports = read_facts(self.store.path(KIND, name))["reports"]
            for member, report in zip(group.members, reports, strict=False):
                if "budget_share" in report:
                    row = (group.method, canonical_json(member.setting))
                    reported.setdefault(row, []).append((report["budget"], report["budget_share"]))
        means = {row: np.mean(values, axis=0).tolist() for row, values in reported.items()}
        return {row: {"budget": raw, "budget_share": share} for row, (raw, share) in means.items()}

    def summarise(self) -> dict[str, Any]:
        """Return plain facts; see `fairfrontier.choose.select.Study`."""
        return {
            **self.study.describe(self.folder),
            "fits": max(len(self.fits), self.searched.fits if self.searched else 0),
            "trained": len(self.missing) + (self.searched.trained if self.searched else 0),
            "skipped": self.list_skipped(),
            "seconds": round(self.seconds, 3),
            **({"trials": self.searched.trials} if self.searched else {}),
            **({"failed_trials": self.searched.list_failed()} if self.searched else {}),
            **({"memory": "dask"} if self.is_collection else {}),
        }


def check_options(options: RunOptions) -> tuple[StudyConfig, tuple[Planned, ...]]:
    """Return the study and its plan; raise a FairfrontierError for any fault known beforehand."""
    resolved = load_study(options.study, options.profile, options.home)
    if options.cluster != "auto":
        load_cluster(options.cluster, options.home)
    plan = expand(resolved)
    if resolved.study.search is not None:
        plan = leave_out_searched(plan, resolved, options.home)
    refuse_certificates([planned.group for planned in plan], options.home)
    folder = options.find_folder(resolved.study)
    check_links(folder, options.home)
    check_apart([folder / name for name in list_files()], (), "run")
    check_folder(folder)
    open_store(options.home).check_writable()
    return resolved.study, plan


def start_study(options: RunOptions) -> StudyRun:
    """Check the options and return the run; raise a FairfrontierError as `check_options` does."""
    started = time.monotonic()
    clear_killed()
    study, plan = check_options(options)
    for dataset in dict.fromkeys(planned.group.dataset for planned in plan):
        # The encoder of texts, fetched if necessary, is part of the keys.
        name_encoder(dataset, options.home)
    return restore_search(StudyRun(options, study, plan, started))


def run_stages(study: StudyRun, runner: Runner) -> dict[str, Any]:
    """Carry out the stages of a study, and return `StudyRun.summarise`.

    After an error, finished stages are kept, and the same call resumes.
    """
    with computing_on(runner.context.client) if study.is_collection else nullcontext():
        return _run_stages(study, runner)


def _run_stages(study: StudyRun, runner: Runner) -> dict[str, Any]:
    inputs: dict[Any, Any] = {}
    _prepare(list(study.missing.values()) if study.is_known else study.groups, runner, inputs)
    if inputs and names_levels(study.study):
        # Only the table knows which there are.
        split = next(iter(list_splits(study.groups))).load(study.home)
        refuse_levels(study.study, split.train.attributes)
    tried: set[str] = set()
    if study.study.search is not None and study.searched is None:
        study = _search(study, study.study.search, runner, inputs, tried)
    runner.context.observer.expect(len(tried.union(study.jobs)))
    fits = _submit_fits(study, runner, inputs)
    _watch_fits(fits, study.jobs, runner, tried)
    measures = [
        runner.submit("measure", group, label=_name_group(group), after=[fits[name]])
        for group, name in zip(study.groups, study.keys, strict=True)
    ]
    tables = [future.result() for future in measures]
    results = runner.submit("frontier", study, tables, label=study.slug, after=measures)
    compared = runner.submit("compare", results.result(), label=study.slug, after=[results])
    reported = (study, results.result(), compared.result())
    runner.submit("report", *reported, label=study.slug, after=[results, compared]).result()
    return study.summarise()


def choose_frontier(
    context: RunContext,  # noqa: ARG001
    study: StudyRun,
    tables: Sequence[pd.DataFrame],
) -> StudyResults:
    """Concatenate the points of all fits and find the frontier."""
    points = pd.concat(tables, ignore_index=True)
    skipped, budgets = study.list_skipped(), study.list_budgets()
    return build_results(study.study, study.plan, points, skipped, budgets, study.searched)


def _is_stored(store: Store, fit_key: str) -> bool:
    return store.path(KIND, fit_key).is_dir()


# What the other stages are said to do.
IN_WORDS = {
    "prepare": "preparing",
    "metric": "learning",
    "measure": "measuring",
    "frontier": "comparing",
    "compare": "checking",
    "report": "drawing",
}


class ThreadRunner:
    """Carries the stages out in threads of this process, which may wait for a cluster's workers.

    Fits and measures have as many threads as fits run at once; other stages run in the caller's.
    ``stages`` are the functions (context, *arguments) of the stages.
    """

    def __init__(self, context: RunContext, stages: Mapping[str, Any]) -> None:
        self.context = context
        self.stages = stages
        self._threads = ThreadPoolExecutor(context.slots) if context.slots > 1 else None

    def __enter__(self) -> ThreadRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.context.stop()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def submit(
        self, stage: str, *arguments: Any, label: str, after: Sequence[Future[Any]] = ()
    ) -> Future[Any]:
        """Carry out a stage; see `Runner.submit`."""

        def carry_out() -> Any:
            for future in after:
                future.result()
            # A fit is watched by its own name.
            doing = f"{IN_WORDS[stage]} {label}" if stage in IN_WORDS else ""
            with self.context.observer.watch(doing) if doing else nullcontext():
                return self.stages[stage](self.context, *arguments)

        if self._threads is not None and stage in ("fit", "measure"):
            return self._threads.submit(carry_out)
        done: Future[Any] = Future()
        try:
            done.set_result(carry_out())
        except Exception as error:
            done.set_exception(error)
        return done

    def as_completed(self, futures: Sequence[Future[Any]]) -> Iterable[Future[Any]]:
        """Yield futures as they finish."""
        return as_completed(futures)


def _prepare(groups: Sequence[FitGroup], runner: Runner, inputs: dict[Any, Any]) -> None:
    """Prepare the splits and learn the metrics of groups, and add their futures to the inputs."""
    for request in list_splits(groups):
        if request not in inputs:
            inputs[request] = runner.submit("prepare", request, label=name_split(request))
    for asked in list_metrics(groups):
        if asked not in inputs:
            label = f"{asked.parameters['name']} of {name_split(asked.split)}"
            after = [inputs[asked.split]]
            inputs[asked] = runner.submit("metric", asked, label=label, after=after)
    for future in inputs.values():
        future.result()


def _search(
    study: StudyRun, config: SearchConfig, runner: Runner, inputs: dict[Any, Any], tried: set[str]
) -> StudyRun:
    """Return the run with the fits of its search in the plan; ``tried`` gets the keys of all."""
    resolver = Resolver(study.study, study.home, f"Study {study.study.study}")
    new: set[str] = set()

    def evaluate(plans: Sequence[Sequence[Planned]]) -> list[pd.DataFrame | str]:
        together = replace(study, plan=tuple(itertools.chain(*plans)))
        _prepare(together.groups, runner, inputs)
        new.update(together.missing)
        fresh = [name for name in together.jobs if name not in tried]
        tried.update(fresh)
        # As many fits for each trial to come as in this round.
        total = (config.trials or 0) * len(together.groups) // len(plans)
        runner.context.observer.expect(max(total, len(tried)))
        # Without workers they are trained as they are submitted.
        fits = _submit_fits(together, runner, inputs)
        keys = iter(together.keys)
        measures = [
            [
                runner.submit("measure", p.group, label=_name_group(p.group), after=[fits[name]])
                for p, name in zip(plan, keys, strict=False)
            ]
            for plan in plans
        ]
        for _ in runner.as_completed([fits[name] for name in fresh]):
            runner.context.observer.advance()
        return [
            collect_trial(together.find_fits(plan, fits), tables)
            for plan, tables in zip(plans, measures, strict=True)
        ]

    search = Search(study.study, config, resolver)
    outcome = search.run(evaluate)
    failed = tuple(outcome.failed)
    if not (study.plan or outcome.planned):
        fault = "The search ended before any row of the study had its turn."
        if failed:
            fault = f"Every trial of the search failed, the first so: {': '.join(failed[0])}"
        raise ConfigError(fault, "Mend that, or search longer.")
    keep_search(study, search)
    searched = Searched(outcome.trials, len(tried), len(new), failed, outcome.absent)
    return replace(study, plan=(*study.plan, *outcome.planned.values()), searched=searched)


def _submit_fits(study: StudyRun, runner: Runner, inputs: Mapping[Any, Any]) -> dict[str, Any]:
    """Submit all fits; those that need the whole cluster run after the others, one by one.

    A post-processor waits for its model, which may be no row itself.
    """
    jobs = study.jobs
    models = {name: group for name, group in jobs.items() if group.then is None}
    clustered = runner.context.client is not None
    fits: dict[str, Any] = {}
    for distributed in (False, True):
        for name, group in models.items():
            if distributed == (clustered and takes_cluster(group, study.home)):
                needed = (*list_splits([group]), *list_metrics([group]))
                after = [inputs[request] for request in needed if request in inputs]
                if distributed:
                    after += fits.values()
                label = _name_group(group)
                fits[name] = runner.submit("fit", group, name, label=label, after=after)
    for name, group in jobs.items():
        if group.then is not None:
            base = key(group.base, study.store, study.home)
            after = [fits[base]] if base in fits else []
            fits[name] = runner.submit("fit", group, name, label=_name_group(group), after=after)
    return fits


def _watch_fits(
    fits: Mapping[str, Any], jobs: Mapping[str, FitGroup], runner: Runner, counted: Set[str]
) -> None:
    """Wait for all fits; raise the first failure with the name of its fit and how many failed."""
    known = {id(fits[fit_key]) for fit_key in counted & fits.keys()}
    names = {id(future): name_fit(jobs[fit_key]) for fit_key, future in fits.items()}
    failures: list[tuple[str, Exception]] = []
    for future in runner.as_completed(list(fits.values())):
        try:
            future.result()
        except Exception as error:
            # A fit that waited for one that failed raises the same error.
            if all(error is not other for _, other in failures):
                failures.append((names[id(future)], error))
        if id(future) not in known:
            runner.context.observer.advance()
    if not failures:
        return
    name, first = failures[0]
    where = f"{name} ({len(failures)} of {len(fits)} fits failed)"
    if isinstance(first, FairfrontierError):
        raise type(first)(f"{where}: {first.fault}", first.mend) from first
    first.add_note(f"In fit {where}.")
    raise first


def _name_group(group: FitGroup) -> str:
    return f"{group.method} on {Path(group.dataset).stem} seed {name_seeds(group)}"


def keep_search(study: StudyRun, search: Search) -> None:
    """Keep what was tried, unless a trial failed, which may not fail again.

    ``study`` is the run as it was before the search.
    """
    outcome = search.outcome
    if outcome.failed:
        return
    rows = [
        [label, row.model_dump(mode="json", exclude_unset=True), shown]
        for label, row, shown in outcome.rows
    ]
    kept = {"trials": outcome.trials, "absent": outcome.absent, "rows": rows}
    description = _describe_search(_plan_first(study, search))
    # `fairfrontier clean` finds there what belongs to the study.
    told = description | {"plan": _list_points(replace(study, plan=tuple(search.plan_tried())))}
    with study.store.writing(SEARCH, study.store.key(SEARCH, description), told) as folder:
        (folder / SEARCH_FILE).write_text(json.dumps(kept), encoding="utf-8")


def restore_search(study: StudyRun) -> StudyRun:
    """Return the run with the fits of its search in the plan, if the store has all of them.

    Otherwise it is returned as it is: a search that was interrupted, or of which a trial would have
    other points by now, is searched again, and finds those of its trials that are the same.
    """
    if study.study.search is None:
        return study

    resolver = Resolver(study.study, study.home, f"Study {study.study.study}")
    search = Search(study.study, study.study.search, resolver)
    first = _plan_first(study, search)
    if not first.is_known:
        return study
    entry = study.store.key(SEARCH, _describe_search(first))
    files = study.store.list_files(SEARCH, entry)
    if files is None:
        return study
    kept = json.loads(files[SEARCH_FILE].read_text(encoding="utf-8"))
    for label, row, shown in kept["rows"]:
        search.record(label, MethodRow.model_validate(row), shown)
    tried = replace(study, plan=tuple(search.plan_tried()))
    if not tried.is_known or _list_points(tried) != study.store.peek(SEARCH, entry).get("plan"):
        return study
    searched = Searched(kept["trials"], len(tried.fits), 0, (), kept["absent"])
    plan = (*study.plan, *search.outcome.planned.values())
    restored = replace(study, plan=plan, searched=searched)
    return restored if restored.is_complete else study


def _list_points(study: StudyRun) -> list[dict[str, str]]:
    return [{"points": each} for each in study.points]


def _plan_first(study: StudyRun, search: Search) -> StudyRun:
    """Return the run of the fits that are known before the search."""
    return replace(study, plan=(*study.plan, *search.plan_first()))


def _describe_search(first: StudyRun) -> dict[str, Any]:
    """Return what decides a search; keys of points tell of data, libraries and methods' code."""
    return {
        "study": first.study.model_dump(mode="json"),
        "first": first.points,
        "methods": {
            name: hash_file(path) for name, path in list_names("method", first.home).items()
        },
        "source": file_digest(),
        "optuna": version("optuna"),
    }
