"""The stages of a study before its frontier, as functions that run anywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from fairfrontier.models.fit.fitting import fit_with_warnings
from fairfrontier.models.fit.group import FitGroup, find_metric
from fairfrontier.models.registry import METHODS
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.embedding.encoder import determine_encoder
from fairfrontier.prepare.loader import SplitRequest, digest_split
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.runtime.cluster.open import call_worker
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.store import Store
from fairfrontier.runtime.thread import call_limited
from fairfrontier.similarity.kept import MetricRequest, digest_metric
from fairfrontier.study.points import tabulate_group

if TYPE_CHECKING:
    from distributed import Client


_MEASURING = threading.Lock()


class InterruptedRun(Exception):  # noqa: N818
    """The run was interrupted before this fit started."""


class Observer(Protocol):
    """Shows the progress of a run."""

    def expect(self, total: int) -> None:
        """Set the number of fits."""
        ...

    def watch(self, label: str) -> AbstractContextManager[Any]:
        """Show a fit while it runs."""
        ...

    def note(self, method: str, remarks: Sequence[str]) -> None:
        """Record the warnings of a fit."""
        ...

    def advance(self) -> None:
        """Count a fit as done."""
        ...


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


def determine_text_encoder(
    dataset: str, home: Path, progress: Progress | None = None
) -> str | None:
    """Return the encoder of a dataset's texts, fetched if necessary; None without texts."""
    path = find_yaml("dataset", dataset, home)
    feature = read_dataset(path, home).features.text
    if feature is None or feature.supplied:
        return None if feature is None else feature.encoder
    return determine_encoder(feature.encoder, home, progress)


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
