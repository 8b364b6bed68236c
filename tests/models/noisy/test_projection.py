from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from fairfrontier.models.noisy.rate import (
    project_capped_simplex,
    project_leading_simplex,
    project_simplex,
)
from fairfrontier.runtime.arrays import to_numpy
from tests.models.noisy.reference import project_l1_ball, project_l1_simplex
from tests.namespaces import SecondDevice, namespaces

SCALES = st.sampled_from([1e-3, 0.1, 1.0, 100.0])


def make_point(seed, n, scale):
    """Return a point, some entries tied, and a centre in the simplex, some entries zero."""
    rng = np.random.default_rng(seed)
    x = scale * rng.standard_normal(n)
    if seed % 3 == 0:
        x = np.round(x / scale) * scale
    centre = rng.dirichlet(np.ones(n)) * (rng.random(n) < 0.6)
    if seed % 2 or centre.sum() == 0:
        centre = (rng.random(n) < 0.5).astype(float)
        centre[rng.integers(n)] = 1.0
    return x, centre / centre.sum()


def farthest(direction, constraints, bounds):
    """Return max ⟨direction, q⟩ over the feasible q."""
    # By default a constraint may be missed by 1e-7, which is all of a radius that small.
    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(-direction, **constraints, bounds=bounds, options=exact)
    assert found.success
    return -found.fun


def l1_constraints(centre, radius, simplex):
    """Describe q = c + u − v, u, v ≥ 0, Σ (u + v) ≤ r, and q in the simplex if asked."""
    n = centre.size
    eye, ones = np.eye(n), np.ones((1, n))
    rows = [np.hstack([ones, ones])]
    limits = [radius]
    equal = {}
    if simplex:
        rows.append(np.hstack([-eye, eye]))
        limits.extend(centre)
        equal = {"A_eq": np.hstack([ones, -ones]), "b_eq": [0.0]}
    return {"A_ub": np.vstack(rows), "b_ub": limits, **equal}


def assert_nearest(x, p, best, scale):
    """Assert ⟨x − p, q − p⟩ ≤ 0 for all feasible q: what makes p the nearest of them."""
    assert best <= (x - p) @ p + 1e-8 * max(1.0, scale)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 9), scale=SCALES, radius=st.floats(0, 2.5))
@example(seed=0, n=1, scale=1e-3, radius=1e-7)
def test_no_point_of_ball_and_simplex_is_nearer(seed, n, scale, radius):
    x, centre = make_point(seed, n, scale)
    p = project_l1_simplex(x, centre, radius)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1, abs=1e-9)
    assert np.abs(p - centre).sum() <= radius + 1e-9
    constraints = l1_constraints(centre, radius, simplex=True)
    split = np.concatenate([x - p, p - x])
    best = farthest(split, constraints, (0, None)) + (x - p) @ centre
    assert_nearest(x, p, best, scale)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 9), scale=SCALES, radius=st.floats(0, 2.5))
def test_no_point_of_the_ball_is_nearer(seed, n, scale, radius):
    x, centre = make_point(seed, n, scale)
    p = project_l1_ball(x, centre, radius)
    assert np.abs(p - centre).sum() <= radius + 1e-9
    constraints = l1_constraints(centre, radius, simplex=False)
    split = np.concatenate([x - p, p - x])
    best = farthest(split, constraints, (0, None)) + (x - p) @ centre
    assert_nearest(x, p, best, scale)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 9), scale=SCALES, total=st.floats(0, 3))
def test_no_point_of_the_simplices_is_nearer(seed, n, scale, total):
    x, _ = make_point(seed, n, scale)
    p = project_simplex(x, total)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(total, abs=1e-9)
    ones = np.ones((1, n))
    best = farthest(x - p, {"A_eq": ones, "b_eq": [total]}, (0, None))
    assert_nearest(x, p, best, scale)
    p = project_capped_simplex(x, total)
    assert p.min() >= 0
    assert p.sum() <= total + 1e-9
    best = farthest(x - p, {"A_ub": ones, "b_ub": [total]}, (0, None))
    assert_nearest(x, p, best, scale)


