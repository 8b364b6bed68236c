import numpy as np
import pytest
from scipy.optimize import linprog

from tasks.train.regression.saddle import Column, SaddleProblem, mix, solve_saddle


def draw(seed, n_columns=30, n_constraints=5):
    rng = np.random.default_rng(seed)
    return rng.random(n_columns), rng.normal(0, 0.3, (n_columns, n_constraints))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("radius", [0.5, 50.0])
def test_the_programme_and_its_dual_agree(seed, radius):
    loss, constraint = draw(seed)
    bound = np.full(5, -0.05)
    found = mix(loss, constraint, bound, radius)
    assert found.weight.sum() == pytest.approx(1)
    assert found.weight.min() >= 0
    assert found.multiplier.sum() <= radius + 1e-9
    lower = np.min(loss + (constraint - bound) @ found.multiplier)
    assert found.value == pytest.approx(lower, abs=1e-7)
    excess = max(0.0, (found.weight @ constraint - bound).max())
    assert found.value == pytest.approx(found.loss + radius * excess)


def play(seed, **changes):
    loss, constraint = draw(seed)
    bound = np.full(5, 0.02)

    def respond(multiplier):
        best = int(np.argmin(loss + constraint @ multiplier))
        return Column(float(loss[best]), constraint[best], best)

    parameters = {"radius": 20.0, "rate": 0.01, "tolerance": 1e-6, "iterations": 400, **changes}
    problem = SaddleProblem(bound, respond=respond, **parameters)
    exact = linprog(loss, A_ub=constraint.T, b_ub=bound, A_eq=np.ones((1, 30)), b_eq=[1.0])
    return problem, solve_saddle(problem), exact.fun


@pytest.mark.parametrize("seed", range(4))
def test_the_game_finds_the_best_of_all_mixtures(seed):
    problem, result, best = play(seed)
    assert result.converged
    assert result.loss == pytest.approx(best, abs=1e-6)
    assert (result.constraint <= problem.bound + 1e-7).all()
    assert result.lower <= best + 1e-9
    assert result.calls == 2 * result.iterations
    assert len(result.columns) == result.weight.size <= 6


@pytest.mark.parametrize("schedule", ["adaptive", "theory"])
def test_bounds_hold_wherever_the_game_stops(schedule):
    problem, result, best = play(0, iterations=3, schedule=schedule)
    assert not result.converged
    assert result.lower <= best + 1e-9 <= result.upper + 2e-9
    assert result.gap == pytest.approx(result.upper - result.lower)
    assert result.iterations == 3
    assert result.multiplier.sum() <= problem.radius


def test_the_theory_converges_at_its_own_rate():
    problem, result, best = play(
        1, schedule="theory", radius=1.0, tolerance=0.05, rate=0.05 / 2, iterations=5000
    )
    assert result.converged
    excess = max(0.0, (result.constraint - problem.bound).max())
    assert result.loss + excess <= best + 2 * 0.05
    assert result.iterations <= 4 * np.log(6) / 0.05**2


def test_bounds_of_a_careless_oracle_are_taken_back():
    # It answers with any predictor, so a later one can beat what was the best response.
    loss, constraint = draw(2)
    order = iter(np.random.default_rng(0).permutation(np.repeat(np.arange(30), 20)))

    def respond(multiplier):
        place = int(next(order))
        return Column(float(loss[place]), constraint[place], place)

    problem = SaddleProblem(
        np.full(5, 0.02), 20.0, respond, rate=0.01, tolerance=1e-9, iterations=60, exact=False
    )
    result = solve_saddle(problem)
    among = [each.predictor for each in result.seen]
    best = mix(loss[among], constraint[among], problem.bound, problem.radius).value
    assert result.upper == pytest.approx(best, abs=1e-9)
    assert result.lower <= best + 1e-9
    values = loss[among] + (constraint[among] - problem.bound) @ result.multiplier
    assert result.lower == pytest.approx(values.min(), abs=1e-12)
