from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairfrontier.models.noisy.assignment import bound_rates, maximise_by_group
from fairfrontier.models.noisy.rate import RATE_CELLS, find_rate, sum_cells
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import DataError
from papers.rival.ideal import maximise_assignment, score_constraint
from tests.models.noisy.reference import (
    differentiate_assignment,
    evaluate_assignment,
    evaluate_rates,
)
from tests.namespaces import namespaces

RATES = sorted(RATE_CELLS)


def make_problem(seed, sparse=True):
    """Return cells and P(G | Ĝ) for m̂ noisy and m true groups, some cells and entries zero."""
    rng = np.random.default_rng(seed)
    n_noisy, m = rng.integers(1, 5), rng.integers(2, 5)
    cells = rng.dirichlet(np.ones(4 * n_noisy)).reshape(n_noisy, 4)
    posterior = rng.dirichlet(np.ones(m), size=n_noisy)
    if sparse and seed % 3 == 0:
        cells = cells * (rng.random(cells.shape) < 0.6)
        cells[0] += 0.05
        posterior = posterior * (rng.random(posterior.shape) < 0.7)
        posterior[0] += 0.1
        posterior[posterior.sum(axis=1) == 0] = 1.0
    cells /= cells.sum()
    return cells, posterior / posterior.sum(axis=1, keepdims=True)


def assign_jointly(score, multiplier, cells, posterior):
    """Return one worst assignment for all groups, of one rate."""
    gain = differentiate_assignment(score, multiplier, cells, posterior)
    found = linprog(-gain.ravel(), **constraints(cells, posterior), bounds=(0, None))
    return found.x.reshape(gain.shape)


def constraints(cells, posterior):
    """Describe W(θ) over w(j | c, k), flattened as (j, k, c)."""
    n_noisy, m = posterior.shape
    rows, right = [], []
    for k in range(n_noisy):
        for j in range(m):
            row = np.zeros((m, n_noisy, 4))
            row[j, k] = cells[k]
            rows.append(row.ravel())
            right.append(posterior[k, j] * cells[k].sum())
        for c in range(4):
            row = np.zeros((m, n_noisy, 4))
            row[:, k, c] = 1
            rows.append(row.ravel())
            right.append(1.0)
    return {"A_eq": np.array(rows), "b_eq": np.array(right)}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), tied=st.booleans())
def test_each_maximum_equals_a_linear_programme(seed, tied):
    cells, posterior = make_problem(seed)
    rng = np.random.default_rng(seed)
    score = rng.standard_normal(4).round(0 if tied else 3)
    m = posterior.shape[1]
    prior = posterior.T @ cells.sum(axis=1)
    values = maximise_assignment(score, cells, posterior)
    gain = np.broadcast_to(score, cells.shape) * cells
    weight = maximise_by_group(gain, cells, posterior)
    limits = constraints(cells, posterior)
    multiplier = rng.standard_normal(m)
    joint = np.zeros((m, *cells.shape))
    for j in range(m):
        gain = np.zeros((m, *cells.shape))
        gain[j] = score * cells / prior[j]
        joint += multiplier[j] * gain
        best = linprog(-gain.ravel(), **limits, bounds=(0, None))
        assert values[j] == pytest.approx(-best.fun, abs=1e-8)
        assert (gain[j] * weight[j]).sum() == pytest.approx(-best.fun, abs=1e-8)
        total = (weight[j] * cells).sum(axis=-1)
        np.testing.assert_allclose(total, posterior[:, j] * cells.sum(axis=1), atol=1e-12)
        assert weight.min() >= 0
        assert weight.max() <= 1
    gradient = differentiate_assignment(score, multiplier, cells, posterior)
    np.testing.assert_allclose(gradient, joint, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(RATES),
    side=st.sampled_from(["below", "above"]),
    budget=st.floats(0, 0.3),
)
def test_lemmas_2_to_5(seed, name, side, budget):
    # E[h | G=j] is ½ P(among | G=j) times the constraint's value, so the signs agree.
    cells, posterior = make_problem(seed, sparse=False)
    rate = find_rate(name)
    rng = np.random.default_rng(seed)
    score = score_constraint(cells, rate, budget, side)
    total = cells.sum(axis=0)
    overall = sum_cells(total, rate.good) / sum_cells(total, rate.among)
    assigned = assign_jointly(
        rng.standard_normal(4), rng.standard_normal(posterior.shape[1]), cells, posterior
    )
    mass = (assigned * cells).sum(axis=1)
    prior = mass.sum(axis=1)
    among = sum_cells(mass, rate.among) / prior
    rates = evaluate_rates(assigned, cells, rate)
    violation = overall - rates - budget if side == "below" else rates - overall - budget
    values = evaluate_assignment(score, assigned, cells, posterior)
    np.testing.assert_allclose(values, np.where(among > 0, among * violation / 2, 0.0), atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(RATES), loose=st.booleans())
