import numpy as np
import pytest
from scipy.stats import binom

from fairfrontier.models.individual.budro import transport
from fairfrontier.models.individual.budro.geometry import build_geometry
from fairfrontier.models.individual.budro.transport import (
    bound_mean,
    lay_out,
    solve_exact,
    solve_restricted,
)
from fairfrontier.runtime.arrays import to_numpy
from tests.models.individual.budro.problems import draw_problem, find_optimum, solve_in_portions
from tests.namespaces import devices

SHAPES = {
    "plain": {},
    "ties": {"levels": 2},
    "copies": {"levels": 1, "copies": 8},
    "three labels": {"n_labels": 3, "levels": 3},
    "many dimensions": {"k": 20},
}


@pytest.fixture(autouse=True)
def small_cells(monkeypatch):
    """Cells and blocks in proportion to small problems."""
    monkeypatch.setattr(transport, "CELL", 4)
    monkeypatch.setattr(transport, "BLOCK", 8)


def solve(geometry, loss, budget, sources, seed=0, **options):
    generator = np.random.default_rng(seed)
    return solve_restricted(geometry, loss, budget, sources=sources, generator=generator, **options)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_optimum_lies_between_the_bounds(shape, dtype):
    for seed, budget in enumerate((0.0, 1e-3, 0.05, 0.3, 1.0, 1e3)):
        z, label, loss = draw_problem(seed, **SHAPES[shape])
        mass = np.random.default_rng(seed).exponential(size=len(z))
        mass /= mass.sum()
        geometry = build_geometry(z, label, n_labels=loss.shape[1], mass=mass)
        best = find_optimum(z, label, loss, budget, mass)
        for sources in (1, 4, 12):
            found = solve(geometry, loss, budget, sources, dtype=dtype)
            assert found.objective <= best + 1e-6
            assert found.dual_value >= best - 1e-6
            assert found.cost <= budget + 1e-9
            assert found.weight.sum() == pytest.approx(1.0)
            assert np.sum(found.weight * loss) == pytest.approx(found.objective)


def test_equal_losses_move_nothing_and_leave_no_gap():
    z, label, _ = draw_problem(0, n=60)
    found = solve(build_geometry(z, label), np.full((60, 2), 0.69), 0.3, 5)
    assert (found.objective, found.cost) == (pytest.approx(0.69), 0.0)
    assert found.gap == pytest.approx(0.0, abs=1e-9)


def test_checking_some_columns_bounds_all(monkeypatch):
    monkeypatch.setattr(transport, "CHECKED", 100)
    gaps = []
    for seed in range(12):
        z, label, loss = draw_problem(seed, n=400, k=3)
        geometry = build_geometry(z, label)
        best = solve_exact(geometry, loss, 0.1, tolerance=1e-9)
        found = solve(geometry, loss, 0.1, 20, seed)
        assert found.objective < best.objective < found.dual_value
        gaps.append(found.gap)
    monkeypatch.setattr(transport, "CHECKED", 400)
    all_checked = [
        solve(build_geometry(z, label), loss, 0.1, 20).gap
        for z, label, loss in (draw_problem(seed, n=400, k=3) for seed in range(3))
    ]
    assert max(all_checked) < min(gaps)


def test_more_sources_leave_a_smaller_gap():
    z, label, loss = draw_problem(1, n=400, k=3)
    geometry = build_geometry(z, label)
    gaps = [solve(geometry, loss, 0.1, sources).gap for sources in (4, 40, 200, 399)]
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2] > 0
    assert gaps[3] <= gaps[2]


@pytest.mark.parametrize("budget", [0.0, 0.1, 1e3])
def test_as_many_sources_as_points_are_the_exact_solver(budget):
    z, label, loss = draw_problem(2, n=200, levels=4)
    geometry = build_geometry(z, label)
    exact = solve_exact(geometry, loss, budget)
    found = solve(geometry, loss, budget, geometry.point.shape[0])
    assert np.array_equal(found.weight, exact.weight)
    assert (found.objective, found.dual_value) == (exact.objective, exact.dual_value)


def test_the_order_of_rows_does_not_matter():
    z, label, loss = draw_problem(3, n=300, levels=4)
    order = np.random.default_rng(0).permutation(300)
    one = solve(build_geometry(z, label), loss, 0.1, 20)
    other = solve(build_geometry(z[order], label[order]), loss[order], 0.1, 20)
    assert other.weight == pytest.approx(one.weight[order], abs=1e-12)
    assert other.gap == pytest.approx(one.gap, abs=1e-12)


@pytest.mark.parametrize("checked", [100, 1000])
@pytest.mark.parametrize("namespace", devices())
def test_a_device_gives_the_same(namespace, monkeypatch, checked):
    monkeypatch.setattr(transport, "CHECKED", checked)
    xp = namespace()
    z, label, loss = draw_problem(4, n=200)
    wanted = solve(build_geometry(z, label), loss, 0.1, 20)
    z, label, loss = (xp.asarray(each) for each in (z, label, loss))
    found = solve(build_geometry(z, label), loss, 0.1, 20)
    assert isinstance(found.weight, type(loss))
    assert to_numpy(found.weight) == pytest.approx(wanted.weight, abs=1e-12)
    assert found.dual_value == pytest.approx(wanted.dual_value, abs=1e-6)


@pytest.mark.parametrize("checked", [1000, 149])
def test_portions_of_the_columns_keep_the_bounds(monkeypatch, checked):
    # In the second case one portion has all of its columns checked, and the other has not.
    monkeypatch.setattr(transport, "CHECKED", checked)
    z, label, loss = draw_problem(5, n=299, k=3)
    best = solve_exact(build_geometry(z, label), loss, 0.1, tolerance=1e-9).objective
    one, other = solve_in_portions(
        build_geometry(z, label), 2, lambda portion: solve(portion, loss, 0.1, 20)
    )
    assert (one.objective, one.dual_value) == (other.objective, other.dual_value)
    assert one.objective < best < one.dual_value
    assert one.weight.sum() == pytest.approx(1.0)


def test_later_rounds_lay_nothing_out_again(monkeypatch):
    z, label, loss = draw_problem(6, n=200)
    geometry = build_geometry(z, label)
    first = solve(geometry, loss, 0.1, 20)
    monkeypatch.setattr(transport, "lay_out", None)
    again = solve(geometry, 1.01 * loss, 0.1, 20, start=first)
    assert again.objective > first.objective


def test_no_more_blocks_than_sources():
    z, label, _ = draw_problem(7, n=1000)
    blocks = lay_out(build_geometry(z, label), 10).blocks
    assert sum(map(len, blocks)) <= 2 * 10
    held = np.concatenate([block for each in blocks for block in each])
    assert np.array_equal(np.sort(held), np.arange(1000))


def test_the_bound_of_a_mean_is_exceeded_as_rarely_as_stated():
    for n, p, risk in ((50, 0.02, 0.05), (200, 0.3, 0.01), (1000, 0.001, 0.1)):
        seen = np.arange(n + 1)
        below = [bound_mean(count / n, n, risk) < p for count in seen]
        assert binom.pmf(seen, n, p)[below].sum() <= risk
    assert bound_mean(0.0, 100, 1e-6) == pytest.approx(1 - 1e-6 ** (1 / 100))
    assert bound_mean(1.0, 100, 1e-6) == 1.0
