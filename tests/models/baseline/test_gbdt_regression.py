from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from fairfrontier import create
from fairfrontier.runtime.errors import ConfigError, DataError


def make_rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, size=(n, 2)).astype(float)
    y = np.clip(0.2 + 0.4 * X[:, 0] + 0.2 * X[:, 0] * X[:, 1] + rng.normal(0, 0.05, n), 0, 1)
    return X, y


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_enough_trees_predict_the_mean_of_every_cell(loss):
    X, y = make_rows()
    model = create("gbdt_regression", loss=loss, n_estimators=200, reg_lambda=0.0)
    found = model.fit(X, y).predict(X)
    cell = (2 * X[:, 0] + X[:, 1]).astype(int)
    mean = (np.bincount(cell, y) / np.bincount(cell))[cell]
    if loss == "logistic":
        # Both losses are least at the mean; what is predicted then stands for that probability.
        np.testing.assert_allclose(expit(5 * (2 * found - 1)), mean, atol=1e-4)
        np.testing.assert_allclose(found, 0.5 + logit(mean) / 10, atol=1e-4)
    else:
        # XGBoost splits no cell for a gain below 1e-6, which is n r² of its mean residual r.
        np.testing.assert_allclose(found, mean, atol=np.sqrt(2e-6 / np.bincount(cell).min()))


def test_gamma_stops_splits_that_gain_little():
    X, y = make_rows()
    deep = create("gbdt_regression", n_estimators=3).fit(X, y).predict(X)
    shallow = create("gbdt_regression", n_estimators=3, gamma=1e6).fit(X, y).predict(X)
    assert len(np.unique(deep)) > 2
    assert len(np.unique(shallow)) == 1


def test_what_cannot_be_fitted():
    X, y = make_rows()
    with pytest.raises(DataError, match="range of the label"):
        create("gbdt_regression", loss="logistic").fit(X, 3 * y)
    with pytest.raises(ConfigError, match="square or logistic"):
        create("gbdt_regression", loss="absolute").fit(X, y)
