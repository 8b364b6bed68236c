import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.individual.budro import geometry as geometries
from fairfrontier.models.individual.budro import search
from fairfrontier.models.individual.budro.geometry import build_geometry
from fairfrontier.models.individual.budro.search import Search
from fairfrontier.models.individual.budro.transport import solve_exact
from fairfrontier.runtime.arrays import to_numpy
from papers.rival import budro_descent
from papers.rival.budro_descent import solve_sgd
from tests.models.individual.budro.problems import draw_problem, find_optimum
from tests.namespaces import devices, namespaces

EXACT = {"tolerance": 1e-10, "dtype": "float64"}


def plan_value(found, geometry, loss, label, z):
    """Objective and cost of the returned weights, recomputed from the maps by brute force."""
    objective = cost = 0.0
    point = geometry.point
    for share, target in zip(found.share, found.destination, strict=True):
        for j in range(len(z)):
            column = geometry.row_column[j]
            members = np.flatnonzero(geometry.row_point == target[column])
            objective += share * loss[members, label[j]].max() / len(z)
            cost += share * np.sum((point[target[column]] - z[j]) ** 2) / len(z)
    return objective, cost


@pytest.mark.parametrize("budget", [0.0, 1e-3, 0.05, 0.3, 1.0, 50.0])
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"levels": 2},
        {"levels": 1, "copies": 8},
        {"copies": 12},
        {"n_labels": 3, "levels": 3},
        {"n": 2},
    ],
)
def test_exact_equals_linear_programme(shape, budget):
    for seed in range(6):
        z, label, loss = draw_problem(seed, **shape)
        geometry = build_geometry(z, label, n_labels=loss.shape[1])
        found = solve_exact(geometry, loss, budget, **EXACT)
        best = find_optimum(z, label, loss, budget)
        assert found.converged
        assert found.objective == pytest.approx(best, abs=1e-6)
        assert found.cost <= budget + 1e-9
        assert -1e-9 <= found.gap <= 1e-6
        objective, cost = plan_value(found, geometry, loss, label, z)
        assert objective == pytest.approx(found.objective, abs=1e-7)
        assert cost == pytest.approx(found.cost, abs=1e-7)


def test_budget_is_used_up_exactly_where_it_binds():
    z, label, loss = draw_problem(3, n=40)
    geometry = build_geometry(z, label)
    found = solve_exact(geometry, loss, 0.1, **EXACT)
    assert found.eta > 0
    assert found.cost == pytest.approx(0.1, abs=1e-9)


def test_a_budget_that_never_binds_takes_the_cheapest_worst_rows():
    z = np.array([[0.0], [1.0], [6.0], [9.0]])
    loss = np.array([[0.0, 0], [2.0, 0], [0.5, 0], [2.0, 0]])
    label = np.zeros(4, dtype=np.int64)
    found = solve_exact(build_geometry(z, label), loss, 100.0, **EXACT)
    assert found.eta == 0
    assert found.cost == pytest.approx((1 + 0 + 9 + 0) / 4)
    assert found.weight[:, 0] == pytest.approx([0, 0.5, 0, 0.5])


def test_without_a_budget_nothing_is_searched(monkeypatch):
    monkeypatch.setattr(Search, "_compare", None)
    z, label, loss = draw_problem(0, n=30)
    found = solve_exact(build_geometry(z, label), loss, 0.0, **EXACT)
    assert (found.cost, found.gap) == (0, 0)


def test_equal_losses_move_nothing():
    z, label, _ = draw_problem(0, n=30)
    found = solve_exact(build_geometry(z, label), np.full((30, 2), 0.69), 0.4, **EXACT)
    assert found.cost == 0
    assert found.weight.sum(axis=1) == pytest.approx(np.full(30, 1 / 30))


