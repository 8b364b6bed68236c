import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from fairfrontier.models.regression.envelope import (
    EnvelopeOracle,
    EnvelopeTreeOracle,
    find_surrogates,
)
from fairfrontier.models.regression.estimator import take_block
from fairfrontier.models.regression.grid import round_down
from fairfrontier.models.regression.loss import logistic, square
from fairfrontier.models.regression.oracle import (
    LogisticOracle,
    LogisticRegressor,
    Targets,
    TreeOracle,
)
from fairfrontier.models.regression.problem import build_parity, find_costs, solve_parity
from fairfrontier.runtime.cluster.executor import open_rows
from tests.models.regression.made import draw_rows, read

LOGISTIC = logistic()


def pose(loss, n=300, seed=0, size=0.02):
    X, y, group = draw_rows(n, seed)
    y = (y > 0.55).astype(float) if loss.sharpness else y
    rng = np.random.default_rng(seed)
    weight = rng.random(n) + 0.5
    settings = {"loss": loss, "budget": 0.05, "n_grid": 20, "iterations": 10}
    problem = build_parity(open_rows(X, y=y), y, group, weight, **settings)
    return X, weight, problem, find_costs(problem, rng.normal(0, size, (2, 20)))


def sum_costs(problem, costs, predictor):
    total, block = costs.total.reshape(-1, costs.total.shape[-1]), take_block(problem.rows)
    level = round_down(predictor.score(block.X), total.shape[1] - 1)
    return block["weight"] @ total[block["cell"], level]


def grow(problem, **settings):
    return TreeOracle(problem.rows, read(problem, "weight").sum(), **settings)


def grow_by_slopes(problem, scale, **settings):
    weight, cell = read(problem, "weight"), read(problem, "cell")
    return EnvelopeTreeOracle(grow(problem, **settings), weight, cell, scale)


@pytest.mark.parametrize("loss", [LOGISTIC, square()])
def test_gradients_are_those_of_the_objective(loss):
    X, weight, problem, costs = pose(loss)
    oracle = EnvelopeOracle(X, weight, read(problem, "cell"), 0.01)
    theta = np.array([0.1, -0.2, 0.05, 0.02, 0.4])
    for surrogate in find_surrogates(costs):
        _, gradient = oracle.evaluate(surrogate, theta)
        numeric = approx_fprime(theta, lambda t, s=surrogate: oracle.evaluate(s, t)[0])
        np.testing.assert_allclose(gradient, numeric, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_descents_never_end_above_their_start(seed):
    X, weight, problem, costs = pose(LOGISTIC, seed=seed, size=0.1)
    oracle = EnvelopeOracle(X, weight, read(problem, "cell"), 1e-4)
    start = np.random.default_rng(seed).normal(0, 0.2, 5)
    for surrogate in find_surrogates(costs):
        end = oracle.descend(surrogate, start)
        before, after = (oracle.evaluate(surrogate, each)[0] for each in (start, end))
        assert after < before


def test_the_envelope_is_minimised_from_any_start():
    X, weight, problem, costs = pose(LOGISTIC)
    oracle = EnvelopeOracle(X, weight, read(problem, "cell"), 1e-4)
    hull, _ = find_surrogates(costs)

    def objective(theta):
        return oracle.evaluate(hull, theta)

    slow = minimize(
        objective, np.zeros(5), jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000}
    )
    for start in (oracle.solution, np.array([0.3, -0.3, 0.2, 0.5, 1.0])):
        reached = objective(oracle.descend(hull, start))[0]
        assert reached == pytest.approx(slow.fun, abs=1e-6)


