from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairfrontier.prepare.embedding.feature import read_embeddings
from fairfrontier.runtime.errors import ConfigError, DataError

IDS = np.array([30, 10, 20])
VECTORS = np.arange(12.0).reshape(3, 4) / 7


def save(path, array):
    np.save(path, array)
    return path


def save_table(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_npy_in_the_order_of_rows(tmp_path):
    vectors = read_embeddings(save(tmp_path / "v.npy", VECTORS), IDS)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, VECTORS.astype(np.float32))


@pytest.mark.parametrize("form", ["columns", "list", "fixed", "frame"])
def test_parquet_of_columns_or_lists(tmp_path, form):
    path = tmp_path / "v.parquet"
    if form == "columns":
        save_table(path, id=IDS, **{f"x{j}": VECTORS[:, j].astype("f4") for j in range(4)})
    elif form == "list":
        save_table(path, vector=pa.array(VECTORS.tolist()), id=[str(each) for each in IDS])
    elif form == "fixed":
        flat = pa.array(VECTORS.ravel(), pa.float32())
        save_table(path, id=IDS, vector=pa.FixedSizeListArray.from_arrays(flat, 4))
    else:
        pd.DataFrame({"id": IDS, "vector": list(VECTORS)}).to_parquet(path)
    np.testing.assert_allclose(read_embeddings(path, [10, 20, 30]), VECTORS[[1, 2, 0]], rtol=1e-6)


def test_chunked_lists_and_sliced_ones_keep_their_rows(tmp_path):
    lists = pa.chunked_array([pa.array([[9.0, 9.0], [1.0, 2.0]])[1:], pa.array([[3.0, 4.0]])])
    path = save_table(tmp_path / "v.parquet", id=[0, 1], vector=lists)
    assert read_embeddings(path, [1, 0]).tolist() == [[3, 4], [1, 2]]


class Trap:
    """What would run if an array were unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_arrays_of_objects_are_never_unpickled(tmp_path):
    path = tmp_path / "v.npy"
    with path.open("wb") as stream:
        np.save(stream, np.array([Trap()], dtype=object), allow_pickle=bool(1))
    with pytest.raises(DataError) as caught:
        read_embeddings(path, [0])
    assert "numpy.save" in caught.value.mend


def bad_arrays():
    wrong = VECTORS.copy()
    wrong[1, 2] = np.nan
    yield "NaN", wrong, "1 rows, the first of them with id 10"
    yield "infinite", np.where(np.isnan(wrong), np.inf, wrong), "id 10"
    yield "too large", np.where(np.isnan(wrong), 1e300, wrong), "id 10"
    yield "count", VECTORS[:2], r"shape \(2, 4\)"
    yield "flat", VECTORS[:, 0], r"shape \(3,\)"
    yield "empty", VECTORS[:, :0], r"shape \(3, 0\)"
    yield "text", VECTORS.astype(str), "type <U"
    yield "complex", VECTORS * 1j, "complex"
    yield "bool", VECTORS > 1, "bool"


@pytest.mark.parametrize(("array", "said"), [pytest.param(a, s, id=n) for n, a, s in bad_arrays()])
def test_what_is_wrong_with_an_npy_is_said(tmp_path, array, said):
    with pytest.raises(DataError, match=said):
        read_embeddings(save(tmp_path / "v.npy", array), IDS)


def header(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4"),
        header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**50}, 4), }}"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }")[:-9],
    ],
)
def test_a_damaged_npy_is_said(tmp_path, content):
    path = tmp_path / "v.npy"
    path.write_bytes(content)
    with pytest.raises(DataError):
        read_embeddings(path, IDS)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": [30, 10], "a": [1.0, 2.0]}, r"lacks 1 of 3 rows \(ids 20\)"),
        ({"id": [30, 10, 10], "a": [1.0, 2.0, 3.0]}, "the id 10 more than once"),
        ({"id": [30, 10, None], "a": [1.0, 2.0, 3.0]}, "1 missing"),
        ({"id": [30, 10, 20], "a": [1.0, None, 3.0]}, "id 10"),
        ({"id": [30, 10, 20], "a": ["x", "y", "z"]}, "columns of string"),
        ({"id": [30, 10, 20], "a": [[1.0], [1.0, 2.0], [3.0]]}, "not all of one length"),
        ({"id": [30, 10, 20], "a": [[1.0], [None], [3.0]]}, "id 10"),
    ],
)
def test_what_is_wrong_with_a_parquet_file_is_said(tmp_path, columns, said):
    with pytest.raises(DataError, match=said):
        read_embeddings(save_table(tmp_path / "v.parquet", **columns), IDS)


def test_files_and_columns_that_are_not_there(tmp_path):
    table = save_table(tmp_path / "v.parquet", row=IDS, a=[1.0, 2.0, 3.0])
    for call, said in (
        (lambda: read_embeddings(tmp_path / "w.npy", IDS), "There is no file"),
        (lambda: read_embeddings(table, IDS), "no column 'id'"),
        (lambda: read_embeddings(table, IDS, id_column="rwo"), "Did you mean 'row'"),
    ):
        with pytest.raises(ConfigError, match=said):
            call()
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError):
        read_embeddings(tmp_path / "x.parquet", IDS)
    # Without the copy of the schema that Arrow keeps beside Parquet's own.
    pq.write_table(pa.table({"row": IDS, "abcdef": VECTORS[:, 0]}), table, store_schema=False)
    table.write_bytes(table.read_bytes().replace(b"abcdef", b"\xff\xfe\xff\xff\xfe\xff"))
    with pytest.raises(DataError):
        read_embeddings(table, IDS)
