import numpy as np

from fairfrontier.metrics.statistic.rate import BINS, count_scores
from tests.metrics.made import make_part


def test_rows_are_counted_by_group_and_bin():
    score = np.array([0.0, 0.02, 0.05, 1.0, 0.999])
    y = [0, 1, 1, 1, 0]
    part = make_part(y, [0, 0, 0, 2, 2], {"sex": ("a", "b", "c=d")}, weight=[1, 2, 1, 0.5, 1])
    table = count_scores(score, part).set_index(["group", "bin"])
    # Nobody is of the level b.
    assert list(table.index) == [
        *(("", each) for each in (0, 1, BINS - 1)),
        ("sex=a", 0),
        ("sex=a", 1),
        ("sex=c=d", BINS - 1),
    ]
    n, negative, positive, total, square = table.loc[("sex=a", 0)]
    assert (n, negative, positive, square) == (2, 1, 2, 5)
    assert total == 2 * 0.02
    last = table.loc[("sex=c=d", BINS - 1)]
    np.testing.assert_allclose(last, [2, 1, 0.5, 0.5 + 0.999, 1.25])


def test_no_rows_are_no_counts():
    empty = make_part(np.zeros(0, dtype=int), np.zeros((0, 1)), {"sex": ("a", "b")})
    assert count_scores(np.zeros(0), empty).empty