def test_without_multipliers_it_is_the_regression_of_the_loss():
    X, weight, problem, _ = pose(LOGISTIC, n=2000)
    costs = find_costs(problem, np.zeros((2, 20)))
    # So large that no score is beyond [0, 1], where predictions are clipped.
    penalty = 0.1
    # LR's penalty is on log-odds 2C (f − ½), in units of −log p.
    same = penalty * LOGISTIC.scale * (2 * LOGISTIC.sharpness) ** 2
    oracle = EnvelopeOracle(X, weight, read(problem, "cell"), same)
    ours = oracle.respond(costs).score(X)
    regressor = LogisticRegressor(problem.rows, penalty)
    fitted = LogisticOracle(regressor, weight.sum(), LOGISTIC.sharpness)
    plain = fitted.fit(Targets(None, weight.sum())).score(X)
    assert plain.min() > 0
    assert plain.max() < 1
    envelope = X @ oracle.solution[:-1] + oracle.solution[-1]
    assert np.abs(envelope - plain).max() < 0.5 / 20
    # Where predictions are clipped, costs are level, which smoothing spreads by a grid step.
    assert np.abs(ours - plain).max() < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_costs_are_below_those_of_targets_alone(seed):
    X, weight, problem, costs = pose(LOGISTIC, n=1000, seed=seed, size=0.05)
    ours = EnvelopeOracle(X, weight, read(problem, "cell"), 1e-5).respond(costs)
    regressor = LogisticRegressor(problem.rows, 1e-5)
    theirs = LogisticOracle(regressor, weight.sum(), LOGISTIC.sharpness).respond(costs)
    assert sum_costs(problem, costs, ours) < sum_costs(problem, costs, theirs)


def test_a_column_of_nothing_does_no_harm():
    X, weight, problem, costs = pose(square())
    X = np.column_stack([X, np.zeros(len(X)), X[:, 0]])
    predictor = EnvelopeOracle(X, weight, read(problem, "cell"), 1e-4).respond(costs)
    assert np.isfinite(predictor.score(X)).all()


@pytest.mark.parametrize("loss", [LOGISTIC, square()])
def test_trees_follow_the_costs(loss):
    _, _, problem, _ = pose(loss, n=1000)
    # One group is pushed up at every threshold, the other down.
    costs = find_costs(problem, np.outer([-1.0, 1.0], np.full(20, 0.02)))
    small = {"sharpness": loss.sharpness, "n_estimators": 40, "max_depth": 2}
    oracle = grow_by_slopes(problem, loss.scale, **small)
    theirs = grow(problem, **small).respond(costs)
    assert sum_costs(problem, costs, oracle.respond(costs)) < sum_costs(problem, costs, theirs)
    assert not solve_parity(problem, oracle).probability.sum() < 1 - 1e-9


def test_trees_without_multipliers_are_trees_on_labels():
    X, weight, problem, _ = pose(square(), n=500)
    costs = find_costs(problem, np.zeros((2, 20)))
    settings = {"n_estimators": 30, "max_depth": 3}
    ours = grow_by_slopes(problem, 1.0, **settings).respond(costs)
    theirs = grow(problem, **settings).fit(Targets(None, weight.sum()))
    assert np.abs(ours.score(X) - theirs.score(X)).mean() < 0.02


def test_trees_improve_on_the_envelope_by_the_costs_themselves(monkeypatch):
    _, _, problem, _ = pose(LOGISTIC, n=1000)
    costs = find_costs(problem, np.random.default_rng(2).normal(0, 0.1, (2, 20)))
    small = {"sharpness": 5.0, "n_estimators": 60, "max_depth": 3}
    oracle = grow_by_slopes(problem, LOGISTIC.scale, **small)
    both = sum_costs(problem, costs, oracle.respond(costs))
    hull, _ = find_surrogates(costs)
    monkeypatch.setattr(
        "fairfrontier.models.regression.envelope.find_surrogates", lambda _: (hull, hull)
    )
    alone = sum_costs(problem, costs, oracle.respond(costs))
    assert both < alone


def test_steps_of_trees_are_weighed_by_the_curvature_of_the_loss():
    X, weight, problem, _ = pose(LOGISTIC, n=600)
    costs = find_costs(problem, np.zeros((2, 20)))
    settings = {"sharpness": 5.0, "n_estimators": 3, "max_depth": 2}
    ours = grow_by_slopes(problem, LOGISTIC.scale, **settings).respond(costs).score(X)
    theirs = grow(problem, **settings).fit(Targets(None, weight.sum())).score(X)
    # A few trees from a margin of 0 stay where the envelope is the loss but for its smoothing.
    moved = np.abs(theirs - 0.5).mean()
    assert np.abs(ours - theirs).mean() < 0.05 * moved
