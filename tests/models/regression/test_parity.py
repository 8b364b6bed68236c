import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from fairfrontier.models.regression.grid import measure_disparity
from fairfrontier.models.regression.loss import absolute, logistic, square
from fairfrontier.models.regression.oracle import LeastSquaresOracle
from fairfrontier.models.regression.predictor import score_all
from fairfrontier.models.regression.problem import build_parity, find_costs, solve_parity
from fairfrontier.runtime.cluster.executor import open_rows
from fairfrontier.runtime.errors import DataError
from tests.models.regression.made import Enumeration, Told, draw_rows, read, solve_over_all


def rows_of(seed, n_groups=2):
    rng = np.random.default_rng(seed)
    kind = np.concatenate([np.arange(4), rng.integers(0, 4, 20)])
    group = (rng.random(24) < 0.2 + 0.2 * kind).astype(int) + (np.arange(24) % n_groups > 1)
    return np.clip(0.25 * kind + rng.normal(0, 0.2, 24), 0, 1), group, rng.random(24) + 0.5


def small(seed, budget, n_groups=2, loss=None, **changes):
    rng = np.random.default_rng(seed)
    kind = np.concatenate([np.arange(4), rng.integers(0, 4, 20)])
    group = (rng.random(24) < 0.2 + 0.2 * kind).astype(int) + (np.arange(24) % n_groups > 1)
    y = np.clip(0.25 * kind + rng.normal(0, 0.2, 24), 0, 1)
    weight = rng.random(24) + 0.5
    parameters = {"n_grid": 3, "tolerance": 1e-4, "iterations": 300, **changes}
    rows, loss = open_rows(kind[:, None].astype(float)), loss or square()
    problem = build_parity(rows, y, group, weight, loss=loss, budget=budget, **parameters)
    return problem, Enumeration(problem)


@pytest.mark.parametrize("budget", [0.0, 0.05, 0.2, [0.02, 0.3]])
@pytest.mark.parametrize("loss", [square(), absolute(), logistic()], ids=lambda loss: loss.name)
def test_gap_bounds_the_distance_to_the_best_mixture(budget, loss):
    problem, oracle = small(0, budget, loss=loss)
    result = solve_parity(problem, oracle)
    best = solve_over_all(problem, oracle)
    assert result.converged
    assert result.exact
    assert result.loss <= best + result.gap + 1e-9
    assert result.gap <= problem.tolerance
    # Where multipliers are large enough the budgets are kept, so nothing can be better.
    assert (result.group_value <= problem.budget + 1e-7).all()
    assert result.loss >= best - 1e-9
    assert result.probability.sum() == pytest.approx(1)
    assert np.abs(result.multiplier).sum() <= problem.radius * (1 + 1e-9)


def test_gap_is_reported_before_convergence_too():
    problem, oracle = small(2, 0.02, iterations=1, radius=2.0, tolerance=1e-6)
    result = solve_parity(problem, oracle)
    best = solve_over_all(problem, oracle)
    excess = max(0.0, (result.group_value - problem.budget).max())
    assert not result.converged
    assert result.gap > 1e-3
    assert result.loss + problem.radius * excess <= best + result.gap + 1e-9


def test_three_groups_with_budgets_of_their_own():
    problem, oracle = small(3, [0.3, 0.01, 0.05], n_groups=3)
    result = solve_parity(problem, oracle)
    assert result.multiplier.shape == (3, 3)
    assert (result.group_value <= problem.budget + 1e-7).all()
    assert result.loss == pytest.approx(solve_over_all(problem, oracle), abs=problem.tolerance)


def test_budgets_are_inflated_by_group_size():
    problem, _ = small(0, 0.1, inflation=0.5)
    plain, _ = small(0, 0.1)
    assert (problem.budget > plain.budget).all()
    _, group, weight = rows_of(0)
    grown = problem.budget - plain.budget
    np.testing.assert_allclose(grown, 0.5 / np.sqrt(np.bincount(group, weight)))


def solve_rows(budget, n=300, seed=0, **changes):
    X, y, group = draw_rows(n, seed)
    weight = np.ones(n)
    rows = open_rows(X)
    problem = build_parity(rows, y, group, weight, loss=square(), budget=budget, **changes)
    oracle = LeastSquaresOracle(problem.rows, problem.n_cells)
    return X, y, group, problem, oracle, solve_parity(problem, oracle)


def test_a_budget_of_one_is_no_constraint():
    X, y, _, problem, oracle, result = solve_rows(1.0)
    free = oracle.respond(find_costs(problem, np.zeros((2, 40))))
    np.testing.assert_array_equal(result.probability, [1.0])
    assert not result.multiplier.any()
    ours = score_all(result.predictors, X)[:, 0]
    np.testing.assert_allclose(ours, free.score(X).clip(0, 1), atol=1e-12)
    # U is the label to half a step.
    plain = LinearRegression().fit(X, y).predict(X).clip(0, 1)
    assert np.abs(ours - plain).max() < 0.0125


