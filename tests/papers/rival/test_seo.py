from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from fairfrontier import create
from fairfrontier.runtime.errors import ConfigError, DataError


def make_rows(n=120, levels=3, seed=0):
    """Draw rows whose first columns lean on the group, and whose last say it outright."""
    rng = np.random.default_rng(seed)
    code = rng.permutation(np.arange(n) % levels)
    X = rng.normal(size=(n, 4))
    X[:, 0] += 0.7 * code
    X = np.column_stack([X, np.eye(levels)[code]])
    y = X[:, 0] - X[:, 1] + 0.5 * (code == 1) + rng.normal(size=n)
    return X, y, code[:, None], rng.uniform(0.3, 2, n)


def correlate(prediction, code, weight):
    """Return the weighted covariance of a prediction with every level."""
    level = np.eye(code.max() + 1)[code]
    centred = prediction - np.average(prediction, weights=weight)
    return (weight * centred) @ level / weight.sum()


@pytest.mark.parametrize("levels", [2, 3, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_nothing_correlates_and_no_such_model_fits_better(levels, weighted):
    X, y, groups, weight = make_rows(levels=levels)
    weight = weight if weighted else np.ones(len(y))
    model = create("seo").fit(X, y, sensitive_features=groups, sample_weight=weight)
    found = model.predict(X)
    np.testing.assert_allclose(correlate(found, groups[:, 0], weight), 0, atol=1e-12)
    loss = np.average((y - found) ** 2, weights=weight)

    def objective(both):
        return np.average((y - X @ both[:-1] - both[-1]) ** 2, weights=weight)

    ties = {"type": "eq", "fun": lambda both: correlate(X @ both[:-1], groups[:, 0], weight)[:-1]}
    best = minimize(objective, np.zeros(X.shape[1] + 1), constraints=ties, method="SLSQP")
    assert loss == pytest.approx(best.fun, abs=1e-6)
    # Any other model without correlation is the found one plus a direction orthogonal to what is
    # left over.
    rng = np.random.default_rng(1)
    centred = X - np.average(X, axis=0, weights=weight)
    tie = centred.T @ (weight[:, None] * np.eye(levels)[groups[:, 0]])
    null = np.linalg.svd(tie.T)[2][np.linalg.matrix_rank(tie) :]
    for _ in range(5):
        step = rng.normal(size=len(null)) @ null
        assert (weight * (y - found)) @ (centred @ step) == pytest.approx(0, abs=1e-8)


def test_formula_of_the_paper():
    X, y, groups, _ = make_rows(levels=2)
    X = X[:, :4]
    model = create("seo").fit(X, y, sensitive_features=groups)
    X, y, a = X - X.mean(axis=0), y - y.mean(), groups[:, 0] - groups[:, 0].mean()
    G, V = np.linalg.inv(X.T @ X), (X.T @ a)[:, None]
    free = G @ X.T @ y
    expected = free - G @ V @ np.linalg.inv(V.T @ G @ V) @ V.T @ free
    np.testing.assert_allclose(model.coefficient_, expected)


def test_mean_and_units_of_features_do_not_matter():
    X, y, groups, weight = make_rows()
    model = create("seo").fit(X, y, sensitive_features=groups, sample_weight=weight)
    assert np.average(model.predict(X), weights=weight) == pytest.approx(
        np.average(y, weights=weight)
    )
    scaled = X * np.array([10, 0.1, 1, 1, 1, 1, 1]) + 3
    other = create("seo").fit(scaled, y, sensitive_features=groups, sample_weight=weight)
    np.testing.assert_allclose(other.predict(scaled), model.predict(X), atol=1e-9)
    renamed = create("seo").fit(X, y, sensitive_features=7 - 2 * groups, sample_weight=weight)
    np.testing.assert_allclose(renamed.predict(X), model.predict(X), atol=1e-12)


def test_target_that_does_not_lean_on_the_groups_is_fitted_as_by_least_squares():
    X, y, groups, _ = make_rows(levels=2)
    code = groups[:, 0]
    free = create("linear_regression", penalty=0.0)
    fitted = free.fit(X, y).predict(X)
    means = np.bincount(code, fitted) / np.bincount(code)
    level = y - (means - fitted.mean())[code]
    np.testing.assert_allclose(
        create("seo").fit(X, level, sensitive_features=groups).predict(X),
        free.fit(X, level).predict(X),
        atol=1e-9,
    )


def test_authors_drop_the_attributes_own_columns():
    X, y, groups, _ = make_rows(levels=2)
    model = create("seo", variant="authors").fit(X, y, sensitive_features=groups)
    free = create("linear_regression", penalty=0.0).fit(X, y)
    assert model.coefficient_[4:].tolist() == [0, 0]
    np.testing.assert_allclose(model.coefficient_[:4], free.coefficient_[:4])
    assert model.intercept_ == pytest.approx(free.intercept_)
    # What is left leans on the group by the first column.
    assert np.abs(correlate(model.predict(X), groups[:, 0], np.ones(len(y)))).max() > 0.05
    with pytest.raises(DataError):
        create("seo", variant="authors").fit(X[:, :4], y, sensitive_features=groups)


def test_parameters_that_cannot_be():
    X, y, groups, _ = make_rows()
    with pytest.raises(ConfigError):
        create("seo", variant="code").fit(X, y, sensitive_features=groups)
