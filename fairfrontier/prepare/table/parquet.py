"""Parquet of anybody's: a few bytes may stand for a long text in each of many rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import pandas as pd
import pyarrow as pa

from fairfrontier.prepare.source.archive import most_unpacked, refuse_growth
from fairfrontier.runtime.errors import DataError

# Encodings that are read as dictionaries.
COUNTED = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
# Names of settings repeat in every row of a result, which shrinks to little more than its numbers.
RESULT_TIMES = 1000
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


class PlainParquet:
    """A Parquet file whose text is counted before a copy is made for every row.

    ``growth`` is raised where its rows take more than ``most`` bytes.
    """

    def __init__(
        self, source: Path | IO[bytes], most: int, growth: DataError, **options: Any
    ) -> None:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(source)
        self.schema, self.metadata = file.schema_arrow, file.metadata
        self.most, self.growth, self.total = most, growth, 0
        self._leaves = [file.schema.column(leaf) for leaf in range(self.metadata.num_columns)]
        # Of text in a delta encoding Arrow makes none, and refuses pages where none is stated.
        text = [
            leaf.path
            for number, leaf in enumerate(self._leaves)
            if leaf.physical_type == "BYTE_ARRAY" and self._list_encodings(number) <= COUNTED
        ]
        self.file = pq.ParquetFile(source, read_dictionary=text, **options)

    def _list_encodings(self, leaf: int) -> set[str]:
        groups = range(self.metadata.num_row_groups)
        return {each for g in groups for each in self.metadata.row_group(g).column(leaf).encodings}

    def check_cells(self, least: int, names: Sequence[str] | None = None) -> None:
        """Raise where cells of ``least`` bytes are too many, by what the file says of itself."""
        total = 0
        for number, leaf in enumerate(self._leaves):
            top = leaf.path.partition(".")[0]
            if names is not None and leaf.path not in names and top not in names:
                continue
            count = self.metadata.num_rows
            if leaf.max_repetition_level:
                groups = range(self.metadata.num_row_groups)
                count = sum(self.metadata.row_group(g).column(number).num_values for g in groups)
            fixed = leaf.physical_type == "FIXED_LEN_BYTE_ARRAY"
            total += count * max(least, leaf.length if fixed else 0)
        if total > self.most:
            raise self.growth

    def count(self, rows: Rows) -> None:
        """Add up the bytes of rows with a copy of its text in each; see `growth`."""
        # Text that is no UTF-8 is found here, and nowhere before it is used.
        rows.validate(full=True)
        self.total += sum(map(_count_bytes, rows.columns))
        if self.total > self.most:
            raise self.growth

    def decode(self, rows: Rows) -> Rows:
        """Return rows that were read with a copy of its text in each, counting them first."""
        self.count(rows)
        fields = [self.schema.field(name) for name in rows.schema.names]
        columns = map(_cast, rows.columns, [field.type for field in fields])
        return type(rows).from_arrays(list(columns), schema=pa.schema(fields, rows.schema.metadata))

    def __enter__(self) -> PlainParquet:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def _cast(column: Any, kind: pa.DataType) -> Any:
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # Arrow has no direct way from a dictionary.
        column = column.cast(column.type.value_type)
    return column.cast(kind)


def _count_bytes(column: pa.Array | pa.ChunkedArray) -> int:
    """Return the bytes of a column when every cell has its own text."""
    import pyarrow.compute as pc

    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        return sum(map(_count_bytes, column.chunks))
    if isinstance(kind, pa.BaseExtensionType):
        return _count_bytes(column.storage)
    if pa.types.is_dictionary(kind):
        if not (pa.types.is_string(kind.value_type) or pa.types.is_binary(kind.value_type)):
            return int(column.nbytes)
        lengths = pc.binary_length(column.dictionary).cast(pa.int64())
        return (pc.sum(lengths.take(column.indices)).as_py() or 0) + 2 * len(column)
    if pa.types.is_struct(kind):
        return sum(map(_count_bytes, column.flatten()))
    if pa.types.is_map(kind):
        # As a list its flat cells are those of its rows, not of the array that they are cut from.
        column = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        return _count_bytes(column.flatten())
    # Lists of any kind; other nested types raise.
    return _count_bytes(column.flatten()) if pa.types.is_nested(kind) else int(column.nbytes)


def read_result(path: Path) -> pd.DataFrame:
    """Return a table that a run wrote, with its attrs; DataError where it grows as none does."""
    most = most_unpacked(path.stat().st_size, RESULT_TIMES)
    growth = refuse_growth(path, most, "Restore it from a copy, or make it again.")
    with PlainParquet(path, most, growth) as opened:
        opened.check_cells(8)
        opened.count(opened.file.read())
    return pd.read_parquet(path)


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Turn Arrow's errors about a file that is no Parquet into a DataError."""
    try:
        yield
    except MemoryError:
        raise memory_error(path) from None
    # A KeyError is a time zone that there is not.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, KeyError) as error:
        raise DataError(
            f"{path} is not a Parquet file that can be read: {str(error).splitlines()[0]}",
            "Check source.format and fetch the file again.",
        ) from None


def memory_error(path: Path) -> DataError:
    """Return the error for a file that the memory does not hold."""
    return DataError(
        f"{path} takes more memory than there is.", "Divide it into files of fewer rows."
    )
