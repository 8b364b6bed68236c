"""Options of clusters on this machine, as far as they load no code and open no port to others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fairfrontier.runtime.config import Model, fault

# Seconds that are waited at most.
LONGEST = 1e6


def check_duration(value: Any) -> Any:
    """Refuse what Dask does not read as a time, and times below 0 or without end."""
    from dask.utils import parse_timedelta

    try:
        seconds = parse_timedelta(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, LookupError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds <= LONGEST:
        raise fault(f"{value!r} is no time", "Write seconds, or a text such as 5 minutes.")
    return value


def check_memory(value: Any) -> Any:
    """Refuse what Dask does not read as an amount of memory, and amounts below 0."""
    from dask.utils import parse_bytes

    try:
        amount = parse_bytes(value) if isinstance(value, int | float | str) else -1
    except (ValueError, OverflowError):
        amount = 0 if value in ("auto", "default") else -1
    if amount < 0:
        raise fault(f"{value!r} is no amount of memory", "Write 4GiB, for example.")
    return value


Duration = Annotated[Any, AfterValidator(check_duration)]
Memory = Annotated[Any, AfterValidator(check_memory)]


class LocalOptions(Model):
    """Options of Dask's LocalCluster: none loads code or makes it listen to others."""

    death_timeout: Duration | None = None
    lifetime: Duration | None = None
    lifetime_restart: bool | None = None
    lifetime_stagger: Duration | None = None
    resources: Mapping[str, Annotated[float, Field(ge=0)]] | None = None


class CudaOptions(Model):
    """Options of dask-cuda's LocalCUDACluster: none loads code or makes it listen to others."""

    CUDA_VISIBLE_DEVICES: int | str | tuple[int | str, ...] | None = None
    device_memory_limit: Memory | None = None
    jit_unspill: bool | None = None
    memory_limit: Memory | None = None
    enable_infiniband: bool | None = None
    enable_nvlink: bool | None = None
    enable_rdmacm: bool | None = None
    enable_tcp_over_ucx: bool | None = None
    protocol: Annotated[str, Field(pattern="^ucx")] | None = None
    rmm_async: bool | None = None
    rmm_managed_memory: bool | None = None
    rmm_maximum_pool_size: Memory | None = None
    rmm_pool_size: Memory | None = None


LOCAL_OPTIONS: dict[str, type[Model]] = {"local": LocalOptions, "cuda": CudaOptions}
