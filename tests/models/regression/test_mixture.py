import numpy as np
import pytest
from scipy.special import expit

from fairfrontier.metrics.measure.performance import find_distances
from tests.models.regression.made import classes, fit


def test_expectations_are_those_of_the_exact_distribution():
    X, _, model = fit()
    assert len(model.probability_) > 1
    distribution = model.predict_distribution(X)
    np.testing.assert_allclose(distribution.probability.sum(axis=1), 1, atol=1e-12)
    assert distribution.value.shape == (11,)
    mean = model.predict(X)
    assert mean.dtype == np.float64
    np.testing.assert_allclose(distribution.probability @ distribution.value, mean, atol=1e-12)
    components = model.predict_components(X)
    np.testing.assert_allclose(components @ model.probability_, mean, atol=1e-12)
    free = model.set_params(rounded=False).predict_distribution(X)
    assert free.value.shape == free.probability.shape == (240, len(model.probability_))


def test_draws_belong_to_rows_and_follow_the_probabilities():
    X, _, model = fit()
    ids = np.arange(5000)
    # A row of which the predictors think differently.
    row = [int(np.ptp(model.predict_components(X), axis=1).argmax())]
    rows = np.repeat(X[row], 5000, axis=0)
    drawn = model.sample(rows, ids)
    np.testing.assert_array_equal(model.sample(rows[::-1], ids[::-1])[::-1], drawn)
    np.testing.assert_array_equal(model.sample(rows[7:9], ids[7:9]), drawn[7:9])
    distribution = model.predict_distribution(X[row])
    assert (distribution.probability > 0.02).sum() > 1
    for value, share in zip(distribution.value, distribution.probability[0], strict=True):
        assert np.isclose(drawn, value).mean() == pytest.approx(share, abs=0.03)
    np.testing.assert_array_equal(model.sample(X), model.sample(X, np.arange(240)))


def test_budgets_hold_for_what_is_drawn_and_not_for_its_mean():
    X, groups, model = fit()
    weight = np.ones(240)
    drawn = model.disparity(X, groups)
    np.testing.assert_allclose(drawn, model.group_value_, atol=1e-12)
    assert drawn.max() <= 0.04 + 1e-7
    components = model.predict_components(X)
    audit = find_distances(components, model.probability_, groups[:, 1], 2, weight)
    np.testing.assert_allclose(drawn, audit, atol=1e-12)
    off_grid = model.disparity(X, groups, view="unrounded")
    mean = model.disparity(X, groups, view="mean")
    alone = find_distances(model.predict(X)[:, None], np.ones(1), groups[:, 1], 2, weight)
    np.testing.assert_allclose(mean, alone, atol=1e-12)
    raw = model.set_params(rounded=False).predict_components(X)
    unrounded = find_distances(raw, model.probability_, groups[:, 1], 2, weight)
    np.testing.assert_allclose(off_grid, unrounded, atol=1e-12)
    assert max(mean.max(), unrounded.max()) > drawn.max()


def test_classes_get_probabilities_in_expectation():
    X, groups, model = fit(classes)
    assert model.classes_.tolist() == [0, 1]
    probability = model.predict_proba(X)
    value = model.predict_components(X)
    expected = expit(5 * (2 * value - 1)) @ model.probability_
    np.testing.assert_allclose(probability[:, 1], expected, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), expected >= 0.5)
    X, _, plain = fit(classes, loss="square")
    shares = plain.predict_proba(X)[:, 1]
    np.testing.assert_allclose(shares, plain.predict_mean(X), atol=1e-12)
    free = fit(classes, budget=1.0)[2]
    assert free.disparity(X, groups).max() > model.disparity(X, groups).max()
