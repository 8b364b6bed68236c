from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.prepare.config.section import RowFilter, level_text
from fairfrontier.prepare.table.column import as_levels, as_numbers, keep_rows, sort_levels
from fairfrontier.runtime.errors import DataError

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
    with pytest.raises(DataError, match="infinite in 1 rows, first in row 0"):
        as_numbers(pd.Series(["inf", "1"], name="x"), "key", "f")
    for cells in (["1", "-1e300"], [1.0, -1e300]):
        with pytest.raises(
            DataError, match=r"f: key: column 'x' holds -1e\+300 in row 1, and models"
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
