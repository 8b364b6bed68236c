import numpy as np
import pytest

from fairfrontier.runtime.errors import ConfigError
from papers.rival.fair_boosting.spline import Spline


def make(n=300):
    generator = np.random.default_rng(0)
    X = np.column_stack([generator.uniform(-3, 3, n), generator.integers(2, size=n), np.ones(n)])
    return X, np.sin(X[:, 0]) + X[:, 1]


def test_it_bends():
    X, y = make()
    model = Spline(n_knots=8, reg_lambda=1e-3).fit(X, y)
    assert model.predict(X) == pytest.approx(y, abs=0.02)
    # Beyond the outer knots it goes on as at the knot.
    far, edge = np.array([[90.0, 1, 1]]), np.array([[X[:, 0].max(), 1, 1]])
    assert model.predict(far) == pytest.approx(model.predict(edge))


def test_a_heavy_penalty_leaves_the_mean():
    X, y = make()
    assert Spline(reg_lambda=1e9).fit(X, y).predict(X) == pytest.approx(
        np.full(300, y.mean()), 1e-4
    )


def test_weights_count_rows_where_nothing_is_penalised():
    X, y = make(40)
    y = y + np.random.default_rng(1).normal(size=40)
    counts = np.random.default_rng(2).integers(1, 4, 40)
    parameters = {"reg_lambda": 1e-9, "n_knots": 3, "degree": 1}
    repeated = Spline(**parameters).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    weighted = Spline(**parameters).fit(X, y, counts)
    assert weighted.predict(X) == pytest.approx(repeated.predict(X), abs=1e-6)
    # The scale of the weights is nothing.
    small = Spline(**parameters).fit(X, y, counts * 1e-6)
    assert small.predict(X) == pytest.approx(weighted.predict(X), abs=1e-9)


def test_parameters_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="'n_knots' of Spline"):
        Spline(n_knots=1).fit(np.zeros((3, 2)), np.arange(3.0))
