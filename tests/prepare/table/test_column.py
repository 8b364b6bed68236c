from __future__ import annotations

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.prepare.config.section import RowFilter, Source
from fairfrontier.prepare.level import level_text
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.table.column import (
    as_levels,
    clean_typed,
    mask_numbers,
    parse_numbers,
    sort_levels,
)
from fairfrontier.prepare.table.reader import Block
from fairfrontier.prepare.table.rows import as_numbers, keep_rows
from fairfrontier.runtime.errors import DataError
from tests.prepare.table.test_reader import read

BERLIN = timezone(timedelta(hours=1))
NOON = [datetime(2026, 1, 1, 12, tzinfo=BERLIN), datetime(2026, 1, 1, 11, tzinfo=UTC)]
TEXTS = st.one_of(
    st.text("a2.0 \u00a0\t-", max_size=6), st.sampled_from(["2.0", " 2.0", "a", " a", "a\u00a0"])
)
WHOLE = st.one_of(st.integers(-3, 3), st.sampled_from([2**53 + 1, 2**63 - 1]))
FLOATS = st.floats(-1e9, 1e9)
OTHERS = [True, False, 0, 1, 1.0, Decimal("2.00"), b" a", b"2.0", np.int64(1), np.float32(2), *NOON]
OBJECTS = st.one_of(st.sampled_from(OTHERS), TEXTS, WHOLE, FLOATS)
COLUMNS = [
    ("str", TEXTS),
    (pd.StringDtype("python"), TEXTS),
    (pd.StringDtype("pyarrow"), TEXTS),
    ("category", TEXTS),
    ("category", st.one_of(WHOLE, st.sampled_from([b"a", b" a "]))),
    (object, TEXTS),
    (object, OBJECTS),
    (bool, st.booleans()),
    ("boolean", st.booleans()),
    ("int64", WHOLE),
    ("Int64", WHOLE),
    ("float64", FLOATS),
]


def keep(frame, **rows):
    return keep_rows(frame, SimpleNamespace(rows=RowFilter(**rows)), "f")


def list_levels(column):
    levels = as_levels(column)
    return levels.astype(object).where(levels.notna(), None).tolist()


@pytest.mark.parametrize(("dtype", "cells"), COLUMNS)
def test_the_level_of_a_cell_depends_on_that_cell_alone(dtype, cells):
    @settings(max_examples=40, deadline=None)
    @given(st.lists(cells if dtype in (bool, "int64") else st.none() | cells, max_size=6))
    def compare(values):
        column = pd.Series(values, dtype=dtype)
        levels = list_levels(column)
        assert levels == [list_levels(column.iloc[[row]])[0] for row in range(len(column))]
        # What the YAML calls a level, and what was read once, stays one.
        assert levels == [level_text(level) for level in levels] == list_levels(as_levels(column))

    compare()


def test_levels_and_numbers_of_a_column():
    numbers = pd.Series([1.0, 2.5, np.nan])
    assert as_levels(numbers).tolist()[:2] == ["1", "2.5"]
    assert as_levels(numbers).isna().tolist() == [False, False, True]
    text = pd.Series(["1.0", "2", "x.0", None, "-3.00", "1.5"], dtype="str")
    assert as_levels(text).dropna().tolist() == ["1", "2", "x.0", "-3", "1.5"]
    assert as_levels(text).isna().tolist() == [False, False, False, True, False, False]
    assert sort_levels(["10", "9", "-1"]) == ("-1", "9", "10")
    assert sort_levels(["b", "10", "a"]) == ("10", "a", "b")
    text = pd.Series(["1", " 2", None], name="x", dtype="str")
    assert np.array_equal(as_numbers(text, "key", "f"), [1, 2, np.nan], equal_nan=True)
    with pytest.raises(DataError, match="f: key: column 'x' holds 'no' in row 1"):
        as_numbers(pd.Series(["1", "no"], name="x"), "key", "f")
    with pytest.raises(DataError, match="holds 'inf' in row 0, which is infinite"):
        as_numbers(pd.Series(["inf", "1"], name="x"), "key", "f")
    for cells in (["1", "-1e300"], [1.0, -1e300]):
        with pytest.raises(
            DataError, match=r"f: key: column 'x' holds '?-1e\+?300'? in row 1, which is too large"
        ):
            as_numbers(pd.Series(cells, name="x"), "key", "f")


