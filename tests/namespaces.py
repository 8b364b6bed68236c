"""The namespaces that array code is tested under; one with a device only under ``-m gpu``."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest

from fairfrontier.runtime.arrays import device_present


class SecondDevice:
    """array-api-strict with its arrays where NumPy cannot read them, as on a GPU.

    What mixes them with arrays of the host raises, and so does what makes an array without saying
    on which device.
    """

    def asarray(self, values: Any, **options: Any) -> Any:
        device = array_api_strict.Device("device1")
        return array_api_strict.asarray(values, device=device, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(array_api_strict, name)


def load_cupy() -> Any:
    if not device_present():
        pytest.skip("needs CuPy and a device")
    import cupy

    return cupy


def devices() -> list[Any]:
    """Return what is held to NumPy, each as a function that loads it."""
    return [
        pytest.param(SecondDevice, id="strict"),
        pytest.param(load_cupy, id="cupy", marks=pytest.mark.gpu),
    ]


def namespaces() -> list[Any]:
    """Return NumPy and `devices`."""
    return [pytest.param(lambda: np, id="numpy"), *devices()]