@pytest.mark.parametrize("budget", [0.1, 0.05, 0.02])
def test_what_is_reported_is_what_the_mixture_does(budget):
    X, y, group, _, _, result = solve_rows(budget)
    scores = score_all(result.predictors, X)
    rounded = np.floor(scores * 40 + 1e-9) / 40
    mass = np.broadcast_to(result.probability / len(y), scores.shape)
    disparity = measure_disparity(rounded, group, mass, 2)
    assert disparity.max() == pytest.approx(result.group_value.max(), abs=1e-12)
    assert result.group_value.max() <= budget + 1e-7
    at = np.minimum(rounded + 0.0125, 1.0)
    loss = ((y[:, None] - at) ** 2 / 2 * mass).sum()
    # Labels were replaced by the means of their cells.
    assert result.loss == pytest.approx(loss, abs=1e-4)
    assert not result.exact
    assert result.gap >= 0


def test_disparity_falls_and_loss_rises_with_the_budget():
    results = [solve_rows(budget)[-1] for budget in (1.0, 0.1, 0.05, 0.02, 0.0)]
    assert (np.diff([each.group_value.max() for each in results]) < 0).all()
    assert (np.diff([each.loss for each in results]) > 0).all()
    assert results[-1].group_value.max() < 1e-7


def test_groups_may_be_named_in_any_order():
    X, y, group = draw_rows(300)
    weight = np.ones(300)
    losses = []
    for codes in (group, 1 - group):
        problem = build_parity(open_rows(X), y, codes, weight, loss=square(), budget=0.05)
        oracle = LeastSquaresOracle(problem.rows, problem.n_cells)
        losses.append(solve_parity(problem, oracle).loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_progress_ends_at_the_cap():
    seen = []
    problem, oracle = small(0, 0.05)
    solve_parity(problem, oracle, progress=lambda done, of: seen.append((done, of)))
    assert seen == sorted(seen)
    assert seen[-1] == (300, 300)


def test_one_group_or_an_empty_one_is_refused():
    rows, y, weight = open_rows(np.ones((6, 1))), np.linspace(0, 1, 6), np.ones(6)
    with pytest.raises(DataError):
        build_parity(rows, y, np.zeros(6, dtype=int), weight, loss=square(), budget=0.1)
    with pytest.raises(DataError):
        build_parity(rows, y, np.repeat([0, 2], 3), weight, loss=square(), budget=0.1)


def test_judging_counts_rows():
    problem, _ = small(0, 0.1)
    score = np.random.default_rng(0).random(24)
    loss, parity = problem.judge(Told(score))
    level = np.floor(score * 3).astype(int)
    group, share, cell = (read(problem, name) for name in ("group", "share", "cell"))
    rows = problem.table[cell % len(problem.table), level]
    assert loss == pytest.approx(share @ rows)
    reached = level[:, None] >= np.arange(1, 4)
    for a in (0, 1):
        mine = group == a
        rate = np.average(reached[mine], axis=0, weights=share[mine])
        overall = np.average(reached, axis=0, weights=share)
        np.testing.assert_allclose(parity[a], rate - overall, atol=1e-12)


def test_defaults_are_those_of_the_paper():
    rows = open_rows(np.ones((24, 1)))
    small_budget = build_parity(rows, *rows_of(0), loss=square(), budget=[0.02, 0.5])
    assert small_budget.radius == pytest.approx(1 / 0.02)
    none = build_parity(rows, *rows_of(0), loss=square(), budget=0.0)
    assert none.radius == pytest.approx(100)
    y, _, weight = rows_of(0)
    table = small_budget.table[read(small_budget, "cell") % len(small_budget.table)]
    best = table[:, np.average(table, axis=0, weights=weight).argmin()]
    spread = np.average((best - np.average(best, weights=weight)) ** 2, weights=weight)
    assert small_budget.tolerance == pytest.approx(0.5 * np.sqrt(spread / weight.sum()))
    assert read(small_budget, "share").sum() == pytest.approx(1)
    assert len(y) == 24


@pytest.mark.parametrize("budget", [0.05, [0.02, 0.3]])
def test_multipliers_prove_the_bound(budget):
    problem, oracle = small(0, budget)
    result = solve_parity(problem, oracle)
    judged = [problem.judge(each) for each in oracle.list_all()]
    price = (np.abs(result.multiplier) * problem.budget[:, None]).sum()
    least = min(loss + (result.multiplier * parity).sum() for loss, parity in judged) - price
    assert least == pytest.approx(result.loss - result.gap, abs=1e-7)
    assert np.abs(result.multiplier).sum() > 0


def test_weights_are_numbers_of_rows():
    y, group, weight = rows_of(0)
    with pytest.raises(DataError, match="add up to 1 rows"):
        build_parity(
            open_rows(np.ones((24, 1))), y, group, weight / weight.sum(), loss=square(), budget=0.1
        )
