from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from fairfrontier.models.thresholds.calibration import fit_calibration, log_odds, smooth_labels


def make_scores(n=400):
    generator = np.random.default_rng(0)
    signed = np.clip(generator.normal(0.2, 0.5, n), -1, 1)
    y = (generator.random(n) < 1 / (1 + np.exp(1 - 2 * signed))).astype(np.int64)
    return signed, y, generator.integers(1, 4, n).astype(float)


def test_sigmoid_minimises_platts_loss():
    signed, y, weight = make_scores()
    found = fit_calibration("sigmoid", signed, y, weight)
    positives, negatives = weight @ y, weight @ (1 - y)
    target = np.where(y == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    odds = log_odds(signed)

    def loss(ab):
        margin = ab[0] * odds + ab[1]
        return weight @ (np.logaddexp(0, margin) - target * margin)

    best = minimize(loss, [1.0, 0.0], tol=1e-10).x
    assert [found.knots[0], found.values[0]] == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("kind", ["isotonic", "sigmoid"])
def test_weights_are_copies_and_means_are_kept(kind):
    signed, y, weight = make_scores()
    found = fit_calibration(kind, signed, y, weight)
    copies = np.repeat(np.arange(y.size), weight.astype(int))
    twin = fit_calibration(kind, signed[copies], y[copies], np.ones(copies.size))
    assert twin.apply(signed) == pytest.approx(found.apply(signed), abs=1e-5)
    mean = np.average((1 + found.apply(signed)) / 2, weights=weight)
    assert mean == pytest.approx(np.average(y, weights=weight), abs=2e-3)


@pytest.mark.parametrize("kind", ["isotonic", "sigmoid"])
def test_ends_and_separable_scores_stay_in_range(kind):
    signed = np.array([-1.0, -1.0, -0.5, 0.5, 1.0, 1.0])
    found = fit_calibration(kind, signed, (signed > 0).astype(int), np.ones(6))
    applied = found.apply(np.linspace(-1, 1, 21))
    assert np.isfinite(applied).all()
    assert np.abs(applied).max() <= 1
    assert applied[0] < 0 < applied[-1]


def test_smoothed_labels_minimise_the_penalised_loss():
    generator = np.random.default_rng(3)
    signed, code = generator.uniform(-0.95, 0.95, 80), generator.integers(3, size=80)
    y = (generator.random(80) < (1 + signed) / 2).astype(np.int64)
    weight = generator.uniform(0.5, 2.0, 80)
    found = smooth_labels(signed, y, code, weight)
    odds = np.log(found) - np.log1p(-found)
    slopes = [np.polyfit(log_odds(signed)[code == k], odds[code == k], 1) for k in range(3)]
    slope, level = slopes[0][0], np.array([each[1] for each in slopes])
    assert np.ptp([each[0] for each in slopes]) < 1e-9
    # The intercept b takes the mean of the groups', since that costs no penalty.
    residual = weight * (y - found)
    assert residual @ log_odds(signed) == pytest.approx(slope, abs=1e-5)
    assert np.bincount(code, residual) == pytest.approx(level - level.mean(), abs=1e-5)
    assert smooth_labels(signed, np.ones(80, int), code).tolist() == [1.0] * 80
