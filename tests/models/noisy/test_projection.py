from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairfrontier.models.noisy.rate import project_capped_simplex, project_simplex
from fairfrontier.runtime.arrays import to_numpy
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


def assert_nearest(x, p, best, scale):
    """Assert ⟨x − p, q − p⟩ ≤ 0 for all feasible q: what makes p the nearest of them."""
    assert best <= (x - p) @ p + 1e-8 * max(1.0, scale)


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
