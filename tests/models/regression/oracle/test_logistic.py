import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fairfrontier.models.regression.oracle import LogisticRegressor, Targets
from fairfrontier.runtime.cluster.executor import open_rows


def test_soft_labels_equal_two_weighted_copies():
    rng = np.random.default_rng(0)
    X, label, weight = rng.normal(size=(150, 4)), rng.random(150), rng.random(150) + 0.1
    penalty = 0.01
    rows = open_rows(X, weight=weight, cell=np.arange(150))
    solver = LogisticRegressor(rows, penalty, tolerance=1e-10)
    # The second call starts from the first one's solution and Hessian.
    for _ in range(2):
        theta = solver.solve(Targets(label, weight.sum()))
        copies = LogisticRegression(C=1 / (penalty * weight.sum()), tol=1e-10, max_iter=1000)
        copies.fit(
            np.vstack([X, X]),
            np.repeat([0, 1], 150),
            sample_weight=np.concatenate([weight * (1 - label), weight * label]),
        )
        np.testing.assert_allclose(theta[:-1], copies.coef_[0], atol=1e-5)
        assert theta[-1] == pytest.approx(copies.intercept_[0], abs=1e-5)
        label = 1 - label


@pytest.mark.parametrize("label", [np.ones(40), (np.arange(40) > 19).astype(float)])
def test_separable_labels_end_at_a_stationary_point(label):
    X = np.linspace(-1, 1, 40)[:, None]
    solver = LogisticRegressor(open_rows(X, y=label, weight=np.ones(40)), 1e-4)
    theta = solver.solve(Targets(None, 40.0))
    chance = 1 / (1 + np.exp(-(X[:, 0] * theta[0] + theta[1])))
    gradient = np.mean((chance - label) * X[:, 0]) + 1e-4 * theta[0]
    assert abs(gradient) < 1e-6
    assert abs(np.mean(chance - label)) < 1e-6
