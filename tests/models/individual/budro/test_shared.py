"""The answer of several processes lies within its bounds of the optimum of all rows."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fairfrontier.models.individual.budro import shared
from fairfrontier.models.individual.budro.geometry import build_geometry
from fairfrontier.models.individual.budro.shared import (
    Process,
    SharedSearch,
    share_rows,
    solve_shared,
)
from fairfrontier.models.individual.budro.transport import solve_exact
from tests.models.individual.budro.problems import Sum, draw_problem, find_optimum
from tests.models.individual.budro.test_restricted import SHAPES


@pytest.fixture(autouse=True)
def small_cells(monkeypatch):
    """Cells and blocks in proportion to small problems."""
    monkeypatch.setattr(shared, "CELL", 4)
    monkeypatch.setattr(shared, "BLOCK", 8)


def draw(seed, **shape):
    """Return a problem whose embedded rows are what single precision holds."""
    z, label, loss = draw_problem(seed, **shape)
    mass = np.random.default_rng(seed).exponential(size=len(z))
    return z.astype(np.float32).astype(np.float64), label, loss, mass / mass.sum()


def solve(problem, budget, sources, size, start=0.0, seed=0):
    """Return what each of so many processes finds for its share of the rows, and the weights."""
    z, label, loss, mass = problem
    total = Sum(size)

    def run(rank):
        mine = slice(rank, None, size)
        process = Process(rank, size, lambda values: total.add_up(rank, values))
        rows = share_rows(
            z[mine].astype(np.float32), label[mine], mass[mine], loss.shape[1], sources, process
        )
        generator = np.random.default_rng([seed, rank])
        return solve_shared(
            rows, loss[mine], budget, sources=sources, generator=generator, start=start
        )

    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(run, range(size)))
    weight = np.zeros_like(loss)
    for rank, each in enumerate(found):
        weight[rank::size] = each.weight
    return found, weight


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_optimum_lies_between_the_bounds(shape, size):
    for seed, budget in enumerate((1e-3, 0.05, 0.3, 1.0, 1e3)):
        z, label, loss, mass = problem = draw(seed, **SHAPES[shape])
        best = find_optimum(z, label, loss, budget, mass)
        for sources in (1, 4, 12):
            (found, *others), weight = solve(problem, budget, sources, size)
            assert {each.dual_value for each in others} <= {found.dual_value}
            assert found.objective <= best + 1e-6
            assert found.dual_value >= best - 1e-6
            assert found.cost <= budget + 1e-9
            assert weight.sum() == pytest.approx(1.0)
            assert np.sum(weight * loss) == pytest.approx(found.objective)


@pytest.mark.parametrize("checked", [1000, 149])
def test_checking_some_columns_bounds_all(monkeypatch, checked):
    monkeypatch.setattr(shared, "CHECKED", checked)
    z, label, loss, mass = problem = draw(5, n=299, k=3)
    best = solve_exact(build_geometry(z, label, mass=mass), loss, 0.1, tolerance=1e-9).objective
    (one, other), _ = solve(problem, 0.1, 20, 2)
    assert (one.objective, one.dual_value) == (other.objective, other.dual_value)
    assert one.objective < best < one.dual_value


def test_more_sources_leave_a_smaller_gap():
    problem = draw(6, n=400, k=3)
    gaps = [solve(problem, 0.1, sources, 2)[0][0].gap for sources in (2, 10, 100)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.1 * gaps[0]


def test_later_rounds_begin_at_the_last_price(monkeypatch):
    problem = draw(6, n=200)
    (first,), _ = solve(problem, 0.1, 20, 1)
    offer, prices = shared.SharedSearch.offer, []

    def note(search, eta, count):
        prices.append(eta)
        offer(search, eta, count)

    monkeypatch.setattr(shared.SharedSearch, "offer", note)
    (again,), _ = solve(problem, 0.1, 20, 1, start=first.eta)
    assert prices == [first.eta]
    assert again.objective == pytest.approx(first.objective, rel=0.02)


def test_coincident_rows_of_equal_loss_share_what_comes():
    z = np.zeros((9, 2))
    z[:6] = np.random.default_rng(0).normal(size=(6, 2)).round(1)
    loss = np.zeros((9, 2))
    loss[6:8] = 1.0
    label = np.array([0, 1] * 4 + [0])
    (found, _), weight = solve((z, label, loss, np.full(9, 1 / 9)), 10.0, 4, 2)
    assert found.objective == pytest.approx(1.0)
    # What stays stays where it is.
    came = weight - np.eye(2)[label] / 9
    assert came[6] == pytest.approx(came[7])
    assert came[6].sum() == pytest.approx(3.5 / 9)


def test_a_process_may_have_one_label_alone():
    z, label, loss, mass = draw(8, n=40)
    label = np.arange(40) % 2
    best = find_optimum(z, label, loss, 0.3, mass)
    (found, _), _ = solve((z, label, loss, mass), 0.3, 8, 2)
    assert found.objective <= best + 1e-6 <= found.dual_value + 2e-6


def test_without_a_budget_nothing_moves():
    problem = draw(9)
    (found, _), weight = solve(problem, 0.0, 4, 2)
    assert weight == pytest.approx(np.eye(2)[problem[1]] * problem[3][:, None])
    assert (found.cost, found.gap) == (0.0, 0.0)


def test_offers_keep_no_order_of_all_rows():
    z, label, loss, mass = draw(3, n=4000, k=3)
    alone = Process(0, 1, lambda values: values)
    rows = share_rows(z.astype(np.float32), label, mass, loss.shape[1], 64, alone)
    search = SharedSearch(rows, loss, 0.1)
    places = sum(map(len, rows.places))
    tracemalloc.start()
    search.offer(0.1, places)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    orders = places * len(z) * np.dtype(np.int64).itemsize
    assert peak < orders / 2