@pytest.mark.parametrize(
    "cells",
    [
        [Decimal("1.00"), Decimal("0.50"), Decimal("-0.00")],
        [" 2.0", "1.0", b" 3.0 "],
        [np.float32(2.0), 2.5, True],
        [pd.Timestamp("2024-01-01"), pd.Timedelta(1, "D")],
    ],
)
def test_levels_of_levels_are_the_same(cells):
    levels = as_levels(pd.Series(cells, dtype=object))
    assert as_levels(levels).tolist() == levels.tolist()


@pytest.mark.parametrize("cells", [[True, False], [pd.Timestamp("2024-01-01")] * 2, [1j, 2j]])
def test_what_is_no_number_is_no_bound_either(cells):
    frame = pd.DataFrame({"n": cells})
    with pytest.raises(DataError, match=r"f: rows.keep.n: column 'n' holds .* is no number"):
        keep(frame, keep={"n": {"at_least": 0}})


@pytest.mark.parametrize("dtype", [np.float64, object])
def test_floats_that_may_stand_for_several_codes_are_no_levels(dtype):
    column = pd.Series([1.0, -(2.0**53), np.nan], name="x", dtype=dtype)
    with pytest.raises(
        DataError, match=r"f: k: column 'x' holds floats of 2\^53 or more as levels"
    ):
        as_levels(column, "f: k")
    assert as_numbers(column, "k", "f").iloc[1] == -(2.0**53)
    assert as_levels(pd.Series([np.inf, 2.0**53 - 1])).tolist() == ["inf", str(2**53 - 1)]


def test_rows_are_kept_by_comparison():
    frame = pd.DataFrame(
        {"n": ["1", "2", "3", None, "inf"], "s": pd.Series(["a", "b", None, "c", "a"], dtype="str")}
    )
    for rule, kept in (
        ({"keep": {"n": {"at_least": 2}}}, [1, 2, 4]),
        ({"keep": {"n": {"above": 2, "below": 10}}}, [2]),
        ({"keep": {"n": {"at_most": 2}}}, [0, 1]),
        ({"keep": {"s": {"in": ["a", "c"]}}}, [0, 3, 4]),
        ({"keep": {"s": {"not": "a"}}}, [1, 3]),
        ({"keep": {"s": {"in": "a"}, "n": {"at_most": 1}}}, [0]),
        ({"drop_missing": ["s", "n"]}, [0, 1, 4]),
    ):
        assert keep(frame, **rule).index.tolist() == kept


def test_levels_that_read_as_nan_have_an_order():
    wanted = ("1.0", "1", "02", "10", "inf", "NAN", "NaN", "nan")
    wanted = tuple(sorted(wanted[:2])) + wanted[2:]
    for order in itertools.islice(itertools.permutations(wanted), 0, None, 1009):
        assert sort_levels(order) == wanted


def test_markers_of_missing_cells(tmp_path):
    assert read(tmp_path, "a\nNA\n1\n").frame["a"].isna().tolist() == [True, False]
    marked = read(tmp_path, "a\nNA\n-9\n", missing=[-9]).frame["a"]
    assert marked.isna().tolist() == [False, True]


BEYOND = [2**53, 2**53 + 1, 10**17, 10**17 + 1]


