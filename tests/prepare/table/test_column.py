from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.prepare.config.section import level_text
from fairfrontier.prepare.table.column import as_levels

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
