import numpy as np
import pytest
from scipy.optimize import linprog

from fairfrontier.models.regression.envelope import HingeOracle, tabulate_hinges
from fairfrontier.models.regression.loss import square
from fairfrontier.models.regression.problem import build_parity, find_costs
from fairfrontier.runtime.cluster.executor import open_rows
from tests.models.regression.made import draw_rows, read


def sum_hinges(value, cost):
    """Return Σ_j |c_j| max{0, α/2 − Y_j (f − j/N)} for every value f."""
    n_grid = cost.shape[-1]
    z = np.arange(1, n_grid + 1) / n_grid
    sign = np.where(cost <= 0, 1.0, -1.0)
    hinge = np.maximum(0.0, 0.5 / n_grid - sign * (value[..., None] - z))
    return (np.abs(cost) * hinge).sum(axis=-1)


@pytest.mark.parametrize("n_grid", [1, 2, 7])
def test_pieces_are_the_sum_of_hinges(n_grid):
    rng = np.random.default_rng(0)
    cost = rng.normal(size=(5, n_grid))
    slope, height = tabulate_hinges(cost)
    for f in np.concatenate([np.linspace(-0.7, 1.9, 81), (np.arange(n_grid + 1) + 0.5) / n_grid]):
        direct = sum_hinges(np.full(5, f), cost)
        pieces = slope * f + height
        np.testing.assert_allclose(pieces.max(axis=1), direct, atol=1e-12)
    assert (np.diff(slope, axis=1) >= 0).all()


def solve_whole(X, weight, cost):
    """Return the optimum of the programme with one row for each row and threshold."""
    n, n_grid = cost.shape
    size = X.shape[1] + 1
    design = np.column_stack([X, np.ones(n)])
    sign = np.where(cost <= 0, 1.0, -1.0)
    z = np.arange(1, n_grid + 1) / n_grid
    left = np.hstack([-(sign[:, :, None] * design[:, None, :]).reshape(-1, size),
                      -np.eye(n * n_grid)])  # fmt: skip
    right = -(0.5 / n_grid + sign * z).reshape(-1)
    found = linprog(
        np.concatenate([np.zeros(size), (weight[:, None] * np.abs(cost)).reshape(-1)]),
        A_ub=left,
        b_ub=right,
        bounds=[(-1, 1)] * size + [(0, None)] * (n * n_grid),
    )
    return found.fun


def test_cuts_reach_the_optimum_of_the_whole_programme():
    X, y, group = draw_rows(60)
    X[30:40] = X[:10]
    y[30:40], group[30:40] = y[:10], group[:10]
    weight = np.random.default_rng(1).random(60) + 0.5
    problem = build_parity(open_rows(X), y, group, weight, loss=square(), budget=0.1, n_grid=8)
    cell = read(problem, "cell")
    oracle = HingeOracle(X, weight, cell, 8)
    assert oracle.design.shape == (50, 5)
    # The second call starts near the solution of the first.
    for seed in range(3):
        multiplier = np.random.default_rng(seed).normal(0, 0.05 * seed, (2, 8))
        costs = find_costs(problem, multiplier)
        cost = np.diff(costs.total, axis=-1).reshape(-1, 8)[cell]
        ours = weight @ sum_hinges(oracle.respond(costs).score(X), cost)
        assert ours == pytest.approx(solve_whole(X, weight, cost), rel=2e-6)
        assert np.abs(oracle.solution).max() <= 1 + 1e-9


@pytest.mark.parametrize("scale", [0.002, 1.0])
def test_far_starts_and_coefficients_at_their_bounds(scale):
    X, y, group = draw_rows(60)
    X = scale * X
    weight = np.random.default_rng(1).random(60) + 0.5
    problem = build_parity(open_rows(X), y, group, weight, loss=square(), budget=0.1, n_grid=20)
    cell = read(problem, "cell")
    oracle = HingeOracle(X, weight, cell, 20)
    oracle.solution = np.array([1.0, -1.0, -1.0, 1.0, -1.0])
    costs = find_costs(problem, np.random.default_rng(3).normal(0, 0.1, (2, 20)))
    cost = np.diff(costs.total, axis=-1).reshape(-1, 20)[cell]
    reached = weight @ sum_hinges(oracle.respond(costs).score(X), cost)
    assert reached == pytest.approx(solve_whole(X, weight, cost), rel=2e-6)
    # Features so small ask for more than |β| ≤ 1 gives.
    assert (np.abs(oracle.solution).max() > 1 - 1e-6) == (scale < 1)
