import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from fairfrontier.models.regression.oracle import factorise, sum_by_cell, sum_moments


def draw(seed=0, n=60):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(n, 3)), rng.random(n) + 0.1, rng.integers(0, 2, n)


def test_moments_of_partitions_add_up():
    _, X, weight, group = draw()
    whole = sum_moments(X, weight, group, 2)
    parts = [slice(None, 25), slice(25, None)]
    both = [sum_moments(X[rows], weight[rows], group[rows], 2) for rows in parts]
    added = both[0] + both[1]
    for name in ("total", "features", "gram"):
        np.testing.assert_allclose(getattr(added, name), getattr(whole, name), atol=1e-12)
    halves = [sum_by_cell(X[rows], weight[rows], group[rows], 2) for rows in parts]
    np.testing.assert_allclose(sum(halves), sum_by_cell(X, weight, group, 2), atol=1e-12)
    expected = X[group == 1].T @ np.diag(weight[group == 1]) @ X[group == 1]
    np.testing.assert_allclose(whole.gram[1], expected, atol=1e-12)


@pytest.mark.parametrize("factor", [[1.0, 1.0], [3.0, 0.5]])
def test_a_factor_solves_weighted_least_squares(factor):
    rng, X, weight, group = draw()
    u = rng.random(60)
    rows = weight * np.array(factor)[group]
    solver = factorise(sum_moments(X, weight, group, 2).combine(np.array(factor)))
    coefficient, intercept = solver.solve((rows * u) @ X, float(rows @ u))
    plain = LinearRegression().fit(X, u, sample_weight=rows)
    np.testing.assert_allclose(coefficient, plain.coef_, atol=1e-10)
    assert intercept == pytest.approx(plain.intercept_)


def test_collinear_columns_get_the_shortest_solution():
    rng, X, weight, _ = draw()
    one_hot = np.eye(3)[rng.integers(0, 3, 60)]
    X = np.hstack([X, one_hot, np.full((60, 1), 2.0)])
    u = rng.random(60)
    solver = factorise(sum_moments(X, weight, np.zeros(60, dtype=int), 1))
    coefficient, intercept = solver.solve((weight * u) @ X, float(weight @ u))
    centred = X - np.average(X, axis=0, weights=weight)
    root = np.sqrt(weight)[:, None]
    shortest = np.linalg.pinv(root * centred) @ (root[:, 0] * u)
    np.testing.assert_allclose(coefficient, shortest, atol=1e-8)
    residual = u - X @ coefficient - intercept
    np.testing.assert_allclose((weight * residual) @ X, 0, atol=1e-10)
