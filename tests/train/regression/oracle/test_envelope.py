import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from fairfrontier.train.regression.grid import round_down
from fairfrontier.train.regression.loss import logistic, square
from fairfrontier.train.regression.oracle.envelope import (
    EnvelopeOracle,
    EnvelopeTreeOracle,
    find_surrogates,
)
from fairfrontier.train.regression.oracle.logistic import LogisticRegressor
from fairfrontier.train.regression.oracle.oracle import LogisticOracle, TreeOracle
from fairfrontier.train.regression.parity import build_parity, find_costs, solve_parity
from tests.train.regression.made import draw_rows

LOGISTIC = logistic()


def pose(loss, n=300, seed=0, size=0.02):
    X, y, group = draw_rows(n, seed)
    y = (y > 0.55).astype(float) if loss.sharpness else y
    rng = np.random.default_rng(seed)
    weight = rng.random(n) + 0.5
    problem = build_parity(y, group, weight, loss=loss, budget=0.05, n_grid=20, iterations=10)
    return X, weight, problem, find_costs(problem, rng.normal(0, size, (2, 20)))


def sum_costs(costs, weight, score):
    total = costs.total.reshape(-1, costs.total.shape[-1])
    return weight @ total[costs.cell, round_down(score, total.shape[1] - 1)]


@pytest.mark.parametrize("loss", [LOGISTIC, square()])
def test_gradients_are_those_of_the_objective(loss):
    X, weight, _, costs = pose(loss)
    oracle = EnvelopeOracle(X, weight, 0.01)
    theta = np.array([0.1, -0.2, 0.05, 0.02, 0.4])
    for surrogate in find_surrogates(costs):
        _, gradient = oracle.evaluate(surrogate, costs.cell, theta)
        numeric = approx_fprime(theta, lambda t, s=surrogate: oracle.evaluate(s, costs.cell, t)[0])
        np.testing.assert_allclose(gradient, numeric, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_descents_never_end_above_their_start(seed):
    X, weight, _, costs = pose(LOGISTIC, seed=seed, size=0.1)
    oracle = EnvelopeOracle(X, weight, 1e-4)
    start = np.random.default_rng(seed).normal(0, 0.2, 5)
    for surrogate in find_surrogates(costs):
        end = oracle.descend(surrogate, costs.cell, start)
        before, after = (oracle.evaluate(surrogate, costs.cell, each)[0] for each in (start, end))
        assert after < before


def test_the_envelope_is_minimised_from_any_start():
    X, weight, _, costs = pose(LOGISTIC)
    oracle = EnvelopeOracle(X, weight, 1e-4)
    hull, _ = find_surrogates(costs)

    def objective(theta):
        return oracle.evaluate(hull, costs.cell, theta)

    slow = minimize(
        objective, np.zeros(5), jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000}
    )
    for start in (oracle.solution, np.array([0.3, -0.3, 0.2, 0.5, 1.0])):
        reached = objective(oracle.descend(hull, costs.cell, start))[0]
        assert reached == pytest.approx(slow.fun, abs=1e-6)


def test_without_multipliers_it_is_the_regression_of_the_loss():
    X, weight, problem, _ = pose(LOGISTIC, n=2000)
    costs = find_costs(problem, np.zeros((2, 20)))
    # So large that no score is beyond [0, 1], where predictions are clipped.
    penalty = 0.1
    # LR's penalty is on log-odds 2C (f − ½), in units of −log p.
    same = penalty * LOGISTIC.scale * (2 * LOGISTIC.sharpness) ** 2
    oracle = EnvelopeOracle(X, weight, same)
    ours = oracle.respond(costs)
    y = problem.labels.value[problem.labels.code]
    plain = LogisticOracle(LogisticRegressor(X, penalty), weight, LOGISTIC.sharpness).fit(y, weight)
    assert plain.score.min() > 0
    assert plain.score.max() < 1
    envelope = X @ oracle.solution[:-1] + oracle.solution[-1]
    assert np.abs(envelope - plain.score).max() < 0.5 / 20
    # Where predictions are clipped, costs are level, which smoothing spreads by a grid step.
    assert np.abs(ours.score - plain.score).max() < 0.05
    np.testing.assert_array_equal(ours.predictor.score(X), ours.score)


