import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp

from fairfrontier.models.individual.budro.geometry import build_geometry
from fairfrontier.models.individual.budro.transport import solve_exact
from fairfrontier.runtime.arrays import to_numpy
from papers.rival.budro_entropic import solve_sinkhorn, solve_sinkhorn_sgd
from tests.models.individual.budro.problems import draw_problem
from tests.namespaces import devices, namespaces


def dense_plan(z, label, loss, eta, gamma):
    """Algorithm 5 on dense matrices: Π at η."""
    cost = np.sum((z[:, None, :] - z[None, :, :]) ** 2, axis=2)
    value = (loss[:, label] - eta * cost) / gamma
    return np.exp(value - logsumexp(value, axis=0)) / len(z), cost


def dense_root(z, label, loss, budget, gamma):
    """Return the root of Algorithm 4 by a bracketing root finder."""

    def excess(eta):
        plan, cost = dense_plan(z, label, loss, eta, gamma)
        return budget - np.sum(cost * plan)

    return 0.0 if excess(0.0) >= 0 else brentq(excess, 0.0, 1e6, xtol=1e-13, rtol=1e-14)


@pytest.mark.parametrize("gamma", [0.02, 0.3, 5.0])
@pytest.mark.parametrize("budget", [0.05, 0.4, 50.0])
def test_sinkhorn_is_the_papers_algorithm(gamma, budget):
    for seed in range(4):
        z, label, loss = draw_problem(seed, n=30, n_labels=2 + seed % 2, copies=5 * (seed > 1))
        eta = dense_root(z, label, loss, budget, gamma)
        plan, cost = dense_plan(z, label, loss, eta, gamma)
        geometry = build_geometry(z, label, n_labels=loss.shape[1])
        found = solve_sinkhorn(geometry, loss, budget, entropy_weight=gamma, tolerance=1e-13)
        assert found.converged
        assert found.eta == pytest.approx(eta, rel=1e-4)
        assert found.objective == pytest.approx(np.sum(plan * loss[:, label]), rel=1e-6)
        assert found.cost == pytest.approx(np.sum(plan * cost), rel=1e-6)
        weight = np.stack([plan[:, label == k].sum(axis=1) for k in range(loss.shape[1])], axis=1)
        assert found.weight == pytest.approx(weight, abs=1e-6)


def test_few_passes_find_the_root_and_fewer_from_the_last_round():
    z, label, loss = draw_problem(0, n=200, k=3)
    geometry = build_geometry(z, label)
    found = solve_sinkhorn(geometry, loss, 0.2, entropy_weight=0.05)
    assert found.iterations <= 20  # what the paper says of bisection and secants
    again = solve_sinkhorn(geometry, loss, 0.2, entropy_weight=0.05, start=found)
    assert again.iterations < found.iterations
    assert again.objective == pytest.approx(found.objective, rel=2e-3)


@pytest.mark.parametrize("budget", [0.0, 0.1, 50.0])
def test_seeking_eta_on_some_columns_changes_no_answer(budget):
    z, label, loss = draw_problem(1, n=150, k=3)
    geometry = build_geometry(z, label)
    tell = {"entropy_weight": 0.05, "tolerance": 1e-9}
    plain = solve_sinkhorn(geometry, loss, budget, **tell)
    found = solve_sinkhorn(geometry, loss, budget, column_share=0.1, **tell)
    assert found.converged
    assert found.cost == pytest.approx(plain.cost)
    assert found.weight == pytest.approx(plain.weight, abs=1e-5)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-3, 0.1, 1.0, 50.0]))
def test_the_map_comes_to_the_exact_one_as_entropy_goes(seed, budget):
    z, label, loss = draw_problem(seed, n=16, levels=2, copies=4)
    geometry = build_geometry(z, label)
    exact = solve_exact(geometry, loss, budget, tolerance=1e-10, dtype="float64")
    for gamma in (0.1, 1e-3, 1e-6):
        found = solve_sinkhorn(geometry, loss, budget, entropy_weight=gamma, tolerance=1e-9)
        assert found.cost <= budget + 1e-9
        assert found.dual_value >= exact.objective - 1e-8
        missed = exact.objective - found.objective
        assert -1e-8 <= missed <= found.gap + 1e-8
        # Entropy of a column is at most log n, and the tolerance is a share of E.
        assert found.gap <= gamma * math.log(16) + 1e-8


def test_ties_are_shared_whatever_the_order_of_rows():
    z, label, loss = draw_problem(3, n=40, levels=1, copies=12)
    order = np.random.default_rng(0).permutation(40)
    there = solve_sinkhorn(build_geometry(z, label), loss, 0.3, entropy_weight=5e-5)
    geometry = build_geometry(z[order], label[order])
    back = solve_sinkhorn(geometry, loss[order], 0.3, entropy_weight=5e-5)
    assert back.weight == pytest.approx(there.weight[order], abs=1e-9)


