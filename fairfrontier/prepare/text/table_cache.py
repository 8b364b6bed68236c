"""Prepared tables of texts on disk, so that texts are cleaned and searched once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import Store
from fairfrontier.runtime.version import version

FOLDER = Path("data", "cache", "tables")
KIND, FILE = "table", "table.parquet"
# Below, reading and preparing take less than a second.
WORTH_BYTES = 8 * 2**20


def recall_table(
    make: Callable[[], pd.DataFrame], description: Mapping[str, Any], home: Path, module: str
) -> pd.DataFrame:
    """Return a table that was made before, or make it and keep it in the project's cache.

    ``description`` is all that the table depends on, except for the source of ``module``, which
    makes it. The table is numbered from 0, with columns of numbers and level text. When its file
    is damaged or cannot be written, the table is made again.
    """
    libraries = {name: version(name) for name in ("pandas", "pyarrow")}
    whole = {**description, "source": source_digest([module]), "libraries": libraries}
    store = Store(home / FOLDER)
    key = store.key(KIND, whole)
    entry = store.read(KIND, key)
    if entry is not None:
        return pd.read_parquet(entry / FILE)
    frame = make()
    with suppress(OSError, StoreError), store.writing(KIND, key, whole) as work:
        frame.to_parquet(work / FILE)
    return frame
