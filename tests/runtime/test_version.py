from __future__ import annotations

import importlib.metadata
from importlib.metadata import PackageNotFoundError

import pytest

from fairfrontier.runtime.version import version


def test_machines_with_gpus_and_macs_have_xgboost_under_its_other_name(monkeypatch):
    installed = {"xgboost": "3.2.0", "numpy": "2.4.6"}

    def find(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(importlib.metadata, "version", find)
    version.cache_clear()
    try:
        assert version("xgboost-cpu") == "3.2.0"
        assert version("numpy") == "2.4.6"
        with pytest.raises(PackageNotFoundError):
            version("scipy")
    finally:
        version.cache_clear()
