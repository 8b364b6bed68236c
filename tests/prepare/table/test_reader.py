from __future__ import annotations

import gzip
import hashlib
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.section import RowFilter, Source, SourceFile
from fairfrontier.prepare.draft.draft import read_raw
from fairfrontier.prepare.table import reader
from fairfrontier.prepare.table.column import as_levels
from fairfrontier.prepare.table.reader import cut_table, list_sources
from fairfrontier.prepare.table.rows import as_numbers, keep_rows, make_columns, read_table
from fairfrontier.runtime.errors import ConfigError, DataError

TEXT = "a,b,c\n1,x,2.5\n2, y ,\n"


class Dataset:
    """Stands in for a DatasetConfig where only its rows matter."""

    def __init__(self, **rows):
        self.rows = RowFilter(**rows)


def read(folder, content, name="t.csv", **source):
    data = content if isinstance(content, bytes) else content.encode()
    (folder / name).write_bytes(data)
    return read_table(Source(path=name, **source), folder, folder)


def test_cells_are_text_without_blanks_and_digests_are_of_the_file(tmp_path):
    table = read(tmp_path, TEXT)
    assert table.frame["b"].tolist() == ["x", "y"]
    assert table.frame["a"].tolist() == ["1", "2"]
    assert table.frame["c"].isna().tolist() == [False, True]
    assert table.digests == (hashlib.sha256(TEXT.encode()).hexdigest(),)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    assert list(read(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n").frame) == ["a", "b"]


def test_gzip_is_seen_by_its_bytes(tmp_path):
    table = read(tmp_path, gzip.compress(TEXT.encode(), mtime=0), name="t.data")
    assert table.frame.equals(read(tmp_path, TEXT).frame)


def test_whitespace_and_named_columns(tmp_path):
    table = read(tmp_path, "1  x\n2\ty\n", format="whitespace", columns=["a", "b"])
    assert table.frame["b"].tolist() == ["x", "y"]


@pytest.mark.parametrize("path", [["a.csv", "*.csv"], ["a.csv", "./a.csv"], ["a.csv", "b.csv"]])
@pytest.mark.parametrize("memory", ["rows", "dask"])
def test_a_file_that_is_listed_twice_is_refused(tmp_path, path, memory):
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    read = read_table if memory == "rows" else cut_table
    with pytest.raises(ConfigError, match=r"source.path: .*[ab]\.csv is listed twice"):
        read(Source(path=path), tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("content", "source", "message"),
    [
        ("", {}, "is empty"),
        ("a,b\n", {}, "holds no rows"),
        ("a,b,a\n1,2,3\n", {}, "more than one column named 'a'"),
        ("a,b\n1,2\n1,2,3\n", {}, "not a csv table.*: Expected 2 fields in line 3"),
        ("1,2,3\n", {"columns": ["a", "b"]}, "has 3 columns, and source.columns names 2"),
        (b"PK\x03\x04 and so on", {}, "looks like a zip archive or a spreadsheet"),
        ("<!doctype html><html></html>", {}, "looks like a web page"),
        ("a,b\nü,2\n".encode("latin-1"), {}, "not UTF-8"),
        (gzip.compress(TEXT.encode(), mtime=0)[:-9], {}, "not a csv table that can be read"),
        ("a,b\n1,2\n", {"format": "parquet"}, "is not a parquet table that can be read"),
        ("a,b\n1,2\n", {"sha256": "0" * 64}, "expects 000000000000…"),
    ],
)
def test_tables_that_are_none(tmp_path, content, source, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, content, **source)


def test_a_pipe_or_device_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    # Of the last one nothing comes until the kernel has something to say.
    (tmp_path / "kernel").symlink_to("/proc/kmsg")
    for path in ("pipe", "/dev/zero", "kernel"):
        with pytest.raises(ConfigError):
            read_table(Source(path=path), tmp_path, tmp_path)
        with pytest.raises(ConfigError):
            reader.list_files(tmp_path / path)
        with pytest.raises(ConfigError):
            read_raw(tmp_path / path)


def test_files_of_one_source_have_the_same_columns(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("x,z\n1,2\n")
    with pytest.raises(DataError):
        read_table(Source(path=["a.csv", "b.csv"]), tmp_path, tmp_path)
    with pytest.raises(ConfigError, match=r"Did you mean 'a.csv'"):
        read_table(Source(path="a.cvs"), tmp_path, tmp_path)


def test_a_pattern_is_the_files_that_match_in_order_of_name(tmp_path):
    folder = tmp_path / "years" / "2026"
    folder.mkdir(parents=True)
    for name, row in {"b.csv": 2, "a.csv": 1, "c.txt": 3}.items():
        (folder / name).write_text(f"x\n{row}\n")
    table = read_table(Source(path="years/*/*.csv"), tmp_path, tmp_path)
    assert table.frame["x"].tolist() == ["1", "2"]
    with pytest.raises(ConfigError, match=r"no file matches years/\*\.csv"):
        read_table(Source(path="years/*.csv"), tmp_path, tmp_path)
    with pytest.raises(
        ConfigError, match=r"\*\*x\*\.csv is no pattern.*Write \*\* as a whole folder"
    ):
        read_table(Source(path="**x*.csv"), tmp_path, tmp_path)
    # A file of that very name is no pattern.
    (folder / "a[1].csv").write_text("x\n4\n")
    table = read_table(Source(path="years/2026/a[1].csv"), tmp_path, tmp_path)
    assert table.frame["x"].tolist() == ["4"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/*.csv", ["a/b/y.csv", "a/x.csv", "z.csv"]),
        ("**/b/**/*.csv", ["a/b/y.csv"]),
        ("**/**/x.csv", ["a/x.csv"]),
        ("*/*.csv", ["a/x.csv", "link/w.csv"]),
        ("[az]*/../*.csv", ["a/../z.csv"]),
    ],
)
def test_patterns_match_what_those_of_pathlib_do(tmp_path, pattern, found):
    for name in ("t/a/b/y.csv", "t/a/x.csv", "t/z.csv", "elsewhere/w.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("n\n1\n")
    (tmp_path / "t/link").symlink_to(tmp_path / "elsewhere")
    file = SourceFile(path=f"t/{pattern}")
    listed = list_sources(file, Source(path=[file]), tmp_path, tmp_path)
    assert listed == [tmp_path / "t" / name for name in found]
    assert listed == sorted({*(tmp_path / "t").glob(pattern)})


def test_a_folder_of_parquet_is_one_table(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    with pytest.raises(ConfigError):
        read_table(Source(path="t", format="parquet"), tmp_path, tmp_path)
    frame = pd.DataFrame({"n": [1, 2, 3], "b": [True, False, None], "s": ["x", None, "z"]})
    frame.iloc[:2].to_parquet(folder / "0.parquet")
    frame.iloc[2:].to_parquet(folder / "1.parquet")
    table = read_table(Source(path="t", format="parquet"), tmp_path, tmp_path)
    assert len(table.digests) == 2
    assert table.frame.index.tolist() == [0, 1, 2]
    assert table.frame["n"].tolist() == [1.0, 2.0, 3.0]
    assert table.frame["b"].tolist()[:2] == ["True", "False"]
    assert table.frame["s"].isna().tolist() == [False, True, False]


@pytest.fixture
def nested(tmp_path):
    """A table of which only two columns can be used."""
    frame = pd.DataFrame(
        {
            "n": [1, 2, 3],
            "text": [b"abc", None, "ü2".encode()],
            "list": [[1, 2], None, [3]],
            "record": [{"x": 1}, {"x": 2}, None],
            "bytes": [b"\xff", b"a", None],
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    return read_table(Source(path="t.parquet", format="parquet"), tmp_path, tmp_path).frame


def test_parquet_columns_of_lists_do_no_harm_while_they_are_not_used(nested):
    assert nested["n"].tolist() == [1.0, 2.0, 3.0]
    assert nested["text"].dropna().tolist() == ["abc", "ü2"]
    kept = keep_rows(nested, Dataset(keep={"n": {"at_least": 2}}), "f")
    assert kept.index.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("list", "column 'list' holds lists or records"),
        ("record", "column 'record' holds lists or records"),
        ("bytes", "column 'bytes' holds bytes that are no UTF-8 text"),
    ],
)
def test_parquet_columns_of_lists_are_refused_where_they_are_used(nested, name, message):
    with pytest.raises(DataError, match=f"f: key: column '{name}' holds .* no number"):
        as_numbers(nested[name], "key", "f")
    config = DatasetConfig(
        dataset="d",
        source={"path": "t.parquet", "format": "parquet"},
        label={"column": "n"},
        features={"categorical": [name]},
        missing={"categorical": "category"},
        split={"kind": "random", "train": 0.6, "test": "rest"},
    )
    with pytest.raises(DataError, match=f"f: features.categorical: {message}"):
        make_columns(nested, config, "f")


CODES = [10**17 + 1, 10**17 + 2, 2**63 - 1]


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.uint64(), pa.dictionary(pa.int32(), pa.int64()), pa.string()]
)
@pytest.mark.parametrize("missing", [[], [None]])
def test_whole_numbers_of_any_size_are_levels_of_their_own(tmp_path, kind, missing):
    cells = pa.array([*CODES, *missing])
    cells = cells.dictionary_encode() if pa.types.is_dictionary(kind) else cells
    for name in "ab":
        pq.write_table(pa.table({"n": cells.cast(kind)}), tmp_path / f"{name}.parquet")
    source = Source(path=("a.parquet", "b.parquet"), format="parquet")
    frame = read_table(source, tmp_path, tmp_path).frame
    wanted = [*map(str, CODES), *missing] * 2
    assert as_levels(frame["n"]).astype(object).where(frame["n"].notna(), None).tolist() == wanted
    kept = keep_rows(frame, Dataset(keep={"n": {"in": [CODES[1]]}}), "f")
    assert kept.index.tolist() == [1, 1 + len(wanted) // 2]


SMALL, LARGE = pa.array([1, 2]), pa.array([2**53 + 1, -(2**53) - 3])


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([SMALL, LARGE], [1, 2, 2**53 + 1, -(2**53) - 3]),
        ([LARGE, pa.array([None, 2**53 + 3])], [2**53 + 1, -(2**53) - 3, None, 2**53 + 3]),
        ([SMALL, pa.array([2**64 - 1, 3], pa.uint64())], [1, 2, 2**64 - 1, 3]),
        ([LARGE, pa.array([2**64 - 1, 3], pa.uint64())], [*LARGE.to_pylist(), 2**64 - 1, 3]),
        ([pa.array([1.5, None]), LARGE], [1.5, None, *LARGE.to_pylist()]),
        ([pa.array(["a", "1.0"]), LARGE], ["a", "1", *LARGE.to_pylist()]),
    ],
)
def test_whole_numbers_of_several_files_stay_whole(tmp_path, parts, wanted):
    for number, cells in enumerate(parts):
        pq.write_table(pa.table({"n": cells}), tmp_path / f"{number}.parquet")
    source = Source(path=("0.parquet", "1.parquet"), format="parquet")
    column = read_table(source, tmp_path, tmp_path).frame["n"]
    levels = as_levels(column)
    texts = [None if cell is None else str(cell) for cell in wanted]
    assert levels.astype(object).where(levels.notna(), None).tolist() == texts
    if "a" not in wanted:
        numbers = np.array(wanted, dtype=np.float64)
        assert np.array_equal(as_numbers(column, "k", "f"), numbers, equal_nan=True)


def test_whole_numbers_that_float64_holds_are_float64(tmp_path):
    pd.DataFrame({"n": [2**53 - 1, -5], "m": [1, None]}).to_parquet(tmp_path / "t.parquet")
    frame = read_table(Source(path="t.parquet", format="parquet"), tmp_path, tmp_path).frame
    assert frame.dtypes.tolist() == [np.float64, np.float64]
    assert as_levels(frame["n"]).tolist() == [str(2**53 - 1), "-5"]


def test_a_table_that_grows_far_beyond_its_size_is_refused(tmp_path):
    text = gzip.compress(b"a,b\n" + b" " * 70_000_000, 1)
    with pytest.raises(DataError, match=r"unpacks to more than 67 MB.*raise source.unpacked"):
        read(tmp_path, text, "t.csv.gz")
    rows = np.zeros(9_000_000, dtype=np.int8)
    pq.write_table(pa.table({"a": rows}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"unpacks to more than 67 MB.*raise source.unpacked"):
        read_table(Source(path="t.parquet", format="parquet"), tmp_path, tmp_path)


def test_wide_tables_are_refused_with_the_key_that_lets_them_in(tmp_path):
    text = ",".join(f"c{k}" for k in range(30)) + "\n" + "1," * 29 + "1\n"
    with pytest.raises(DataError, match=r"has 30 columns, and source.width is 29.*raise"):
        read(tmp_path, text, width=29)
    assert read(tmp_path, text, width=30).frame.shape == (1, 30)


@pytest.mark.parametrize(
    ("content", "source"),
    [
        (b"a,b" + b"," * 40 + b"\n1,2\n", {}),
        (b"a,b\n1,2" + b"," * 40 + b"\n", {}),
        (b"1" + b" 2" * 40, {"format": "whitespace", "columns": ["a", "b"]}),
        (b"a,b" + b"," * 2**21 + b"\n1,2\n", {}),
    ],
)
def test_cells_are_counted_before_columns_are_made_of_them(tmp_path, content, source):
    (tmp_path / "t.csv").write_bytes(gzip.compress(content))
    told = Source(**{"path": "t.csv", "width": 30, **source})
    with pytest.raises(DataError, match=r"columns, and source\.width is 30|a row of more than"):
        read_table(told, tmp_path, tmp_path)


def test_separators_in_quotes_and_in_skipped_lines_make_no_columns(tmp_path):
    content = b"," * 40 + b'\n"' + b"," * 40 + b'",b,\r\n1,2,3\r\n'
    (tmp_path / "t.csv").write_bytes(content)
    source = Source(path={"path": "t.csv", "skip_rows": 1}, width=3)
    assert read_table(source, tmp_path, tmp_path).frame["b"].tolist() == ["2"]


def test_parquet_text_that_is_no_text_and_zones_that_there_are_not_are_refused(tmp_path):
    buffers = pa.array([b"\xff", b"a"]).buffers()
    text = pa.StringArray.from_buffers(2, *buffers[1:])
    for column in (text, pa.array([0, 1], pa.timestamp("us", "Mars/Base"))):
        pq.write_table(pa.table({"a": column}), tmp_path / "t.parquet")
        with pytest.raises(DataError):
            read_table(Source(path="t.parquet", format="parquet"), tmp_path, tmp_path)


@pytest.mark.parametrize("memory", ["rows", "dask"])
def test_a_column_is_not_replaced_by_the_parts_of_files(tmp_path, memory):
    (tmp_path / "a.csv").write_text("x,part\n1,mine\n")
    read = read_table if memory == "rows" else cut_table
    source = Source(path=[{"path": "a.csv", "part": "train"}])
    with pytest.raises(DataError, match=r"a.csv has a column named part, and source.path gives"):
        read(source, tmp_path, tmp_path)