def test_weights_are_the_moved_mass_per_label():
    z, label, loss = draw_problem(7, n=30, copies=10)
    found = solve_exact(build_geometry(z, label), loss, 0.2, **EXACT)
    shares = np.bincount(label, minlength=2) / 30
    assert found.weight.sum(axis=0) == pytest.approx(shares)
    assert found.weight.min() >= 0


def test_coincident_rows_that_tie_share_equally():
    z = np.array([[0.0], [1.0], [1.0], [1.0]])
    loss = np.array([[0.0, 0], [3.0, 0], [3.0, 0], [1.0, 0]])
    label = np.zeros(4, dtype=np.int64)
    found = solve_exact(build_geometry(z, label), loss, 9.0, **EXACT)
    assert found.weight[:, 0] == pytest.approx([0, 0.5, 0.5, 0])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.0, 2.0))
def test_order_of_rows_does_not_matter(seed, budget):
    z, label, loss = draw_problem(seed, n=16, levels=2)
    order = np.random.default_rng(seed).permutation(16)
    there = solve_exact(build_geometry(z, label), loss, budget, **EXACT)
    back = solve_exact(build_geometry(z[order], label[order]), loss[order], budget, **EXACT)
    assert back.objective == pytest.approx(there.objective, abs=1e-8)
    assert back.cost == pytest.approx(there.cost, abs=1e-8)


def test_masses_are_copies():
    z, label, loss = draw_problem(11, n=12)
    counts = np.arange(12) % 3 + 1
    twice = np.repeat(np.arange(12), counts)
    single = solve_exact(build_geometry(z, label, mass=counts / counts.sum()), loss, 0.15, **EXACT)
    copied = solve_exact(build_geometry(z[twice], label[twice]), loss[twice], 0.15, **EXACT)
    assert copied.objective == pytest.approx(single.objective, abs=1e-9)
    merged = np.zeros_like(single.weight)
    np.add.at(merged, twice, copied.weight)
    assert merged == pytest.approx(single.weight, abs=1e-9)


def test_one_class_only_and_labels_swapped():
    z, _, loss = draw_problem(5)
    zeros = np.zeros(24, dtype=np.int64)
    one = solve_exact(build_geometry(z, zeros), loss, 0.1, **EXACT)
    other = solve_exact(build_geometry(z, zeros + 1), loss[:, ::-1], 0.1, **EXACT)
    assert one.objective == pytest.approx(other.objective)
    assert one.weight == pytest.approx(other.weight[:, ::-1])


def test_a_warm_start_changes_nothing_but_the_time():
    z, label, loss = draw_problem(2, n=300)
    geometry = build_geometry(z, label)
    before = solve_exact(geometry, loss, 0.2, **EXACT)
    moved = loss + np.random.default_rng(0).normal(scale=0.01, size=loss.shape)
    cold = solve_exact(geometry, moved, 0.2, **EXACT)
    warm = solve_exact(geometry, moved, 0.2, start=before, **EXACT)
    assert warm.objective == pytest.approx(cold.objective, abs=1e-8)


@pytest.mark.parametrize("budget", [0.0, 0.02, 0.3, 50.0])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_seeking_eta_on_some_columns_changes_no_answer(budget, share):
    for seed in range(3):
        z, label, loss = draw_problem(seed, n=120, n_labels=3, levels=4 if seed else None)
        geometry = build_geometry(z, label, n_labels=4 if seed == 2 else 3)
        loss = np.hstack([loss, loss[:, :1]])[:, : geometry.n_labels]
        plain = solve_exact(geometry, loss, budget, **EXACT)
        found = solve_exact(geometry, loss, budget, column_share=share, **EXACT)
        assert found.converged
        assert found.cost <= budget + 1e-9
        assert found.objective == pytest.approx(plain.objective, abs=1e-8)


