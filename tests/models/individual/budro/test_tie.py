import numpy as np
import pytest

from fairfrontier.models.individual.budro import geometry as geometries
from fairfrontier.models.individual.budro import search
from fairfrontier.models.individual.budro.geometry import build_geometry
from fairfrontier.models.individual.budro.search import TIE, Envelope, Search, choose_first
from fairfrontier.models.individual.budro.transport import solve_exact
from fairfrontier.runtime.arrays import to_numpy
from papers.rival import budro_descent
from papers.rival.budro_descent import solve_sgd, trace_lines
from tests.models.individual.budro.problems import draw_lattice, draw_problem, solve_in_portions
from tests.namespaces import devices, namespaces

PRICES = (0.5, 0.25, 1 / 3, 0.01, 1e-4, 3.0)


@pytest.fixture(params=["prefixes", "bounds"])
def way(request, monkeypatch):
    """All points in falling order of loss, or blocks with bounds: small ones, few steps at once."""
    if request.param == "bounds":
        monkeypatch.setattr(search, "MANY_PAIRS", 0)
        monkeypatch.setattr(geometries, "LARGEST", 8)
        monkeypatch.setattr(budro_descent, "AHEAD", 4)
    return request.param


def list_values(inner, eta):
    """Return R_ij − η C_ij (n_points, n_columns) by brute force."""
    geometry = inner.geometry
    cost = np.sum((geometry.point[:, None, :] - geometry.point[None, :, :]) ** 2, axis=2)
    label = np.repeat(np.arange(geometry.n_labels), [b - a for a, b in geometry.columns])
    return np.stack(inner.level, axis=1)[:, label] - eta * cost[:, geometry.column_point]


def apply_rule(inner, eta):
    """Return every column's point by the rule, and how many points tie, by brute force."""
    geometry, value = inner.geometry, list_values(inner, eta)
    size = max(np.abs(each).max() for each in inner.level)
    norm = np.linalg.norm(geometry.point[geometry.column_point], axis=1)
    best = value >= value.max(axis=0) - TIE * (size + np.sqrt(eta * size) * norm)
    stays = best[geometry.column_point, np.arange(value.shape[1])]
    return np.where(stays, geometry.column_point, best.argmax(axis=0)), best.sum(axis=0)


@pytest.mark.parametrize("namespace", namespaces())
def test_the_own_point_comes_first_and_then_the_lowest(namespace):
    xp = namespace()
    generator = np.random.default_rng(0)
    owner = np.sort(np.append(np.arange(40), generator.integers(40, size=160)))
    point, value = generator.integers(30, size=200), generator.integers(3, size=200) / 7
    own, slack = generator.integers(30, size=40), np.where(np.arange(40) % 2, 1e-12, 0.2)
    value += 1e-14 * generator.normal(size=200) * slack.max()
    given = (xp.asarray(each) for each in (owner, point, value, own, slack + 1e-13))
    found = choose_first(*given)
    for j, chosen in enumerate(to_numpy(found)):
        tied = point[(owner == j) & (value >= value[owner == j].max() - slack[j] - 1e-13)]
        assert chosen == (own[j] if own[j] in tied else tied.min())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [False, True])
def test_what_a_column_takes_depends_on_its_price_alone(way, turned, dtype):
    z, label, loss = draw_lattice(0, turned=turned)
    inner = Search(build_geometry(z, label), loss, dtype)
    generator, n_points = np.random.default_rng(1), inner.geometry.point.shape[0]
    n, many = inner.geometry.column_point.size, []
    for eta in PRICES:
        wanted, tied = apply_rule(inner, eta)
        many.append(np.mean(tied > 1))
        for _ in range(3):
            held = generator.integers(n_points, size=n)
            assert np.array_equal(inner.move_columns(None, held, eta), wanted)
            some = np.sort(generator.integers(n, size=60))
            assert np.array_equal(inner.move_columns(some, held[some], eta), wanted[some])
    each = generator.choice(PRICES, size=n)
    wanted, _ = apply_rule(inner, each)
    assert np.array_equal(inner.move_columns(None, held, each), wanted)
    assert max(many) > 0.3


@pytest.mark.parametrize("eta", [1e30, 1e37, 1e39, 1e100, 1e300])
def test_at_prices_beyond_single_precision_every_column_stays(way, eta):
    z, label, loss = draw_lattice(0, turned=True)
    inner = Search(build_geometry(z, label), loss, "float32")
    own = inner.geometry.column_point
    held = np.random.default_rng(0).integers(own.max(), size=own.size)
    for begin in (own, held):
        assert np.array_equal(inner.move_columns(None, begin, eta), own)
    each = np.where(np.arange(own.size) % 2, eta, 0.25)
    assert np.array_equal(inner.move_columns(None, held, each), apply_rule(inner, each)[0])


