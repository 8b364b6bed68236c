"""How many threads a fit computes with: part of its key, since BLAS results depend on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

# One fit at a time may set the limits of a process: they belong to the process, not to a thread.
_HOLDER = threading.RLock()


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_environment(n: int) -> dict[str, str]:
    """Return the environment of a worker process that may use ``n`` threads.

    Parameters
    ----------
    n : int
        Threads, at least 1.

    Returns
    -------
    dict of str to str
        Variables to be set before NumPy is imported. ``OMP_WAIT_POLICY=PASSIVE`` lets idle OpenMP
        threads sleep: spinning ones have cost XGBoost up to 25 times on shared cores.
    """
    if n < 1:
        raise ValueError(f"a process needs at least one thread, not {n}")
    counts = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "BLIS")
    return {
        **{f"{library}_NUM_THREADS": str(n) for library in counts},
        "VECLIB_MAXIMUM_THREADS": str(n),
        "OMP_WAIT_POLICY": "PASSIVE",
    }


@contextmanager
def limited_threads(n: int) -> Iterator[None]:
    """Let BLAS and OpenMP use exactly ``n`` threads inside the ``with`` block.

    Parameters
    ----------
    n : int
        Threads, at least 1.

    Notes
    -----
    The limit belongs to the whole process, so one block runs at a time; others wait. XGBoost does
    not follow it: hand it ``nthread=n``. A library that is loaded inside the block and brings a
    BLAS of its own escapes the limit; NumPy's, SciPy's and scikit-learn's are loaded first.
    """
    if n < 1:
        raise ValueError(f"a fit needs at least one thread, not {n}")
    import scipy.linalg  # noqa: F401
    import sklearn.utils.extmath  # noqa: F401
    from threadpoolctl import threadpool_limits

    with _HOLDER, threadpool_limits(limits=n):
        yield


def call_limited(n: int, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function with ``n`` threads for BLAS and OpenMP: `limited_threads` for workers."""
    with limited_threads(n):
        return function(*args)