def test_seeking_eta_on_some_columns_moves_fewer(monkeypatch):
    z, label, _ = draw_problem(0, n=1000, k=4)
    # Losses of a model: what is near has a like loss.
    margin = z @ np.array([1.0, -0.5, 0.3, 0.2])
    loss = np.stack([np.logaddexp(0, margin), np.logaddexp(0, -margin)], axis=1)
    moved, move = [], Search.move
    monkeypatch.setattr(
        Search, "move", lambda *given: moved.append(given[2].shape[0]) or move(*given)
    )
    geometry = build_geometry(z, label)
    plain = solve_exact(geometry, loss, 0.3)
    columns = sum(moved)
    moved.clear()
    found = solve_exact(geometry, loss, 0.3, column_share=0.05)
    assert sum(moved) < 0.6 * columns
    assert found.objective == pytest.approx(plain.objective, rel=1e-3)


def test_single_precision_stays_within_the_tolerance_it_reports():
    z, label, loss = draw_problem(9, n=500, k=10)
    geometry = build_geometry(z, label)
    exact = solve_exact(geometry, loss, 0.5, **EXACT)
    rough = solve_exact(geometry, loss, 0.5)
    assert rough.converged
    assert 0 <= exact.objective - rough.objective + 1e-9 <= 2e-3 * exact.objective


@pytest.mark.parametrize("budget", [0.0, 0.1, 30.0])
@pytest.mark.parametrize("namespace", devices())
def test_a_device_gives_the_same(namespace, budget):
    z, label, loss = draw_problem(4, n=20, copies=5)
    xp = namespace()
    geometry = build_geometry(xp.asarray(z), xp.asarray(label))
    found = solve_exact(geometry, xp.asarray(loss), budget, **EXACT)
    plain = solve_exact(build_geometry(z, label), loss, budget, **EXACT)
    assert found.objective == pytest.approx(plain.objective)
    assert to_numpy(found.weight) == pytest.approx(plain.weight)


def dense_sgd(z, label, loss, budget, sample, eta, momentum, rate):
    """Algorithm 2 of the paper, line by line on dense matrices."""
    cost = np.sum((z[:, None, :] - z[None, :, :]) ** 2, axis=2)
    gain = loss[:, label]
    velocity = 0.0
    for batch in sample:
        best = np.argmax(gain[:, batch] - eta * cost[:, batch], axis=0)
        velocity = momentum * velocity + budget - cost[best, batch].mean()
        eta = max(0.0, eta - rate * velocity)
    best = np.argmax(gain - eta * cost, axis=0)
    return eta, gain[best, np.arange(len(z))].mean(), cost[best, np.arange(len(z))].mean()


@pytest.mark.parametrize("namespace", namespaces())
def test_sgd_is_the_papers_algorithm(namespace):
    xp = namespace()
    z, label, loss = draw_problem(8, n=80, k=3)
    sample = np.random.default_rng(1).integers(80, size=(40, 10))
    eta, objective, cost = dense_sgd(z, label, loss, 0.05, sample, 0.1, 0.9, 1e-2)
    found = solve_sgd(
        build_geometry(xp.asarray(z), xp.asarray(label)),
        xp.asarray(loss),
        0.05,
        sample=sample,
        learning_rate=1e-2,
        dtype="float64",
    )
    assert found.eta == pytest.approx(eta)
    assert found.objective == pytest.approx(objective)
    assert found.cost == pytest.approx(cost)


@pytest.fixture
def bounds_everywhere(monkeypatch):
    """Small problems in small blocks, few steps at once."""
    monkeypatch.setattr(search, "MANY_PAIRS", 0)
    monkeypatch.setattr(geometries, "LARGEST", 8)
    monkeypatch.setattr(budro_descent, "AHEAD", 4)


