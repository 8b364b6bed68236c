from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from fairfrontier.metrics.statistic.interval import (
    Z,
    bonferroni,
    clopper_pearson,
    newcombe,
    propagate_imprecision,
    wilson,
)


def test_bonferroni_shares_an_error():
    assert bonferroni(0.05, 10) == pytest.approx(norm.isf(0.005))


def test_clopper_and_pearsons_bounds_are_exact():
    value, size = np.array([0.0, 0.1, 0.7, 1.0]), np.float64(60)
    hits, error = np.rint(value * size), norm.sf(3.0)
    low, high = clopper_pearson(value, size, 3.0)
    np.testing.assert_allclose(binom.sf(hits[1:] - 1, size, low[1:]), error, rtol=1e-9)
    np.testing.assert_allclose(binom.cdf(hits[:-1], size, high[:-1]), error, rtol=1e-9)
    assert (low[0], high[-1]) == (0, 1)


def test_bounds_of_nothing_are_nan():
    value, size = np.array([0.5, np.nan]), np.array([np.nan, 20.0])
    assert np.isnan(clopper_pearson(value, size, 3.0)).all()


def test_the_bound_of_a_difference_of_nearly_normal_shares_is_newcombes():
    value, size = np.array([0.6, 0.4]), np.array([30_000.0, 20_000.0])
    first, second = zip(value, size, strict=True)
    bound = propagate_imprecision(first, second, Z, np.subtract)
    # A row more or less, and a thirteenth of a quarter turn.
    assert bound == pytest.approx(newcombe(value, *wilson(value, size))[1], abs=1e-4)


def test_each_row_has_its_own_reach():
    first, second = (np.full((2, 3), 0.2), np.full((2, 3), 50.0)), (np.full((2, 1), 0.1), 90.0)
    reach = np.array([1.0, 3.0])
    both = propagate_imprecision(first, second, reach, np.subtract)
    for row, each in zip(both, reach, strict=True):
        single = propagate_imprecision((0.2, 50.0), (0.1, 90.0), each, np.subtract)
        np.testing.assert_array_equal(row, np.broadcast_to(single, 3))
    assert (both[0] < both[1]).all()
