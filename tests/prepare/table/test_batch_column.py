from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fairfrontier.prepare.table.batch_column import BatchColumn
from fairfrontier.runtime.errors import DataError

PATH = Path("table.csv")


def column(values, **type_):
    return BatchColumn(pa.array(values, **type_), "c", "weights", PATH, start=10)


def test_numbers_of_any_type_and_of_text():
    for values in ([1, 2], [1.0, 2.0], ["1", " 2.0 "]):
        assert column(values).numbers().tolist() == [1.0, 2.0]
    assert column(["a", "b", "a"], type=pa.dictionary(pa.int8(), pa.string())).levels()[1][:2] == (
        "a",
        "b",
    )


def test_levels_are_written_alike():
    codes, levels = column(["2", " 2", "2.0", None, "x"]).levels()
    assert [levels[code] for code in codes] == ["2", "2", "2", "missing", "x"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_levels_of_bytes_are_those_of_their_text(kind):
    codes, levels = column([b"a", b" a", b"2.0", None], type=kind).levels()
    assert [levels[code] for code in codes] == ["a", "a", "2", "missing"]


def test_decimals_of_any_scale_are_zero_and_one():
    cells = column([Decimal("1.0000000000"), Decimal("0E-10")], type=pa.decimal128(38, 10))
    assert cells.binary(None, "positive").tolist() == [1.0, 0.0]


@pytest.mark.parametrize("kind", [pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256])
def test_decimals_of_any_size_are_levels(kind):
    codes, levels = column([Decimal("2.00"), Decimal("2.50"), None], type=kind(5, 2)).levels()
    assert [levels[code] for code in codes] == ["2", "2.5", "missing"]


def test_zero_and_one_are_found():
    assert column([True, False]).binary(None, "positive").tolist() == [1.0, 0.0]
    seen: set[str] = set()
    found = column(["yes", "no"]).binary("yes", "positive", seen)
    assert found.tolist() == [1.0, 0.0]
    assert seen == {"yes", "no"}


@pytest.mark.parametrize(
    ("values", "read", "told"),
    [
        ([1.0, np.nan], "numbers", "'c' is missing in row 11"),
        ([1.0, np.inf], "numbers", "'c' holds inf in row 11"),
        (["1", "x"], "numbers", "'c' holds 'x' in row 11, which is no number"),
        ([True], "numbers", "holds bool, which are no numbers"),
        ([1.0, -1.0], "weights", "holds -1 in row 11.*leave --weights out"),
        ([[1], [2]], "levels", "holds list<item: int64>, which is no level"),
        ([{"a": 1}], "levels", "holds struct<a: int64>, which is no level"),
        ([b"a", b"\xff"], "levels", "holds binary, which is no level"),
        (["1", " "], "numbers", "'c' is missing in row 11"),
        ([[1]], "numbers", "holds list<item: int64>, which are no numbers"),
    ],
)
def test_what_cannot_be_read_is_named(values, read, told):
    with pytest.raises(DataError, match=told):
        getattr(column(values), read)()


def test_a_third_level_is_neither_0_nor_1():
    with pytest.raises(DataError, match=r"'maybe' in row 12.*with --positive"):
        column(["0", "1", "maybe"]).binary(None, "positive")