def play_sgd(rounds, rate, momentum=0.9, n=150):
    """Rounds of the stochastic solver, each from the last one."""
    z, label, loss = draw_problem(8, n=n, k=3, copies=20)
    geometry, generator, found = build_geometry(z, label), np.random.default_rng(1), None
    every = []
    for _ in range(rounds):
        loss = 1.02 * loss + generator.normal(scale=0.01, size=loss.shape)
        sample = generator.integers(n, size=(30, 12))
        steps = {"learning_rate": rate, "momentum": momentum, "dtype": "float64"}
        found = solve_sgd(geometry, loss, 0.05, sample=sample, start=found, **steps)
        every.append(found)
    return every


@pytest.mark.parametrize(("rate", "momentum"), [(1e-3, 0.9), (3e-2, 0.9), (0.5, 0.0), (3.0, 0.5)])
def test_steps_known_in_advance_are_the_steps(rate, momentum, request):
    plain = play_sgd(5, rate, momentum)
    request.getfixturevalue("bounds_everywhere")
    for found, wanted in zip(play_sgd(5, rate, momentum), plain, strict=True):
        assert found.path == pytest.approx(wanted.path, rel=1e-9, abs=1e-15)
        assert found.eta == pytest.approx(wanted.eta, rel=1e-9, abs=1e-15)
        assert found.objective == pytest.approx(wanted.objective, rel=1e-9)
        assert found.cost == pytest.approx(wanted.cost, rel=1e-9)


def test_a_path_like_the_last_one_is_looked_at_once(bounds_everywhere, monkeypatch):
    asked, trace = [], budro_descent.trace_lines
    monkeypatch.setattr(
        budro_descent, "trace_lines", lambda *given: asked.append(given[1].size) or trace(*given)
    )
    play_sgd(3, 2e-5)
    # Four steps at a time in the first round, then all thirty.
    assert asked == [*[4 * 12] * 7, 2 * 12, 30 * 12, 30 * 12]


def test_a_first_round_of_many_pairs_seeks_its_price_on_some_columns(monkeypatch):
    z, label, _ = draw_problem(0, n=1000, k=4)
    margin = z @ np.array([1.0, -0.5, 0.3, 0.2])
    loss = np.stack([np.logaddexp(0, margin), np.logaddexp(0, -margin)], axis=1)
    geometry = build_geometry(z, label)
    plain = solve_exact(geometry, loss, 0.3)
    monkeypatch.setattr(search, "MANY_PAIRS", 0)
    found = solve_exact(geometry, loss, 0.3)
    assert found.converged
    assert found.iterations < plain.iterations
    assert found.objective == pytest.approx(plain.objective, rel=1e-3)


def test_sgd_never_goes_below_zero():
    z, label, loss = draw_problem(8, n=80)
    sample = np.random.default_rng(1).integers(80, size=(30, 10))
    found = solve_sgd(build_geometry(z, label), loss, 1e3, sample=sample, learning_rate=1.0)
    assert found.eta == 0


def test_many_sgd_steps_come_to_the_exact_dual():
    z, label, loss = draw_problem(6, n=200)
    geometry = build_geometry(z, label)
    exact = solve_exact(geometry, loss, 0.2, **EXACT)
    sample = np.random.default_rng(0).integers(200, size=(1500, 200))
    found = solve_sgd(geometry, loss, 0.2, sample=sample, momentum=0.0, learning_rate=2e-2)
    assert found.dual_value == pytest.approx(exact.dual_value, rel=1e-3)


@pytest.mark.parametrize("solver", ["exact", "sgd"])
def test_memory_grows_with_the_rows_and_not_with_their_square(solver):
    n = 20_000
    generator = np.random.default_rng(0)
    z, label = generator.normal(size=(n, 4)), generator.integers(2, size=n)
    loss = generator.exponential(size=(n, 2))
    tracemalloc.start()
    geometry = build_geometry(z, label)
    if solver == "exact":
        solve_exact(geometry, loss, 0.1, max_iterations=1)
    else:
        solve_sgd(geometry, loss, 0.1, sample=generator.integers(n, size=(2, 50)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n / 8  # a bit matrix of n × n would need that much
