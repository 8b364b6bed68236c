import numpy as np
import pytest

from fairfrontier.models.regression.estimator import (
    FairRegression,
    choose_oracle,
    choose_risk_oracle,
)
from fairfrontier.models.regression.loss import find_loss
from fairfrontier.models.regression.problem import build_bounded_loss, build_parity, find_costs
from fairfrontier.runtime.cluster.executor import open_rows
from tests.models.regression.made import draw_rows


@pytest.mark.parametrize(
    ("loss", "oracle", "learner", "expected", "sharpness"),
    [
        ("square", None, "linear", "LeastSquaresOracle", None),
        ("logistic", None, "linear", "LogisticOracle", 2.0),
        ("square", "lr", "linear", "LogisticOracle", 5.0),
        ("square", "cs", "linear", "HingeOracle", None),
        ("logistic", "ls", "xgboost", "TreeOracle", 0.0),
        ("logistic", "lr", "xgboost", "TreeOracle", 2.0),
        ("square", None, "random_forest", "LearnerOracle", 0.0),
        ("square", "envelope", "linear", "EnvelopeOracle", None),
        ("poisson", None, "linear", "LeastSquaresOracle", None),
        ("absolute", None, "linear", "EnvelopeOracle", None),
        ("quantile", None, "xgboost", "EnvelopeTreeOracle", None),
        ("quantile", None, "ridge", "LearnerOracle", 0.0),
        ("logistic", "envelope", "xgboost", "EnvelopeTreeOracle", None),
    ],
)
def test_names_lead_to_oracles(loss, oracle, learner, expected, sharpness):
    X, y, group = draw_rows(40)
    y, weight = (y > 0.5).astype(float), np.ones(40)
    shape = 2.0 if loss == "logistic" else None
    model = FairRegression(loss=loss, shape=shape, oracle=oracle, learner=learner, n_grid=5)
    kind = find_loss(loss, shape)
    problem = build_parity(open_rows(X), y, group, weight, loss=kind, budget=0.1, n_grid=5)
    chosen = choose_oracle(model, problem)
    assert type(chosen).__name__ == expected
    assert not chosen.exact
    if sharpness is not None:
        assert chosen.sharpness == sharpness


@pytest.mark.parametrize(("loss", "exact"), [("square", True), ("absolute", False)])
def test_least_squares_is_exact_for_the_square_loss_alone(loss, exact):
    X, y, group = draw_rows(40)
    model = FairRegression(loss=loss, constraint="bounded_group_loss")
    rows, weight = open_rows(X), np.ones(40)
    problem = build_bounded_loss(rows, y, group, weight, loss=find_loss(loss), budget=0.1)
    oracle = choose_risk_oracle(model, problem, weight, group)
    assert oracle.exact is exact


def test_penalties_mean_the_same_to_the_envelope_as_to_logistic_regression():
    X, y, group = draw_rows(1500)
    y, weight, loss = (y > 0.55).astype(float), np.ones(1500), find_loss("logistic")
    problem = build_parity(open_rows(X), y, group, weight, loss=loss, budget=0.1, n_grid=20)
    costs = find_costs(problem, np.zeros((2, 20)))
    # So large that no score is clipped, and that it decides how far scores lie apart.
    models = {
        kind: FairRegression(loss="logistic", oracle=kind, penalty=0.1)
        for kind in ("envelope", "lr")
    }
    oracles = {kind: choose_oracle(each, problem) for kind, each in models.items()}
    plain = oracles["lr"].respond(costs).score(X)
    oracles["envelope"].respond(costs)
    envelope = X @ oracles["envelope"].solution[:-1] + oracles["envelope"].solution[-1]
    assert np.abs(envelope - plain).max() < 0.5 / 20
    assert plain.std() > 0.05
