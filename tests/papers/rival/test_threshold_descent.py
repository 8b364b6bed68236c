from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.models.registry import create
from fairfrontier.models.thresholds.ramp import solve_exact
from fairfrontier.models.thresholds.threshold import build_problem
from fairfrontier.runtime.errors import ConfigError
from papers.rival.threshold_descent import evaluate_dual, solve_authors, solve_sgd
from tests.models.thresholds.made import make_part, make_rows
from tests.namespaces import namespaces

SETTING = {"width": 0.2, "rate": 0.35, "budget": 0.1}


def draw(n: int, n_groups: int, seed: int = 0):
    generator = np.random.default_rng(seed)
    code = generator.integers(0, n_groups, n)
    score = np.clip(generator.normal(-0.4 + 0.8 * code / n_groups, 0.5), -1, 1)
    return score, code, generator.integers(1, 4, n).astype(float)


def differentiate(score, code, upper, lower, weight=None, **setting):
    """Return the gradient of F by central differences, shapes (K,) and (K,)."""
    step, gradient = 1e-6, np.zeros((2, len(upper)))
    for which in range(2):
        for k in range(len(upper)):
            ends = []
            for sign in (1, -1):
                moved = [upper.copy(), lower.copy()]
                moved[which][k] += sign * step
                ends.append(evaluate_dual(score, code, *moved, weight=weight, **setting))
            gradient[which, k] = (ends[0] - ends[1]) / (2 * step)
    return gradient


def exact_minimum(score, code, n_groups, weight=None, **setting):
    exact = solve_exact(build_problem(score, code, n_groups, weight), *setting.values())
    return exact, -exact.dual_value


def test_dual_is_the_mean_of_its_definition():
    score, code, weight = draw(50, 3)
    upper, lower = np.array([0.3, 0.0, 0.1]), np.array([0.0, 0.2, 0.05])
    total = 0.0
    for f, s, w in zip(score, code, weight, strict=True):
        t = upper[s] - lower[s]
        grid = np.linspace(0, max(f - t, 0), 20_001)
        xi = np.trapezoid(np.clip(grid / 0.2, 0, 1), grid)
        total += w * (0.05 * (upper[s] + lower[s]) + 0.35 * t + xi)
    value = evaluate_dual(score, code, upper, lower, weight=weight, **SETTING)
    assert value == pytest.approx(total / weight.sum(), abs=1e-7)


