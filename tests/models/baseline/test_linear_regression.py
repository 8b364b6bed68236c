from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from fairfrontier import create
from fairfrontier.metrics.measure.performance import compute_logistic_nats
from fairfrontier.models.baseline.linear_regression import shrink_margin
from fairfrontier.runtime.errors import ConfigError, DataError


def make_rows(n=80, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = expit(X @ rng.normal(size=d) + rng.normal(size=n))
    return X, y, rng.uniform(0.2, 3, n)


def test_least_squares_equal_the_normal_equations():
    X, y, weight = make_rows()
    model = create("linear_regression", penalty=0.0).fit(X, y, sample_weight=weight)
    design = np.column_stack([X, np.ones(len(X))]) * np.sqrt(weight)[:, None]
    expected = np.linalg.lstsq(design, y * np.sqrt(weight))[0]
    np.testing.assert_allclose(np.append(model.coefficient_, model.intercept_), expected)


def test_columns_that_repeat_one_another_share_their_coefficient():
    X, y, _ = make_rows()
    twice = create("linear_regression", penalty=0.0).fit(np.column_stack([X, X[:, 0]]), y)
    once = create("linear_regression", penalty=0.0).fit(X, y)
    np.testing.assert_allclose(twice.coefficient_[[0, 3]], once.coefficient_[0] / 2)
    np.testing.assert_allclose(twice.predict(np.column_stack([X, X[:, 0]])), once.predict(X))


def test_penalised_least_squares_are_a_minimum():
    X, y, weight = make_rows()
    model = create("linear_regression", penalty=0.5).fit(X, y, sample_weight=weight)
    rest = weight * (y - model.predict(X)) / weight.sum()
    np.testing.assert_allclose(X.T @ rest, 0.5 * model.coefficient_)
    assert rest.sum() == pytest.approx(0, abs=1e-12)


def test_logistic_loss_of_shares_is_at_its_minimum():
    X, y, weight = make_rows()
    y[:20] = np.arange(20) % 2
    model = create("linear_regression", loss="logistic", penalty=0.01)
    model.fit(X, y, sample_weight=weight)

    def objective(both):
        margin = X @ both[:-1] + both[-1]
        loss = np.logaddexp(0, margin) - y * margin
        return np.average(loss, weights=weight) + 0.005 * both[:-1] @ both[:-1]

    found = np.append(model.coefficient_, model.intercept_)
    best = minimize(objective, np.zeros(4))
    assert objective(found) == pytest.approx(best.fun, abs=1e-8)
    np.testing.assert_allclose(found, best.x, atol=1e-3)


def test_what_is_predicted_stands_for_the_probability():
    margin = np.array([-4.9, -1.0, 0.0, 3.0])
    u = shrink_margin(margin)
    np.testing.assert_allclose(expit(5 * (2 * u - 1)), expit(margin))
    np.testing.assert_allclose(compute_logistic_nats(np.ones(4), u), -np.log(expit(margin)))
    np.testing.assert_array_equal(shrink_margin(np.array([-50.0, 50.0])), [0, 1])


def test_what_cannot_be_fitted():
    X, y, _ = make_rows()
    with pytest.raises(DataError, match=r"targets from 0\.\d+ to 3"):
        create("linear_regression", loss="logistic").fit(X, np.append(y[1:], 3.0))
    for constant in (0.0, 1.0):
        with pytest.raises(DataError, match="same target in every row"):
            create("linear_regression", loss="logistic").fit(X, np.full(len(X), constant))
    with pytest.raises(ConfigError, match=r"'penalty' .* above 0"):
        create("linear_regression", loss="logistic", penalty=0.0).fit(X, y)
    with pytest.raises(ConfigError):
        create("linear_regression", loss="absolute").fit(X, y)
