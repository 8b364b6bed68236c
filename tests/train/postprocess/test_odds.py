from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.train.postprocess.conditional import solve_opportunity
from fairfrontier.train.postprocess.odds import propose_rates, solve_odds
from tests.namespaces import namespaces
from tests.train.postprocess.made import Rows, make_rows, objective
from tests.train.postprocess.programme import find_best, group_means, least_violation

seeds = st.integers(0, 10**6)
cuts = st.sampled_from([0.0, -0.6, 0.35])


def make(seed: int, n: int = 14, n_groups: int = 2, width: float | None = None) -> Rows:
    """Draw a problem with a positive width, in which both rates of every group are defined."""
    rows = make_rows(seed, n, n_groups, width)
    score = np.clip(rows.score, -0.95, 0.95)
    return replace(rows, score=score, width=max(rows.width, 0.01))


def solve(rows: Rows, rates, **changed):
    options = {"width": rows.width, "budget": rows.budget, "weight": rows.weight} | changed
    return solve_odds(rows.score, rows.code, rows.n_groups, rates=tuple(rates), **options)


def propose(rows: Rows, criterion: str, **changed):
    return propose_rates(
        rows.score, rows.code, rows.n_groups, criterion=criterion, weight=rows.weight, **changed
    )


def both_rates(rows: Rows) -> np.ndarray:
    """Return the matrices of tpr and fpr, stacked: (2 n_groups, n)."""
    eta = (1 + rows.score) / 2
    return np.vstack([group_means(rows, each, rates=True) for each in (eta, 1 - eta)])


def choose_rates(rows: Rows, seed: int) -> np.ndarray:
    """Return rates anywhere, near the diagonal, or on the curves."""
    generator = np.random.default_rng(seed)
    tpr, fpr = generator.random(2)
    near = np.array([tpr, 0.9 * tpr + 0.02])
    return (np.array([tpr, fpr]), near, propose(rows, "equalized_odds")[seed % 6])[seed % 3]


@settings(max_examples=30, deadline=None)
@given(seed=seeds, n_groups=st.integers(1, 5), cut=cuts)
def test_is_the_best_of_all_decisions_or_says_how_far_off(seed, n_groups, cut):
    rows = make(seed, n_groups=n_groups)
    rates, gains = choose_rates(rows, seed), replace(rows, score=rows.score - cut)
    found = solve(rows, rates, cut=cut)
    means, targets = both_rates(rows), np.repeat(rates, n_groups)
    low, high = targets - rows.budget / 2, targets + rows.budget / 2
    h = found.rule.probability(rows.score, rows.code)
    np.testing.assert_allclose((means @ h).reshape(2, -1).T, found.reached, atol=1e-9)
    for k in range(n_groups):
        pair = [k, n_groups + k]
        assert found.violation[k] == pytest.approx(
            least_violation(means[pair], low[pair], high[pair]), abs=1e-8
        )
    assert abs(found.gap) <= 1e-8 * (1 + np.abs(found.multiplier).max())
    assert found.converged == (found.violation.max() < 1e-9)
    assert found.objective == pytest.approx(objective(gains, h), abs=1e-12)
    best = find_best(gains, means, low, high)
    assert best is None or not found.converged or found.objective <= best + 2e-6


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_the_rule_is_the_formula(seed):
    rows = make(seed, n=30)
    found = solve(rows, choose_rates(rows, seed))
    a, b = found.multiplier[rows.code].T
    f = rows.score
    h = np.clip((f - a * (1 + f) / 2 - b * (1 - f) / 2) / rows.width, 0, 1)
    scale = 1 + np.abs(found.multiplier).max() / rows.width
    np.testing.assert_allclose(found.rule.probability(f, rows.code), h, atol=1e-14 * scale)


def test_without_a_budget_the_width_does_not_matter():
    rows = replace(make(5, n=50), budget=0.0)
    rates = propose(rows, "equalized_odds")[2] * 0.9 + 0.05
    one, two = (solve(rows, rates, width=width) for width in (0.05, 1.0))
    assert one.converged
    np.testing.assert_allclose(one.reached, np.tile(rates, (2, 1)), atol=1e-12)
    np.testing.assert_allclose(
        one.rule.probability(rows.score, rows.code),
        two.rule.probability(rows.score, rows.code),
        atol=1e-9,
    )
    assert not np.allclose(one.multiplier, two.multiplier)


