"""The key of a fit: a digest of all that its outcome depends on."""

from __future__ import annotations

import importlib.metadata
import sys
from functools import cache
from pathlib import Path
from typing import Any

from fairfrontier.metric.registry import METRICS
from fairfrontier.runtime.arrays import device_present
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import Store
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.input import find_fingerprint, find_metric
from fairfrontier.train.fit.kept import KIND
from fairfrontier.train.registry import METHODS

# What the numbers of a fit depend on; a new version of one of them asks for a new fit.
LIBRARIES = (
    "array-api-compat",
    "fairlearn",
    "numpy",
    "pandas",
    "scikit-learn",
    "scipy",
    "skops",
    "xgboost-cpu",
)


def describe(group: FitGroup, home: Path) -> dict[str, Any]:
    """Return all that a fit's outcome depends on; what it is called or audited by is left out.

    Parameters
    ----------
    group : FitGroup
        The fit.
    home : Path
        The project root.

    Returns
    -------
    dict
        Plain values: configuration, digests of the data and of the source that runs, versions.
    """
    cls = METHODS.find(group.estimator)
    modules = ["fairfrontier.train.fit.fitting", cls.__module__]
    metric = find_metric(group)
    if metric is not None:
        modules.append(METRICS.find(metric["name"]).__module__)
    if group.then is not None:
        modules.append(METHODS.find(group.then["method"]).__module__)
    return {
        **({"then": group.then} if group.then is not None else {}),
        "estimator": group.estimator,
        "members": [{"seed": each.seed, "parameters": each.parameters} for each in group.members],
        "metric": metric,
        "data": [find_fingerprint(group, each, home) for each in group.members],
        "threads": group.threads,
        "device": "cupy" if "cupy" in cls.backends and device_present() else "numpy",
        "source": source_digest(modules),
        "libraries": _versions(),
    }


def key(group: FitGroup, store: Store, home: Path) -> str:
    """Return the key of a fit in the store; see ``describe``."""
    return store.key(KIND, describe(group, home))


@cache
def _versions() -> dict[str, str]:
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            # The GPU build of XGBoost goes by another name.
            found[name] = importlib.metadata.version("xgboost")
    return found
