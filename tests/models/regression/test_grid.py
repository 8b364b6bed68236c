import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.regression.grid import (
    accumulate_costs,
    choose_targets,
    count_levels,
    grid_labels,
    level_values,
    measure_disparity,
    measure_parity,
    round_down,
    sum_labels,
    tabulate_loss,
)
from fairfrontier.models.regression.loss import logistic, square
from fairfrontier.runtime.arrays import to_numpy
from tests.namespaces import namespaces

each_namespace = pytest.mark.parametrize("namespace", namespaces())
seeded = given(
    seed=st.integers(0, 10**6), n=st.integers(2, 30), n_grid=st.integers(1, 9), m=st.integers(1, 4)
)


def draw(seed, n, n_grid, m):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.concatenate([np.arange(m), rng.integers(0, m, n)]))
    y = rng.choice([0.0, 1.0, 0.5, *rng.random(5)], group.size)
    score = rng.choice([0.0, 1.0, 1 / n_grid, *rng.random(9)], group.size)
    return rng, group, y, score, rng.random(group.size) + 0.1


@each_namespace
def test_rounding_down_keeps_grid_points(namespace):
    xp = namespace()
    for n_grid in (1, 7, 40, 100):
        points = xp.asarray(np.arange(n_grid + 1) / n_grid)
        np.testing.assert_array_equal(to_numpy(round_down(points, n_grid)), np.arange(n_grid + 1))
    outside = xp.asarray(np.array([-0.3, 0.099, 0.1, 0.999, 1.7]))
    np.testing.assert_array_equal(to_numpy(round_down(outside, 10)), [0, 0, 1, 9, 10])


@each_namespace
@settings(max_examples=15, deadline=None)
@seeded
def test_reduced_costs_equal_the_lagrangian(namespace, seed, n, n_grid, m):
    # Eq. 12: the mean of g_λ over rows is the loss plus Σ λ γ̂, less the loss of predicting level 0.
    xp = namespace()
    rng, group, y, score, weight = draw(seed, n, n_grid, m)
    weight /= weight.sum()
    multiplier = rng.normal(size=(m, n_grid))
    loss = square()
    labels = grid_labels(xp.asarray(y), xp.asarray(weight), n_grid)
    value, code = to_numpy(labels.value), to_numpy(labels.code)
    share = np.bincount(group, weights=weight)
    table = tabulate_loss(loss, labels.value, n_grid)
    total = to_numpy(accumulate_costs(table, xp.asarray(multiplier), xp.asarray(share)))
    penalty = multiplier / share[:, None] - multiplier.sum(axis=0)
    cost = n_grid * (np.diff(to_numpy(table))[None] + penalty[:, None, :])
    level = np.floor(score * n_grid + 1e-9).astype(int)
    grid = np.arange(1, n_grid + 1) / n_grid
    reached = score[:, None] >= grid[None, :] - 1e-9
    direct = sum(
        weight[i] * cost[group[i], code[i], z] / n_grid
        for i in range(len(y))
        for z in range(n_grid)
        if reached[i, z]
    )
    ours = weight @ total[group, code, level]
    assert ours == pytest.approx(direct, abs=1e-12)
    parity = np.stack(
        [
            np.average(reached[group == a], axis=0, weights=weight[group == a])
            - np.average(reached, axis=0, weights=weight)
            for a in range(m)
        ]
    )
    at = np.minimum((level + 0.5) / n_grid, 1.0)
    floor = 0.5 / n_grid if n_grid > 0 else 0.0
    base = weight @ (loss.value(value[code], at) - loss.value(value[code], floor))
    assert ours == pytest.approx(base + (multiplier * parity).sum(), abs=1e-12)
    counts = count_levels(
        *(xp.asarray(each) for each in (level, group, weight)), n_groups=m, n_grid=n_grid
    )
    np.testing.assert_allclose(to_numpy(measure_parity(counts)), parity, atol=1e-12)


