from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier import create
from fairfrontier.models.group import choose_columns, number_cells
from fairfrontier.models.thresholds.base import read_scores
from fairfrontier.runtime.errors import ConfigError, DataError, InputError


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 30),
    columns=st.integers(1, 4),
    low=st.integers(-2, 0),
    high=st.sampled_from([1, 3, 5000]),
)
def test_cells_are_the_distinct_rows(seed, n, columns, low, high):
    matrix = np.random.default_rng(seed).integers(low, high, (n, columns))
    cells, codes = number_cells(matrix)
    expected = np.unique(matrix, axis=0)
    np.testing.assert_array_equal(cells, expected)
    np.testing.assert_array_equal(cells[codes], matrix)
    assert cells.dtype == codes.dtype == np.int64


def test_columns_are_chosen_by_number():
    groups = np.array([[0, 1, 2], [3, 4, 5]])
    assert choose_columns(groups, None).tolist() == groups.tolist()
    assert choose_columns(groups, 1).tolist() == [[1], [4]]
    assert choose_columns(groups, [2, 0]).tolist() == [[2, 0], [5, 3]]
    assert choose_columns(groups[:, 0], None).tolist() == [[0], [3]]
    for wrong in (3, [-1], []):
        with pytest.raises(ConfigError, match="columns"):
            choose_columns(groups, wrong)


def test_rows_without_a_group_are_refused():
    score, y = np.array([0.1, 0.4, 0.6, 0.9]), np.array([0, 1, 0, 1])
    rule = create("group_thresholds", randomized=False).fit(
        score, y, sensitive_features=[0, 0, 1, 1]
    )
    assert rule.predict(score, sensitive_features=[0, 0, 1, 1]).shape == (4,)
    with pytest.raises(InputError):
        rule.predict(score, sensitive_features=[0])


def test_scores_become_signed():
    p = np.array([[0.0], [0.25], [1.0]])
    assert read_scores(p, "probability", "x").tolist() == [-1, -0.5, 1]
    margin = np.array([-np.log(3), 0.0, 800.0])
    assert read_scores(margin, "margin", "x") == pytest.approx([-0.5, 0, 1])
    assert read_scores(margin[:2] / 2, "signed", "x") == pytest.approx(margin[:2] / 2)


@pytest.mark.parametrize(
    ("score", "scale", "fault"),
    [
        (np.zeros((2, 2)), "probability", "shape"),
        (np.array([0.1, np.nan]), "probability", "not finite"),
        (np.array([0.1, np.inf]), "margin", "not finite"),
        (np.array([-0.1]), "probability", "lie in 0 to 1"),
        (np.array([1.1]), "signed", "lie in -1 to 1"),
    ],
)
def test_what_is_no_score(score, scale, fault):
    with pytest.raises(DataError, match=fault):
        read_scores(score, scale, "x")
