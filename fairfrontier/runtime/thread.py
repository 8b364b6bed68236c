"""The number of threads of a fit: part of its key, since BLAS results depend on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

# One fit at a time may set the limits, which belong to the process, not to a thread.
_HOLDER = threading.RLock()


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_environment(n: int) -> dict[str, str]:
    """Return the environment of a worker process that may use ``n`` ≥ 1 threads.

    To be set before NumPy is imported. ``OMP_WAIT_POLICY=PASSIVE`` lets idle OpenMP threads sleep:
    spinning ones have slowed XGBoost down up to 25 times on shared cores.
    """
    counts = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "BLIS")
    return {
        **{f"{library}_NUM_THREADS": str(n) for library in counts},
        "VECLIB_MAXIMUM_THREADS": str(n),
        "OMP_WAIT_POLICY": "PASSIVE",
    }


@contextmanager
def limited_threads(n: int) -> Iterator[None]:
    """Let BLAS and OpenMP use exactly ``n`` ≥ 1 threads inside the ``with`` block.

    The limit belongs to the process, so one block runs at a time; others wait. XGBoost ignores it:
    pass it ``nthread=n``. So does a library loaded inside the block with a BLAS of its own;
    NumPy's, SciPy's and scikit-learn's are loaded first.
    """
    import scipy.linalg  # noqa: F401
    import sklearn.utils.extmath  # noqa: F401
    from threadpoolctl import threadpool_limits

    with _HOLDER, threadpool_limits(limits=n):
        yield


def call_limited(n: int, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function within `limited_threads`, for workers."""
    with limited_threads(n):
        return function(*args)
