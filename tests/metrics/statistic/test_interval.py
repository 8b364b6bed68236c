from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest, ncx2, norm, skew, studentized_range
from scipy.stats import t as student

from fairfrontier.metrics.statistic.interval import (
    MOST_ROWS,
    Z,
    average,
    average_cells,
    bound_difference,
    bound_extreme,
    bound_length,
    bound_mean_difference,
    bound_ratio,
    bound_root_mean_square,
    draw_noise,
    effective_size,
    invert_wilson,
    newcombe,
    normal,
    percentile,
    reach_of_pairs,
    skew_reach,
    widen,
    wilson,
)
from fairfrontier.metrics.statistic.rate import resample_sums


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


def test_normal():
    assert normal(1.0, 0.5) == pytest.approx((1 - 0.97998, 1 + 0.97998), abs=1e-5)


def test_percentile_holds_the_value_and_forgets_what_is_not_finite():
    draws = np.r_[np.linspace(1, 2, 1001), np.nan]
    assert percentile(1.5, draws) == pytest.approx((1.025, 1.975))
    assert percentile(0.5, draws) == pytest.approx((0.5, 1.975))
    assert np.isnan(percentile(np.nan, draws)).all()
    assert np.isnan(percentile(1.0, np.empty(0))).all()


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


def test_pairs_hold_at_once_as_far_as_the_studentised_range():
    assert reach_of_pairs((2,)) == pytest.approx(Z, abs=1e-6)
    wanted = studentized_range.ppf(0.95, 4, np.inf) / np.sqrt(2)
    assert reach_of_pairs((4, 1)) == pytest.approx(wanted, abs=1e-5)
    # Two independent pairs: each with probability .95 to the power of one half.
    assert reach_of_pairs((2, 2)) == pytest.approx(-norm.ppf((1 - 0.95**0.5) / 2), abs=1e-6)


@pytest.mark.parametrize(("first", "second"), [(0.8, 0.6), (0.6, 0.8), (0.7, 0.71)])
def test_the_difference_of_two_levels_is_newcombe_s_without_a_sign(first, second):
    value, size = np.array([[first], [second]]), np.array([[70.0], [80.0]])
    low, high = newcombe(value[:, 0], *(end[:, 0] for end in wilson(value, size)))
    wanted = (0.0 if low < 0 < high else min(abs(low), abs(high))), max(-low, high)
    assert bound_difference(value, partial(wilson, value, size)) == pytest.approx(wanted)


def test_far_levels_are_no_wider_than_two_and_lost_ones_have_no_interval():
    size = np.full((4, 1), 3000.0)
    value = np.array([[0.2], [0.4], [0.5], [0.8]])
    two = value[[0, 3]]
    wanted = bound_difference(two, partial(wilson, two, size[:2]))
    assert bound_difference(value, partial(wilson, value, size)) == pytest.approx(wanted)
    value[1:] = np.nan
    assert np.isnan(bound_difference(value, partial(wilson, value, size))).all()


def test_the_ratio_is_about_that_on_the_scale_of_logarithms():
    value, size = np.array([[0.3], [0.6]]), np.full((2, 1), 4000.0)
    half = Z * np.sqrt(np.sum((1 - value) / (value * size)))
    wanted = 0.5 * np.exp([-half, half])
    assert bound_ratio(value, partial(wilson, value, size)) == pytest.approx(wanted, rel=2e-3)
    value[0] = 0.0
    low, high = bound_ratio(value, partial(wilson, value, size))
    assert low == 0.0 < high < 0.01
    assert np.isnan(bound_ratio(0 * value, partial(wilson, 0 * value, size))).all()


def test_the_largest_level_is_above_all_that_hold_at_once_and_below_one():
    value, size = np.array([0.5, 0.5, 0.1]), np.full(3, 900.0)
    low, high = bound_extreme(partial(wilson, value, size), (3,), largest=True)
    two = float(norm.ppf(norm.cdf(Z) ** 0.5))
    assert low == pytest.approx(wilson(value, size, two)[0][0])
    assert high == pytest.approx(wilson(value, size)[1][0])
    turned = bound_extreme(partial(wilson, 1 - value, size), (3,), largest=False)
    assert turned == pytest.approx((1 - high, 1 - low))


def test_a_length_is_bounded_as_by_the_noncentral_chi_squared_distribution():
    point = np.array([2.0, 1.0, 0.0, -3.0, 1.0])
    low, high = bound_length(point, draw_noise(np.ones(5)), np.inf)
    length = np.linalg.norm(point)
    # The lengths of which this one is the 97.5th and the 2.5th percentile.
    for end, share in ((low, 0.975), (high, 0.025)):
        assert ncx2.cdf(length**2, 5, end**2) == pytest.approx(share, abs=0.012)


