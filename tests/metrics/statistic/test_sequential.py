"""Evidence that rates changed: fair bets under the null hypothesis, and growth under others."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import rel_entr
from scipy.stats import binom, binomtest

from fairfrontier.metrics.statistic.drift import (
    BATCHES,
    PRIOR_ROWS,
    accumulate_evidence,
    bound_rate,
    within,
    within_difference,
    within_ratio,
)

WEEKS = 52


def diverge(guess, rate):
    return rel_entr(guess, rate) + rel_entr(1 - guess, 1 - rate)


def draw_weeks(rng, rate, n):
    """Draw hits and rows of n rows a week and group; ``rate`` has shape (..., weeks, K)."""
    rows = np.broadcast_to((np.array(BATCHES) * n)[:, None], (*rate.shape[:-1], 5, rate.shape[-1]))
    return rng.binomial(rows.astype(int), rate[..., None, :]), rows


def enumerate_evidence(rows, prior, project):
    """Return all outcomes of a few rows, and log E after each period."""
    flat = rows.ravel()
    hits = np.array(list(product(*(range(n + 1) for n in flat)))).reshape(-1, *rows.shape)
    return hits, accumulate_evidence(hits, np.broadcast_to(rows, hits.shape), prior, project)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
def test_bets_against_one_rate_are_fair(rate):
    rows = np.array([[[1], [2]], [[0], [3]], [[1], [1]]])
    hits, log_e = enumerate_evidence(rows, np.array([0.4]), within(rate, rate))
    chance = binom.pmf(hits, rows, rate).prod(axis=(1, 2, 3))
    np.testing.assert_allclose(chance @ np.exp(log_e), 1.0, rtol=1e-12)
    assert log_e.max() > 0.5


@pytest.mark.parametrize(
    ("project", "rates"),
    [
        (within(0.2, 0.5), [(0.2, 0.5), (0.5, 0.5), (0.3, 0.21), (0.2, 0.2)]),
        (within_difference(0.1), [(0.4, 0.5), (0.95, 0.85), (0.0, 0.1), (0.3, 0.35)]),
        (within_difference(0.0), [(0.4, 0.4), (0.9, 0.9), (0.05, 0.05)]),
        (within_ratio(0.8), [(0.4, 0.5), (0.8, 1.0), (0.08, 0.1), (0.3, 0.35)]),
    ],
)
def test_no_rates_within_the_null_hypothesis_make_bets_pay(project, rates):
    rows = np.array([[[1, 2], [2, 1]], [[1, 0], [2, 1]]])
    hits, log_e = enumerate_evidence(rows, np.array([0.3, 0.6]), project)
    # Rates may change from one period to the next.
    for before, after in product(rates, rates):
        rate = np.array([before, after])[:, None, :]
        chance = binom.pmf(hits, rows, rate).prod(axis=(1, 2, 3))
        assert (chance @ np.exp(log_e) <= 1 + 1e-9).all()
    assert np.exp(log_e).max() > 1.05


@pytest.mark.parametrize(
    ("project", "holds"),
    [
        (within_difference(0.1), lambda rate: np.ptp(rate, axis=-1) <= 0.1),
        (within_ratio(0.8), lambda rate: rate.min(axis=-1) >= 0.8 * rate.max(axis=-1)),
    ],
)
def test_the_projection_is_the_nearest_of_the_null_hypothesis(project, holds):
    rng = np.random.default_rng(0)
    rates = rng.uniform(size=(200_000, 3))
    rates = rates[holds(rates)]
    guess, rows = rng.uniform(0.02, 0.98, (40, 3)), rng.integers(1, 50, (40, 3)).astype(float)
    found = project(guess, rows)
    # Rounding aside.
    assert holds(0.5 + (found - 0.5) * (1 - 1e-9)).all() or holds(found * (1 - 1e-12)).all()
    least = (rows * diverge(guess, found)).sum(axis=-1)
    for i in range(40):
        others = (rows[i] * diverge(guess[i], rates)).sum(axis=-1)
        assert least[i] <= others.min() + 1e-9
    inside = holds(guess)
    np.testing.assert_allclose(found[inside], guess[inside], atol=1e-9)


def test_looking_every_week_seldom_alarms():
    rng = np.random.default_rng(1)
    runs, n, rate = 300, 160, 0.3
    hits, rows = draw_weeks(rng, np.full((runs, WEEKS, 1), rate), n)
    log_e = accumulate_evidence(hits, rows, np.full((runs, 1), rate), within(rate, rate))
    for alpha in (0.5, 0.2, 0.05):
        alarms = (log_e.max(axis=-1) >= -np.log(alpha)).sum()
        assert binomtest(int(alarms), runs, alpha, alternative="greater").pvalue > 0.001
    # It does say something: Ville's bound is not kept by never betting.
    assert (log_e.max(axis=-1) >= np.log(2)).sum() > 5


@pytest.mark.parametrize("change", [0, 12])
def test_a_shift_is_found_within_the_rows_that_theory_says(change):
    rng = np.random.default_rng(2)
    runs, n, rate, shifted, alpha = 100, 400, 0.3, 0.35, 0.05 / 40
    rates = np.full((runs, 30, 1), rate)
    rates[:, change:] = shifted
    hits, rows = draw_weeks(rng, rates, n)
    log_e = accumulate_evidence(hits, rows, np.full((runs, 1), rate), within(rate, rate))
    alarm = log_e >= -np.log(alpha)
    assert alarm.any(axis=-1).all()
    found = n * (np.argmax(alarm, axis=-1) + 1 - change)
    # A bet on m rows, guessed from s rows, gains m KL and loses m/2 of the guess's squared error.
    size = np.append(n * np.array(BATCHES), np.full(28, n))
    seen = np.cumsum(size) - size
    error = (seen + (PRIOR_ROWS * (shifted - rate)) ** 2 / (shifted * (1 - shifted))) / (
        seen + PRIOR_ROWS
    ) ** 2
    log_e = np.cumsum(size * (diverge(shifted, rate) - error / 2))
    needed = np.cumsum(size)[np.argmax(log_e >= np.log((change + 1) * (change + 2) / alpha))]
    assert np.median(found) <= n * np.ceil(needed / n)
    assert np.median(found) >= -np.log(alpha) / diverge(shifted, rate)
    assert needed <= 2.5 * np.median(found)


def test_a_limit_that_is_passed_is_found_and_one_that_is_kept_is_not():
    rng = np.random.default_rng(3)
    prior = np.full((20, 3), 0.4)
    for rates, project, passed in (
        ((0.3, 0.35, 0.45), within_difference(0.1), True),
        ((0.3, 0.35, 0.40), within_difference(0.1), False),
        ((0.3, 0.35, 0.45), within_ratio(0.8), True),
        ((0.36, 0.4, 0.45), within_ratio(0.8), False),
    ):
        hits, rows = draw_weeks(rng, np.tile(rates, (20, 12, 1)), 800)
        alarm = accumulate_evidence(hits, rows, prior, project).max(axis=-1) >= np.log(20)
        assert alarm.mean() > 0.9 if passed else alarm.mean() <= 0.1


def test_the_interval_of_a_rate_is_clopper_and_pearsons():
    hits, rows = np.array([0, 3, 10, 7]), np.array([10, 10, 10, 1000])
    low, high = bound_rate(hits, rows, 0.99)
    for each in range(4):
        known = binomtest(int(hits[each]), int(rows[each])).proportion_ci(0.99, method="exact")
        np.testing.assert_allclose((low[each], high[each]), known, atol=1e-12)
    assert [float(end) for end in bound_rate(np.array(0), np.array(0), 0.9)] == [0.0, 1.0]


def test_groups_without_rows_change_nothing():
    hits, rows = np.array([[[3.0, 0.0]]]), np.array([[[9.0, 0.0]]])
    assert accumulate_evidence(hits, rows, np.array([0.5, 0.5]), within_difference(0.1)) == 0
