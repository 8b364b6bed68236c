"""Tables of anybody's in Arrow, as data frames and as Parquet, and the bytes that they take."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import IO, Any, TypeVar, cast

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fairfrontier.prepare.config.section import MISSING_MARKERS
from fairfrontier.prepare.source.archive import SPREADSHEET, ZIP_START, most_unpacked, refuse_growth
from fairfrontier.prepare.table.column import are_merged
from fairfrontier.prepare.table.text import (
    ALWAYS_MISSING,
    LINES,
    WIDTH,
    Row,
    check_names,
    find_regular,
    read_mixed,
)
from fairfrontier.runtime.errors import ConfigError, DataError, FairfrontierError, refuse_unknown
from fairfrontier.runtime.text_file import is_plain

# Encodings that are read as dictionaries.
COUNTED = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
# Names of settings repeat in every row of a result, which shrinks to little more than its numbers.
RESULT_TIMES = 1000
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


class PlainParquet:
    """A Parquet file whose text is counted before a copy is made for every row.

    ``growth`` is raised where its rows take more than ``most`` bytes; text in lists and records
    counts as it is kept.
    """

    def __init__(
        self, source: Path | IO[bytes], most: int, growth: DataError, **options: Any
    ) -> None:
        file = pq.ParquetFile(source)
        self.schema, self.metadata = file.schema_arrow, file.metadata
        self.most, self.growth, self.total = most, growth, 0
        self._groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
        self._leaves = [*enumerate(map(file.schema.column, range(file.metadata.num_columns)))]
        # Of text in a delta encoding Arrow makes none, and refuses pages where none is stated.
        text = [
            leaf.path
            for number, leaf in self._leaves
            if leaf.physical_type == "BYTE_ARRAY"
            and leaf.path in self.schema.names
            and all({*group.column(number).encodings} <= COUNTED for group in self._groups)
        ]
        self.file = pq.ParquetFile(source, read_dictionary=text, **options)

    def check_cells(self, least: int, names: Sequence[str] | None = None) -> None:
        """Raise where cells of ``least`` bytes are too many, by what the file says of itself."""
        total = 0
        for number, leaf in self._leaves:
            if names is None or leaf.path in names or leaf.path.partition(".")[0] in names:
                fixed = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
                count = sum(group.column(number).num_values for group in self._groups)
                total += count * max(least, fixed)
        if total > self.most:
            raise self.growth

    def count(self, rows: Rows) -> None:
        """Add up the bytes of rows with a copy of its text in each; see `growth`."""
        self.total += count_bytes(rows)
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


def count_bytes(rows: pa.Table | pa.RecordBatch) -> int:
    """Return the bytes of rows when every cell has its own text; Arrow's error where they lie.

    What others have written may lead outside of its memory, or be no UTF-8: that is found here, and
    nowhere before it is used.
    """
    rows.validate(full=True)
    columns = [getattr(column, "chunks", [column]) for column in rows.columns]
    return sum(_count_cells(cells) for chunks in columns for cells in chunks)


def _count_cells(cells: pa.Array) -> int:
    if pa.types.is_dictionary(cells.type):
        levels = cells.dictionary
        if pa.types.is_string_view(levels.type) or pa.types.is_binary_view(levels.type):
            # Arrow does not say how long its views are.
            levels = levels.cast(pa.large_binary())
        with suppress(pa.ArrowNotImplementedError):
            lengths = pc.binary_length(levels).cast(pa.int64())
            return int(pc.sum(lengths.take(cells.indices)).as_py() or 0) + 2 * len(cells)
    # Of cells that take no bytes a file may have any number.
    return max(int(cells.nbytes), len(cells))


def read_result(path: Path) -> pd.DataFrame:
    """Return a table that a run wrote, with its attrs; DataError where it grows as none does."""
    # A pipe would be waited for.
    if not is_plain(path):
        raise FileNotFoundError(f"there is no file {path.name}")
    most = most_unpacked(path.stat().st_size, RESULT_TIMES)
    growth = refuse_growth(path, most, "Restore it from a copy, or make it again.")
    with PlainParquet(path, most, growth) as opened:
        opened.check_cells(8)
        opened.count(opened.file.read())
    return pd.read_parquet(path)


def is_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is text."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_number(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is that of integers or floating-point numbers."""
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


NULLABLE = {"int64": pd.Int64Dtype(), "uint64": pd.UInt64Dtype()}
# Half a character and whole numbers beyond 64 bits raise Python's own errors, and decimals of a
# scale that Parquet lacks an OSError.
UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, OSError)
NO_TYPE = "holds what Arrow has no type for"
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
        try:
            frame = pa.RecordBatchReader.from_stream(frame).read_all()
        except UNFIT as error:
            # Several that are alike have no names yet.
            names = list(map(str, getattr(frame, "columns", ())))
            take = lambda name: pa.RecordBatchReader.from_stream(frame[[name]])  # noqa: E731
            raise _refuse_column("The frame", NO_TYPE, error, names, take) from None
        names = frame.column_names
    else:
        raise DataError(
            f"A {type(frame).__name__} is no table.",
            "Give a frame of pandas, polars or Arrow, or its path where a file is taken.",
        )
    check_names(names, Path("The frame"))
    for column, option in used.items():
        refuse_unknown([column], names, "The table has no column", f" ({option})")
    taken = list(used or names)
    if isinstance(frame, pa.Table):
        return frame.select(taken)
    try:
        return pa.Table.from_pandas(frame[taken], preserve_index=False)
    except UNFIT as error:
        take = lambda name: pa.Table.from_pandas(frame[[name]])  # noqa: E731
        raise _refuse_column("The frame", NO_TYPE, error, taken, take) from None


