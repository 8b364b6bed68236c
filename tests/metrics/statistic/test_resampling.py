import numpy as np
import pytest

from fairfrontier.metrics.statistic.rate import average_known, count_outcomes, divide_right


@pytest.mark.parametrize("whole", [True, False])
def test_sums_of_right_and_wrong_rows(whole):
    rng = np.random.default_rng(0)
    cell, weight = rng.integers(0, 4, 200), np.ones(200)
    right = rng.integers(0, 2, 200).astype(float)
    if not whole:
        right, weight = rng.random(200), rng.uniform(0.1, 2, 200)
    found = count_outcomes(cell, right, weight, 5)
    for k in range(5):
        rows = cell == k
        halves = np.stack([weight * (1 - right), weight * right])[:, rows]
        assert found.count[k] == rows.sum()
        assert found.mass[k] == pytest.approx(halves.sum(axis=1))
        assert found.square[k] == pytest.approx(halves @ halves.T)
    share = divide_right(found.mass)
    assert np.isnan(share[4])
    assert share[0] == pytest.approx(np.average(right[cell == 0], weights=weight[cell == 0]))


def test_means_of_what_is_known():
    values = np.array([[1.0, np.nan], [3.0, np.nan]])
    assert average_known(values, 0)[0] == 2
    assert np.isnan(average_known(values, 0)[1])
    assert average_known(values, 1).tolist() == [1, 3]