@pytest.mark.parametrize(
    ("mark", "cells", "marked"),
    [
        # A mark of text is what the file holds, one of YAML's numbers the number.
        ("-9.00", ["-9.00", "-9", "-9.0 ", "-9.01", "9"], [0, 1, 2]),
        (-9.0, ["-9.00", "-9", "-90e-1", "- 9"], [0, 1, 2]),
        (1e20, ["1e+20", "1E+20", "1.0E20", "100000000000000000000", "1e20"], [0, 1, 2, 3]),
        ("1e-05", ["0.00001", "1E-5", "1.0e-05", "1e5"], [0, 1, 2]),
        ("odd", ["odd", "odd ", "Odd"], [0, 1]),
        ("odd ", ["odd", "odd "], [1]),
        ("0.1", ["0.10", ".1", "0.1000001"], [0, 1]),
        ("1e400", ["1e400", "1e401", "1"], [0]),
        # Python's own notations of numbers are text in a table.
        ("1_000", ["1_000", "1000"], [0]),
        ("\u0661", ["\u0661", "1"], [0]),
        (str(2**53 + 1), [*map(str, BEYOND), f"{2**53 + 1}.0"], [1, 4]),
        (10**17, ["1e17", *map(str, BEYOND)], [3]),
        # These are codes.
        (9, ["09", "009", "9E0", "9", "9.0"], [3, 4]),
        ("0", ["00", "0E5", "0"], [2]),
    ],
)
def test_a_mark_is_what_the_file_holds_or_a_number_that_equals_it(tmp_path, mark, cells, marked):
    frame = read(tmp_path, "a,b\n" + "".join(f'"{cell}",1\n' for cell in cells), missing=[mark])
    assert np.flatnonzero(frame.frame["a"].isna()).tolist() == marked


@pytest.mark.parametrize(
    ("mark", "marked"), [("1.000", [1, 2]), ("1,0", [0, 3]), ("-1,00", []), (1, [0, 3])]
)
def test_a_mark_is_a_number_in_the_notation_of_its_file(tmp_path, mark, marked):
    content = "a\n1\n1.000\n1000\n1,00\n2\n"
    notation = {"separator": ";", "decimal": ",", "thousands": "."}
    frame = read(tmp_path, content, missing=[mark], **notation).frame
    assert np.flatnonzero(frame["a"].isna()).tolist() == marked


@pytest.mark.parametrize("dtype", ["int64", "Int64", object, "float64"])
@pytest.mark.parametrize("mark", [str(2**53 + 1), f"{10**17}.00"])
def test_a_mark_takes_no_neighbour_with_it(mark, dtype):
    column = pd.Series([*BEYOND, 7], dtype=dtype)
    number = int(mark.removesuffix(".00"))
    # Of floats the neighbours are the same.
    number = float(number) if dtype == "float64" else number
    cleaned = clean_typed(column, Source(path="t.csv", missing=[mark]))
    assert cleaned.isna().tolist() == [cell == number for cell in column]


@pytest.mark.parametrize("cell", ["1.234", "-12.345", "1.234,5", "1.234.567"])
def test_thousands_that_nothing_says_are_thousands_are_refused(tmp_path, cell):
    notation = {"separator": ";", "decimal": ","}
    with pytest.raises(DataError, match=f"column 'a' holds '{cell}' in row 1, .*source.thousands"):
        read(tmp_path, f"a;b\n1,5;1\n{cell};1\n", **notation)
    table = read(tmp_path, f"a;b\n{cell};1\n0.386;1\n1.5;1\n", **notation, missing=[cell])
    assert table.frame["a"].tolist()[1:] == ["0.386", "1.5"]
    assert read(tmp_path, f"a;b\n{cell};1\n", **notation, thousands=".").frame.size == 2


def test_numbers_of_another_notation_are_levels_and_no_numbers(tmp_path):
    notation = {"separator": ";", "decimal": ",", "thousands": "."}
    content = 'a;b\n"  1.234";62.01\n" 1.234,5";1.234\n0,5;.5\n'
    source = Source(path="t.csv", **notation)
    frame = read(tmp_path, content, **notation).frame
    assert frame["a"].tolist() == ["1234", "1234.5", "0.5"]
    # Codes keep their points as levels.
    assert as_levels(frame["b"]).tolist() == ["62.01", "1234", ".5"]
    numbers = parse_numbers(mask_numbers(frame["b"], source))
    assert numbers.fillna(-1.0).tolist() == [-1.0, 1234.0, -1.0]
    assert parse_numbers(mask_numbers(frame["a"], source)).tolist() == [1234.0, 1234.5, 0.5]
    for cell in ("0.449", "12.34", "1234.567", "1.5E+05", "0.000"):
        column = read(tmp_path, f"a;b\n{cell};1\n", **notation).frame["a"]
        assert mask_numbers(column, source).tolist() == [f"{cell} in another notation"]
    commas = read(tmp_path, "a;b\n0,449;1\n", separator=";", thousands=",")
    assert commas.frame["a"].tolist() == ["0,449"]


