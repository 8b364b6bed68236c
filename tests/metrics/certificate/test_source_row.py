import numpy as np
import pandas as pd
import pytest

from fairfrontier import load
from fairfrontier.metrics.certificate.worst_move import decode_rows, read_source_rows, show_value


def test_the_tables_own_values_come_back(root):
    split = load("german", seed=0, home=root)
    part = split.test
    rows = read_source_rows("german", part.ids, root)
    assert len(rows) == part.n_samples
    # Level by level what was encoded, and numbers in their own units.
    for name in split.feature_names:
        column, _, level = name.rpartition("_")
        if column in ("history", "purpose"):
            encoded = part.X[:, split.feature_names.index(name)]
            assert ((rows[column] == level).to_numpy() == (encoded == 1)).all()
    duration = part.X[:, split.feature_names.index("duration")]
    assert np.corrcoef(rows["duration"], duration)[0, 1] == pytest.approx(1)
    assert rows["duration"].min() >= 4
    assert "risk" not in rows


def test_one_hot_columns_are_folded():
    names = ("age", "job_cook", "job_clerk", "owns_home", "marital_status_a", "marital_status_b")
    X = np.array([[0.5, 1, 0, 1, 0, 1], [-1.0, 0, 1, 0, 1, 0], [2.0, 0, 0, 1, 0, 1]])
    rows = decode_rows(X, names)
    expected = pd.DataFrame(
        {
            "age": [0.5, -1.0, 2.0],
            "job": ["cook", "clerk", "other"],
            "owns_home": [1.0, 0.0, 1.0],
            "marital": ["status_b", "status_a", "status_b"],
        }
    )
    pd.testing.assert_frame_equal(rows, expected, check_dtype=False)


def test_columns_of_which_a_row_has_two_are_not_folded():
    rows = decode_rows(np.array([[1.0, 1.0], [0.0, 1.0]]), ("has_car", "has_home"))
    assert list(rows) == ["has_car", "has_home"]


def test_cells_for_reading():
    told = [
        show_value(each) for each in (3.0, 0.123456, -12000.6, float("nan"), "a", np.float64(2))
    ]
    assert told == ["3", "0.1235", "-12001", "missing", "a", "2"]
