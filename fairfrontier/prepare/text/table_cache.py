"""Prepared tables of texts on disk, so that texts are cleaned and searched once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import canonical_json
from fairfrontier.runtime.version import version
from fairfrontier.runtime.writer import filling

FOLDER = Path("data", "cache", "tables")
# Below, reading and preparing take less than a second.
WORTH_BYTES = 8 * 2**20


def recall_table(
    make: Callable[[], pd.DataFrame], description: Mapping[str, Any], home: Path, module: str
) -> pd.DataFrame:
    """Return a table that was made before, or make it and keep it in the project's cache.

    ``description`` is all that the table depends on, except for the source of ``module``, which
    makes it. The table is numbered from 0, with columns of numbers and level text. When a file
    cannot be read or written, the table is made again.
    """
    libraries = {name: version(name) for name in ("pandas", "pyarrow")}
    key = {**description, "source": source_digest([module]), "libraries": libraries}
    name = hashlib.sha256(canonical_json(key).encode()).hexdigest()
    path = home / FOLDER / f"{name}.parquet"
    if path.is_file():
        # A damaged file is made again.
        with suppress(OSError, ValueError):
            return pd.read_parquet(path)
    frame = make()
    with suppress(StoreError), filling(path.parent, what="table") as work:
        frame.to_parquet(work / path.name)
    return frame
