import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.regression.envelope import Surrogate, find_chords, find_hull, smooth
from fairfrontier.models.regression.grid import level_values
from fairfrontier.runtime.arrays import to_numpy
from tests.namespaces import namespaces

each_namespace = pytest.mark.parametrize("namespace", namespaces())
seeded = given(seed=st.integers(0, 10**6), n_grid=st.integers(1, 12), n_cells=st.integers(1, 4))


def draw(seed, n_grid, n_cells):
    rng = np.random.default_rng(seed)
    total = rng.choice([0.0, -1.0, *rng.normal(size=5)], (n_cells, n_grid + 1))
    return np.cumsum(total, axis=1), level_values(n_grid, total)


def enclose(point, value):
    """Return the largest convex function below the points, at the points, chord by chord."""
    hull = value.copy()
    for i in range(len(point)):
        for j in range(i + 1, len(point)):
            inner = slice(i, j + 1)
            share = (point[inner] - point[i]) / (point[j] - point[i])
            hull[inner] = np.minimum(hull[inner], (1 - share) * value[i] + share * value[j])
    return hull


@each_namespace
@settings(max_examples=40, deadline=None)
@seeded
def test_hull_equals_brute_force(namespace, seed, n_grid, n_cells):
    xp = namespace()
    total, point = draw(seed, n_grid, n_cells)
    slope = to_numpy(find_hull(xp.asarray(total)))
    assert (np.diff(slope, axis=1) >= -1e-9).all()
    height = np.cumsum(slope * np.diff(point), axis=1) + total[:, :1]
    expected = np.stack([enclose(point, each) for each in total])
    np.testing.assert_allclose(np.hstack([total[:, :1], height]), expected, atol=1e-9)
    # A convex function is its own envelope.
    convex = to_numpy(find_hull(xp.asarray(expected)))
    np.testing.assert_allclose(convex, np.diff(expected, axis=1) / np.diff(point), atol=1e-8)


@each_namespace
@settings(max_examples=15, deadline=None)
@seeded
@pytest.mark.parametrize("clipped", [True, False])
def test_slopes_are_derivatives(namespace, seed, n_grid, n_cells, clipped):
    xp = namespace()
    total, _ = draw(seed, n_grid, n_cells)
    rng = np.random.default_rng(seed)
    made = smooth(find_chords(xp.asarray(total)), 0.5 / n_grid, clipped=clipped)
    score = rng.uniform(-0.8, 1.8, 60)
    cell = rng.integers(0, n_cells, 60)

    def value(score):
        return to_numpy(made.evaluate(xp.asarray(cell), xp.asarray(score))[0])

    slope = to_numpy(made.evaluate(xp.asarray(cell), xp.asarray(score))[1])
    step = 1e-6
    numeric = (value(score + step) - value(score - step)) / (2 * step)
    np.testing.assert_allclose(slope, numeric, atol=1e-4 * (1 + n_grid * np.abs(total).max()))


@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_values_are_those_of_the_convolution(seed, clipped):
    total, point = draw(seed, 10, 1)
    width = 0.05
    chords = find_chords(total)
    made = smooth(chords, width, clipped=clipped)
    ends = (0.0, 0.0) if clipped else (chords[0, 0], chords[0, -1])
    # The piecewise linear function far beyond [0, 1], and the density of its mean.
    knots = np.concatenate([[-9.0], point, [10.0]])
    heights = np.concatenate([[ends[0] * (-9.0 - point[0])], total[0] - total[0, 0], [0]])
    heights[-1] = heights[-2] + ends[1] * (10.0 - point[-1])
    far = np.linspace(-2, 2, 80001)
    density = 0.25 / np.cosh(far / (2 * width)) ** 2 / width
    score = np.linspace(-0.9, 1.9, 29)
    expected = np.array(
        [np.sum(np.interp(u - far, knots, heights) * density) * (far[1] - far[0]) for u in score]
    )
    value = made.evaluate(np.zeros(29, dtype=int), score)[0]
    # Values are told up to a constant, and slopes are interpolated between points of the table.
    near = 0.01 * np.abs(chords).max() / 10
    np.testing.assert_allclose(value - value[0], expected - expected[0], atol=near)


@settings(max_examples=15, deadline=None)
@seeded
def test_envelopes_stay_convex_and_below(seed, n_grid, n_cells):
    total, _ = draw(seed, n_grid, n_cells)
    made = smooth(find_hull(total), 0.5 / n_grid, clipped=False)
    assert (np.diff(made.slope, axis=1) >= -1e-9).all()
    score = np.linspace(-1, 2, 50)
    value, slope = made.evaluate(np.zeros(50, dtype=int), score)
    middle = made.evaluate(np.zeros(49, dtype=int), (score[1:] + score[:-1]) / 2)[0]
    assert (middle <= (value[1:] + value[:-1]) / 2 + 1e-9).all()
    assert (np.diff(slope) >= -1e-9).all()


def test_cells_have_functions_of_their_own():
    slope = np.array([[0.0, 1.0, 2.0], [5.0, 5.0, 5.0]])
    made = Surrogate(slope, np.array([[0.0, 0.5, 2.0], [0.0, 5.0, 10.0]]))
    value, steep = made.evaluate(np.array([0, 1, 1]), np.array([0.0, 0.0, 2.5]))
    np.testing.assert_allclose(value, [0.125, 2.5, 15.0])
    np.testing.assert_allclose(steep, [0.5, 5.0, 5.0])
