import numpy as np
import pytest

from fairfrontier.train.postprocess.roc.rate import find_largest, find_range


def test_largest_of_ranges():
    generator = np.random.default_rng(0)
    values = generator.normal(size=70)
    first = generator.integers(5, 60, 40)
    last = first + generator.integers(1, 10, 40)
    wanted = [values[i:j].max() for i, j in zip(first, last, strict=True)]
    np.testing.assert_array_equal(find_largest(values, first, last), wanted)


@pytest.mark.parametrize("bound", [0.0, 0.25])
def test_windows_hold_their_ends_up_to_rounding(bound):
    rate = np.array([0.0, 0.1 + 0.2, 0.55, 1.0])
    first, last = find_range(rate, np.array([0.3, 0.31]), bound)
    assert (first[0], last[0]) == (1, 2 + (bound > 0))
    assert last[1] - first[1] == (bound > 0)
