import numpy as np
import pytest

from fairfrontier.models.individual.budro.round import check_rows
from fairfrontier.runtime.errors import DataError


@pytest.mark.parametrize("codes", [[], [1, 2], [0, 2], [0, 1, 3], [2]])
def test_codes_with_gaps_are_refused(codes):
    with pytest.raises(DataError, match="no row"):
        check_rows(np.array(codes, dtype=np.int64))


@pytest.mark.parametrize("codes", [[0], [1], [1, 0], [2, 0, 1, 1]])
def test_codes_of_two_classes_need_not_both_be_there(codes):
    check_rows(np.array(codes))
