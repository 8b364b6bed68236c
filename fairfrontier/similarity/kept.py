"""Learnt metrics in the store, so that a metric used by several fits is learnt once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairfrontier.prepare.loader import SplitRequest, digest_split
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import Store, canonical_json
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.runtime.version import version
from fairfrontier.similarity.fair_metric import FairMetric
from fairfrontier.similarity.registry import METRICS, learn

KIND = "metric"
FILE, ARRAYS = "metric.json", "metric.npz"
# The source of a learner: this package, and what computes for it below.
WITHIN = (
    "fairfrontier.similarity",
    "fairfrontier.runtime.arrays",
    "fairfrontier.runtime.cluster.executor",
    "fairfrontier.runtime.cluster.logistic",
    "fairfrontier.runtime.seeds",
)
LIBRARIES = ("array-api-compat", "numpy", "scikit-learn", "scipy")


@dataclass(frozen=True)
class MetricRequest:
    """A metric: ``name`` and parameters as canonical JSON, its split, and the threads of BLAS.

    The last digits of a metric depend on the threads.
    """

    metric: str
    split: SplitRequest
    threads: int = 1

    @classmethod
    def of(cls, metric: Mapping[str, Any], split: SplitRequest, threads: int = 1) -> MetricRequest:
        """Return the request for the ``metric:`` of a study."""
        return cls(canonical_json(metric), split, threads)

    @property
    def parameters(self) -> dict[str, Any]:
        """``name`` and the learner's parameters."""
        parameters: dict[str, Any] = json.loads(self.metric)
        return parameters


def digest_metric(request: MetricRequest, store: Store, home: Path) -> str:
    """Return the digest (sha256) of a metric's arrays, learning it unless the store holds it.

    The store keeps metrics under the digest of their split's arrays, their parameters, the source
    of their learner and the versions of the libraries it uses. FairfrontierError when the split
    cannot be prepared or the metric cannot be learnt; that it cannot is stored, too.
    """
    return _digest(request, _find_key(request, store, home), store.folder, home)


def knows_metric(request: MetricRequest, store: Store, home: Path) -> bool:
    """Return whether the store has a metric; its split's digest must be known."""
    return store.path(KIND, _find_key(request, store, home)).is_dir()


def load_metric(request: MetricRequest, store: Store, home: Path) -> FairMetric:
    """Return a metric, from the store if it is there; see `digest_metric`."""
    digest_metric(request, store, home)
    entry = store.read(KIND, _find_key(request, store, home))
    if entry is None:  # removed or damaged meanwhile, or the store is read-only
        return _learn(request, request.split.load(home))
    return FairMetric.load(entry / ARRAYS)


def _find_key(request: MetricRequest, store: Store, home: Path) -> str:
    return store.key(KIND, _describe(request, store, home))


def _describe(request: MetricRequest, store: Store, home: Path) -> dict[str, Any]:
    parameters = request.parameters
    return {
        "metric": parameters,
        "split": digest_split(request.split, store, home).total,
        "threads": request.threads,
        "source": source_digest(
            [METRICS.find(parameters["name"]).__module__], within=WITHIN, store=store
        ),
        "libraries": {name: version(name) for name in LIBRARIES},
    }


@lru_cache(maxsize=4096)
def _digest(request: MetricRequest, key: str, folder: Path, home: Path) -> str:
    store = Store(folder)
    entry = store.read(KIND, key)
    if entry is not None:
        facts = json.loads((entry / FILE).read_text(encoding="utf-8"))
    else:
        split = request.split.load(home)
        metric, facts = None, {}
        try:
            metric = _learn(request, split)
            facts["digest"] = digest_arrays(metric)
        except (ConfigError, DataError) as error:
            facts["refused"] = [isinstance(error, ConfigError), error.fault, error.mend]
        # A metric that cannot be stored is learnt again.
        description = _describe(request, store, home)
        with suppress(StoreError), store.writing(KIND, key, description) as work:
            if metric is not None:
                metric.save(work / ARRAYS)
            (work / FILE).write_text(json.dumps(facts) + "\n", encoding="utf-8")
    if "refused" in facts:
        configured, fault, mend = facts["refused"]
        raise ConfigError(fault, mend) if configured else DataError(fault, mend)
    return str(facts["digest"])


def _learn(request: MetricRequest, split: Split) -> FairMetric:
    parameters = request.parameters
    with limited_threads(request.threads):
        return learn(parameters.pop("name"), split, **parameters)


def digest_arrays(metric: FairMetric) -> str:
    """Return the digest of a metric's arrays."""
    digest = hashlib.sha256()
    for array in (metric.sigma, metric.basis, metric.directions):
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
