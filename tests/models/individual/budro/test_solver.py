import math
from dataclasses import replace

import numpy as np
import pytest

from fairfrontier.models.individual.budro.solver import solve
from fairfrontier.models.individual.budro.transport import SOLVERS as REGISTERED
from fairfrontier.models.individual.budro.transport import Problem, Setting
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError
from papers.rival.budro_descent import draw_batches
from papers.rival.transport_plan import build_problem, plan_columns
from tests.models.individual.budro.problems import (
    draw_problem,
    find_optimum,
    solve_in_portions,
    solve_programme,
)
from tests.namespaces import devices, namespaces

SOLVERS = tuple(REGISTERED.all())
KINDS = {
    "plain": {},
    "two rows": {"n": 2},
    "ties": {"levels": 1},
    "copies": {"copies": 5},
    "ties and copies": {"levels": 2, "copies": 5},
    "three classes": {"n_labels": 3},
    "three classes with ties": {"n_labels": 3, "levels": 1, "copies": 3},
    "one class": {"classes": 1},
    "weights": {"weighted": True},
    "weights and copies": {"weighted": True, "copies": 5, "n_labels": 3},
}
BUDGETS = (0.0, 1e-3, 0.1, 0.5, 100.0)
FINE = {"tolerance": 1e-9, "entropy_weight": 1e-7, "dtype": "float64"}


def draw(seed, classes=None, weighted=False, n=11, **shape):
    """Return rows, labels, losses and masses."""
    z, label, loss = draw_problem(seed, n=n, **shape)
    if classes == 1:
        label = np.full(len(z), seed % 2)
    mass = np.random.default_rng(seed).integers(1, 5, size=len(z)) if weighted else np.ones(len(z))
    return z, label, loss, mass / mass.sum()


