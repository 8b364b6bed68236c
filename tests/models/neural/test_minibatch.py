import numpy as np
import pytest

from fairfrontier.models.neural.estimator import BalancedRows


def draw(y, size, replacement, seed=0):
    generator = np.random.default_rng(seed)
    return BalancedRows(y, size, replacement=replacement, generator=generator).draw()


@pytest.mark.parametrize("replacement", [True, False])
def test_every_class_equally_often(replacement):
    y = np.repeat([0, 1, 3], [900, 60, 40])
    rows = draw(y, 100, replacement)
    assert np.bincount(y[rows]).tolist() == [34, 33, 0, 33]
    assert np.unique(rows).size == 100 or replacement
    assert np.array_equal(rows, draw(y, 100, replacement))
    assert not np.array_equal(rows, draw(y, 100, replacement, seed=1))


def test_a_class_with_few_rows_repeats_them():
    y = np.repeat([0, 1], [50, 2])
    rows = draw(y, 20, replacement=False)
    assert np.bincount(y[rows]).tolist() == [10, 10]
    assert np.unique(rows[y[rows] == 0]).size == 10


def test_rows_of_a_class_are_equally_likely():
    y = np.repeat([0, 1], [10, 30])
    generator = np.random.default_rng(0)
    sampler = BalancedRows(y, 8, replacement=False, generator=generator)
    count = np.bincount(np.concatenate([sampler.draw() for _ in range(4000)]))
    assert count[:10] / 4000 == pytest.approx(0.4, abs=0.04)
    assert count[10:] / 4000 == pytest.approx(4 / 30, abs=0.03)