def test_text_in_other_codes_and_numbers_with_other_marks(tmp_path):
    content = "größe;n\n1.234,5;x\n-,5;1.2.2020\n12;1,2,3\n"
    table = read(
        tmp_path,
        content.encode("cp1252"),
        separator=";",
        encoding="cp1252",
        decimal=",",
        thousands=".",
    )
    assert table.frame["größe"].tolist() == ["1234.5", "-.5", "12"]
    assert table.frame["n"].tolist() == ["x", "1.2.2020", "1,2,3"]
    with pytest.raises(DataError, match=r"is not UTF-8 text. .*source.encoding"):
        read(tmp_path, content.encode("cp1252"), separator=";")


@pytest.mark.parametrize("used", [{}, {"features": {"numeric": ["age"]}}])
def test_a_point_that_may_stand_between_thousands_refuses_its_row_alone(
    project, tmp_path, people, used
):
    people["income"] = people["income"].fillna(1.5)
    people.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    source = {"path": "t.csv", "separator": ";", "decimal": ","}
    # A column that rows are kept by need be no feature.
    path = project(source=source, rows={"keep": {"income": {"at_most": 1e6}}}, **used)
    encoder = RowEncoder.of(fit_table(make_request(path, home=tmp_path)))
    raw = pd.read_csv(tmp_path / "t.csv", sep=";", dtype=str)[:20]
    raw.loc[[3, 5, 7], "income"] = ["1.234", "1.234,5", "0.386"]
    told = "income is in doubt: its point may stand between thousands"
    reasons = encoder.encode(raw).refusals.reasons
    assert np.flatnonzero(reasons == told).tolist() == [3, 5]
    # Alone it means what it means beside others.
    assert encoder.encode(raw.iloc[3:4]).refusals.reasons.tolist() == [told]


PATH = Path("table.csv")


def column(values, **type_):
    block = pa.table({"c": pa.array(values, **type_)}).to_batches()[0]
    return Block(block, {"c": "weights"}, PATH, np.arange(10, 10 + len(values)), 1.0).column("c")


def test_numbers_of_any_type_and_of_text():
    for values in ([1, 2], [1.0, 2.0], ["1", " 2.0 "]):
        assert column(values).numbers().tolist() == [1.0, 2.0]
    assert column(["a", "b", "a"], type=pa.dictionary(pa.int8(), pa.string())).levels()[1] == (
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
    seen = Counter()
    found = column(["yes", "no"]).binary(["yes"], "positive", seen)
    assert found.tolist() == [1.0, 0.0]
    assert seen == {"yes": 1, "no": 1}


@pytest.mark.parametrize(
    ("values", "read", "told"),
    [
        ([1.0, np.nan], "numbers", "'c' is missing in row 11"),
        ([1.0, np.inf], "numbers", "'c' holds inf in row 11"),
        (["1", "x"], "numbers", "'c' holds 'x' in row 11, which is no number"),
        ([1.0, -1.0], "weights", "holds -1 in row 11.*leave --weights out"),
        ([[1], [2]], "levels", "holds lists or records"),
        ([b"a", b"\xff"], "levels", "holds bytes that are no UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named(values, read, told):
    with pytest.raises(DataError, match=told):
        getattr(column(values), read)()


def test_a_third_level_is_neither_0_nor_1():
    with pytest.raises(DataError, match=r"'maybe' in row 12.*with --positive"):
        column(["0", "1", "maybe"]).binary(None, "positive")