def check_map(found, z, label, loss, mass, problem):
    """The plan moves all mass, and has the objective, cost and weights that were reported."""
    n = len(z)
    plan = plan_columns(problem, found, np.arange(n))
    cost = np.sum((z[:, None, :] - z[None, :, :]) ** 2, axis=2)
    assert plan.min() >= 0
    assert plan.sum(axis=0) == pytest.approx(mass, abs=1e-9)
    assert np.sum(plan * loss[:, label]) == pytest.approx(found.objective, abs=1e-6)
    assert np.sum(plan * cost) == pytest.approx(found.cost, abs=1e-6)
    for k in range(loss.shape[1]):
        assert plan[:, label == k].sum(axis=1) == pytest.approx(found.weight[:, k], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_all_solvers_agree_with_the_linear_programme(kind):
    for seed in range(10):  # 100 problems in all
        budget = BUDGETS[seed % len(BUDGETS)]
        z, label, loss, mass = draw(seed, **KINDS[kind])
        best, price = solve_programme(z, label, loss, budget, mass=mass)
        problem = build_problem(z, label, loss, budget, mass=mass)
        exact, smooth = (solve(problem, each, Setting(**FINE)) for each in ("exact", "sinkhorn"))
        for found in (exact, smooth):
            assert found.converged
            assert found.objective == pytest.approx(best, abs=1e-6)
            assert found.cost <= budget + 1e-8
            assert -1e-8 <= found.gap <= 2e-6
            check_map(found, z, label, loss, mass, problem)
        for solver in ("sgd", "sinkhorn_sgd"):
            # From the programme's η the steps lead nowhere, and strong duality holds there.
            still = Setting(
                dual_start=price,
                steps=1,
                batch_size=4,
                dual_learning_rate=1e-12,
                **{**FINE, "entropy_weight": 1e-6},
            )
            found = solve(problem, solver, still)
            assert found.dual_value == pytest.approx(best, abs=1e-6)
            slack = found.eta * (budget - found.cost)
            assert found.objective + slack == pytest.approx(best, abs=1e-5)
            check_map(found, z, label, loss, mass, problem)


@pytest.mark.parametrize("solver", ["sgd", "sinkhorn_sgd"])
def test_stochastic_steps_come_to_the_linear_programme(solver):
    for seed in range(3):
        z, label, loss = draw_problem(seed, n=60, n_labels=2 + seed % 2)
        best = find_optimum(z, label, loss, 0.3)
        setting = Setting(
            entropy_weight=1e-3,
            dual_start=1.0,
            batch_size=60,
            steps=250,
            momentum=0.0,
            dual_learning_rate=0.1,
        )
        found = solve(build_problem(z, label, loss, 0.3), solver, setting)
        assert best - 1e-8 <= found.dual_value <= best * 1.01


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_start_from_any_solver_changes_no_answer(solver):
    z, label, loss = draw_problem(2, n=40)
    problem = build_problem(z, label, loss, 0.2)
    setting = Setting(steps=5, batch_size=10, **FINE)
    cold = solve(problem, solver, setting)
    for other in SOLVERS:
        warm = solve(problem, solver, setting, start=solve(problem, other, setting))
        assert warm.objective == pytest.approx(cold.objective, abs=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("namespace", devices())
def test_a_device_gives_results_of_the_same_kind(namespace, solver):
    z, label, loss = draw_problem(4, n=20, copies=5, n_labels=3)
    xp = namespace()
    setting = Setting(steps=4, batch_size=6, entropy_weight=0.01)
    problem = build_problem(xp.asarray(z), xp.asarray(label), xp.asarray(loss), 0.1)
    found = solve(problem, solver, setting)
    plain = solve(build_problem(z, label, loss, 0.1), solver, setting)
    for key in ("eta", "objective", "dual_value", "cost", "gap"):
        assert getattr(found, key) == pytest.approx(getattr(plain, key), rel=1e-5, abs=1e-6)
    rows = np.array([3, 0, 19])
    there = plan_columns(problem, found, xp.asarray(rows))
    here = plan_columns(build_problem(z, label, loss, 0.1), plain, rows)
    assert to_numpy(there) == pytest.approx(here, abs=1e-5)


@pytest.mark.parametrize("namespace", namespaces())
@pytest.mark.parametrize("budget", [0.0, 0.05, 50.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_portions_of_the_columns_solved_in_step_are_the_whole(solver, budget, namespace):
    xp = namespace()
    z, label, loss, mass = draw(3, n=60, weighted=True, copies=12, n_labels=3)
    label[label == 1] = 0
    problem = build_problem(*map(xp.asarray, (z, label, loss)), budget, mass=xp.asarray(mass))
    setting = Setting(
        column_share=0.2, steps=10, batch_size=7, dual_learning_rate=0.01, entropy_weight=0.01
    )

    def solve_rounds(geometry):
        first = solve(replace(problem, geometry=geometry), solver, setting)
        again = xp.asarray(loss[::-1, :].copy())
        return first, solve(Problem(geometry, again, budget), solver, setting, start=first)

    whole = solve_rounds(problem.geometry)
    for portion in solve_in_portions(problem.geometry, 3, solve_rounds):
        for found, wanted in zip(portion, whole, strict=True):
            for name in ("eta", "objective", "dual_value", "cost"):
                assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-9)
            assert found.iterations == wanted.iterations
            assert to_numpy(found.weight) == pytest.approx(to_numpy(wanted.weight), abs=1e-12)


@pytest.mark.parametrize("solver", ["exact", "sinkhorn"])
def test_the_tolerance_is_a_share_of_what_moving_gains(solver):
    z, label, loss = draw_problem(0, n=60)
    # As early in boosting, where all losses are nearly equal.
    problem = build_problem(z, label, 0.69 + 1e-4 * loss, 0.05)
    setting = Setting(tolerance=0.01, entropy_weight=1e-9, dtype="float64")
    found = solve(problem, solver, setting)
    stays = problem.loss[np.arange(60), label].mean()
    assert found.converged
    assert found.dual_value - stays > 0.3 * 1e-4
    assert found.gap <= 0.011 * (found.dual_value - stays)


def test_batches_follow_the_masses():
    z, label, loss = draw_problem(0, n=3)
    problem = build_problem(z, label, loss, 0.1, mass=np.array([0.7, 0.2, 0.1]))
    drawn = draw_batches(problem.geometry, 200, 100, np.random.default_rng(0))
    shares = np.bincount(drawn.reshape(-1), minlength=3) / drawn.size
    assert shares == pytest.approx([0.7, 0.2, 0.1], abs=5 * math.sqrt(0.25 / drawn.size))


def test_the_same_seed_draws_the_same_batches():
    z, label, loss = draw_problem(0, n=50)
    problem, setting = build_problem(z, label, loss, 0.1), Setting(steps=5, batch_size=5)
    first = solve(problem, "sgd", setting, generator=np.random.default_rng(3))
    again = solve(problem, "sgd", setting, generator=np.random.default_rng(3))
    other = solve(problem, "sgd", setting, generator=np.random.default_rng(4))
    assert first.eta == again.eta != other.eta


def test_unknown_solvers_are_refused_with_the_nearest():
    problem = build_problem(*draw_problem(0, n=5), 0.1)
    with pytest.raises(ConfigError):
        solve(problem, "sinkhron")


@pytest.mark.parametrize("budget", [-0.1, float("nan"), float("inf")])
def test_budgets_below_zero_or_without_an_end_are_refused(budget):
    with pytest.raises(ConfigError):
        build_problem(*draw_problem(0, n=5), budget)
