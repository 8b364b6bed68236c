from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest

from fairfrontier.evaluate.statistic.interval import (
    MOST_ROWS,
    Z,
    effective_size,
    fold,
    invert_wilson,
    newcombe,
    normal,
    percentile,
    wilson,
)
from fairfrontier.evaluate.statistic.resampling import resample_counts, resample_sums


@pytest.mark.parametrize(("k", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (137, 1000)])
def test_wilson_equals_scipy(k, n):
    low, high = wilson(np.array(k / n), np.array(float(n)))
    expected = binomtest(k, n).proportion_ci(method="wilson")
    assert low == pytest.approx(expected.low, abs=1e-12)
    assert high == pytest.approx(expected.high, abs=1e-12)


def test_wilson_bounds_solve_the_score_equation():
    low, high = wilson(np.array(0.3), np.array(47.0))

    def excess(p: float) -> float:
        return abs(0.3 - p) - Z * np.sqrt(p * (1 - p) / 47)

    assert low == pytest.approx(brentq(excess, 1e-9, 0.3))
    assert high == pytest.approx(brentq(excess, 0.3, 1 - 1e-9))


def test_wilson_of_nothing_is_nan():
    low, high = wilson(np.array([0.5, np.nan]), np.array([0.0, 20.0]))
    assert np.isnan(low).all()
    assert np.isnan(high).all()


def test_wilson_tells_the_size():
    value, size = np.array([0.0, 0.1, 0.7, 1.0]), np.array([60.0, 60.0, 1e5, 3.7])
    np.testing.assert_allclose(invert_wilson(value, *wilson(value, size)), size, rtol=1e-9)
    certain, unknown = np.array([0.3, np.nan]), np.array([0.3, 0.4])
    np.testing.assert_equal(invert_wilson(certain, unknown, unknown), [MOST_ROWS, np.nan])


def test_effective_size():
    value = np.array([0.3, 0.0, 0.5])
    variance = np.array([0.3 * 0.7 / 80, 0.0, 0.0])
    kish = np.array([50.0, 60.0, 70.0])
    np.testing.assert_allclose(effective_size(value, variance, kish), [80, 60, 70])


def test_newcombe_gives_the_published_example():
    # Newcombe 1998, table II (a): 56/70 − 48/80 has the interval .0524 to .3339 by method 10.
    value = np.array([56 / 70, 48 / 80])
    low, high = wilson(value, np.array([70.0, 80.0]))
    assert newcombe(value, low, high) == pytest.approx((0.0524, 0.3339), abs=5e-5)


@pytest.mark.parametrize(
    ("signed", "folded"),
    [((-0.1, 0.3), (0, 0.3)), ((-0.4, 0.3), (0, 0.4)), ((0.1, 0.3), (0.1, 0.3)),
     ((-0.3, -0.1), (0.1, 0.3))],
)  # fmt: skip
def test_fold(signed, folded):
    assert fold(*signed) == folded
    assert np.isnan(fold(np.nan, np.nan)).all()


def test_normal():
    assert normal(1.0, 0.5) == pytest.approx((1 - 0.97998, 1 + 0.97998), abs=1e-5)


def test_percentile_holds_the_value_and_forgets_what_is_not_finite():
    draws = np.r_[np.linspace(1, 2, 1001), np.nan]
    assert percentile(1.5, draws) == pytest.approx((1.025, 1.975))
    assert percentile(0.5, draws) == pytest.approx((0.5, 1.975))
    assert np.isnan(percentile(np.nan, draws)).all()
    assert np.isnan(percentile(1.0, np.empty(0))).all()


def test_counts_are_drawn_as_rows_would_be():
    rng = np.random.default_rng(0)
    cell = rng.integers(0, 6, 120)
    mass = np.bincount(cell, minlength=6).reshape(3, 2).astype(float)
    drawn = resample_counts(mass, 4000, np.random.default_rng(1)).reshape(4000, 6)
    assert (drawn.sum(axis=1) == 120).all()
    rows = np.array(
        [np.bincount(cell[rng.integers(0, 120, 120)], minlength=6) for _ in range(4000)]
    )
    np.testing.assert_allclose(drawn.mean(axis=0), rows.mean(axis=0), atol=0.4)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(rows.T), atol=1.6)


def test_counts_of_nothing():
    assert resample_counts(np.zeros((0, 2, 2)), 3, np.random.default_rng(0)).shape == (3, 0, 2, 2)


def test_sums_have_the_moments_of_a_bootstrap_over_rows():
    rng = np.random.default_rng(0)
    weight, h = rng.uniform(0.5, 2, 200), rng.random(200)
    halves = np.column_stack([weight * (1 - h), weight * h])
    drawn = resample_sums(halves.sum(axis=0), halves.T @ halves, 20000, rng)
    rows = rng.poisson(1.0, (20000, 200)) @ halves
    np.testing.assert_allclose(drawn.mean(axis=0), rows.mean(axis=0), rtol=0.005)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(rows.T), rtol=0.06)


def test_sums_of_a_constant_decision_are_tied():
    weight = np.ones(50)
    halves = np.column_stack([weight * 0.25, weight * 0.75])
    drawn = resample_sums(halves.sum(axis=0), halves.T @ halves, 100, np.random.default_rng(0))
    np.testing.assert_allclose(drawn[:, 1] / drawn.sum(axis=1), 0.75)
