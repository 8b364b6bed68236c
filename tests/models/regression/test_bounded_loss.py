import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LinearRegression

from fairfrontier.models.regression.loss import square
from fairfrontier.models.regression.oracle import GroupSquareOracle
from fairfrontier.models.regression.predictor import score_all
from fairfrontier.models.regression.problem import build_bounded_loss, solve_bounded_loss
from fairfrontier.runtime.cluster.executor import open_rows
from fairfrontier.runtime.errors import DataError
from tests.models.regression.made import Told, read


def pose(budget, **changes):
    rng = np.random.default_rng(0)
    group = (np.arange(200) % 4 == 0).astype(int)
    X = rng.normal(size=(200, 2))
    # The groups' slopes differ, so no function serves both; the second is the smaller.
    y = np.clip(0.5 + np.where(group == 1, -0.05, 0.1) * X[:, 0] + rng.normal(0, 0.05, 200), 0, 1)
    weight = rng.random(200) + 0.5
    parameters = {"tolerance": 1e-6, "iterations": 200, **changes}
    rows = open_rows(X)
    problem = build_bounded_loss(rows, y, group, weight, loss=square(), budget=budget, **parameters)
    return X, y, problem, GroupSquareOracle(problem.rows, 2)


def minimise_directly(X, y, problem):
    """Return the least loss of a linear function within the budgets: the square loss is convex."""

    def losses(theta):
        rows = read(problem, "share") * (y - X @ theta[:2] - theta[2]) ** 2 / 2
        return np.bincount(read(problem, "group"), weights=rows) / problem.share

    found = minimize(
        lambda theta: problem.share @ losses(theta),
        np.array([0.0, 0.0, 0.5]),
        constraints={"type": "ineq", "fun": lambda theta: problem.budget - losses(theta)},
        tol=1e-12,
    )
    return found.fun


@pytest.mark.parametrize("budget", [[0.5, 0.5], [0.5, 0.006], [0.5, 0.003]])
def test_bounded_losses_are_those_of_direct_minimisation(budget):
    X, y, problem, oracle = pose(budget)
    result = solve_bounded_loss(problem, oracle)
    assert result.predictors
    assert result.converged
    assert result.exact
    best = minimise_directly(X, y, problem)
    assert result.loss <= best + result.gap + 1e-6
    # Mixtures of convex losses are no better than the function of the mean.
    assert result.loss >= best - 1e-6
    assert (result.group_value <= problem.budget + 1e-6).all()
    scores = score_all(result.predictors, X)
    mixed = sum(
        share * problem.judge(Told(score))
        for share, score in zip(result.probability, scores.T, strict=True)
    )
    np.testing.assert_allclose(mixed, result.group_value, atol=1e-12)


def test_what_cannot_be_kept_is_said_with_what_can():
    X, y, problem, oracle = pose(0.0012)
    result = solve_bounded_loss(problem, oracle)
    tight = solve_bounded_loss(*pose(0.0012, radius=1e5)[2:])
    assert result.alone.max() < 0.0015
    assert tight.predictors == ()
    assert tight.loss == np.inf
    # Nothing below is reachable, and what is said to be reachable is.
    wanted = tight.reachable
    excess = minimize(
        lambda theta: max(
            np.bincount(
                read(problem, "group"),
                weights=read(problem, "share") * (y - X @ theta[:2] - theta[2]) ** 2 / 2,
            )
            / problem.share
            - problem.budget
        ),
        np.array([0.02, 0.0, 0.5]),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
    ).fun
    assert wanted - problem.budget == pytest.approx(excess, abs=2e-5)
    assert wanted[0] - problem.budget[0] == pytest.approx(wanted[1] - problem.budget[1])
    again = solve_bounded_loss(*pose(wanted + 1e-5, radius=1e5)[2:])
    assert again.predictors