def test_a_large_budget_leaves_scores_alone():
    rows = make(5, n=50)
    found = solve(rows, (0.5, 0.5), budget=1.0)
    np.testing.assert_array_equal(found.multiplier, 0)
    h = np.clip(rows.score / rows.width, 0, 1)
    np.testing.assert_allclose(found.rule.probability(rows.score, rows.code), h, atol=1e-12)


def test_one_binding_rate_is_equal_opportunity():
    # Where the bounds on fpr bind nothing, the other multiplier is that of equal opportunity.
    generator = np.random.default_rng(0)
    score, code = generator.uniform(-0.9, 0.9, 300), np.zeros(300, dtype=np.int64)
    odds = solve_odds(score, code, 1, width=0.2, rates=(0.6, 0.4), budget=0.15)
    one = solve_opportunity(score, code, 1, width=0.2, rate=0.6, budget=0.15)
    tpr, fpr = odds.reached[0]
    assert tpr == pytest.approx(0.675)
    assert odds.multiplier[0, 0] > 0
    if abs(fpr - 0.4) < 0.075 - 1e-9:
        assert odds.multiplier[0] == pytest.approx([one.multiplier[0], 0.0])
    else:
        assert fpr == pytest.approx(0.325)
        assert odds.multiplier[0, 1] < 0


def test_what_a_group_cannot_reach_is_told():
    # One score for all: only tpr = fpr can be had.
    score, code = np.array([0.2, 0.2, -0.5, 0.7]), np.array([0, 0, 1, 1])
    found = solve_odds(score, code, 2, width=0.1, rates=(0.7, 0.5), budget=0.04)
    assert found.violation == pytest.approx([0.08, 0.0])
    assert found.reached[0] == pytest.approx([0.6, 0.6])
    assert not found.converged
    wide = solve_odds(score, code, 2, width=0.1, rates=(0.7, 0.5), budget=0.2)
    assert wide.converged
    # Below the diagonal of rates the same holds.
    found = solve_odds(score, code, 2, width=0.1, rates=(0.5, 0.7), budget=0.04)
    assert found.violation[0] == pytest.approx(0.08)


@pytest.mark.parametrize("f", [-1.0, 1.0])
@pytest.mark.parametrize("budget", [0.0, 0.3])
def test_a_group_of_certain_scores_has_one_rate(f, budget):
    score, code = np.array([f, f, -0.5, 0.7]), np.array([0, 0, 1, 1])
    found = solve_odds(score, code, 2, width=0.1, rates=(0.6, 0.4), budget=budget)
    assert found.converged
    has = int(f < 0)
    assert np.isnan(found.reached[0, 1 - has])
    bound = (0.6 + budget / 2, 0.4 - budget / 2)[has]
    assert found.reached[0, has] == pytest.approx(bound)
    np.testing.assert_allclose(found.rule.probability(score, code)[:2], bound, atol=1e-12)


def test_decreasing_in_the_score_where_fpr_is_to_be_higher():
    rows = replace(make(6, n=60), budget=0.0)
    found = solve(rows, (0.4, 0.45))
    assert found.converged
    assert np.all(found.rule.slope < 0)


@settings(max_examples=20, deadline=None)
@given(seed=seeds, n_groups=st.integers(1, 5), cut=cuts)
def test_proposed_rates_can_be_reached_and_the_first_is_best(seed, n_groups, cut):
    rows = replace(make(seed, n=20, n_groups=n_groups), budget=0.0)
    gains = replace(rows, score=rows.score - cut, width=0.0)
    odds = propose(rows, "equalized_odds", cut=cut)
    assert odds.shape == (6, 2)
    for rates in odds:
        assert solve(rows, rates).violation.max() <= 1e-9
    # A programme over h and the common rates themselves.
    means = both_rates(rows)
    equal = np.hstack([means, -np.repeat(np.eye(2), n_groups, axis=0)])
    gain = np.append(rows.weight / rows.weight.sum() * gains.score, [0.0, 0.0])
    best = linprog(-gain, A_eq=equal, b_eq=np.zeros(2 * n_groups), bounds=(0, 1))
    assert objective(gains, decide(rows, odds[0])) == pytest.approx(best.fun, abs=1e-8)
    tpr = propose(rows, "equal_opportunity", cut=cut)
    assert tpr.shape == (6,)
    equal = np.hstack([means[:n_groups], -np.ones((n_groups, 1))])
    best = linprog(-gain[:-1], A_eq=equal, b_eq=np.zeros(n_groups), bounds=(0, 1))
    options = {"width": 0.0, "budget": 0.0, "cut": cut}
    found = [
        solve_opportunity(
            rows.score, rows.code, n_groups, rate=rate, weight=rows.weight, **options
        ).objective
        for rate in tpr
    ]
    assert found[0] == pytest.approx(best.fun, abs=1e-8)
    assert min(found) >= found[0] - 1e-12