@pytest.mark.parametrize("namespace", devices())
def test_a_device_takes_the_same(namespace, way):
    z, label, loss = draw_lattice(0, turned=True)
    xp, plain = namespace(), Search(build_geometry(z, label), loss, "float32")
    geometry = build_geometry(xp.asarray(z), xp.asarray(label))
    inner = Search(geometry, xp.asarray(loss), "float32")
    for eta in (*PRICES, 0.0):
        found = inner.move_columns(None, geometry.column_point, eta)
        wanted = plain.move_columns(None, plain.geometry.column_point, eta)
        assert np.array_equal(to_numpy(found), wanted)


def test_more_pairs_than_are_kept_change_nothing(way, monkeypatch):
    monkeypatch.setattr(geometries, "MANY", -(1 << 40))
    monkeypatch.setattr(search, "PAIRS", 7)
    z, label, loss = draw_lattice(2, turned=True)
    inner = Search(build_geometry(z, label), loss, "float32")
    for eta in PRICES:
        found = inner.move_columns(None, inner.geometry.column_point, eta)
        assert np.array_equal(found, apply_rule(inner, eta)[0])


@pytest.mark.parametrize("turned", [False, True])
def test_without_a_price_the_cheapest_comes_before_the_first(way, turned):
    z, label, loss = draw_lattice(3, turned=turned)
    inner = Search(build_geometry(z, label), loss, "float32")
    value = list_values(inner, 1.0)
    for label, (first, last) in enumerate(inner.geometry.columns):
        column, level = inner.geometry.column_point[first:last], inner.level[label]
        worst = np.flatnonzero(level == level.max())
        cost = (level[:, None] - value[:, first:last])[worst]
        wanted = worst[np.argmax(cost <= cost.min(axis=0) + 1e-9, axis=0)]
        assert np.array_equal(inner.nearest_worst(label, column), wanted)
        assert np.array_equal(inner.move(label, column, column, 0.0), wanted)


@pytest.mark.parametrize("turned", [False, True])
def test_passes_between_others_take_what_the_rule_says(way, turned):
    z, label, loss = draw_lattice(4, turned=turned)
    inner = Search(build_geometry(z, label), loss, "float32")
    passes = Envelope(inner, inner.move_freely(0.1), inner.stay(0.1))
    held = inner.geometry.column_point
    for eta in (0.25, 4.0, 1.0, 0.05, 0.5, 0.2, 1 / 3, 0.125, 2.0, 1e-4, 1e-13, 0.1):
        found = passes.explore(eta, held).target
        assert np.array_equal(found, apply_rule(inner, eta)[0])


@pytest.mark.parametrize("turned", [False, True])
def test_lines_take_what_the_rule_says_also_where_they_cross(way, turned):
    z, label, _ = draw_lattice(5, turned=turned)
    # Three lines of the last levels cross at 0.25, above that of the own point, one of them only
    # there as good as the others.
    generator = np.random.default_rng(0)
    loss = generator.choice([0.0, 0.5, 0.75, 1.0], size=(160, 2), p=(0.85, 0.05, 0.05, 0.05))
    inner = Search(build_geometry(z, label), loss, "float32")
    everyone = np.arange(inner.geometry.column_point.size)
    ends = np.full(everyone.size, 0.04), np.full(everyone.size, 2.0)
    lines = trace_lines(inner, everyone, inner.geometry.column_point, *ends)
    for eta in (0.04, 0.0625, 0.125, 1 / 6, 0.2, 0.25, 0.3, 0.5, 0.75, 1.0, 2.0):
        assert np.array_equal(lines.choose(everyone, eta)[0], apply_rule(inner, eta)[0])


def find_optimum(z, label, loss, budget):
    """Return the least M(η), which is at 0 or where two lines of a column cross."""
    cost = np.sum((z[:, None, :] - z[None, :, :]) ** 2, axis=2)
    gain = loss[:, label]
    rise, run = gain[:, None, :] - gain[None], cost[:, None, :] - cost[None]
    etas = np.append(0.0, (rise[run > 0] / run[run > 0]).clip(0.0))
    best = np.max(gain - etas[:, None, None] * cost, axis=1)
    return np.min(etas * budget + best.mean(axis=1))


