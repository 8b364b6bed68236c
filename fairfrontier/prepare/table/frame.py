"""Data frames as Arrow tables and as Parquet, whoever made them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairfrontier.prepare.source.archive import most_unpacked, refuse_growth
from fairfrontier.prepare.table.column import are_merged
from fairfrontier.prepare.table.parquet import count_bytes
from fairfrontier.prepare.table.text import check_names
from fairfrontier.runtime.errors import ConfigError, DataError, nearest

NULLABLE = {"int64": pd.Int64Dtype(), "uint64": pd.UInt64Dtype()}
# Half a character and whole numbers beyond 64 bits raise Python's own errors, and decimals of a
# scale that Parquet lacks an OSError.
UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, OSError)
MEND = "Convert that column to numbers or text."


def make_frame(table: pa.Table | pa.RecordBatch) -> pd.DataFrame:
    """Return what was read of a file as a frame.

    Of whole numbers beside missing cells pandas makes floats, but not of those that it would merge.
    """
    # Metadata of pandas would hide a column that was its index.
    frame = cast(pd.DataFrame, table.to_pandas(ignore_metadata=True))
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if pa.types.is_integer(column.type) and column.null_count and are_merged(frame[name]):
            frame[name] = column.to_pandas(types_mapper=lambda kind: NULLABLE[str(kind)])
    return frame


def to_arrow(frame: Any, used: Mapping[str, str] = MappingProxyType({})) -> pa.Table:
    """Return a frame of pandas, or of whatever speaks Arrow's C stream, as an Arrow table.

    ``used`` maps the columns that are taken to the options that name them; all by default. An index
    is no column.
    """
    if isinstance(frame, pd.DataFrame):
        frame = frame.set_axis(list(map(str, frame.columns)), axis=1)
        names = list(frame.columns)
    elif hasattr(frame, "__arrow_c_stream__"):
        frame = pa.RecordBatchReader.from_stream(frame).read_all()
        names = frame.column_names
    else:
        raise DataError(
            f"A {type(frame).__name__} is no table.",
            "Give a frame of pandas, polars or Arrow, or its path where a file is taken.",
        )
    check_names(names, Path("The frame"))
    for column, option in used.items():
        if column not in names:
            raise ConfigError(
                f"The table has no column {column!r} ({option}).", nearest(column, names)
            )
    taken = list(used or names)
    if isinstance(frame, pa.Table):
        return frame.select(taken)
    try:
        return pa.Table.from_pandas(frame[taken], preserve_index=False)
    except UNFIT as error:
        raise DataError(
            f"The frame holds what Arrow has no type for: {str(error).splitlines()[0]}.", MEND
        ) from None


def to_pandas(frame: Any) -> pd.DataFrame:
    """Return a frame of pandas as it is, and another that `to_arrow` takes with its rows numbered.

    Columns become those of pandas that they would if they were read from a Parquet file.
    """
    return frame if isinstance(frame, pd.DataFrame) else make_frame(to_arrow(frame))


def write_parquet(table: pa.Table, sink: Any, what: object, size: int | None = None) -> None:
    """Write an Arrow table as Parquet; a DataError says that ``what`` it is cannot be kept.

    ``size`` is that of the file that it was read from, by default what it takes in memory.
    """
    try:
        most = most_unpacked(size or table.get_total_buffer_size())
        if count_bytes(table) > most:
            raise refuse_growth(what, most, "Save it as Parquet.")
        pq.write_table(decode(table), sink)
    except UNFIT as error:
        # With an errno it is an error of the disk.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(
            f"{what} cannot be kept as Parquet: {str(error).splitlines()[0]}.", MEND
        ) from None


def decode(table: pa.Table) -> pa.Table:
    """Return a table with categories, of which Parquet does not take all, as values."""
    columns = []
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            kind = column.type.value_type
            kind = pa.string() if pa.types.is_string_view(kind) else kind
            chunks = [each.dictionary.cast(kind).take(each.indices) for each in column.chunks]
            column = pa.chunked_array(chunks, kind)
        columns.append(column)
    return pa.table(columns, table.column_names)