@pytest.mark.parametrize("seed", range(12))
def test_ball_and_simplex_equal_a_quadratic_programme(seed):
    n, radius = 6, 0.15 * (1 + seed % 5)
    x, centre = make_point(seed, n, 0.3)
    start = np.concatenate([np.zeros(2 * n)])
    found = minimize(
        lambda s: 0.5 * np.sum((centre + s[:n] - s[n:] - x) ** 2),
        start,
        jac=lambda s: np.concatenate([d := centre + s[:n] - s[n:] - x, -d]),
        bounds=[(0, None)] * (2 * n),
        constraints=[
            {"type": "ineq", "fun": lambda s: radius - s.sum()},
            {"type": "ineq", "fun": lambda s: centre + s[:n] - s[n:]},
            {"type": "eq", "fun": lambda s: s[:n].sum() - s[n:].sum()},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ours = project_l1_simplex(x, centre, radius)
    np.testing.assert_allclose(ours, centre + found.x[:n] - found.x[n:], atol=1e-5)


def test_what_lies_inside_stays():
    x, centre = make_point(1, 7, 1.0)
    near = project_l1_simplex(x, centre, 0.3)
    np.testing.assert_allclose(project_l1_simplex(near, centre, 0.3), near, atol=1e-12)
    np.testing.assert_allclose(project_l1_simplex(x, centre, 0.0), centre, atol=1e-12)
    np.testing.assert_allclose(project_l1_simplex(x, centre, 2.0), project_simplex(x), atol=1e-12)
    small = np.array([0.1, 0.0, 0.4])
    np.testing.assert_array_equal(project_capped_simplex(small, 1.0), small)


@pytest.mark.parametrize("n", [20, 90])
@pytest.mark.parametrize("namespace", namespaces())
def test_rows_are_projected_each_by_itself(namespace, n):
    xp = namespace()
    x = 0.1 * np.random.default_rng(3).standard_normal((2, 3, n))
    radius = np.array([[0.2, 0.5, 1.0], [0.0, 0.7, 2.0]])
    for project in (project_simplex, project_capped_simplex):
        found = to_numpy(project(xp.asarray(x), xp.asarray(radius)))
        for m, j in np.ndindex(2, 3):
            np.testing.assert_allclose(found[m, j], project(x[m, j], radius[m, j]), atol=1e-12)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 6, 9])
@pytest.mark.parametrize("namespace", namespaces())
def test_short_columns_are_projected_as_rows_are(namespace, m):
    rng = np.random.default_rng(m)
    x = rng.standard_normal((m, 40, 5)) * 10.0 ** rng.integers(-3, 3, (1, 40, 5))
    x[:, :10] = np.round(x[:, :10])
    x[:, 10:20] = x[:1, 10:20]
    found = to_numpy(project_leading_simplex(namespace().asarray(x)))
    rows = np.moveaxis(project_simplex(np.moveaxis(x, 0, -1)), -1, 0)
    np.testing.assert_allclose(found, rows, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-12)


def test_single_precision_stays_single():
    x = make_point(4, 1000, 0.01)[0].astype(np.float32)
    assert project_simplex(x).dtype == np.float32
    np.testing.assert_allclose(project_simplex(x), project_simplex(x.astype(float)), atol=1e-6)
    there = SecondDevice().asarray(x)
    assert project_simplex(there).dtype == there.dtype


@pytest.mark.parametrize("base", [2.0, 0.5, -2.0, -0.5])
def test_entries_of_all_magnitudes_are_projected(base):
    x = np.sign(base) * np.abs(base) ** np.arange(600.0)
    assert project_simplex(x, 1.0).sum() == pytest.approx(1, abs=1e-9)