@pytest.mark.parametrize("far", [1, 2, 3])
@pytest.mark.parametrize("budget", [1e-3, 0.1])
def test_rows_far_from_all_others_make_nothing_else_tie(way, far, budget):
    z, label, loss = draw_problem(0, n=20)
    # A row alone, two that are near each other, and one on either side with another.
    z[:far, 1] += np.array([1e6, 1e6, -1e6])[:far]
    best = find_optimum(z, label, loss, budget)
    for dtype in ("float32", "float64"):
        found = solve_exact(build_geometry(z, label), loss, budget, dtype=dtype, tolerance=1e-9)
        assert found.objective == pytest.approx(best, abs=2e-5)
        assert found.dual_value >= best - 1e-8


@pytest.mark.parametrize("far", [0.0, 1e6])
def test_the_cheapest_of_the_worst_is_so_also_beside_a_row_far_off(way, far):
    z, label, loss = draw_problem(1, n=40)
    loss[:12] = 5.0
    z[-1, 0] += far
    geometry = build_geometry(z, label)
    inner = Search(geometry, loss, "float32")
    cost = np.sum((z[:, None, :] - z[None, :12, :]) ** 2, axis=2).min(axis=1)
    free = inner.move_freely(0.1)
    assert inner.weigh(free.target)[1][geometry.row_column] == pytest.approx(cost, rel=1e-9)


def test_the_dual_is_above_the_optimum_by_what_ties_may_hide():
    # Costs of 1e-14 beside losses of 1 are within the tolerance of ties.
    loss = np.array([[1.0, 0.0], [1 - 9e-13, 0.0]])
    geometry = build_geometry(np.array([[0.0], [1e-7]]), np.array([0, 0]))
    found = solve_exact(geometry, loss, 1.0)
    assert found.dual_value >= 1.0 > found.objective


def play(z, label, first, place, solver, rounds=6):
    """Return the weights of rounds that add to the margins of cells what their rows are due."""
    margin, found, every = first.copy(), None, []
    cells = np.unique(np.round(z[:, :2]), axis=0, return_inverse=True)[1].reshape(-1)
    generator, geometry = np.random.default_rng(0), build_geometry(z, label)
    for _ in range(rounds):
        loss = np.stack([np.logaddexp(0, margin), np.logaddexp(0, -margin)], axis=1)
        if solver == "exact":
            found = solve_exact(geometry, loss, 0.2, start=found)
        else:
            sample = place[generator.integers(len(z), size=(20, 15))]
            found = solve_sgd(geometry, loss, 0.2, sample=sample, start=found, learning_rate=1e-2)
        every.append(found.weight)
        due = found.weight[:, 1] - found.weight[:, 0]
        due = np.bincount(cells, due) / np.bincount(cells, found.weight.sum(axis=1) + 1e-3)
        margin = margin + 0.5 * due[cells]
    return every


@pytest.mark.parametrize("solver", ["exact", "sgd"])
def test_rows_in_another_order_get_the_same_weights_over_rounds(way, solver):
    z, label, loss = draw_lattice(6)
    order = np.random.default_rng(2).permutation(len(z))
    wanted = play(z, label, loss[:, 0], np.arange(len(z)), solver)
    found = play(z[order], label[order], loss[order, 0], np.argsort(order), solver)
    for there, here in zip(wanted, found, strict=True):
        assert here == pytest.approx(there[order], abs=1e-12)


@pytest.mark.parametrize("solver", ["exact", "sgd"])
def test_portions_of_the_columns_get_the_same_weights_from_any_map(way, solver):
    z, label, loss = draw_lattice(7, turned=True)
    geometry = build_geometry(z, label)
    sample = np.random.default_rng(0).integers(len(z), size=(20, 15))

    def solve(part, start=None):
        if solver == "exact":
            return solve_exact(part, loss, 0.2, start=start)
        return solve_sgd(part, loss, 0.2, sample=sample, start=start, learning_rate=1e-2)

    wanted = solve(geometry)
    for parts in (2, 3):
        for found in solve_in_portions(geometry, parts, solve):
            assert found.weight == pytest.approx(wanted.weight, abs=1e-12)
    if solver == "sgd":
        assert solve(geometry, wanted).weight == pytest.approx(wanted.weight, abs=1e-12)


@pytest.mark.parametrize("noise", [1e-15, 1e-12])
def test_last_digits_of_the_embedding_change_no_point(noise):
    z, label, _ = draw_lattice(8, turned=True)
    # On the edge of nine decimals, where these digits decide how a number is rounded.
    z = np.round(z, 9) + 5e-10
    near = z + noise * np.random.default_rng(0).normal(size=z.shape)
    there, here = build_geometry(z, label), build_geometry(near, label)
    assert np.array_equal(there.row_point, here.row_point)
    assert there.columns == here.columns
    assert here.point == pytest.approx(there.point, abs=20 * noise)
