import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.individual.budro import geometry as geometries
from fairfrontier.models.individual.budro import search
from fairfrontier.models.individual.budro.geometry import (
    Bounds,
    BoundsCache,
    build_geometry,
    keep_columns,
    sample_columns,
    split_points,
)
from fairfrontier.models.individual.budro.search import Search
from tests.models.individual.budro.problems import draw_problem

SHAPES = {
    "plain": {},
    "ties": {"levels": 2},
    "duplicates": {"levels": 1, "copies": 60},
    "three labels": {"n_labels": 3, "levels": 4},
    "many dimensions": {"k": 20},
}


@pytest.fixture(autouse=True)
def bounds_everywhere(monkeypatch):
    """Small problems in small blocks, so that bounds have something to skip."""
    monkeypatch.setattr(search, "MANY_PAIRS", 0)
    monkeypatch.setattr(geometries, "LARGEST", 8)


def best_values(geometry, loss, eta):
    """max_i (R_ij − η C_ij) of all columns, by brute force."""
    cost = np.sum((geometry.point[:, None, :] - geometry.point[None, :, :]) ** 2, axis=2)
    found = np.empty(geometry.column_point.size)
    eta = np.broadcast_to(eta, found.shape)
    for label, (first, last) in enumerate(geometry.columns):
        level = np.full(len(geometry.point), -np.inf)
        np.maximum.at(level, geometry.row_point, loss[:, label])
        for j in range(first, last):
            found[j] = np.max(level - eta[j] * cost[:, geometry.column_point[j]])
    return found


def drift(loss, seed, size):
    """Losses a round later: all move together, rows a little by themselves."""
    generator = np.random.default_rng(seed)
    return loss * 1.05 + size + generator.normal(scale=size, size=loss.shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_pruned_passes_equal_brute_force_over_rounds_and_prices(shape, dtype):
    z, label, loss = draw_problem(5, n=200, **SHAPES[shape])
    mass = np.random.default_rng(0).exponential(size=200)
    geometry = build_geometry(z, label, n_labels=loss.shape[1], mass=mass)
    held = geometry.column_point
    for step, (eta, size) in enumerate(
        [(0.3, 0.0), (0.31, 0.01), (0.2, 0.02), (5.0, 0.0), (1e-6, 0.0), (40.0, 0.3), (0.3, 0.0)]
    ):
        loss = drift(loss, step, size)
        inner = Search(geometry, loss, dtype)
        held = inner.move_columns(None, held, eta)
        gain, cost = inner.weigh(held)
        assert gain - eta * cost == pytest.approx(best_values(geometry, loss, eta), abs=1e-11)
        some = np.flatnonzero(np.arange(held.size) % 3 == 0)
        each = eta * np.random.default_rng(step).uniform(0.5, 2.0, size=some.size)
        target = inner.move_columns(some, geometry.column_point[some], each)
        gain, cost = inner.weigh(target, some)
        prices = np.full(held.size, eta)
        prices[some] = each
        wanted = best_values(geometry, loss, prices)[some]
        assert gain - each * cost == pytest.approx(wanted, abs=1e-11)


def test_equal_losses_move_nothing():
    z, label, _ = draw_problem(0, n=150)
    geometry = build_geometry(z, label)
    for eta in (1e-9, 0.1, 1e6):
        inner = Search(geometry, np.full((150, 2), 0.69), "float32")
        assert np.array_equal(
            inner.move_columns(None, geometry.column_point, eta), geometry.column_point
        )


def test_bounds_are_above_what_blocks_offer():
    z, label, loss = draw_problem(2, n=300, k=30)
    geometry = build_geometry(100 + 9 * z, label)
    inner = Search(geometry, loss, "float32")
    inner.move_all(0.01, 0.0, geometry.column_point)
    kept = inner.bounds
    assert not kept.blank
    level = np.stack(inner.level, axis=1)
    centre = (level.max(axis=0) + level.min(axis=0)) / 2
    point, own = geometry.point, geometry.point[geometry.column_point]
    cost = np.sum((point[:, None, :] - own[None, :, :]) ** 2, axis=2)
    offer = (level - centre)[:, kept.label] / 0.01 - cost + kept.column_square
    truth = np.maximum.reduceat(offer[kept.order], kept.start, axis=0)
    assert np.all(kept.table >= truth)
    assert np.max(kept.table - truth) < 1e-5 * kept.square.max()


def test_later_rounds_look_at_few_pairs():
    n = 4000
    z, label, _ = draw_problem(0, n=n, k=3)
    margin = z @ np.array([1.0, -0.5, 0.3])
    geometry = build_geometry(z, label)
    held, looked = geometry.column_point, []
    for growth in (0.5, 0.51, 0.52, 0.53):
        loss = np.stack([np.logaddexp(0, growth * margin), np.logaddexp(0, -growth * margin)], 1)
        inner = Search(geometry, loss, "float32")
        held = inner.move_all(0.3 * growth, 0.0, held).target
        looked.append(inner.bounds.spent.sum())
    share = np.diff(looked) / inner.bounds.table.size
    assert looked[0] == 0
    assert share.max() < 0.05


def test_blocks_grow_where_the_table_would_be_too_large(monkeypatch):
    z, label, _ = draw_problem(0, n=1000)
    geometry = build_geometry(z, label)
    monkeypatch.setattr(geometries, "ENTRIES", 10_000)
    kept = Bounds(geometry.point, geometry.column_point, geometry.columns)
    assert kept.table.size <= 2 * 10_000


def test_bounds_stay_where_they_were_made():
    z, label, loss = draw_problem(0, n=60)
    geometry = build_geometry(z, label)
    first = Search(geometry, loss, "float32").bounds
    assert Search(geometry, loss, "float32").bounds is first
    travelled = copy.deepcopy(geometry.bounds)
    assert isinstance(travelled, BoundsCache)
    assert travelled.bounds is None


def test_a_part_of_the_columns_has_bounds_of_its_own():
    z, label, loss = draw_problem(0, n=60)
    geometry = build_geometry(z, label)
    whole = Search(geometry, loss, "float32").bounds
    some, again = (sample_columns(geometry, 0.3) for _ in range(2))
    sampled = Search(some, loss, "float32").bounds
    assert sampled is not whole
    assert Search(again, loss, "float32").bounds is sampled
    kept = keep_columns(geometry, np.arange(0, 60, 2), lambda values: values)
    assert Search(kept, loss, "float32").bounds.table.shape[1] == 30


def test_a_geometry_with_other_columns_gets_other_bounds():
    z, label, loss = draw_problem(0, n=60)
    geometry = build_geometry(z, label)
    held = geometry.column_point
    Search(geometry, loss, "float64").move_all(0.5, 0.0, held)
    for points in (held, held[::-1].copy()):
        other = replace(geometry, column_point=points, columns=((0, 10), (10, 60)))
        inner = Search(other, loss, "float64")
        gain, cost = inner.weigh(inner.move_columns(None, other.column_point, 0.5))
        assert gain - 0.5 * cost == pytest.approx(best_values(other, loss, 0.5))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 200), st.integers(1, 40), st.sampled_from([None, 1]))
