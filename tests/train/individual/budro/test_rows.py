import numpy as np
import pytest

from fairfrontier.runtime.errors import DataError
from fairfrontier.train.individual.budro.round import check_rows, take_rows


def test_rows_without_weight_are_dropped_and_labels_become_codes():
    X = np.arange(8.0).reshape(4, 2)
    rows, codes, weight = take_rows(X, np.array([1.0, 0.0, 2.0, 1.0]), np.array([1, 0, 2.5, 0]))
    assert rows.tolist() == [[0.0, 1.0], [4.0, 5.0]]
    assert codes.tolist() == [1, 2]
    assert codes.dtype == np.int64
    assert weight.tolist() == [1.0, 2.5]
    assert take_rows(X, np.zeros(4), None)[0] is X


@pytest.mark.parametrize("codes", [[], [1, 2], [0, 2], [0, 1, 3], [2]])
def test_codes_with_gaps_are_refused(codes):
    with pytest.raises(DataError, match="no row"):
        check_rows(np.array(codes, dtype=np.int64))


@pytest.mark.parametrize("codes", [[0], [1], [1, 0], [2, 0, 1, 1]])
def test_codes_of_two_classes_need_not_both_be_there(codes):
    check_rows(np.array(codes))