@pytest.mark.parametrize("batch_size", [1, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_follow_the_gradient_of_the_rows_drawn(batch_size, weighted):
    score, code, weight = draw(40, 3)
    steps, alpha = 300, 0.03
    uniform = np.random.default_rng(5).random((steps, batch_size))
    edges = np.cumsum(weight if weighted else np.ones(40))
    rows = np.searchsorted(edges, uniform * edges[-1], side="right")
    point, sums = np.zeros((2, 3)), np.zeros((2, 3))
    for drawn in rows:
        point = np.maximum(
            point - alpha * differentiate(score[drawn], code[drawn], *point, **SETTING), 0
        )
        sums += point
    found = solve_sgd(
        score, code, 3, **SETTING, weight=weight if weighted else None, steps=steps,
        learning_rate=alpha, batch_size=batch_size, random_state=5,
    )  # fmt: skip
    assert found.steps == steps
    np.testing.assert_allclose(found.upper, sums[0] / steps, atol=1e-6)
    np.testing.assert_allclose(found.lower, sums[1] / steps, atol=1e-6)
    np.testing.assert_array_equal(found.rule.threshold, found.upper - found.lower)


@pytest.mark.parametrize("n_groups", [2, 5])
@pytest.mark.parametrize(
    "setting",
    [{"width": 0.1, "rate": 0.3, "budget": 0.0}, {"width": 0.5, "rate": 0.2, "budget": 0.1}],
)
def test_sgd_comes_within_the_bound_of_the_exact_minimum(n_groups, setting):
    score, code, weight = draw(3000, n_groups)
    exact, minimum = exact_minimum(score, code, n_groups, weight, **setting)
    excess = []
    for seed in range(5):
        found = solve_sgd(score, code, n_groups, **setting, weight=weight, random_state=seed)
        again = evaluate_dual(score, code, found.upper, found.lower, weight=weight, **setting)
        assert found.objective == again
        excess.append(found.objective - minimum)
        assert np.abs(found.rule.threshold - exact.rule.threshold).max() < 0.05
    alpha = 0.1 * np.sqrt(n_groups / 100_000)
    assert found.steps == 100_000
    bound = (1 + setting["rate"] + setting["budget"]) ** 2 * alpha / 2
    bound += np.sum(exact.rule.threshold**2) / (2 * found.steps * alpha)
    assert min(excess) > -1e-12
    assert np.mean(excess) <= bound
    # What more steps are for.
    assert np.mean(excess) < 5e-4


@pytest.mark.parametrize("budget", [0.0, 0.1])
@pytest.mark.parametrize("n_groups", [2, 5])
def test_the_authors_schedule_ends_at_the_exact_minimum(budget, n_groups):
    setting = {"width": 0.1, "rate": 0.3, "budget": budget}
    score, code, weight = draw(3000, n_groups)
    exact, minimum = exact_minimum(score, code, n_groups, weight, **setting)
    found = solve_authors(score, code, n_groups, **setting, weight=weight, steps=1000)
    assert found.objective == pytest.approx(minimum, abs=1e-9)
    np.testing.assert_allclose(found.rule.threshold, exact.rule.threshold, atol=1e-4)
    assert found.steps == 2000
    if budget == 0:
        assert np.all(found.lower == 0)
        assert found.upper.min() < 0 < found.upper.max()
    else:
        assert min(found.lower.min(), found.upper.min()) >= 0


@pytest.mark.parametrize("budget", [0.0, 0.1])
def test_the_authors_phases_step_by_step(budget):
    score, code, weight = draw(60, 2, seed=3)
    setting = {**SETTING, "budget": budget}
    size, steps, refine = 8, 40, 25
    uniform = np.random.default_rng(2).random((2, steps, size))
    ends = np.zeros((2, 2))
    for k in range(2):
        order = np.argsort(score[code == k])
        f, w = score[code == k][order], weight[code == k][order]
        rows = np.searchsorted(np.cumsum(w), uniform[k] * w.sum(), side="right")

        def step(point, scores, weights, alpha):
            one = np.zeros(scores.size, dtype=np.int64)
            gradient = differentiate(scores, one, *point[:, None], weights, **setting)[:, 0]
            if budget == 0:
                return np.array([point[0] - alpha * gradient[0], 0.0])
            return np.maximum(point - alpha * gradient, 0)

        point, sums = np.zeros(2), np.zeros(2)
        for drawn in rows:
            point = step(point, f[drawn], np.ones(size), setting["width"] * np.sqrt(size / steps))
            sums += point
        point = sums / steps
        for _ in range(refine):
            point = step(point, f, w, setting["width"] / 2)
        ends[:, k] = point
    found = solve_authors(
        score, code, 2, **setting, weight=weight, batch_size=size, steps=steps, refine=refine,
        random_state=2,
    )  # fmt: skip
    np.testing.assert_allclose(found.upper, ends[0], atol=1e-6)
    np.testing.assert_allclose(found.lower, ends[1], atol=1e-6)


def test_the_authors_small_budget_is_spent_in_full():
    score, code, _ = draw(2000, 2)
    setting = {"width": 0.3, "rate": 0.3, "budget": 0.002}
    h = solve_authors(score, code, 2, **setting, steps=500).rule.probability(score, code)
    for k in range(2):
        assert h[code == k].mean() == pytest.approx(0.301, abs=1e-6)


@pytest.mark.parametrize("solve", [solve_sgd, solve_authors])
def test_example_one(solve):
    # p(x) = 1/2, 1/3, 1/6 at f = -1, 0, 1; s is a coin at -1, 1 at 0 and 0 at 1.
    score = np.array([-1.0, -1.0, 0.0, 1.0])
    code = np.array([0, 1, 1, 0])
    weight = np.array([1 / 4, 1 / 4, 1 / 3, 1 / 6])
    found = solve(score, code, 2, width=0.1, rate=0.4, budget=0.0, weight=weight)
    h = found.rule.probability(score, code)
    np.testing.assert_allclose(h, [0, 0, 0.7, 1], atol=0.02)


def test_repeated_rows_are_weights_to_the_full_gradient():
    score, code, weight = draw(100, 3)
    repeated = np.repeat(np.arange(100), weight.astype(int))
    one = solve_authors(score, code, 3, **SETTING, weight=weight, steps=0, refine=200)
    two = solve_authors(score[repeated], code[repeated], 3, **SETTING, steps=0, refine=200)
    np.testing.assert_allclose(one.upper, two.upper, atol=1e-12)
    np.testing.assert_allclose(one.lower, two.lower, atol=1e-12)


def test_rows_of_weight_zero_are_never_drawn():
    score, code, weight = draw(200, 2)
    weight[::3] = 0
    kept = weight > 0
    for solve, options in ((solve_sgd, {"steps": 5000}), (solve_authors, {"steps": 50})):
        one = solve(score, code, 2, **SETTING, **options, weight=weight)
        two = solve(score[kept], code[kept], 2, **SETTING, **options, weight=weight[kept])
        np.testing.assert_allclose(one.rule.threshold, two.rule.threshold, atol=1e-12)


def test_seeds():
    score, code, _ = draw(500, 2)
    for solve, options in (
        (solve_sgd, {"steps": 3000}),
        (solve_authors, {"steps": 50, "refine": 0}),
    ):
        one, two, three = (
            solve(score, code, 2, **SETTING, **options, random_state=seed) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one.upper, two.upper)
        assert not np.array_equal(one.rule.threshold, three.rule.threshold)


def test_trace_is_the_average_so_far_and_changes_nothing():
    score, code, _ = draw(400, 3)
    plain = solve_sgd(score, code, 3, **SETTING, steps=70_000)
    traced = solve_sgd(score, code, 3, **SETTING, steps=70_000, trace=7)
    np.testing.assert_allclose(plain.upper, traced.upper, atol=1e-12)
    assert plain.trace.shape == (0, 3)
    assert traced.trace_steps.tolist() == list(range(10_000, 70_001, 10_000))
    np.testing.assert_array_equal(traced.trace[-1], traced.rule.threshold)
    alpha = 0.1 * np.sqrt(3 / 70_000)
    short = solve_sgd(score, code, 3, **SETTING, steps=20_000, learning_rate=alpha)
    np.testing.assert_allclose(traced.trace[1], short.rule.threshold, atol=1e-12)
    many = solve_sgd(score, code, 3, **SETTING, steps=5, trace=50)
    assert many.trace_steps.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("namespace", namespaces())
def test_every_namespace_gives_the_same(namespace):
    xp = namespace()
    rows = make_rows(4, n=60, n_groups=3, width=0.2)
    arrays = [xp.asarray(each) for each in (rows.score, rows.code)]
    weight = xp.asarray(rows.weight)
    for solve, options in ((solve_sgd, {"steps": 2000}), (solve_authors, {"steps": 20})):
        ours = solve(*arrays, 3, **SETTING, **options, weight=weight)
        plain = solve(rows.score, rows.code, 3, **SETTING, **options, weight=rows.weight)
        np.testing.assert_allclose(ours.upper, plain.upper, atol=1e-12)
        assert ours.objective == pytest.approx(plain.objective, abs=1e-12)


@pytest.mark.parametrize("solve", [solve_sgd, solve_authors])
def test_what_cannot_be_solved_is_refused(solve):
    score, code, _ = draw(20, 2)
    with pytest.raises(ValueError, match="width above 0"):
        solve(score, code, 2, width=0.0, rate=0.3, budget=0.0)
    with pytest.raises(ValueError, match="no row to draw"):
        solve(score, code, 2, **SETTING, weight=np.zeros(20))
    with pytest.raises(ValueError, match="no row to draw"):
        solve(score[:0], code[:0], 2, **SETTING)


def test_a_group_without_rows_stays_at_zero_in_sgd_and_is_refused_by_the_authors_schedule():
    score, code, _ = draw(50, 2)
    assert solve_sgd(score, code, 3, **SETTING, steps=100).rule.threshold[2] == 0
    with pytest.raises(ValueError, match=r"groups \[2\]"):
        solve_authors(score, code, 3, **SETTING)


def test_input_stays_as_it_is():
    arrays = draw(50, 2)
    for array in arrays:
        array.flags.writeable = False
    score, code, weight = arrays
    solve_sgd(score, code, 2, **SETTING, weight=weight, steps=100, batch_size=3)
    solve_authors(score, code, 2, **SETTING, weight=weight, steps=10)


def fit(name="threshold_descent", **parameters):
    part = make_part(0)
    return create(name, attributes=0, **parameters).fit(
        part.X, part.y, sensitive_features=part.groups
    )


@pytest.mark.parametrize("descent", ["sgd", "authors"])
def test_descents_come_near_the_exact_rule(descent):
    exact = fit("randomized_threshold", width=0.3, rate=0.3)
    model = fit(width=0.3, rate=0.3, descent=descent)
    assert model.rule_.threshold == pytest.approx(exact.rule_.threshold, abs=0.03)
    assert model.result_["dual_objective"] >= -exact.result_["objective"] - 1e-9
    assert model.result_["dual_objective"] == pytest.approx(-exact.result_["objective"], abs=1e-3)
    few = fit(width=0.3, rate=0.3, descent=descent, steps=50, batch_size=4)
    assert few.result_["steps"] < model.result_["steps"]
    chosen = fit(descent=descent, width_grid=[0.2, 0.5], steps=100)
    assert chosen.width_ == fit("randomized_threshold", width_grid=[0.2, 0.5]).width_


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"width_grid": [0.1, 0.0]}, "width_grid"),
        ({"width": 0.0}, "width"),
        ({"descent": "adam"}, "descent"),
        ({"steps": 0}, "steps"),
        ({"learning_rate": 0.1, "descent": "authors"}, "learning_rate"),
    ],
)
def test_parameters_that_cannot_be(parameters, named):
    with pytest.raises(ConfigError, match=f"parameter '{named}'"):
        fit(**parameters)