@pytest.mark.parametrize("seed", range(3))
def test_costs_are_below_those_of_targets_alone(seed):
    X, weight, _, costs = pose(LOGISTIC, n=1000, seed=seed, size=0.05)
    ours = EnvelopeOracle(X, weight, 1e-5).respond(costs)
    theirs = LogisticOracle(LogisticRegressor(X, 1e-5), weight, LOGISTIC.sharpness).respond(costs)
    assert sum_costs(costs, weight, ours.score) < sum_costs(costs, weight, theirs.score)


def test_a_column_of_nothing_does_no_harm():
    X, weight, _, costs = pose(square())
    X = np.column_stack([X, np.zeros(len(X)), X[:, 0]])
    response = EnvelopeOracle(X, weight, 1e-4).respond(costs)
    assert np.isfinite(response.score).all()


@pytest.mark.parametrize("loss", [LOGISTIC, square()])
def test_trees_follow_the_costs(loss):
    X, weight, problem, _ = pose(loss, n=1000)
    # One group is pushed up at every threshold, the other down.
    costs = find_costs(problem, np.outer([-1.0, 1.0], np.full(20, 0.02)))
    small = {"sharpness": loss.sharpness, "n_estimators": 40, "max_depth": 2}
    oracle = EnvelopeTreeOracle(TreeOracle(X, weight, **small), loss.scale)
    response = oracle.respond(costs)
    np.testing.assert_allclose(response.predictor.score(X), response.score, atol=1e-6)
    theirs = TreeOracle(X, weight, **small).respond(costs)
    assert sum_costs(costs, weight, response.score) < sum_costs(costs, weight, theirs.score)
    assert not solve_parity(problem, oracle).probability.sum() < 1 - 1e-9


def test_trees_without_multipliers_are_trees_on_labels():
    X, weight, problem, _ = pose(square(), n=500)
    costs = find_costs(problem, np.zeros((2, 20)))
    settings = {"n_estimators": 30, "max_depth": 3}
    ours = EnvelopeTreeOracle(TreeOracle(X, weight, **settings), 1.0).respond(costs)
    y = problem.labels.value[problem.labels.code]
    theirs = TreeOracle(X, weight, **settings).fit(y, weight)
    assert np.abs(ours.score - theirs.score).mean() < 0.02


def test_trees_improve_on_the_envelope_by_the_costs_themselves(monkeypatch):
    X, weight, problem, _ = pose(LOGISTIC, n=1000)
    costs = find_costs(problem, np.random.default_rng(2).normal(0, 0.1, (2, 20)))
    small = {"sharpness": 5.0, "n_estimators": 60, "max_depth": 3}
    oracle = EnvelopeTreeOracle(TreeOracle(X, weight, **small), LOGISTIC.scale)
    both = sum_costs(costs, weight, oracle.respond(costs).score)
    hull, _ = find_surrogates(costs)
    monkeypatch.setattr(
        "fairfrontier.train.regression.oracle.envelope.find_surrogates", lambda _: (hull, hull)
    )
    alone = sum_costs(costs, weight, oracle.respond(costs).score)
    assert both < alone


def test_steps_of_trees_are_weighed_by_the_curvature_of_the_loss():
    X, weight, problem, _ = pose(LOGISTIC, n=600)
    costs = find_costs(problem, np.zeros((2, 20)))
    settings = {"sharpness": 5.0, "n_estimators": 3, "max_depth": 2}
    ours = EnvelopeTreeOracle(TreeOracle(X, weight, **settings), LOGISTIC.scale).respond(costs)
    y = problem.labels.value[problem.labels.code]
    theirs = TreeOracle(X, weight, **settings).fit(y, weight)
    # A few trees from a margin of 0 stay where the envelope is the loss but for its smoothing.
    moved = np.abs(theirs.score - 0.5).mean()
    assert np.abs(ours.score - theirs.score).mean() < 0.05 * moved
