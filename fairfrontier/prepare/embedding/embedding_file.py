"""Vectors that a user supplies: npy and Parquet, put into the order of a table's rows."""

from __future__ import annotations

import hashlib
import tokenize
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairfrontier.prepare.config.section import level_text
from fairfrontier.prepare.source.archive import most_unpacked, refuse_growth
from fairfrontier.prepare.table.frame import PlainParquet, is_number, is_text
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.store import canonical_json, hash_file
from fairfrontier.runtime.text_file import is_plain

# The name of such vectors in results, before the name of the file.
SUPPLIED = "file:"
# Errors of numpy on damaged files: a header's shape alone can claim all memory.
DAMAGE = (
    ValueError,
    EOFError,
    OSError,
    MemoryError,
    OverflowError,
    TypeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
)


@dataclass(frozen=True, eq=False)
class SuppliedEmbedding:
    """A user's vectors of a table's rows, float32 of shape (n_samples, dimension).

    ``name`` is ``file:`` and the name of the file; ``digest`` covers the files and how they were
    read.
    """

    name: str
    digest: str
    vectors: np.ndarray

    @property
    def dimension(self) -> int:
        """d, the length of a vector."""
        return int(self.vectors.shape[1])


def read_embeddings(
    path: Path,
    ids: Sequence[Any] | np.ndarray,
    *,
    id_file: Path | None = None,
    id_column: str = "id",
) -> SuppliedEmbedding:
    """Read vectors of the rows ``ids``, in their order; 7 and "7" are the same id.

    ``path`` is an ``.npy`` file of shape (n, d), in which row i belongs to ``ids[i]``, or to row i
    of ``id_file`` (``.npy`` of integers or strings, shape (n,)); or a ``.parquet`` file of a column
    of ids and either one column of lists of d numbers or d columns of numbers, in their order. It
    may contain more rows, except for an npy without ids. Nothing is unpickled: arrays of Python
    objects are refused.

    Raises
    ------
    ConfigError
        When a file or column does not exist, or the file is neither npy nor Parquet.
    DataError
        When rows are missing, repeated, or not finite numbers.
    """
    files = [file for file in (path, id_file) if file is not None]
    for file in files:
        if not is_plain(file):
            raise ConfigError(f"There is no file {file}.", "Check the path.")
    wanted = _as_text(ids)
    if path.suffix == ".npy":
        vectors = _read_array(path)
        if vectors.ndim != 2 or vectors.shape[1] == 0:
            raise DataError(
                f"{path} has shape {vectors.shape}, and (rows, numbers) is expected.",
                "Save one row of numbers for every text.",
            )
        if id_file is None:
            if len(vectors) != len(wanted):
                raise DataError(
                    f"{path} has {len(vectors)} rows, and the table has {len(wanted)}.",
                    "Save a vector for every row of the table, in its order, or give their ids.",
                )
            order = np.arange(len(wanted))
        else:
            order = _match(_read_ids(id_file, len(vectors)), wanted, id_file)
    elif path.suffix == ".parquet":
        if id_file is not None:
            raise ConfigError(f"id_file is given with {path}.", "A Parquet file has ids inside.")
        present, vectors = _read_parquet(path, id_column)
        order = _match(present, wanted, path)
    else:
        raise ConfigError(
            f"{path} is neither .npy nor .parquet.", "Save the vectors as one of them."
        )
    chosen = np.ascontiguousarray(_as_numbers(vectors, path)[order], dtype=np.float32)
    if not np.isfinite(chosen).all():
        bad = np.flatnonzero(~np.isfinite(chosen).all(axis=1))
        raise DataError(
            f"{path} holds NaN, infinite or too large numbers in {len(bad)} rows, the first of "
            f"them with id {wanted[bad[0]]}.",
            "Encode these texts again, or drop their rows.",
        )
    digests = [hash_file(file) for file in files]
    text = canonical_json({"files": digests, "id_column": id_column, "ids": list(wanted)})
    return SuppliedEmbedding(
        f"{SUPPLIED}{path.name}", hashlib.sha256(text.encode()).hexdigest(), chosen
    )


def _read_array(path: Path) -> np.ndarray:
    try:
        # A path would stay open where it begins like an archive and is none.
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
    except DAMAGE:
        raise DataError(
            f"{path} is no array of numbers: it is damaged, another format, or holds Python "
            "objects, which are never unpickled.",
            "Save it again by numpy.save(path, array.astype('float32')).",
        ) from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError(f"{path} is an archive of arrays.", "Save one array by numpy.save.")
    return array


def _read_ids(path: Path, n: int) -> pd.Index:
    ids = _read_array(path)
    if ids.shape != (n,) or ids.dtype.kind not in "iuU":
        raise DataError(
            f"{path} has shape {ids.shape} and type {ids.dtype}, and {n} integers or strings "
            "are expected.",
            "Save one id for every row of the vectors.",
        )
    return _as_text(ids)


def _read_parquet(path: Path, id_column: str) -> tuple[pd.Index, np.ndarray]:
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
    if not others:
        raise DataError(f"{path} has no column but {id_column!r}.", "Add the vectors.")
    if len(others) == 1 and _is_list(table.column(others[0]).type):
        return _as_text(ids.to_numpy()), _stack(table.column(others[0]).combine_chunks(), path)
    for name in others:
        kind = table.column(name).type
        if not is_number(kind):
            raise DataError(
                f"{path}: {name}: this column is of type {kind}, and numbers are expected.",
                "Keep the ids and the numbers of the vectors, or one column of lists.",
            )
    vectors = np.column_stack([table.column(name).to_numpy() for name in others])
    return _as_text(ids.to_numpy()), vectors


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _stack(lists: Any, path: Path) -> np.ndarray:
    """Return the lists of a column as rows, shape (n, d)."""
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    if lists.null_count or np.unique(lengths).size != 1 or lengths[0] == 0:
        raise DataError(
            f"{path}: the lists of numbers are not all of one length.",
            "Write one vector of the same length for every row.",
        )
    flat = lists.flatten()
    if not is_number(flat.type):
        raise DataError(f"{path}: the lists hold {flat.type}.", "Write lists of numbers.")
    rows: np.ndarray = flat.to_numpy(zero_copy_only=False).reshape(len(lists), -1)
    return rows


def _as_numbers(vectors: np.ndarray, path: Path) -> np.ndarray:
    if vectors.dtype.kind not in "fiu":
        raise DataError(
            f"{path} holds values of type {vectors.dtype}, and numbers are expected.",
            "Save the vectors as float32.",
        )
    with np.errstate(over="ignore"):
        return vectors.astype(np.float32, copy=False)


def _as_text(ids: Sequence[Any] | np.ndarray) -> pd.Index:
    listed = ids.tolist() if isinstance(ids, np.ndarray) else ids
    return pd.Index([str(level_text(value)) for value in listed], dtype=object)


def _match(present: pd.Index, wanted: pd.Index, path: Path) -> np.ndarray:
    """Return the position of each wanted id among the ids of a file."""
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
    return order
