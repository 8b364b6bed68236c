import numpy as np
import pytest

from tasks.runtime.errors import DataError
from tasks.train.base import unit_weight


def test_no_weights_are_ones():
    assert np.array_equal(unit_weight(None, 3), np.ones(3))


def test_whole_numbers_and_noughts_are_weights():
    weight = unit_weight(np.array([0, 2, 1]), 3)
    assert weight.dtype == np.float64
    assert np.array_equal(weight, [0.0, 2.0, 1.0])


@pytest.mark.parametrize("wrong", [[1.0, -1.0], [1.0, np.nan], [np.inf, 1.0]])
def test_weights_below_nought_or_beyond_numbers_are_refused(wrong):
    with pytest.raises(DataError, match="case weights"):
        unit_weight(np.array(wrong), 2)