def test_masses_are_copies():
    z, label, loss = draw_problem(11, n=12)
    counts = np.arange(12) % 3 + 1
    twice = np.repeat(np.arange(12), counts)
    tell = {"entropy_weight": 0.2, "tolerance": 1e-12}
    geometry = build_geometry(z, label, mass=counts / counts.sum())
    single = solve_sinkhorn(geometry, loss, 0.15, **tell)
    copied = solve_sinkhorn(build_geometry(z[twice], label[twice]), loss[twice], 0.15, **tell)
    merged = np.zeros_like(single.weight)
    np.add.at(merged, twice, copied.weight)
    assert copied.eta == pytest.approx(single.eta, rel=1e-5)
    assert merged == pytest.approx(single.weight, abs=1e-6)


def test_without_a_budget_mass_stays_among_coincident_rows():
    z = np.array([[0.0], [1.0], [1.0], [5.0]])
    loss = np.array([[0.0, 0], [0.3, 0], [0.1, 0], [9.0, 0]])
    geometry = build_geometry(z, np.zeros(4, dtype=np.int64))
    found = solve_sinkhorn(geometry, loss, 0.0, entropy_weight=0.1)
    share = np.exp([3, 1]) / np.exp([3, 1]).sum()
    assert found.eta == math.inf
    assert found.cost == 0
    assert found.weight[:, 0] == pytest.approx([0.25, *(0.5 * share), 0.25])


@pytest.mark.parametrize("shift", [0.0, 1e4])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_large_losses_and_far_points_do_not_overflow(shift, scale):
    z, label, loss = draw_problem(2, n=60)
    tell = {"entropy_weight": 1e-3 * scale, "tolerance": 1e-9}
    plain = solve_sinkhorn(build_geometry(z, label), scale * loss, 0.3, **tell)
    moved = solve_sinkhorn(build_geometry(z + shift, label), scale * loss + shift, 0.3, **tell)
    assert np.isfinite(moved.weight).all()
    assert moved.objective - shift == pytest.approx(plain.objective, rel=1e-4)


def dense_descent(z, label, loss, budget, gamma, sample, eta, momentum, rate):
    """Algorithm 6 of the paper on dense matrices, with the batch's 1/B."""
    velocity = 0.0
    for batch in sample:
        plan, cost = dense_plan(z, label, loss, eta, gamma)
        paid = np.mean(np.sum(plan * cost, axis=0)[batch]) * len(z)
        velocity = momentum * velocity + budget - paid
        eta = max(0.0, eta - rate * velocity)
    return eta


@pytest.mark.parametrize("namespace", namespaces())
def test_stochastic_steps_are_the_papers_algorithm(namespace):
    xp = namespace()
    z, label, loss = draw_problem(8, n=50, k=3)
    sample = np.random.default_rng(1).integers(50, size=(30, 10))
    eta = dense_descent(z, label, loss, 0.05, 0.1, sample, 0.1, 0.9, 1e-2)
    plan, cost = dense_plan(z, label, loss, eta, 0.1)
    found = solve_sinkhorn_sgd(
        build_geometry(xp.asarray(z), xp.asarray(label)),
        xp.asarray(loss),
        0.05,
        sample=sample,
        entropy_weight=0.1,
        learning_rate=1e-2,
    )
    assert found.eta == pytest.approx(eta)
    assert found.objective == pytest.approx(np.sum(plan * loss[:, label]))
    assert found.cost == pytest.approx(np.sum(plan * cost))


def test_stochastic_steps_are_not_taken_where_nothing_binds():
    z, label, loss = draw_problem(8, n=50)
    sample = np.random.default_rng(1).integers(50, size=(3, 10))
    geometry = build_geometry(z, label)
    found = solve_sinkhorn_sgd(geometry, loss, 1e3, sample=sample, entropy_weight=0.1)
    plan, cost = dense_plan(z, label, loss, 0.0, 0.1)
    assert found.eta == 0
    assert found.iterations == 0
    assert found.cost == pytest.approx(np.sum(plan * cost))


@pytest.mark.parametrize("budget", [0.0, 0.1, 30.0])
@pytest.mark.parametrize("namespace", devices())
def test_a_device_gives_the_same(namespace, budget):
    z, label, loss = draw_problem(4, n=20, copies=5)
    xp = namespace()
    geometry = build_geometry(xp.asarray(z), xp.asarray(label))
    found = solve_sinkhorn(geometry, xp.asarray(loss), budget, entropy_weight=0.05)
    plain = solve_sinkhorn(build_geometry(z, label), loss, budget, entropy_weight=0.05)
    assert found.objective == pytest.approx(plain.objective)
    assert to_numpy(found.weight) == pytest.approx(plain.weight)


@pytest.mark.parametrize("solver", ["sinkhorn", "sinkhorn_sgd"])
def test_memory_grows_with_the_rows_and_not_with_their_square(solver):
    n = 20_000
    generator = np.random.default_rng(0)
    z, label = generator.normal(size=(n, 4)), generator.integers(2, size=n)
    loss = generator.exponential(size=(n, 2))
    geometry = build_geometry(z, label)
    near = solve_exact(geometry, loss, 3.0)
    tracemalloc.start()
    if solver == "sinkhorn":
        solve_sinkhorn(geometry, loss, 3.0, entropy_weight=1e-3, start=near, max_iterations=1)
    else:
        sample = generator.integers(n, size=(2, 50))
        tell = {"entropy_weight": 1e-3, "eta": near.eta, "start": near}
        solve_sinkhorn_sgd(geometry, loss, 3.0, sample=sample, **tell)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n / 8  # a bit matrix of n × n would need that much
