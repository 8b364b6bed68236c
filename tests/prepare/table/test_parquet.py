import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairfrontier.prepare.config.section import Source
from fairfrontier.prepare.table.frame import PlainParquet, read_result
from fairfrontier.prepare.table.reader import read_rows
from fairfrontier.prepare.table.rows import read_table
from fairfrontier.runtime.errors import DataError


def test_a_long_text_in_many_rows_of_parquet_is_refused(tmp_path):
    # A copy for every row would take 2 TB.
    column = repeat_text("x" * 1_000_000, 2_000_000)
    pq.write_table(pa.table({"a": column}), tmp_path / "t.parquet", store_schema=False)
    assert (tmp_path / "t.parquet").stat().st_size < 100_000
    with pytest.raises(DataError, match=r"unpacks to more than 67 MB.*raise source.unpacked"):
        read_table(Source(path="t.parquet", format="parquet"), tmp_path, tmp_path)


def repeat_text(text, rows):
    """Return a column that holds a text once."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def test_parquet_of_all_types_is_read_as_arrow_reads_it(tmp_path):
    cells = {
        "text": ["a", None, "a", "ü"],
        "bytes": [b"a", b"", None, b"a"],
        "categories": pa.array(["a", "b", "a", None]).dictionary_encode(),
        "large": pa.array(["a", None, "b", "a"], pa.large_string()),
        "view": pa.array(["a", None, "b", "a"], pa.string_view()),
        "number": [1, None, 3, 4],
        "list": [["a", None], [], None, ["b"]],
        "struct": [{"a": "x", "b": 1}, None, {"a": None, "b": 2}, {"a": "x", "b": 3}],
        "map": pa.array([[("a", "x")], None, [], []], pa.map_(pa.string(), pa.string())),
        "fixed": pa.array([b"abc", None, b"abc", b"abd"], pa.binary(3)),
        "decimal": pa.array([1, 2, None, 3], pa.decimal128(30, 2)),
        "time": pa.array([0, 1, 2, None], pa.timestamp("us")),
    }
    table = pa.table(cells)
    pq.write_table(table, tmp_path / "t.parquet")
    expected = pq.read_table(tmp_path / "t.parquet")
    opened = PlainParquet(tmp_path / "t.parquet", 10**6, DataError("too much", "mend"))
    with opened:
        opened.check_cells(1)
        decoded = opened.decode(opened.file.read())
        assert decoded.equals(expected)
        assert decoded.schema.equals(expected.schema)
        for batch in opened.file.iter_batches(2, columns=["text", "list", "categories"]):
            assert opened.decode(batch).to_pylist()[0]["text"] == "a"


def test_a_result_that_grows_as_none_does_is_refused(tmp_path):
    path = tmp_path / "points.parquet"
    frame = pd.DataFrame({"method": ["gbdt", None], "value": [0.5, np.nan]})
    frame.attrs["alpha"] = 0.1
    frame.to_parquet(path, index=False)
    pd.testing.assert_frame_equal(read_result(path), frame)
    assert read_result(path).attrs == frame.attrs
    for cells in (repeat_text("x" * 100_000, 10_000), pa.nulls(10**7, pa.int64())):
        pq.write_table(pa.table({"method": cells}), path, store_schema=False)
        with pytest.raises(DataError, match="unpacks to more than 67 MB"):
            read_result(path)


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([2**62]).cast(pa.timestamp("us", tz="UTC")),
        pa.array([0]).cast(pa.timestamp("us", tz="Nowhere/Land")),
    ],
)
def test_times_that_python_does_not_have_are_one_sentence(tmp_path, cells):
    pq.write_table(pa.table({"a": cells}), tmp_path / "t.parquet")
    with pytest.raises(
        DataError, match=r"t\.parquet is not a parquet table that can be read: .*\w.?\. C"
    ):
        read_table(Source(path="t.parquet", format="parquet"), tmp_path, tmp_path)


def test_text_without_its_type_is_read(tmp_path):
    cells = [pa.array([b"a", None]), pa.array([b"a", None], pa.binary(1)), pa.array([1, 2])]
    pq.write_table(pa.table(cells, names=["a", "b", "c"]), tmp_path / "t.parquet")
    used = dict.fromkeys("abc", "bundle")
    assert next(read_rows(tmp_path / "t.parquet", used, 10)).frame.shape == (2, 3)


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_text_of_every_encoding_is_read(tmp_path, encoding):
    cells = [f"person {row}" for row in range(3000)]
    path = tmp_path / "t.parquet"
    options = {"use_dictionary": False, "column_encoding": {"a": encoding}}
    pq.write_table(pa.table({"a": cells}), path, row_group_size=1000, **options)
    frame = read_table(Source(path="t.parquet", format="parquet"), tmp_path, tmp_path).frame
    assert frame["a"].tolist() == cells
    batches = read_rows(path, {"a": "labels"}, 700)
    assert [cell for batch in batches for cell in batch.frame["a"]] == cells