@each_namespace
@settings(max_examples=15, deadline=None)
@seeded
def test_labels_lie_near_their_cells(namespace, seed, n, n_grid, m):
    xp = namespace()
    _, _, y, _, weight = draw(seed, n, n_grid, m)
    weight[0] = 0.0
    arrays = xp.asarray(y), xp.asarray(weight)
    labels = grid_labels(*arrays, n_grid)
    value, code = to_numpy(labels.value), to_numpy(labels.code)
    assert value.size <= 2 * n_grid
    assert np.abs(value[code] - y).max() <= 0.5 / n_grid + 1e-12
    assert np.unique(code).size == value.size
    for cell in range(value.size):
        mine = code == cell
        if weight[mine].sum() > 0:
            assert value[cell] == pytest.approx(np.average(y[mine], weights=weight[mine]))
    # Tables of two partitions add up to that of the whole.
    half = len(y) // 2
    parts = [sum_labels(*(each[rows] for each in arrays), n_grid)
             for rows in (slice(None, half), slice(half, None))]  # fmt: skip
    np.testing.assert_allclose(
        to_numpy(parts[0] + parts[1]), to_numpy(sum_labels(*arrays, n_grid)), atol=1e-12
    )


@each_namespace
def test_targets_are_middles_of_the_least_interval(namespace):
    xp = namespace()
    total = np.array(
        [
            [0.0, -1.0, -1.0, 2.0, 0.0],  # levels 1 and 2: [1/4, 3/4)
            [0.0, 0.0, 0.0, 0.0, 0.0],  # all: [0, 1]
            [0.0, 1.0, 1.0, 1.0, -1.0],  # the point 1
            [-1.0, 1.0, -1.0, 1.0, 1.0],  # of two runs the first: [0, 1/4)
            [0.3, 0.1 + 0.2, 1.0, 1.0, 1.0],  # equal but for rounding
        ]
    )
    middle = to_numpy(choose_targets(xp.asarray(total)))
    np.testing.assert_allclose(middle, [0.5, 0.5, 1.0, 0.125, 0.25])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), n_grid=st.integers(1, 8))
def test_targets_minimise_over_a_fine_search(seed, n_grid):
    rng = np.random.default_rng(seed)
    value = np.sort(rng.random(3))
    share = rng.dirichlet([2.0, 3.0])
    table = tabulate_loss(logistic(), value, n_grid)
    total = accumulate_costs(table, rng.normal(size=(2, n_grid)), share)
    target = choose_targets(total)
    fine = np.linspace(0, 1, 20 * n_grid + 1)
    by_search = np.take(total, round_down(fine, n_grid), axis=-1).min(axis=-1)
    reached = np.take_along_axis(total, round_down(target, n_grid)[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(reached, by_search, atol=1e-12)


def test_without_multipliers_targets_are_labels_to_half_a_step():
    value = np.linspace(0, 1, 33)
    table = tabulate_loss(square(), value, 20)
    total = accumulate_costs(table, np.zeros((2, 20)), np.array([0.4, 0.6]))
    assert np.abs(choose_targets(total) - value).max() <= 0.025 + 1e-12
    assert level_values(20, value)[-1] == 1.0


@each_namespace
@settings(max_examples=15, deadline=None)
@seeded
def test_disparity_over_all_thresholds_equals_a_search(namespace, seed, n, n_grid, m):
    xp = namespace()
    rng, group, _, score, weight = draw(seed, n, n_grid, m)
    both = np.stack([score, rng.choice(score, score.size)], axis=1)
    mass = weight[:, None] * np.array([0.3, 0.7])
    expected = np.zeros(m)
    for z in np.unique(both):
        overall = mass[both >= z].sum() / mass.sum()
        for a in range(m):
            mine = mass[group == a]
            rate = mine[both[group == a] >= z].sum() / mine.sum()
            expected[a] = max(expected[a], abs(rate - overall))
    ours = measure_disparity(*map(xp.asarray, (both, group, mass)), m)
    np.testing.assert_allclose(to_numpy(ours), expected, atol=1e-12)
    # Last digits are no thresholds.
    shaken = 0.5 + 1e-15 * np.arange(score.size) * group
    assert not to_numpy(measure_disparity(*map(xp.asarray, (shaken, group, weight)), m)).any()
    plain = measure_disparity(*map(xp.asarray, (score, group, weight)), m)
    twice = measure_disparity(*map(xp.asarray, (both[:, [0, 0]], group, mass)), m)
    np.testing.assert_allclose(to_numpy(plain), to_numpy(twice), atol=1e-12)
