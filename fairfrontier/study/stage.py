"""The stages of a study up to its frontier: what each does, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from fairfrontier.metric.kept import MetricRequest, digest_metric
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.digest import digest_split
from fairfrontier.prepare.embedding.choice import determine_encoder
from fairfrontier.prepare.request import SplitRequest
from fairfrontier.prepare.source.download import Progress
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.store import Store
from fairfrontier.runtime.thread import call_limited
from fairfrontier.study.points import tabulate_group
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.input import find_metric
from fairfrontier.train.fit.remark import fit_telling
from fairfrontier.train.registry import METHODS

if TYPE_CHECKING:
    from distributed import Client


class InterruptedRun(Exception):  # noqa: N818
    """The run was interrupted before this fit started."""


class Observer(Protocol):
    """Whoever shows how far a run is."""

    def expect(self, total: int) -> None:
        """Take how many fits there are."""
        ...

    def watch(self, label: str) -> AbstractContextManager[Any]:
        """Show a fit while it runs."""
        ...

    def note(self, method: str, remarks: Sequence[str]) -> None:
        """Take what a fit warned of."""
        ...

    def advance(self) -> None:
        """Count a fit as done."""
        ...


class SilentObserver:
    """Shows nothing."""

    def expect(self, total: int) -> None:
        """Show nothing."""

    def watch(self, label: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Show nothing."""
        return nullcontext()

    def note(self, method: str, remarks: Sequence[str]) -> None:
        """Drop the remarks."""

    def advance(self) -> None:
        """Count nothing."""


@dataclass
class RunContext:
    """What the stages of a run share.

    Attributes
    ----------
    store : Store
        Holds what is done.
    home : Path
        The project root.
    client : distributed.Client or None
        Of the cluster whose workers fit and measure; None does both in this process.
    observer : Observer
        Shows how far the run is.
    progress : callable or None
        Called with (name, done, total) while files are fetched and texts are encoded.
    stopped : bool
        Whether the run was interrupted: no further fit starts.
    """

    store: Store
    home: Path
    client: Client | None = None
    observer: Observer = field(default_factory=SilentObserver)
    progress: Progress | None = None
    stopped: bool = False

    @property
    def slots(self) -> int:
        """How many fits run at once."""
        if self.client is None:
            return 1
        return max(1, int(sum(self.client.nthreads().values())))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on a worker, or here where there is none."""
        if self.client is None:
            return function(*arguments)
        future = self.client.submit(function, *arguments, pure=False)
        try:
            return future.result()
        finally:
            future.release()

    def stop(self) -> None:
        """Let no further fit start, and wait for none that runs on a worker."""
        self.stopped = True
        if self.client is not None:
            self.client.close()


def determine_text_encoder(
    dataset: str, home: Path, progress: Progress | None = None
) -> str | None:
    """Return which encoder a dataset's texts get, None without texts; it is fetched if need be."""
    path = find_yaml("dataset", dataset, home)
    feature = read_dataset(path, home).features.text
    if feature is None or feature.supplied:
        return None if feature is None else feature.encoder
    return determine_encoder(feature.encoder, home, progress)


def prepare_split(context: RunContext, request: SplitRequest) -> str:
    """Prepare a split, encode its texts, and return the digest of all that it holds."""
    return digest_split(request, context.store, context.home, context.progress).whole


def learn_metric(context: RunContext, request: MetricRequest) -> str | None:
    """Learn a fair metric into the store and return its digest; None where its split suits none."""
    try:
        return digest_metric(request, context.store, context.home)
    except (ConfigError, DataError):
        # The fits that need it say why.
        return None


def fit_group(context: RunContext, group: FitGroup, key: str) -> str:  # noqa: ARG001
    """Train a fit group into the store, on a worker where there is one; return its key."""
    if context.stopped:
        raise InterruptedRun(f"{name_fit(group)} was not started.")
    with context.observer.watch(name_fit(group)):
        if context.client is not None and METHODS.find(group.estimator).distributed:
            # It spreads itself over the cluster, which it has to itself.
            found, remarks = fit_telling(group, context.store, context.home, client=context.client)
        else:
            found, remarks = context.call(fit_telling, group, context.store, context.home)
    context.observer.note(group.method, remarks)
    return str(found)


def measure_group(context: RunContext, group: FitGroup) -> pd.DataFrame:
    """Return the points of a fit group, measured on a worker where there is one."""
    table: pd.DataFrame = context.call(
        call_limited, group.threads, tabulate_group, group, context.store, context.home
    )
    return table


def name_fit(group: FitGroup) -> str:
    """Return a fit's short name: ``budro/0``."""
    return f"{group.method}/{name_seeds(group)}"


def name_seeds(group: FitGroup) -> str:
    """Return the splits of a fit group in a word: ``3``, or ``0-9`` for a batch."""
    return "-".join(str(seed) for seed in dict.fromkeys((group.seeds[0], group.seeds[-1])))


def list_splits(groups: Iterable[FitGroup]) -> dict[SplitRequest, None]:
    """Return every split that groups are trained on, once."""
    return dict.fromkeys(group.find_split(member) for group in groups for member in group.members)


def list_metrics(groups: Iterable[FitGroup]) -> dict[MetricRequest, None]:
    """Return every fair metric that groups are given, once."""
    found = (find_metric(group, member) for group in groups for member in group.members)
    return dict.fromkeys(request for request in found if request is not None)
