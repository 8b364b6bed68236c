import numpy as np
import pytest

from fairfrontier.models.individual.budro import geometry as geometries
from fairfrontier.models.individual.budro import search
from fairfrontier.models.individual.budro.geometry import build_geometry
from fairfrontier.models.individual.budro.search import Envelope, Search
from papers.rival.budro_descent import trace_lines
from tests.models.individual.budro.problems import draw_problem
from tests.models.individual.budro.test_bound import best_values


@pytest.fixture(autouse=True)
def bounds_everywhere(monkeypatch):
    """Small problems in small blocks."""
    monkeypatch.setattr(search, "MANY_PAIRS", 0)
    monkeypatch.setattr(geometries, "LARGEST", 8)


@pytest.mark.parametrize("levels", [None, 2])
def test_passes_between_others_are_passes(levels):
    z, label, loss = draw_problem(1, n=150, n_labels=3, levels=levels, copies=30)
    geometry = build_geometry(z, label, n_labels=3)
    inner = Search(geometry, loss, "float64")
    free, stay = inner.move_freely(0.1), inner.piece(0.0, 0.1, geometry.column_point)
    passes = Envelope(inner, free, stay)
    held = geometry.column_point
    for eta in (0.1, 3.0, 0.5, 1.0, 0.7, 0.05, 10.0, 0.6):
        seen = passes.explore(eta, held)
        held = seen.target
        wanted = best_values(geometry, loss, eta)
        gain, cost = inner.weigh(held)
        assert gain - eta * cost == pytest.approx(wanted, abs=1e-11)
        assert seen.gain - eta * seen.cost == pytest.approx(
            float(np.sum(geometry.column_mass * wanted))
        )


def test_passes_between_others_move_only_columns_that_differ(monkeypatch):
    z, label, loss = draw_problem(2, n=300)
    geometry = build_geometry(z, label)
    inner = Search(geometry, loss, "float64")
    passes = Envelope(inner, inner.move_freely(0.1), inner.piece(0.0, 0.1, geometry.column_point))
    low, high = (passes.explore(eta, geometry.column_point).target for eta in (0.9, 1.0))
    asked = []
    move = Search.move_columns
    monkeypatch.setattr(
        Search, "move_columns", lambda *given: asked.append(given[1]) or move(*given)
    )
    passes.explore(0.95, low)
    assert np.array_equal(asked[0], np.flatnonzero(low != high))
    assert 0 < asked[0].size < 100


@pytest.mark.parametrize("shape", [{}, {"levels": 2, "copies": 30}, {"n_labels": 3, "k": 5}])
def test_lines_are_the_best_ones_at_every_price_of_the_interval(shape):
    z, label, loss = draw_problem(3, n=150, **shape)
    geometry = build_geometry(z, label, n_labels=loss.shape[1])
    inner = Search(geometry, loss, "float64")
    chosen = np.flatnonzero(np.arange(geometry.column_point.size) % 4 != 0)
    chosen = np.sort(np.append(chosen, chosen[::3]))
    places = np.arange(chosen.size)
    low = 0.05 * (1 + places % 3)
    high = np.where(places % 2, 2.0, 1.1 * low)
    lines = trace_lines(inner, chosen, geometry.column_point[chosen], low, high)
    for where in np.linspace(0, 1, 11):
        eta = low ** (1 - where) * high**where
        each = [lines.choose(places[i : i + 1], eta[i]) for i in places]
        target, cost = (np.concatenate(part) for part in zip(*each, strict=True))
        gain, paid = inner.weigh(target, chosen)
        assert cost == pytest.approx(paid)
        first = np.append(True, chosen[1:] != chosen[:-1])
        for turn in (first, ~first):
            prices = np.ones(geometry.column_point.size)
            prices[chosen[turn]] = eta[turn]
            wanted = best_values(geometry, loss, prices)[chosen[turn]]
            assert (gain - eta * cost)[turn] == pytest.approx(wanted, abs=1e-11)


def test_lines_may_be_sought_from_any_map():
    z, label, loss = draw_problem(3, n=150)
    geometry = build_geometry(z, label)
    inner = Search(geometry, loss, "float64")
    chosen = np.arange(geometry.column_point.size)
    low, high = np.full(chosen.size, 0.05), np.full(chosen.size, 2.0)
    wanted = trace_lines(inner, chosen, geometry.column_point, low, high)
    # As of the last round: what is best at the lower end already is no reason not to look further.
    held = inner.move_columns(None, geometry.column_point, 0.05)
    found = trace_lines(inner, chosen, held, low, high)
    for eta in (0.05, 0.3, 1.0, 2.0):
        values = [(each.gain - eta * each.cost).max(axis=1) for each in (found, wanted)]
        assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_lines_of_no_column_and_of_columns_that_stay():
    z, label, _ = draw_problem(3, n=50)
    geometry = build_geometry(z, label)
    inner = Search(geometry, np.ones((50, 2)), "float64")
    nobody, none = np.arange(0), np.empty(0)
    assert trace_lines(inner, nobody, nobody, none, none).target.shape == (0, 1)
    everyone = np.arange(geometry.column_point.size)
    ends = np.full(everyone.size, 0.1), np.full(everyone.size, 1.0)
    lines = trace_lines(inner, everyone, geometry.column_point, *ends)
    assert np.array_equal(lines.choose(everyone, 0.5)[0], geometry.column_point)


def test_lines_that_rounding_makes_better_again_and_again_come_to_an_end(monkeypatch):
    z, label, loss = draw_problem(5, n=60, levels=2)
    inner = Search(build_geometry(z, label), loss, "float64")
    chosen = np.arange(inner.geometry.column_point.size)
    held = inner.geometry.column_point
    asked = []
    weigh = Search.weigh

    def weigh_more(self, target, columns=None):
        asked.append(target.size)
        gain, cost = weigh(self, target, columns)
        # Later answers always look better, and never the same point twice in a row.
        return gain + len(asked), cost

    turn = iter(range(1, 10_000))
    monkeypatch.setattr(Search, "weigh", weigh_more)
    monkeypatch.setattr(
        Search,
        "move_columns",
        lambda _self, _columns, near, _eta: (near + next(turn)) % inner.geometry.point.shape[0],
    )
    low = np.full(chosen.size, 0.1)
    lines = trace_lines(inner, chosen, held, low, 2 * low)
    assert lines.target.shape[1] <= 2 * inner.geometry.point.shape[0]