def _refuse_column(
    what: object, reason: str, error: Exception, names: Iterable[str], take: Callable[[str], object]
) -> DataError:
    """Return the error for the first of the columns that cannot be taken alone."""
    where = str(what)
    for name in names:
        try:
            take(name)
        except UNFIT as own:
            where, error = f"{what}: column {name!r}", own
            break
    said = error.args[0] if error.args else type(error).__name__
    return DataError(f"{where} {reason}: {str(said).splitlines()[0].rstrip('.')}.", MEND)


def to_pandas(frame: Any) -> pd.DataFrame:
    """Return a frame of pandas as it is, and another that `to_arrow` takes with its rows numbered.

    Columns become those of pandas that they would if they were read from a Parquet file.
    """
    return frame if isinstance(frame, pd.DataFrame) else make_frame(to_arrow(frame))


@contextmanager
def as_file(frame: Any, used: Mapping[str, str] = MappingProxyType({})) -> Iterator[Path]:
    """Write a frame, as of `to_arrow`, to a private temporary file; errors speak of the frame.

    So its cells are read as those of a file.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        write_parquet(to_arrow(frame, used), path, "The frame")
        try:
            yield path
        except FairfrontierError as error:
            said = (each.replace(str(path), "The frame") for each in (error.fault, error.mend))
            raise type(error)(*said) from None


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

        def take(name: str) -> None:
            # Offsets that lead anywhere are found here.
            count_bytes(column := table.select([name]))
            pq.write_table(decode(column), io.BytesIO())

        reason = "cannot be kept as Parquet"
        raise _refuse_column(what, reason, error, table.column_names, take) from None


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


# Feather files, and spreadsheets, of which the first sheet is read.

SHEETS = (".xlsx", ".xlsm", ".xls", ".ods")
FEATHER = (b"ARROW1", b"FEA1")
# A sheet is made a rectangle: more cells than it has bytes were never written.
LEAST_CELLS = 2**22


def read_typed(path: Path) -> pa.Table | None:
    """Return what a Feather file holds, or the first sheet of a spreadsheet; None for others."""
    with path.open("rb") as file:
        start = file.read(len(FEATHER[0]))
    sheet = path.suffix.lower() in SHEETS
    if not (sheet or start.startswith((*FEATHER, ZIP_START))):
        return None
    raw = path.read_bytes()
    if start.startswith(FEATHER):
        return _read_feather(raw, path)
    return to_arrow(_read_sheet(raw, path)) if sheet or SPREADSHEET.encode() in raw else None


def _read_feather(raw: bytes, path: Path) -> pa.Table:
    from pyarrow import feather

    table = feather.read_table(io.BytesIO(raw))
    check_names(table.column_names, path, WIDTH)
    # Offsets of a damaged one may lead anywhere.
    table.validate(full=True)
    return table


def _read_sheet(raw: bytes, path: Path) -> pd.DataFrame:
    """Return the first sheet of a spreadsheet; pandas needs a library of its own for it."""
    try:
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(raw)) as archive:
            size, most = sum(part.file_size for part in archive.infolist()), most_unpacked(len(raw))
            if size > most:
                raise refuse_growth(path, most, "Save the sheet as CSV.")
            if SPREADSHEET in archive.namelist():
                _check_sheet(raw, path, max(LEAST_CELLS, size), most)
        cells = pd.read_excel(
            io.BytesIO(raw),
            header=None,
            keep_default_na=False,
            na_values=["", *MISSING_MARKERS, *ALWAYS_MISSING],
        )
        return _name_cells(cells, path)
    except DataError:
        raise
    except ImportError as error:
        library = next(iter(re.findall(r"openpyxl|xlrd|odfpy", str(error))), "openpyxl")
        wanted = "'fairfrontier[excel]'" if library == "openpyxl" else library
        raise ConfigError(
            f"{path} is a spreadsheet, and {library} is not installed.",
            f"Install it (pip install {wanted}), or save the sheet as CSV.",
        ) from None
    # Its readers raise whatever a damaged file makes them meet.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path} is not a spreadsheet that can be read: {reason[:200].rstrip('.')}.",
            "Save the sheet as CSV.",
        ) from None


def _name_cells(cells: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the table in the cells of a sheet: below its title, without columns of nothing."""
    texts = cells[:LINES].astype(object).where(cells[:LINES].notna(), "").map(str).values.tolist()
    regular = find_regular([Row(list(map(str.strip, row)), 0, 0) for row in texts])
    first = regular[1] if regular else 0
    frame = cells[first + 1 :].reset_index(drop=True).infer_objects().apply(read_mixed)
    named = [text.strip() for text in texts[first]] if texts else []
    kept = [place for place, name in enumerate(named) if name or frame[place].notna().any()]
    names = [named[place] or f"Unnamed: {place}" for place in kept]
    check_names(names, path, WIDTH)
    return frame[kept].set_axis(names, axis=1)


def _check_sheet(raw: bytes, path: Path, most: int, limit: int) -> None:
    """Raise a DataError for a first sheet of too many columns, cells or characters.

    Cells count up to the last in use, and a text that many cells share for each of them.
    """
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(raw), read_only=True, data_only=True, keep_links=False)
    with closing(book):
        sheet = book.worksheets[0]
        # What it says of itself may be anything.
        sheet.reset_dimensions()
        widest, characters = 1, 0
        for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
            widest = max(widest, len(row))
            check_names(range(widest), path, WIDTH)
            if number * widest > most:
                raise DataError(
                    f"{path} has more than {most:,} cells, nearly all of them empty.",
                    "Delete what is far from the table, or save the sheet as CSV.",
                )
            characters += sum(len(cell) for cell in row if isinstance(cell, str))
            if characters > limit:
                raise refuse_growth(path, limit, "Save the sheet as CSV.")
