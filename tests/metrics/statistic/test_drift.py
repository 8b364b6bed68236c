"""Drift from counts in bins: scipy's distances of the samples, and what chance alone gives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp, wasserstein_distance

from fairfrontier.metrics.statistic.drift import compare_counts


def count(values, edges):
    return np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1)


def test_fine_bins_give_the_distances_of_the_samples():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=4000), rng.normal(0.4, 1.3, size=3000)
    edges = np.linspace(-6, 6, 2401)
    drift = compare_counts(count(first, edges), count(second, edges), edges)
    assert drift.ks == pytest.approx(ks_2samp(first, second).statistic, abs=2e-3)
    assert drift.wasserstein == pytest.approx(wasserstein_distance(first, second), abs=1e-3)


def test_the_index_is_that_of_the_definition():
    drift = compare_counts(np.array([50, 30, 20]), np.array([20, 30, 50]))
    p, q = np.array([50.5, 30.5, 20.5]) / 101.5, np.array([20.5, 30.5, 50.5]) / 101.5
    assert drift.psi == pytest.approx(sum((q - p) * np.log(q / p)))
    assert drift.psi > drift.psi_by_chance
    assert np.isnan([drift.ks, drift.wasserstein]).all()
    same = compare_counts(np.array([50, 30, 20, 0]), np.array([500, 300, 200, 0]))
    assert 0 <= same.psi < same.psi_by_chance


def test_chance_exceeds_its_bound_in_one_sample_of_twenty():
    rng = np.random.default_rng(1)
    share = np.full(10, 0.1)
    draws = zip(rng.multinomial(900, share, 1000), rng.multinomial(400, share, 1000), strict=True)
    exceeded = [drift.psi > drift.psi_by_chance for drift in (compare_counts(*d) for d in draws)]
    assert 0.02 < np.mean(exceeded) < 0.08


def test_missing_values_have_no_place_among_numbers_and_nothing_has_no_distance():
    edges = np.array([0.0, 1.0, 2.0])
    counts = np.array([5, 5, 5, 5, 0])
    drift = compare_counts(counts, np.array([5, 5, 5, 5, 20]), edges)
    assert drift.psi > 0.1
    assert drift.ks == 0.0
    assert drift.wasserstein == 0.0
    shifted = compare_counts(np.array([10, 0, 0, 0, 0]), np.array([0, 10, 0, 0, 0]), edges)
    assert shifted.ks == 1.0
    assert shifted.wasserstein == pytest.approx(1.0)
    assert np.isnan(compare_counts(counts, np.zeros(5), edges).psi)
    assert np.isnan(compare_counts(counts, np.array([0, 0, 0, 0, 9]), edges).ks)
    assert np.isnan(compare_counts(np.array([5, 5]), np.array([9, 1]), np.array([0.0])).wasserstein)
