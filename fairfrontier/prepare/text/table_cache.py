"""Prepared tables of texts on disk: cleaning and searching them is done once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import canonical_json
from fairfrontier.runtime.writer import filling

FOLDER = Path("data", "cache", "tables")
# Below, reading and preparing take less than a second.
WORTH_BYTES = 8 * 2**20


def recall_table(
    make: Callable[[], pd.DataFrame], description: Mapping[str, Any], home: Path, module: str
) -> pd.DataFrame:
    """Return a table that was made before, or make it and keep it.

    Parameters
    ----------
    make : callable
    description : mapping
        All that the table depends on, but the code.
    home : Path
        The project; tables are kept in its ``data/cache/tables``.
    module : str
        Dotted name of the code that makes it, whose source is part of the key.

    Returns
    -------
    DataFrame
        Numbered from 0, with columns of numbers and level text.

    Notes
    -----
    A file that cannot be read or written is no fault: the table is made again.
    """
    libraries = {each: version(each) for each in ("pandas", "pyarrow")}
    key = {**description, "source": source_digest([module]), "libraries": libraries}
    name = hashlib.sha256(canonical_json(key).encode()).hexdigest()
    path = home / FOLDER / f"{name}.parquet"
    if path.is_file():
        # Whatever Arrow says of a damaged file, the answer is the same.
        with suppress(OSError, ValueError):
            return pd.read_parquet(path)
    frame = make()
    with suppress(StoreError), filling(path.parent, what="table") as work:
        frame.to_parquet(work / path.name)
    return frame
