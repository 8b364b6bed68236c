"""Vectors that a user supplies: npy and Parquet, put into the order of a table's rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairfrontier.prepare.config.section import level_text
from fairfrontier.prepare.source.archive import most_unpacked, refuse_growth
from fairfrontier.prepare.table.frame import PlainParquet, is_number, is_text
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.text_file import is_plain

# The name of such vectors in results, before the name of the file.
SUPPLIED = "file:"


def read_embeddings(path: Path, ids: Sequence[Any], *, id_column: str = "id") -> np.ndarray:
    """Return vectors of the rows ``ids`` in their order, float32 of shape (n_samples, dimension).

    ``path`` is an ``.npy`` file of shape (n, d), in which row i belongs to ``ids[i]``; or a Parquet
    file of a column of ids, of which 7 and "7" are the same, and either one column of lists of d
    numbers or d columns of numbers, in their order, which may contain more rows. Nothing is
    unpickled: arrays of Python objects are refused.

    Raises
    ------
    ConfigError
        When the file or the column does not exist.
    DataError
        When rows are missing, repeated, or not finite numbers.
    """
    if not is_plain(path):
        raise ConfigError(f"There is no file {path}.", "Check the path.")
    wanted = _as_text(ids)
    if path.suffix == ".npy":
        vectors = _read_array(path)
        if vectors.ndim != 2 or len(vectors) != len(wanted) or vectors.size == 0:
            raise DataError(
                f"{path} has shape {vectors.shape}, and ({len(wanted)}, numbers) is expected.",
                "Save one row of numbers for every row of the table, in its order.",
            )
    else:
        vectors = _read_parquet(path, id_column, wanted)
    if vectors.dtype.kind not in "fiu":
        raise DataError(
            f"{path} holds values of type {vectors.dtype}, and numbers are expected.",
            "Save the vectors as float32.",
        )
    with np.errstate(over="ignore"):
        chosen = np.ascontiguousarray(vectors, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(chosen).all(axis=1))
    if bad.size:
        raise DataError(
            f"{path} holds NaN, infinite or too large numbers in {len(bad)} rows, the first of "
            f"them with id {wanted[bad[0]]}.",
            "Encode these texts again, or drop their rows.",
        )
    return chosen


def _read_array(path: Path) -> np.ndarray:
    try:
        # A path would stay open where it begins like an archive and is none.
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
    # NumPy raises almost anything for a damaged file.
    except Exception:
        array = None
    if not isinstance(array, np.ndarray):
        raise DataError(
            f"{path} is no array of numbers: it is damaged, another format, or holds Python "
            "objects, which are never unpickled.",
            "Save it again by numpy.save(path, array.astype('float32')).",
        )
    return array


def _read_parquet(path: Path, id_column: str, wanted: pd.Index) -> np.ndarray:
    """Return the vectors of the ids that are wanted."""
    try:
        most = most_unpacked(path.stat().st_size)
        with PlainParquet(path, most, refuse_growth(path, most, "Save it as npy.")) as opened:
            opened.check_cells(1)
            table = opened.decode(opened.file.read())
        names = table.column_names
    # Arrow raises more than ArrowInvalid, and column names may be no UTF-8.
    except (pa.ArrowException, ValueError, OSError, MemoryError, OverflowError):
        raise DataError(f"{path} is no Parquet file.", "Write it again.") from None
    if id_column not in names:
        raise ConfigError(f"{path} has no column {id_column!r}.", nearest(id_column, names))
    ids = table.column(id_column)
    if ids.null_count or not (pa.types.is_integer(ids.type) or is_text(ids.type)):
        raise DataError(
            f"{path}: {id_column}: ids are of type {ids.type} with {ids.null_count} missing.",
            "Give every row an integer or a string.",
        )
    # pandas writes some indexes as columns.
    others = [name for name in names if name != id_column and not name.startswith("__index_level_")]
    vectors = _stack(table.select(others), path)
    present = _as_text(ids.to_numpy().tolist())
    if not present.is_unique:
        double = present[present.duplicated()]
        raise DataError(
            f"{path} has the id {double[0]} more than once.", "Keep one vector for every id."
        )
    order: np.ndarray = present.get_indexer(wanted)
    missing = wanted[order < 0]
    if len(missing):
        some = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise DataError(
            f"{path} lacks {len(missing)} of {len(wanted)} rows (ids {some}).",
            "Encode these texts too, or drop their rows.",
        )
    chosen: np.ndarray = vectors[order]
    return chosen


def _stack(table: pa.Table, path: Path) -> np.ndarray:
    """Return columns of numbers, or one of lists of them, as rows of shape (n, d)."""
    columns = [column.combine_chunks() for column in table.columns]
    if len(columns) == 1 and hasattr(columns[0], "value_lengths"):
        lengths = columns[0].value_lengths().unique().to_pylist()
        if len(lengths) != 1 or not lengths[0]:
            raise DataError(
                f"{path}: the lists of numbers are not all of one length.",
                "Write one vector of the same length for every row.",
            )
        columns = [columns[0].flatten()]
    kinds = {column.type for column in columns}
    if not columns or not all(map(is_number, kinds)):
        raise DataError(
            f"{path}: beside the ids stand columns of {', '.join(map(str, kinds)) or 'nothing'}, "
            "and numbers are expected.",
            "Keep the ids and the numbers of the vectors, or one column of lists.",
        )
    flat = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
    rows: np.ndarray = flat.reshape(len(table), -1)
    return rows


def _as_text(ids: Sequence[Any]) -> pd.Index:
    return pd.Index([str(level_text(value)) for value in ids], dtype=object)
