from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

from fairfrontier.runtime.cluster.executor import Rows, computing_on, open_rows
from fairfrontier.runtime.cluster.logistic import fit_logistic
from fairfrontier.runtime.errors import DataError

PENALTY = 1e-3


@pytest.fixture
def rows():
    generator = np.random.default_rng(3)
    X = generator.normal(size=(300, 4)) * [1.0, 3.0, 0.2, 1.0]
    noise = generator.gumbel(size=(300, 3))
    y = np.argmax(X @ generator.normal(size=(4, 3)) + noise, axis=1)
    return X, y, generator.integers(0, 4, 300) / 2.0


@pytest.fixture(autouse=True)
def here():
    with computing_on(None):
        yield


def cut(X: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Rows:
    lazy = da.from_array(X, chunks=((130, 0, 1, 169), X.shape[1]))
    return open_rows(lazy, y=y, weight=weight)


def test_two_classes_are_those_of_newtons_steps_in_memory(rows):
    X, y, weight = rows
    y = (y > 0).astype(np.int64)
    fitted = fit_logistic(cut(X, y, weight), 2, PENALTY)
    model = LogisticRegression(
        C=1 / (PENALTY * weight.sum()), solver="newton-cholesky", tol=1e-6, max_iter=1000
    ).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(fitted.coefficient, model.coef_, rtol=1e-10)
    np.testing.assert_allclose(fitted.intercept, model.intercept_, rtol=1e-10)
    assert fitted.iterations == model.n_iter_[0]


def test_several_classes_meet_the_conditions_of_the_optimum(rows):
    X, y, weight = rows
    fitted = fit_logistic(cut(X, y, weight), 3, PENALTY, tolerance=1e-10)
    probability = softmax(X @ fitted.coefficient.T + fitted.intercept, axis=1)
    residual = weight[:, None] * (probability - np.eye(3)[y]) / weight.sum()
    np.testing.assert_allclose(residual.T @ X + PENALTY * fitted.coefficient, 0.0, atol=1e-9)
    np.testing.assert_allclose(residual.sum(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(fitted.intercept.sum(), 0.0, atol=1e-9)


def test_partitions_change_nothing_but_rounding(rows):
    X, y, weight = rows
    one = fit_logistic(open_rows(X, y=y, weight=weight), 3, PENALTY)
    four = fit_logistic(cut(X, y, weight), 3, PENALTY)
    np.testing.assert_allclose(four.coefficient, one.coefficient, rtol=1e-11)


def test_numbers_that_are_too_large_are_refused(rows):
    X, y, weight = rows
    with np.errstate(all="ignore"), pytest.raises(DataError):
        fit_logistic(cut(X * 1e200, (y > 0).astype(np.int64), weight), 2, PENALTY)


def test_money_columns_with_their_sum_are_fitted(rows):
    _, y, weight = rows
    money = np.random.default_rng(5).lognormal(14.0, 0.3, (300, 2))
    X = np.column_stack([money, money.sum(axis=1)])
    y = (y + 2 * (money[:, 0] > money[:, 1]) > 1).astype(np.int64)
    fitted = fit_logistic(cut(X, y, weight), 2, 1e-4)
    margin = X @ fitted.coefficient[0] + fitted.intercept
    residual = weight * (expit(margin) - y) / weight.sum()
    np.testing.assert_allclose(residual @ X + 1e-4 * fitted.coefficient[0], 0.0, atol=1e-6)
    np.testing.assert_allclose(residual.sum(), 0.0, atol=1e-6)