def test_blocks_hold_every_point_once_and_are_no_larger_than_told(seed, n, largest, levels):
    point = np.random.default_rng(seed).normal(size=(n, 3))
    point = point if levels is None else np.round(point)
    order, start = split_points(point, largest)
    assert np.array_equal(np.sort(order), np.arange(n))
    assert start[0] == 0
    sizes = np.diff(np.append(start, n))
    assert sizes.min() >= 1
    assert sizes.max() <= largest


def test_a_block_is_more_compact_than_the_whole():
    point = np.random.default_rng(0).normal(size=(4000, 3))
    order, start = split_points(point, 40)
    spread = np.mean([part.var(axis=0).sum() for part in np.split(point[order], start[1:])])
    assert spread < 0.2 * point.var(axis=0).sum()


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_a_category_stays_together(share):
    kind = np.arange(100) < 100 * share
    order, start = split_points(kind[:, None].astype(float), 80)
    assert [len(set(part)) for part in np.split(kind[order], start[1:])] == [1, 1]


@pytest.mark.parametrize("spread", [16, 1 << 20])
def test_blocks_of_some_rows_have_each_of_them_once(monkeypatch, spread):
    monkeypatch.setattr(geometries, "SPREAD", spread)
    point = np.random.default_rng(0).normal(size=(200, 3))
    number = np.flatnonzero(point[:, 0] > 0)
    order, start = split_points(point, 20, number)
    assert np.array_equal(np.sort(order), number)
    assert np.diff(np.append(start, order.size)).max() <= 20
    if spread > number.size:
        alone, same = split_points(point[number], 20)
        assert np.array_equal(order, number[alone])
        assert np.array_equal(start, same)