def test_rate_bounds_equal_linear_programmes(seed, name, loose):
    cells, posterior = make_problem(seed)
    rate = find_rate(name)
    rng = np.random.default_rng(seed)
    limits = None
    low_limit, high_limit = posterior, posterior
    if loose:
        low_limit = posterior * rng.random(posterior.shape)
        high_limit = posterior + (1 - posterior) * rng.random(posterior.shape)
        limits = (low_limit, high_limit)
    low, high = bound_rates(cells, posterior, rate, limits)
    size = cells.sum(axis=1)
    for j in range(posterior.shape[1]):
        # Charnes and Cooper: masses t u with a denominator of 1, as variables (u, t).
        good = np.tile([float(c in rate.good) for c in range(4)], len(cells))
        among = np.tile([float(c in rate.among) for c in range(4)], len(cells))
        sums = np.kron(np.eye(len(cells)), np.ones((1, 4)))
        bounds = np.vstack(
            [
                np.hstack([np.eye(4 * len(cells)), -cells.reshape(-1, 1)]),
                np.hstack([sums, -(high_limit[:, j] * size)[:, None]]),
                np.hstack([-sums, (low_limit[:, j] * size)[:, None]]),
            ]
        )
        for sign, ours in ((1, low[j]), (-1, high[j])):
            best = linprog(
                sign * np.append(good, 0),
                A_ub=bounds,
                b_ub=np.zeros(len(bounds)),
                A_eq=np.append(among, 0)[None],
                b_eq=[1.0],
                bounds=(0, None),
            )
            if not best.success:
                assert np.isnan(ours)
            else:
                assert ours == pytest.approx(sign * best.fun, abs=1e-7)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(RATES))
def test_opposite_extremes_of_two_groups_are_reached_together(seed, name):
    cells, posterior = make_problem(seed)
    rate = find_rate(name)
    low, high = bound_rates(cells, posterior, rate)
    n_noisy, m = posterior.shape
    bad = np.array([float(c in rate.bad) for c in range(4)])
    good = np.array([float(c in rate.good) for c in range(4)])
    for i, j in itertools.permutations(range(m), 2):
        # One w that gives i the worst and j the best: it also serves the others what is theirs.
        gain = np.zeros((m, n_noisy, 4))
        gain[i], gain[j] = (bad - good) * cells, (good - bad) * cells
        found = linprog(-gain.ravel(), **constraints(cells, posterior), bounds=(0, None))
        weight = found.x.reshape(gain.shape)
        rates = evaluate_rates(weight, cells, rate)
        if not np.isnan(rates[i] + rates[j]):
            assert rates[i] == pytest.approx(low[i], abs=1e-7)
            assert rates[j] == pytest.approx(high[j], abs=1e-7)


def test_no_row_of_one_kind():
    cells = np.array([[0.5, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]])
    posterior = np.array([[0.5, 0.5], [0.5, 0.5]])
    low, high = bound_rates(cells, posterior, find_rate("tpr"))
    assert np.isnan(low).all()
    assert np.isnan(high).all()
    cells = np.array([[0.5, 0.0, 0.2, 0.3]])
    low, high = bound_rates(cells, posterior[:1], find_rate("tpr"))
    np.testing.assert_array_equal(low, [1, 1])
    np.testing.assert_array_equal(high, [1, 1])
    with pytest.raises(DataError):
        score_constraint(cells * [1, 1, 1, 0], find_rate("tpr"), 0.1, "below")
    with pytest.raises(DataError, match="true group 1 has no probability"):
        maximise_assignment(np.ones(4), cells, np.array([[1.0, 0.0]]))


@pytest.mark.parametrize("namespace", namespaces())
def test_every_backend_and_model_axis_gives_the_same(namespace):
    xp = namespace()
    rng = np.random.default_rng(0)
    models, n_noisy, m = 3, 4, 2
    cells = rng.dirichlet(np.ones(4 * n_noisy), size=models).reshape(models, n_noisy, 4)
    posterior = rng.dirichlet(np.ones(m), size=n_noisy)
    score = rng.standard_normal((models, 4))
    s, v, b = (xp.asarray(each) for each in (score, cells, posterior))
    rate = find_rate("tpr")
    ours = {
        "one": maximise_assignment(s, v, b),
        "weight": maximise_by_group(s[:, None, :] * v, v, b),
        "bound": xp.stack(bound_rates(v, b, rate)),
        "score": score_constraint(v, rate, 0.1, "above"),
    }
    for model in range(models):
        s1, v1 = score[model], cells[model]
        expected = {
            "one": maximise_assignment(s1, v1, posterior),
            "weight": maximise_by_group(s1 * v1, v1, posterior),
            "bound": np.stack(bound_rates(v1, posterior, rate)),
            "score": score_constraint(v1, rate, 0.1, "above"),
        }
        for name, value in expected.items():
            mine = to_numpy(ours[name])
            mine = mine[:, model] if name == "bound" else mine[model]
            np.testing.assert_allclose(mine, value, atol=1e-12, err_msg=name)
