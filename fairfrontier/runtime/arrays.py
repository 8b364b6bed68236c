"""Arrays on NumPy or CuPy: where work runs, and what the array API lacks.

Kernels take their namespace from their input, ``xp = array_namespace(x)``, so that the same
function runs on both; tests run it under array-api-strict as well. This module imports only NumPy
and array-api-compat, and CuPy on demand.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import array_api_compat
import numpy as np

from fairfrontier.runtime.errors import ConfigError

Array = Any  # the standard defines arrays by behaviour: there is no common class
Backend = Literal["auto", "numpy", "cupy"]

# A core makes so many operations in the milliseconds in which a device is told what a pass does
# (`benchmarks.device`).
WORK_THAT_PAYS = 5e7
# Entries of the one-hot block that segment_sum holds at a time: 32 MiB of float64.
BLOCK_ENTRIES = 1 << 22
# Segments above which sorting the rows costs less than a one-hot matrix of them.
MANY_SEGMENTS = 1 << 10

array_namespace = array_api_compat.array_namespace


@functools.cache
def device_present() -> bool:
    """Return whether CuPy is installed and finds a device; checked once per process."""
    try:
        import cupy
    except ImportError:
        return False
    try:
        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def choose_backend(backend: Backend = "auto", work: float = 0.0) -> Literal["numpy", "cupy"]:
    """Return the backend of fits whose passes over the rows, or a batch, are so much ``work``.

    ``work`` is in floating-point operations of a pass. ``auto`` takes CuPy if there is a device and
    it reaches ``WORK_THAT_PAYS``: it depends on the size alone, never on how fast the machine is.

    Raises
    ------
    ConfigError
        When the backend is unknown, or is ``cupy`` without CuPy or a device.
    """
    if backend not in ("auto", "numpy", "cupy"):
        raise ConfigError(
            f"backend is {backend!r}, which is none of auto, numpy and cupy.",
            "Use 'auto' to let the size of the work decide.",
        )
    if backend == "numpy" or (backend == "auto" and work < WORK_THAT_PAYS):
        return "numpy"
    if device_present():
        return "cupy"
    if backend == "cupy":
        raise ConfigError(
            "backend is 'cupy', but CuPy or a CUDA device is missing here.",
            "Install the 'gpu' extra on a machine with an NVIDIA device, or use backend 'auto'.",
        )
    return "numpy"


def count_free_bytes(x: Array) -> float:
    """Return the free memory of the device of an array; without end for one on the host."""
    if not array_api_compat.is_cupy_array(x):
        return float("inf")
    with x.device:
        return float(x.device.mem_info[0])


def as_backend(x: Array, backend: Backend = "auto", *, work: float = 0.0) -> Array:
    """Return the array on the backend of the work ahead, see `choose_backend`.

    ``x`` is a NumPy or CuPy array, or anything that NumPy converts. Under ``auto`` an array on a
    device stays there.

    Raises
    ------
    ConfigError
        As `choose_backend`.
    """
    if backend == "auto" and array_api_compat.is_cupy_array(x):
        return x
    if choose_backend(backend, work) == "numpy":
        return to_numpy(x)
    import cupy

    return cupy.asarray(x)


def to_host(x: Any) -> Any:
    """Return an array on a device as a NumPy array; anything else, say a DataFrame, as it is.

    Of a Dask array the blocks are copied, when they are computed.
    """
    if isinstance(x, np.ndarray) or not array_api_compat.is_array_api_obj(x):
        return x
    if array_api_compat.is_dask_array(x):
        if isinstance(x._meta, np.ndarray):
            return x
        return x.map_blocks(to_host, meta=to_host(x._meta))
    if array_api_compat.is_cupy_array(x):
        return np.asarray(x.get())
    # Other libraries' arrays are readable where they are made by default.
    host = array_namespace(x).__array_namespace_info__().default_device()
    return np.asarray(array_api_compat.to_device(x, host))


def to_numpy(x: Any) -> np.ndarray:
    """Return a NumPy array, copied from the device if the array lives on one."""
    return np.asarray(to_host(x))


def segment_sum(values: Array, codes: Array, n: int) -> Array:
    """Return out[s] = Σ_{i : codes[i] = s} values[i],  s = 0, …, n − 1.

    ``values`` are finite, shape (m,) or (m, k); ``codes`` (m,) are the segments of rows, in any
    order. The result has their dtype and shape (n,) or (n, k), with 0 for empty segments.

    NumPy adds the rows in their order, O(m k). Elsewhere a one-hot matrix is multiplied in blocks
    of ``BLOCK_ENTRIES``, O(m n k): slower than atomic additions if n is large, but deterministic.
    Over ``MANY_SEGMENTS`` the rows of one column are sorted by segment instead, O(m log m), and
    sums are differences of running sums: exact for whole numbers, else with an error that follows Σ
    |values|.
    """
    xp = array_namespace(values, codes)
    m = int(values.shape[0])
    if array_api_compat.is_numpy_namespace(xp):
        return _segment_sum_numpy(values, codes, n)
    if n > MANY_SEGMENTS and values.ndim == 1:
        return _segment_sum_sorted(values, codes, n)
    table = values if values.ndim == 2 else xp.reshape(values, (m, 1))
    where = array_api_compat.device(values)
    out = xp.zeros((n, table.shape[1]), dtype=values.dtype, device=where)
    segments = xp.arange(n, dtype=codes.dtype, device=where)
    step = max(1, BLOCK_ENTRIES // max(n, 1))
    for start in range(0, m, step):
        stop = min(start + step, m)
        one_hot = xp.astype(segments[:, None] == codes[None, start:stop], values.dtype)
        out = out + one_hot @ table[start:stop, :]
    return out if values.ndim == 2 else xp.reshape(out, (n,))


def _segment_sum_numpy(values: np.ndarray, codes: np.ndarray, n: int) -> np.ndarray:
    if not np.issubdtype(values.dtype, np.floating):
        # bincount would pass integers through float64, which is exact only up to 2⁵³.
        out = np.zeros((n, *values.shape[1:]), dtype=values.dtype)
        np.add.at(out, codes, values)
        return out
    sums = np.zeros((n, *values.shape[1:]), dtype=values.dtype)
    if values.ndim == 1:
        sums[:] = np.bincount(codes, weights=values, minlength=n)
    else:
        for column in range(values.shape[1]):
            sums[:, column] = np.bincount(codes, weights=values[:, column], minlength=n)
    return sums


def _segment_sum_sorted(values: Array, codes: Array, n: int) -> Array:
    xp = array_namespace(values, codes)
    order = xp.argsort(codes, stable=True)
    where = array_api_compat.device(values)
    zero = xp.zeros((1,), dtype=values.dtype, device=where)
    running = xp.concat([zero, xp.cumulative_sum(xp.take(values, order), dtype=values.dtype)])
    borders = xp.arange(n + 1, dtype=codes.dtype, device=where)
    reached = xp.take(running, xp.searchsorted(xp.take(codes, order), borders))
    return reached[1:] - reached[:-1]