def test_root_mean_squares_of_equal_groups_reach_zero_and_of_constant_ones_are_short():
    rng = np.random.default_rng(0)
    size = np.tile([[60.0], [150.0], [40.0]], 2)
    reached = [
        bound_root_mean_square(rng.binomial(size.astype(int), 0.4) / size, size)[0] == 0
        for _ in range(100)
    ]
    assert sum(reached) >= 90
    low, high = bound_root_mean_square(np.ones((2, 1)), np.full((2, 1), 1000.0))
    assert low == 0 < high < 0.02


@pytest.mark.parametrize("largest", [False, True])
def test_mean_differences_cover_the_truth(largest):
    rng = np.random.default_rng(1)
    rates = np.array([[0.3, 0.5, 0.6], [0.3, 0.6, 0.6], [0.3, 0.8, 0.6]])
    pairs = np.abs(rates[[0, 0, 1]] - rates[[1, 2, 2]])
    truth = pairs.max(axis=0).mean() if largest else pairs.mean()
    size = np.full(rates.shape, 200.0)
    found = np.array(
        [
            bound_mean_difference(rng.binomial(200, rates) / 200, size, largest=largest)
            for _ in range(60)
        ]
    )
    assert ((found[:, 0] <= truth) & (truth <= found[:, 1])).sum() >= 53
    assert np.ptp(found, axis=1).mean() < 0.25


def test_means_are_student_s_and_longer_where_values_are_skewed():
    even = np.tile([-1.0, 1.0], 15)
    value, n, low, high = average(even, np.ones(30))
    half = student.ppf(0.975, 29) * even.std(ddof=1) / np.sqrt(30)
    assert (value, n) == (0.0, 30)
    assert (low, high) == pytest.approx((-half, half), rel=1e-5)
    skewed = np.random.default_rng(0).exponential(size=30)
    value, _, low, high = average(skewed, np.ones(30))
    g = skew(skewed) / np.sqrt(30) * (29 / 30) ** 1.5
    error = skewed.std(ddof=1) / np.sqrt(30)
    # Hall's transformation of the ends is the t of a symmetric mean.
    for end, sign in ((low, 1), (high, -1)):
        t = (value - end) / error
        turned = t + g * t**2 / 3 + g**2 * t**3 / 27 + g / 6
        assert turned == pytest.approx(sign * student.ppf(0.975, 29))


@pytest.mark.parametrize("rows", [12, 19, 38])
@pytest.mark.parametrize("labels", [1, 2])
def test_means_of_few_skewed_rows_cover_the_truth(rows, labels):
    # Losses of a classifier with scores .05 to .95, of levels that are draws.
    rng = np.random.default_rng(1)
    level = np.repeat(np.arange(2000), rows)
    score = rng.choice([0.05, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 0.95], level.size)
    losses = -np.log(np.stack([1 - score, score], axis=1))
    right = rng.random(level.size) < 0.85
    y = np.where(right, score > 0.5, score < 0.5).astype(int)
    loss = losses[np.arange(y.size), y]
    possible = losses if labels == 2 else None
    low, high = average_cells(loss, np.ones(y.size), level, 2000, possible).limit(Z)
    assert ((low <= loss.mean()) & (loss.mean() <= high)).mean() > 0.94


def test_losses_that_no_row_has_are_not_taken_for_impossible():
    # 1 of 200 rows is positive, and every row is told so.
    rng = np.random.default_rng(2)
    level = np.repeat(np.arange(1000), 100)
    y = (rng.random(level.size) < 0.005).astype(int)
    losses = np.tile(-np.log([0.995, 0.005]), (y.size, 1))
    low, high = average_cells(
        losses[np.arange(y.size), y], np.ones(y.size), level, 1000, losses
    ).limit(Z)
    true = -0.995 * np.log(0.995) - 0.005 * np.log(0.005)
    assert ((low <= true) & (true <= high)).mean() > 0.94


def test_widened_means_keep_their_skewness():
    ends = [-float(skew_reach(sign * Z, 0.1)) for sign in (1, -1)]
    wanted = [-float(skew_reach(sign * 3.0, 0.1)) for sign in (1, -1)]
    low, high = widen(np.array(0.0), np.array(ends[0]), np.array(ends[1]), np.array(3.0))
    assert high == pytest.approx(wanted[1], rel=1e-3)
    assert low <= wanted[0]


def test_root_mean_squares_cover_where_rates_are_near_one():
    share, size = np.array([[1.0, 0.97], [1.0, 1.0]]), np.array([[150, 40], [150, 110]])
    truth = np.sqrt(0.03**2 / 2)
    rng = np.random.default_rng(0)
    ends = [
        bound_root_mean_square(rng.binomial(size, share) / size, size.astype(float))
        for _ in range(200)
    ]
    assert np.mean([low <= truth <= high for low, high in ends]) >= 0.92
    assert max(high for _, high in ends) <= 1