def test_acceptance_leaves_the_slack_of_the_theorem():
    for radius in (10.0, 1e5):
        _, _, problem, oracle = pose(0.003, radius=radius)
        result = solve_bounded_loss(problem, oracle)
        slack = (1 + 2 * problem.tolerance) / radius
        most = (result.group_value - problem.budget).max()
        assert bool(result.predictors) == (most <= slack)


def test_budgets_are_inflated_and_groups_are_needed():
    problem = pose(0.1, inflation=0.3)[2]
    assert (problem.budget > 0.1).all()
    assert problem.budget[1] > problem.budget[0]
    rows, y = open_rows(np.ones((6, 1))), np.linspace(0, 1, 6)
    with pytest.raises(DataError):
        build_bounded_loss(rows, y, np.zeros(6, dtype=int), np.ones(6), loss=square(), budget=0.1)
    with pytest.raises(DataError):
        build_bounded_loss(rows, y, np.repeat([0, 2], 3), np.ones(6), loss=square(), budget=0.1)


@pytest.mark.parametrize("below", [0.005, 0.05])
def test_bounds_out_of_reach_are_refused_but_for_a_hundredth(below):
    alone = solve_bounded_loss(*pose(1.0)[2:]).alone
    budget = [alone[0] * (1 - below), 1.0]
    result = solve_bounded_loss(*pose(budget)[2:])
    assert alone[0] < 0.01
    assert bool(result.predictors) == (below < 0.01)
    assert result.reachable[0] >= alone[0] - 1e-9


@pytest.mark.parametrize(("times", "feasible"), [(0.9, True), (1.5, False)])
def test_a_bound_may_be_missed_by_the_slack_and_no_more(times, feasible):
    least = solve_bounded_loss(*pose(1.0)[2:]).alone[0]
    missing = 1e-4
    # The slack is 1 / B, and no mixture is nearer than what is missing.
    result = solve_bounded_loss(*pose([least - missing, 1.0], radius=times / missing)[2:])
    assert bool(result.predictors) == feasible
    assert result.calls == 2 * result.iterations + 2
    if not feasible:
        # The group values are then those of the mixture nearest to the bounds.
        np.testing.assert_allclose(result.reachable, [least, 1.0 + missing], atol=1e-6)
        assert (result.group_value <= result.reachable + 1e-9).all()


def test_defaults_are_those_of_the_paper():
    assert pose([0.5, 0.02], radius=None)[2].radius == pytest.approx(100 / 0.02)
    assert pose(0.0, radius=None)[2].radius == pytest.approx(1e5)
    _, y, problem, _ = pose(0.1, tolerance=None)
    constants = (y[:, None] - np.linspace(0, 1, 21)) ** 2 / 2
    share = read(problem, "share")
    mean = share @ constants
    spread = share @ (constants[:, mean.argmin()] - mean.min()) ** 2
    # Weights lie between .5 and 1.5, so that they add up to about as many as there are rows.
    assert problem.tolerance == pytest.approx(0.5 * np.sqrt(spread / 200), rel=0.05)


def test_predictions_count_as_clipped():
    problem = pose(0.1)[2]
    score = np.linspace(-0.5, 1.5, 200)
    wide, clipped = (problem.judge(Told(each)) for each in (score, score.clip(0, 1)))
    np.testing.assert_allclose(wide, clipped, atol=1e-15)


@pytest.mark.parametrize("iterations", [1, 200])
def test_multipliers_prove_the_bound(iterations):
    X, y, problem, oracle = pose([0.5, 0.003], iterations=iterations)
    result = solve_bounded_loss(problem, oracle)
    # The least of loss + Σ λ (group loss − ζ), by weighted least squares on all rows.
    row = read(problem, "share") * (1 + result.multiplier / problem.share)[read(problem, "group")]
    best = LinearRegression().fit(X, y, sample_weight=row).predict(X)
    least = row @ (y - best) ** 2 / 2 - result.multiplier @ problem.budget
    excess = max(0.0, (result.group_value - problem.budget).max())
    upper = result.loss + problem.radius * excess
    assert least == pytest.approx(upper - result.gap, abs=1e-9)
    assert result.multiplier.sum() > 0