def decide(rows: Rows, rates: np.ndarray) -> np.ndarray:
    return solve(rows, rates).rule.probability(rows.score, rows.code)


def test_proposed_rates_lie_between_the_groups_own():
    rows = make(2, n=200, n_groups=3)
    h, means = (rows.score >= 0).astype(float), both_rates(rows)
    tpr, fpr = (means @ h).reshape(2, 3)
    proposed = propose(rows, "equal_opportunity", count=3)
    np.testing.assert_allclose(
        proposed[1:], [tpr.min(), (tpr.min() + tpr.max()) / 2, tpr.max()], atol=1e-12
    )
    proposed = propose(rows, "equalized_odds", count=2)
    np.testing.assert_allclose(proposed[1:, 1], [fpr.min(), fpr.max()], atol=1e-12)


def test_proposals_where_no_group_binds():
    score, code = np.array([1.0, 1.0, -1.0]), np.array([0, 0, 1])
    assert propose_rates(score, code, 2, criterion="equalized_odds").shape == (6, 2)
    assert propose_rates(score, code, 2, criterion="equal_opportunity").shape == (6,)
    with pytest.raises(ValueError, match="'parity'"):
        propose_rates(score, code, 2, criterion="parity")


def test_order_repetition_and_weight():
    rows = make(12, n=80, n_groups=3, width=0.2)
    rows = replace(rows, weight=np.random.default_rng(0).integers(0, 4, 80).astype(float))
    repeated = np.repeat(np.arange(80), rows.weight.astype(int))
    shuffled = np.random.default_rng(1).permutation(repeated)
    for rates in (propose(rows, "equalized_odds")[1], np.array([0.5, 0.4])):
        expected = decide(rows, rates)
        for order in (repeated, shuffled):
            some = replace(
                rows, score=rows.score[order], code=rows.code[order], weight=np.ones(order.size)
            )
            np.testing.assert_allclose(decide(some, rates), expected[order], atol=1e-9)
        np.testing.assert_allclose(
            propose(some, "equalized_odds"), propose(rows, "equalized_odds"), atol=1e-9
        )


@pytest.mark.parametrize("namespace", namespaces())
def test_every_namespace_gives_the_same(namespace):
    xp = namespace()
    rows = make(7, n=60, n_groups=3, width=0.2)
    score, code, weight = (xp.asarray(each) for each in (rows.score, rows.code, rows.weight))
    rates = propose_rates(score, code, 3, criterion="equalized_odds", weight=weight)
    np.testing.assert_allclose(rates, propose(rows, "equalized_odds"), atol=1e-12)
    for pair in (rates[0], (0.5, 0.45)):
        found = solve_odds(score, code, 3, width=0.2, rates=tuple(pair), budget=0.05, weight=weight)
        plain = solve(rows, pair, budget=0.05)
        np.testing.assert_allclose(found.reached, plain.reached, atol=1e-12)
        h = to_numpy(found.rule.probability(score, code))
        np.testing.assert_allclose(h, plain.rule.probability(rows.score, rows.code), atol=1e-9)


def test_the_width_must_be_positive():
    with pytest.raises(ValueError, match="width above 0"):
        solve(make(1), (0.5, 0.5), width=0.0)
    with pytest.raises(ValueError, match=r"rate is 1\.5"):
        solve(make(1), (0.5, 1.5))


def test_input_stays_as_it_is():
    rows = make(2, n=30)
    for array in (rows.score, rows.code, rows.weight):
        array.flags.writeable = False
    solve(rows, propose(rows, "equalized_odds")[0])
