from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.metrics.statistic.interval import rank

NUMBERS = st.integers(-3, 3).map(float)


@given(
    st.lists(st.tuples(NUMBERS, st.integers(1, 4)), min_size=1, max_size=12),
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8),
)
def test_rank_is_the_weight_below_and_half_of_that_at_a_score(rows, scores):
    reference, weight = np.array(rows, dtype=np.float64).T
    sought = np.array(scores, dtype=np.float32).reshape(-1, 2).T
    wanted = [
        [(weight[reference < s].sum() + weight[reference <= s].sum()) / 2 for s in each]
        for each in sought
    ]
    assert rank(sought, reference, weight) == pytest.approx(
        np.reshape(wanted, sought.shape) / weight.sum()
    )
