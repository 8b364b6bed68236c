"""Whether a table's rows stay in its files: the memory that it would take, and that there is."""

from __future__ import annotations

from pathlib import Path

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.source import Source
from fairfrontier.prepare.source.fetch import peek
from fairfrontier.prepare.table.file import list_sources
from fairfrontier.prepare.table.reader import reading
from fairfrontier.runtime.cluster.partition import count_memory
from fairfrontier.runtime.errors import ConfigError

# Bytes of memory for a cell of a Parquet file, and for a byte of text: as read, and encoded.
CELL, TEXT_BYTE = 64, 10
# A compressed file grows to about so many times its size.
GROWTH = 4
# The share of this machine's memory above which ``memory: auto`` leaves rows in their files.
SHARE = 0.5


def stays_in_files(config: DatasetConfig, file: Path, home: Path) -> bool:
    """Return whether a dataset is prepared as a collection of partitions, not in memory.

    So it is with ``memory: dask``; and with ``auto`` where the estimate exceeds half of the memory
    of this machine, unless it has texts or votes, which only tables in memory have.
    """
    if config.memory == "dask":
        return True
    if config.text or config.source.votes:
        return False
    return estimate_bytes(config.source, home, file.parent) > SHARE * count_memory()


def check_room(rows: int, features: int, file: Path) -> None:
    """Raise a ConfigError where encoded rows would take more than ``SHARE`` of the memory."""
    wanted, memory = 8 * rows * features, count_memory()
    if wanted > SHARE * memory:
        raise ConfigError(
            f"{file}: features makes {features:,} columns of X, which of {rows:,} rows take "
            f"{wanted / 2**30:.1f} of the {memory / 2**30:.1f} GiB of this machine.",
            "Leave columns out, or set memory: dask.",
        )


def estimate_bytes(source: Source, home: Path, folder: Path) -> int:
    """Return about how much memory a table takes, in bytes: 64 a cell, or 10 a byte of text.

    Reads footers of Parquet files and sizes of others; of files that are yet to be fetched it takes
    the ``bytes`` of their sources as text, which count 0 where none are given.
    """
    total = 0
    for file in source.path:
        if not file.sources:
            paths = list_sources(file, source, home, folder)
        elif (here := peek(file, home, folder)) is not None:
            paths = [here]
        else:
            total += TEXT_BYTE * max(origin.bytes or 0 for origin in file.sources)
            continue
        for path in paths:
            if source.format == "parquet":
                total += CELL * _count_cells(path)
            else:
                grown = GROWTH if path.suffix in (".gz", ".zip") else 1
                total += TEXT_BYTE * grown * path.stat().st_size
    return total


def _count_cells(path: Path) -> int:
    import pyarrow.parquet as pq

    with reading(path):
        facts = pq.read_metadata(path)
    return int(facts.num_rows) * int(facts.num_columns)
