"""Versions of installed distributions, each looked up once: a look-up reads files."""

from __future__ import annotations

import functools
import importlib.metadata
import tomllib
from pathlib import Path


@functools.cache
def version(name: str) -> str:
    """Return the version of a distribution; of xgboost where that stands in for xgboost-cpu."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        # GPUs and Macs have the one, all other machines the other.
        if name != "xgboost-cpu":
            raise
        return importlib.metadata.version("xgboost")


def find_own_version() -> str:
    """Return the installed version of fairfrontier, or that of the checkout if there is none."""
    try:
        return version("fairfrontier")
    except importlib.metadata.PackageNotFoundError:
        path = Path(__file__).resolve().parents[2] / "pyproject.toml"
        return str(tomllib.loads(path.read_text(encoding="utf-8"))["project"]["version"])
