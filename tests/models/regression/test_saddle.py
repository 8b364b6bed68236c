import numpy as np
import pytest
from scipy.optimize import linprog

from fairfrontier.models.regression.saddle import Column, SaddleProblem, mix, solve_saddle


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

    parameters = {"radius": 20.0, "tolerance": 1e-6, "iterations": 400, **changes}
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


def test_bounds_hold_wherever_the_game_stops():
    problem, result, best = play(0, iterations=3)
    assert not result.converged
    assert result.lower <= best + 1e-9 <= result.upper + 2e-9
    assert result.gap == pytest.approx(result.upper - result.lower)
    assert result.iterations == 3
    assert result.multiplier.sum() <= problem.radius


def test_bounds_of_a_careless_oracle_are_taken_back():
    # It answers with any predictor, so a later one can beat what was the best response.
    loss, constraint = draw(2)
    order = iter(np.random.default_rng(0).permutation(np.repeat(np.arange(30), 20)))

    def respond(multiplier):
        k = int(next(order))
        return Column(float(loss[k]), constraint[k], k)

    problem = SaddleProblem(
        np.full(5, 0.02), 20.0, respond, tolerance=1e-9, iterations=60, exact=False
    )
    result = solve_saddle(problem)
    among = [each.predictor for each in result.seen]
    best = mix(loss[among], constraint[among], problem.bound, problem.radius).value
    assert result.upper == pytest.approx(best, abs=1e-9)
    assert result.lower <= best + 1e-9
    values = loss[among] + (constraint[among] - problem.bound) @ result.multiplier
    assert result.lower == pytest.approx(values.min(), abs=1e-12)


@pytest.mark.parametrize(("exact", "paired"), [(True, False), (False, False), (False, True)])
def test_multipliers_are_those_of_the_formulas(exact, paired):
    loss, constraint = draw(3, n_constraints=3)
    constraint = np.hstack([constraint, -constraint])
    bound, radius, rate = np.linspace(0.01, 0.06, 6), 20.0, 0.0
    asked, answered = [], []

    def respond(multiplier):
        asked.append(multiplier)
        answered.append(int(np.argmin(loss + constraint @ multiplier)))
        return Column(float(loss[answered[-1]]), constraint[answered[-1]], None)

    solve_saddle(SaddleProblem(bound, radius, respond, 1e-12, 6, exact, paired=paired))
    # Together the multipliers start at .1.
    share = 0.1 / radius
    theta = np.full(6, np.log(share / (1 - share) / 6))
    played = []
    for step in range(len(asked) // 2):
        multiplier = radius * np.exp(theta) / (1 + np.exp(theta).sum())
        if paired:
            upper, lower = multiplier[:3], multiplier[3:]
            multiplier = np.append(np.maximum(upper - lower, 0), np.maximum(lower - upper, 0))
        np.testing.assert_allclose(asked[2 * step], multiplier, atol=1e-10)
        played.append(multiplier)
        gain = constraint[answered[2 * step]] - bound
        known = list(dict.fromkeys(answered[: 2 * step + 1]))
        aim = mix(loss[known], constraint[known], bound, radius).multiplier
        if not exact:
            aim = (aim + multiplier) / 2
        if paired:
            aim = np.append(np.maximum(aim[:3] - aim[3:], 0), np.maximum(aim[3:] - aim[:3], 0))
        np.testing.assert_allclose(asked[2 * step + 1], aim, atol=1e-10)
        if step == 0:
            rate = np.sqrt(np.log(6 / share)) / np.abs(gain).max()
        theta = theta + gain * rate / np.sqrt(step + 1)
    assert len(played) >= 2
    assert max(each.sum() for each in asked) <= radius * (1 + 1e-9)


def test_an_oracle_that_cannot_keep_the_bounds_does_not_converge():
    column = Column(0.3, np.array([0.2, -0.1]), None)
    problem = SaddleProblem(
        np.array([0.05, 0.05]), 10.0, lambda _: column, 1e-3, iterations=40, exact=False
    )
    result = solve_saddle(problem)
    # No answer of the oracle's is better, and none is within the bounds.
    assert result.gap < problem.tolerance
    assert result.upper == pytest.approx(0.3 + 10 * 0.15)
    assert not result.converged
    assert result.iterations == 40


@pytest.mark.parametrize("iterations", [1, 400])
def test_the_upper_bound_counts_what_the_mixture_exceeds(iterations):
    loss, constraint = draw(5)
    bound = np.full(5, -0.4)

    def respond(multiplier):
        best = int(np.argmin(loss + constraint @ multiplier))
        return Column(float(loss[best]), constraint[best], None)

    result = solve_saddle(SaddleProblem(bound, 3.0, respond, 1e-6, iterations))
    excess = (result.constraint - bound).max()
    assert excess > 0.1
    assert result.upper == pytest.approx(result.loss + 3.0 * excess)
    assert result.lower <= mix(loss, constraint, bound, 3.0).value + 1e-9 <= result.upper + 2e-9
