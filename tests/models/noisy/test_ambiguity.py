from __future__ import annotations

import numpy as np
import pytest
from array_api_compat import device
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairfrontier.models.noisy.noise import (
    bound_rate_of_cells,
    bound_rate_over_ball,
    maximise_over_ball,
)
from fairfrontier.models.noisy.rate import RATE_CELLS, count_cells, find_rate
from fairfrontier.runtime.arrays import array_namespace, to_numpy
from fairfrontier.runtime.errors import DataError
from tests.models.noisy.reference import ascend_in_ball, centre_rows
from tests.namespaces import namespaces


def make_rows(seed, n=9, m=3, models=2, tied=False):
    rng = np.random.default_rng(seed)
    h = rng.standard_normal((models, n))
    if tied:
        h = h.round(0)
    codes = rng.permutation(np.arange(n) % m)
    level = rng.choice([0.0, 0.1, 1 / 3, 0.5, 0.9, 1.0, 1.4], size=(models, m))
    weight = rng.integers(0, 4, n).astype(float)
    weight[[np.flatnonzero(codes == k)[0] for k in range(m)]] += 1
    return h, codes, level, weight


def spread(found, h, codes, weight):
    """Return p̃, shape (M, m, n)."""
    xp = array_namespace(h)
    m = found.value.shape[1]
    chosen = xp.eye(m, dtype=xp.float64, device=device(h))
    parts = [found.combine(xp.stack([chosen[j, :]] * 2), h, codes, weight) for j in range(m)]
    return xp.stack(parts, axis=1)


def solve_ball(h, centre, level, support):
    """Solve the programme over p̃ = p̂ + u − v."""
    n = h.size
    eye, ones = np.eye(n), np.ones((1, n))
    found = linprog(
        -np.concatenate([h, -h]),
        A_ub=np.vstack([np.hstack([ones, ones]), np.hstack([-eye, eye])]),
        b_ub=np.concatenate([[2 * level], centre]),
        A_eq=np.hstack([ones, -ones]),
        b_eq=[0.0],
        bounds=[(0, None if on else 0) for on in support] + [(0, None)] * n,
    )
    assert found.success
    return h @ centre - found.fun


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), tied=st.booleans(), weighted=st.booleans())
def test_maximum_equals_a_linear_programme(seed, tied, weighted):
    h, codes, level, weight = make_rows(seed, tied=tied)
    used = weight if weighted else np.ones_like(weight)
    found = maximise_over_ball(h, codes, level, used)
    worst = spread(found, h, codes, used)
    centre = centre_rows(codes, 3, used)
    for model in range(2):
        for j in range(3):
            p = worst[model, j]
            best = solve_ball(h[model], centre[j], level[model, j], used > 0)
            assert found.value[model, j] == pytest.approx(best, abs=1e-9)
            assert p @ h[model] == pytest.approx(best, abs=1e-9)
            assert p.min() >= 0
            assert p.sum() == pytest.approx(1)
            assert np.abs(p - centre[j]).sum() <= 2 * level[model, j] + 1e-9
            assert found.moved[model, j] <= level[model, j] + 1e-12
            assert (p[used == 0] == 0).all()
    multiplier = np.random.default_rng(seed).random((2, 3))
    combined = found.combine(multiplier, h, codes, used)
    np.testing.assert_allclose(combined, np.einsum("mj,mjn->mn", multiplier, worst), atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_row_weights_are_the_gradient(seed):
    h, codes, level, weight = make_rows(seed, models=1)
    found = maximise_over_ball(h, codes, level, weight=weight)
    gradient = found.combine(np.ones((1, 3)), h, codes, weight)[0]
    for i in range(h.shape[1]):
        step = np.zeros_like(h)
        step[0, i] = 1e-6
        after = maximise_over_ball(h + step, codes, level, weight=weight).value.sum()
        before = maximise_over_ball(h - step, codes, level, weight=weight).value.sum()
        assert gradient[i] == pytest.approx((after - before) / 2e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_ascent_reaches_the_maximum(seed):
    h, codes, level, _ = make_rows(seed, n=20)
    found = maximise_over_ball(h, codes, level, np.ones(20))
    centre = centre_rows(codes, 3)
    p = np.broadcast_to(centre, (2, 3, 20))
    values = []
    for _ in range(40):
        p = ascend_in_ball(p, 20 * h[:, None, :], centre, level)
        values.append((p * h[:, None, :]).sum(axis=-1))
    assert (np.diff(values, axis=0) >= -1e-12).all()
    np.testing.assert_allclose(values[-1], found.value, atol=1e-8)


def test_the_authors_step_stays_in_the_ball_but_leaves_the_simplex():
    h, codes, level, _ = make_rows(3, n=20)
    centre = centre_rows(codes, 3)
    p = ascend_in_ball(
        np.broadcast_to(centre, (2, 3, 20)), h[:, None, :], centre, level, variant="authors"
    )
    assert p.min() >= 0
    assert (np.abs(p - centre).sum(axis=-1) <= 2 * level + 1e-9).all()
    assert np.abs(p.sum(axis=-1) - 1).max() > 0.1


def test_rows_at_the_maximum_give_nothing_away():
    h = np.array([[1.0, 1.0, 0.0, 1.0]])
    found = maximise_over_ball(h, np.array([0, 0, 0, 1]), np.array([0.9, 0.9]), np.ones(4))
    np.testing.assert_allclose(found.moved, [[1 / 3, 0.0]])
    np.testing.assert_allclose(found.value, [[1.0, 1.0]])


def test_more_true_groups_than_noisy_ones():
    h, codes, _, weight = make_rows(5, m=2)
    level = np.array([0.1, 0.3, 0.6])
    found = maximise_over_ball(h, codes, level, weight, centre=(1, 0, 1))
    for j, k in enumerate((1, 0, 1)):
        alone = maximise_over_ball(h, codes, np.full(2, level[j]), weight).value[:, k]
        np.testing.assert_array_equal(found.value[:, j], alone)


def test_an_absent_group_is_named():
    h = np.arange(4.0)
    codes = np.array([0, 0, 2, 2])
    with pytest.raises(DataError, match="noisy group 1"):
        maximise_over_ball(h[None], codes, np.full(3, 0.1), np.ones(4))
    with pytest.raises(DataError, match="noisy group 1"):
        bound_rate_over_ball(h / 4, h > 1, codes, np.full(3, 0.1), np.ones(4))
    weight = np.array([1.0, 1.0, 0.0, 0.0])
    with pytest.raises(DataError, match="noisy group 2"):
        maximise_over_ball(h[None], codes, np.full(1, 0.1), weight, centre=(2,))


def least_by_programme(outcome, among, centre, level, support):
    """Return the least ratio by Charnes and Cooper: q = t p̃ with Σ q d = 1."""
    n = outcome.size
    d = among.astype(float)
    eye, ones = np.eye(n), np.ones((1, n))
    column = centre[:, None]
    # Variables q, the absolute deviation e ≥ |q − t c|, and t.
    found = linprog(
        np.concatenate([d * outcome, np.zeros(n + 1)]),
        A_ub=np.vstack(
            [
                np.hstack([eye, -eye, -column]),
                np.hstack([-eye, -eye, column]),
                np.hstack([0 * ones, ones, [[-2 * level]]]),
            ]
        ),
        b_ub=np.zeros(2 * n + 1),
        A_eq=np.vstack(
            [np.hstack([d[None], 0 * ones, [[0.0]]]), np.hstack([ones, 0 * ones, [[-1.0]]])]
        ),
        b_eq=[1.0, 0.0],
        bounds=[(0, None if on else 0) for on in support] + [(0, None)] * (n + 1),
    )
    return found.fun if found.success else np.nan


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), whole=st.booleans(), weighted=st.booleans())
def test_worst_rates_equal_linear_programmes(seed, whole, weighted):
    _, codes, level, weight = make_rows(seed)
    rng = np.random.default_rng(seed)
    decision = rng.random(9).round(0 if whole else 2)
    y = (rng.random(9) < rng.choice([0.2, 0.5])).astype(int)
    used = weight if weighted else np.ones_like(weight)
    centre = centre_rows(codes, 3, used)
    name = rng.choice(list(RATE_CELLS))
    outcome = np.where(y == 1, decision, 1 - decision) if name == "accuracy" else decision
    among = {"tpr": y == 1, "fpr": y == 0}.get(name, np.ones(9, dtype=bool))
    low, high = bound_rate_over_ball(outcome, among, codes, level[0], weight=used)
    for j in range(3):
        args = (among, centre[j], level[0, j], used > 0)
        assert low[j] == pytest.approx(least_by_programme(outcome, *args), abs=1e-8, nan_ok=True)
        best = 1 - least_by_programme(1 - outcome, *args)
        assert high[j] == pytest.approx(best, abs=1e-8, nan_ok=True)
    cells = count_cells(decision, y, codes, 3, used)
    below, above = bound_rate_of_cells(cells, level[0], find_rate(name))
    if whole:
        np.testing.assert_allclose(below, low, atol=1e-9)
        np.testing.assert_allclose(above, high, atol=1e-9)
    else:
        # Within a cell some rows are worse than others, but none worse than a whole decision.
        assert (below[~np.isnan(low)] <= low[~np.isnan(low)] + 1e-9).all()
        assert (above[~np.isnan(low)] >= high[~np.isnan(low)] - 1e-9).all()


@pytest.mark.parametrize("namespace", namespaces())
def test_every_backend_gives_the_same(namespace):
    xp = namespace()
    h, codes, level, weight = make_rows(11, n=30)
    moved = [xp.asarray(each) for each in (h, codes, level, weight)]
    ours = maximise_over_ball(*moved[:3], weight=moved[3])
    theirs = maximise_over_ball(h, codes, level, weight=weight)
    np.testing.assert_allclose(to_numpy(ours.value), theirs.value)
    np.testing.assert_allclose(
        to_numpy(spread(ours, moved[0], moved[1], moved[3])),
        spread(theirs, h, codes, weight),
        atol=1e-15,
    )
    share = moved[3] / 4
    rates = bound_rate_over_ball(share, moved[0][0, :] > 0, moved[1], moved[2][0, :], moved[3])
    expected = bound_rate_over_ball(weight / 4, h[0] > 0, codes, level[0], weight)
    np.testing.assert_allclose(to_numpy(rates[0]), expected[0])
    cells = count_cells(share, xp.astype(moved[0][0, :] > 0, xp.int64), moved[1], 3)
    assert bound_rate_of_cells(cells, moved[2], find_rate("fpr"))[0].shape == (2, 3)
