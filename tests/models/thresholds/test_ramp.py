from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairfrontier.models.thresholds.ramp import (
    Lines,
    Stack,
    draw_lines,
    find_roots,
    integrate,
    judge_lines,
    solve_exact,
)
from fairfrontier.models.thresholds.ramp import solve as solve_ramp
from fairfrontier.models.thresholds.threshold import build_problem
from fairfrontier.runtime.arrays import to_numpy
from tests.models.thresholds.made import (
    Rows,
    cross,
    group_rates,
    make_rows,
    objective,
    propose_rates,
    ramp,
    solve_covariance,
    solve_odds,
    solve_opportunity,
)
from tests.models.thresholds.programme import find_best, group_means, least_violation
from tests.namespaces import namespaces

seeds = st.integers(0, 10**6)
cuts = st.sampled_from([0.0, -0.6, 0.35])


def draw_members(rows: Rows, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(rows.score.size) < 0.4


def centre(rows: Rows, member: np.ndarray) -> np.ndarray:
    """Return 1_S − ρ_k."""
    z = member.astype(float)
    for k in range(rows.n_groups):
        held = rows.code == k
        z[held] -= np.average(member[held], weights=rows.weight[held])
    return z


def decide(found, score, member, subgroup):
    """Return h under a bound on the covariance."""
    return found.rule.probability(score, cross(member, subgroup))


def covariance(rows: Rows, member: np.ndarray, cut: float = 0.0):
    return solve_covariance(
        rows.score, member, rows.code, rows.n_groups,
        width=rows.width, budget=rows.budget / 4, weight=rows.weight, cut=cut,
    )  # fmt: skip


def opportunity(rows: Rows, cut: float = 0.0):
    return solve_opportunity(
        rows.score, rows.code, rows.n_groups,
        width=rows.width, rate=rows.rate, budget=rows.budget, weight=rows.weight, cut=cut,
    )  # fmt: skip


def without_negatives(rows: Rows) -> Rows:
    """Return rows of which every group has some with f > −1."""
    return replace(rows, score=np.where(rows.score <= -1, -0.9, rows.score))


@settings(max_examples=30, deadline=None)
@given(seed=seeds, n_groups=st.integers(1, 5), cut=cuts)
def test_covariance_is_the_best_of_all_decisions(seed, n_groups, cut):
    rows = make_rows(seed, n=15, n_groups=n_groups)
    member = draw_members(rows, seed)
    found = covariance(rows, member, cut)
    gains = replace(rows, score=rows.score - cut)
    means = group_means(rows, centre(rows, member), rates=False)
    h = decide(found, rows.score, member, rows.code)
    np.testing.assert_allclose(means @ h, found.reached, atol=1e-12)
    assert np.abs(found.reached).max() <= rows.budget / 4 + 1e-9
    assert found.converged
    assert found.objective == pytest.approx(objective(gains, h), abs=1e-12)
    budget = np.full(n_groups, rows.budget / 4)
    best = find_best(gains, means, -budget, budget)
    # The gap shows that where the two differ, it is the programme that did not get there.
    assert best is None or found.objective <= best + 1e-6
    assert best is None or rows.width > 0 or found.objective == pytest.approx(best, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, n_groups=st.integers(1, 5), cut=cuts)
def test_opportunity_is_the_best_of_all_decisions(seed, n_groups, cut):
    rows = without_negatives(make_rows(seed, n=15, n_groups=n_groups))
    found, gains = opportunity(rows, cut), replace(rows, score=rows.score - cut)
    means = group_means(rows, (1 + rows.score) / 2, rates=True)
    h = found.rule.probability(rows.score, rows.code)
    np.testing.assert_allclose(means @ h, found.reached, atol=1e-12)
    assert np.abs(found.reached - rows.rate).max() <= rows.budget / 2 + 1e-9
    assert found.converged
    assert found.objective == pytest.approx(objective(gains, h), abs=1e-12)
    ends = [np.full(n_groups, rows.rate + sign * rows.budget / 2) for sign in (-1, 1)]
    best = find_best(gains, means, *ends)
    assert best is None or found.objective <= best + 1e-6
    assert best is None or rows.width > 0 or found.objective == pytest.approx(best, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_the_rule_is_the_formula(seed):
    rows = without_negatives(make_rows(seed, n=20, n_groups=3))
    rows = replace(rows, width=max(rows.width, 0.01))
    member = draw_members(rows, seed)
    one, two = covariance(rows, member), opportunity(rows)
    h = np.clip((rows.score - one.multiplier[rows.code] * centre(rows, member)) / rows.width, 0, 1)
    np.testing.assert_allclose(decide(one, rows.score, member, rows.code), h, atol=1e-9)
    pull = two.multiplier[rows.code] * (1 + rows.score) / 2
    h = np.clip((rows.score - pull) / rows.width, 0, 1)
    np.testing.assert_allclose(two.rule.probability(rows.score, rows.code), h, atol=1e-9)


@pytest.mark.parametrize("budget", [0.02, 0.0])
def test_the_multiplier_nearest_to_zero_is_taken(budget):
    # Between -0.8 and 0.6 no score lies: the mean is flat for many w.
    score = np.array([-0.9, -0.8, 0.6, 0.7, -0.9, -0.8, 0.6, 0.7])
    member = np.array([True] * 4 + [False] * 4)
    code, width = np.zeros(8, dtype=np.int64), 0.1
    free = solve_covariance(score, member, code, 1, width=width, budget=budget)
    assert free.multiplier[0] == 0
    score[5] = 0.65
    found = solve_covariance(score, member, code, 1, width=width, budget=budget)
    z = np.where(member, 0.5, -0.5)

    def mean(w):
        return float(np.mean(z * np.clip((score - w * z) / width, 0, 1)))

    grid = np.linspace(-3, 3, 12_001)
    within = grid[[abs(mean(w)) <= budget + 1e-9 for w in grid]]
    nearest = within[np.argmin(np.abs(within))]
    assert found.multiplier[0] == pytest.approx(nearest, abs=1e-3)
    assert found.multiplier[0] < 0


def test_two_thresholds_a_subgroup():
    rows = make_rows(4, n=40, n_groups=2, width=0.2)
    member = draw_members(rows, 1)
    found = covariance(replace(rows, budget=0.0), member)
    for k in range(2):
        held = rows.code == k
        rho = np.average(member[held], weights=rows.weight[held])
        w = found.multiplier[k]
        np.testing.assert_allclose(
            found.rule.centre[2 * k : 2 * k + 2], [-w * rho, w * (1 - rho)], atol=1e-12
        )
    np.testing.assert_array_equal(found.rule.slope, 5.0)


def test_no_covariance_is_parity_between_members_and_others():
    rows = make_rows(8, n=60, n_groups=1, width=0.1)
    member = draw_members(rows, 2)
    found = solve_covariance(rows.score, member, rows.code, 1, width=0.1, budget=0.0)
    h = decide(found, rows.score, member, rows.code)
    assert h[member].mean() == pytest.approx(h[~member].mean(), abs=1e-12)
    # The best parity over all rates is this one.
    problem = build_problem(rows.score, member.astype(np.int64), 2)
    least = min(solve_exact(problem, 0.1, rate).objective for rate in np.linspace(0, 1, 201))
    assert found.objective == pytest.approx(least, abs=1e-4)
    assert found.objective <= least + 1e-12


def test_members_and_others_change_places():
    rows = make_rows(9, n=50, n_groups=3)
    member = draw_members(rows, 3)
    one, two = covariance(rows, member), covariance(rows, ~member)
    np.testing.assert_allclose(one.multiplier, -two.multiplier, atol=1e-9)
    np.testing.assert_allclose(
        decide(one, rows.score, member, rows.code),
        decide(two, rows.score, ~member, rows.code),
        atol=1e-9,
    )


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_width_zero_is_the_limit(seed):
    # Scores on a coarse grid, so that a width of 1e-6 is small beside their distances.
    rows = without_negatives(make_rows(seed, n=24, n_groups=2, width=0.0))
    rows = replace(rows, score=np.round(rows.score * 8) / 8)
    member = draw_members(rows, seed)
    limit, near = opportunity(rows), opportunity(replace(rows, width=1e-6))
    np.testing.assert_allclose(
        limit.rule.probability(rows.score, rows.code),
        near.rule.probability(rows.score, rows.code),
        atol=1e-4,
    )
    assert limit.objective == pytest.approx(near.objective, abs=1e-5)
    # Where a member and another tie but for rounding, the coin may be with either.
    limit, near = covariance(rows, member), covariance(replace(rows, width=1e-6), member)
    assert limit.objective == pytest.approx(near.objective, abs=1e-5)
    np.testing.assert_allclose(limit.reached, near.reached, atol=1e-6)


@pytest.mark.parametrize(
    ("budget", "coins"),
    [(1 / 8, (0.5, 0.0)), (1 / 12, (0.0, 0.0)), (1 / 24, (0.0, 0.5)), (0.0, (0.0, 1.0))],
)
def test_members_toss_before_others_where_they_tie(budget, coins):
    # Half are members, so z = ±1/2, and at w = 0.8 members with 0.4 tie with others with -0.4.
    score = np.array([0.9, 0.9, 0.4, 0.4, -0.9, -0.9, -0.4, -0.4, -0.9, -0.9, -0.9, -0.9])
    member = np.arange(12) < 6
    code = np.zeros(12, dtype=np.int64)
    expected = np.array([1, 1, coins[0], coins[0], 0, 0, coins[1], coins[1], 0, 0, 0, 0])
    for width, tolerance in ((0.0, 1e-12), (1e-7, 1e-6)):
        found = solve_covariance(score, member, code, 1, width=width, budget=budget)
        assert found.multiplier[0] == pytest.approx(0.8, abs=1e-6)
        h = decide(found, score, member, code)
        np.testing.assert_allclose(h, expected, atol=tolerance)


@pytest.mark.parametrize("width", [0.0, 0.1])
def test_order_repetition_and_weight(width):
    rows = replace(without_negatives(make_rows(12, n=80, n_groups=3, width=width)), rate=0.4)
    rows = replace(rows, weight=np.random.default_rng(0).integers(0, 4, 80).astype(float))
    member = draw_members(rows, 4)
    repeated = np.repeat(np.arange(80), rows.weight.astype(int))
    shuffled = np.random.default_rng(1).permutation(repeated)
    for solve in (covariance, opportunity):
        found = []
        for order in (np.arange(80), repeated, shuffled):
            weight = rows.weight if order.size == 80 else np.ones(order.size)
            some = replace(rows, score=rows.score[order], code=rows.code[order], weight=weight)
            found.append(solve(some, member[order]) if solve is covariance else solve(some))
        for other in found[1:]:
            np.testing.assert_allclose(found[0].multiplier, other.multiplier, atol=1e-9)
            np.testing.assert_allclose(found[0].rule.level, other.rule.level, atol=1e-9)
            assert found[0].objective == pytest.approx(other.objective, abs=1e-12)


def test_subgroups_without_others_have_no_covariance():
    score = np.array([-0.5, 0.5, 0.2, -0.1])
    member = np.array([True, True, False, False])
    code = np.array([0, 0, 1, 1])
    for width in (0.0, 0.5):
        found = solve_covariance(score, member, code, 2, width=width, budget=0.0)
        assert found.converged
        np.testing.assert_array_equal(found.multiplier, 0)
        np.testing.assert_allclose(
            decide(found, score, member, code), np.clip(score / 0.5, 0, 1) if width else score > 0
        )


def test_a_group_of_certain_negatives_has_no_true_positive_rate():
    score, code = np.array([-1.0, -1.0, 0.5, -0.5]), np.array([0, 0, 1, 1])
    for width in (0.0, 0.2):
        found = solve_opportunity(score, code, 2, width=width, rate=0.8, budget=0.0)
        assert np.isnan(found.reached[0])
        assert found.violation[0] == 0
        assert found.converged
        np.testing.assert_array_equal(found.rule.probability(score, code)[:2], 0)


def test_one_score_for_all():
    code = np.array([0, 1, 1])
    for f in (-0.5, 0.0, 0.5, 1.0):
        for width in (0.0, 0.1):
            score = np.full(3, f)
            found = solve_opportunity(score, code, 2, width=width, rate=0.3, budget=0.0)
            np.testing.assert_allclose(found.rule.probability(score, code), 0.3, atol=1e-9)


@pytest.mark.parametrize("namespace", namespaces())
@pytest.mark.parametrize("width", [0.0, 0.2])
def test_every_namespace_gives_the_same(namespace, width):
    xp = namespace()
    rows = without_negatives(make_rows(5, n=60, n_groups=3, width=width))
    member = draw_members(rows, 5)
    score, code, weight, inside = (
        xp.asarray(each) for each in (rows.score, rows.code, rows.weight, member)
    )
    options = {"width": width, "budget": 0.05, "weight": weight}
    one = solve_covariance(score, inside, code, 3, **options)
    plain = solve_covariance(rows.score, member, rows.code, 3, **options | {"weight": rows.weight})
    np.testing.assert_allclose(one.multiplier, plain.multiplier, atol=1e-12)
    h = to_numpy(decide(one, score, inside, code))
    np.testing.assert_allclose(h, decide(plain, rows.score, member, rows.code), atol=1e-9)
    two = solve_opportunity(score, code, 3, **options, rate=0.6)
    plain = solve_opportunity(
        rows.score, rows.code, 3, **options | {"weight": rows.weight}, rate=0.6
    )
    np.testing.assert_allclose(two.multiplier, plain.multiplier, atol=1e-12)
    h = to_numpy(two.rule.probability(score, code))
    np.testing.assert_allclose(h, plain.rule.probability(rows.score, rows.code), atol=1e-9)


def test_input_stays_as_it_is():
    rows = make_rows(2, n=30)
    member = draw_members(rows, 0)
    for array in (rows.score, rows.code, rows.weight, member):
        array.flags.writeable = False
    covariance(rows, member)
    opportunity(rows)


def make(seed: int, n: int = 14, n_groups: int = 2, width: float | None = None) -> Rows:
    """Draw a problem with a positive width, in which both rates of every group are defined."""
    rows = make_rows(seed, n, n_groups, width)
    score = np.clip(rows.score, -0.95, 0.95)
    return replace(rows, score=score, width=max(rows.width, 0.01))


def solve_rates(rows: Rows, rates, **changed):
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
    found = solve_rates(rows, rates, cut=cut)
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
def test_the_rule_is_the_formula_under_odds(seed):
    rows = make(seed, n=30)
    found = solve_rates(rows, choose_rates(rows, seed))
    a, b = found.multiplier[rows.code].T
    f = rows.score
    h = np.clip((f - a * (1 + f) / 2 - b * (1 - f) / 2) / rows.width, 0, 1)
    scale = 1 + np.abs(found.multiplier).max() / rows.width
    np.testing.assert_allclose(found.rule.probability(f, rows.code), h, atol=1e-14 * scale)


def test_without_a_budget_the_width_does_not_matter():
    rows = replace(make(5, n=50), budget=0.0)
    rates = propose(rows, "equalized_odds")[2] * 0.9 + 0.05
    one, two = (solve_rates(rows, rates, width=width) for width in (0.05, 1.0))
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
    found = solve_rates(rows, (0.5, 0.5), budget=1.0)
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
    found = solve_rates(rows, (0.4, 0.45))
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
        assert solve_rates(rows, rates).violation.max() <= 1e-9
    # A programme over h and the common rates themselves.
    means = both_rates(rows)
    equal = np.hstack([means, -np.repeat(np.eye(2), n_groups, axis=0)])
    gain = np.append(rows.weight / rows.weight.sum() * gains.score, [0.0, 0.0])
    best = linprog(-gain, A_eq=equal, b_eq=np.zeros(2 * n_groups), bounds=(0, 1))
    assert objective(gains, decide_rates(rows, odds[0])) == pytest.approx(best.fun, abs=1e-8)
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


def decide_rates(rows: Rows, rates: np.ndarray) -> np.ndarray:
    return solve_rates(rows, rates).rule.probability(rows.score, rows.code)


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


def test_order_repetition_and_weight_under_odds():
    rows = make(12, n=80, n_groups=3, width=0.2)
    rows = replace(rows, weight=np.random.default_rng(0).integers(0, 4, 80).astype(float))
    repeated = np.repeat(np.arange(80), rows.weight.astype(int))
    shuffled = np.random.default_rng(1).permutation(repeated)
    for rates in (propose(rows, "equalized_odds")[1], np.array([0.5, 0.4])):
        expected = decide_rates(rows, rates)
        for order in (repeated, shuffled):
            some = replace(
                rows, score=rows.score[order], code=rows.code[order], weight=np.ones(order.size)
            )
            np.testing.assert_allclose(decide_rates(some, rates), expected[order], atol=1e-9)
        np.testing.assert_allclose(
            propose(some, "equalized_odds"), propose(rows, "equalized_odds"), atol=1e-9
        )


@pytest.mark.parametrize("namespace", namespaces())
def test_every_namespace_gives_the_same_under_odds(namespace):
    xp = namespace()
    rows = make(7, n=60, n_groups=3, width=0.2)
    score, code, weight = (xp.asarray(each) for each in (rows.score, rows.code, rows.weight))
    rates = propose_rates(score, code, 3, criterion="equalized_odds", weight=weight)
    np.testing.assert_allclose(rates, propose(rows, "equalized_odds"), atol=1e-12)
    for pair in (rates[0], (0.5, 0.45)):
        found = solve_odds(score, code, 3, width=0.2, rates=tuple(pair), budget=0.05, weight=weight)
        plain = solve_rates(rows, pair, budget=0.05)
        np.testing.assert_allclose(found.reached, plain.reached, atol=1e-12)
        h = to_numpy(found.rule.probability(score, code))
        np.testing.assert_allclose(h, plain.rule.probability(rows.score, rows.code), atol=1e-9)


def test_input_stays_as_it_is_under_odds():
    rows = make(2, n=30)
    for array in (rows.score, rows.code, rows.weight):
        array.flags.writeable = False
    solve_rates(rows, propose(rows, "equalized_odds")[0])


@pytest.mark.parametrize("slope", [3.0, -3.0, 0.0, 1e6, -0.2])
@pytest.mark.parametrize("level", [-0.4, 0.0, 0.3, 1.0, 1.7])
def test_moments_are_sums_over_rows(level, slope):
    generator = np.random.default_rng(3)
    score = np.round(generator.uniform(-1, 1, 60), 1)
    weight = generator.integers(0, 3, 60).astype(float)
    (segment,) = build_problem(score, np.zeros(60, dtype=np.int64), 1, weight).segments
    seen = integrate(segment.share, np.array([level]), np.array([slope]))
    line = level + slope * score
    h, share = np.clip(line, 0, 1), weight / weight.sum()
    on = (line > 0) & (line < 1)
    # Rows at an end of the ramp may count as on it.
    ends = np.isclose(line, 0, atol=1e-9) | np.isclose(line, 1, atol=1e-9)
    assert seen.chosen == pytest.approx(share @ h, abs=1e-9)
    assert seen.pull == pytest.approx(share @ (score * h), abs=1e-9)
    assert share @ (on & ~ends) - 1e-12 <= seen.mass[0] <= share @ (on | ends) + 1e-12
    if not ends.any():
        assert seen.moment == pytest.approx(share @ (score * on))
        assert seen.square == pytest.approx(share @ (score**2 * on))


def test_stacked_groups_have_the_moments_of_each_alone():
    generator = np.random.default_rng(5)
    score, code = generator.uniform(-1, 1, 90).round(2), generator.integers(3, size=90)
    segments = [segment.share for segment in build_problem(score, code, 3).segments]
    stack = Stack(segments)
    level, slope = generator.normal(size=(2, 3, 4))
    slope[1, 2] = 0.0
    for _ in range(3):
        seen = integrate(stack, level, slope)
        for k, segment in enumerate(segments):
            for found, alone in zip(seen, integrate(segment, level[k], slope[k]), strict=True):
                np.testing.assert_allclose(found[k], alone, rtol=0, atol=0)
        # Only some of the lines move.
        level[generator.random(level.shape) < 0.4] += 0.3


def test_roots_are_those_nearest_to_zero_and_nan_bounds_nothing():
    # Falling, with a flat piece from −1 to 1, a jump of slope, and a value that is never reached.
    def mean(w):
        value = np.where(w < -1, 0.5 - (w + 1), np.where(w > 1, 0.5 - 3 * (w - 1), 0.5))
        return value, np.where(w < -1, -1.0, np.where(w > 1, -3.0, 0.0))

    low = np.array([0.4, 0.8, 0.0, np.nan])
    high = np.array([0.6, 0.9, 0.2, np.nan])
    for guess in (None, np.array([5.0, 2.0, 30.0, 1.0]), np.array([0.0, -1.3, 1.1, 0.0])):
        roots = find_roots(mean, low, high, guess)
        np.testing.assert_allclose(roots, [0.0, -1.3, 1.1, 0.0], atol=1e-12)


def test_of_a_flat_piece_the_nearest_end_is_the_root():
    def mean(w):
        return np.clip(2.0 - w, 1.0, None) - np.clip(w - 5.0, 0.0, None), -1.0 * ((w < 1) | (w > 5))

    bound = np.array([1.0])
    for guess in (None, np.array([4.0]), np.array([9.0])):
        assert find_roots(mean, bound - 1, bound, guess) == pytest.approx(1.0, abs=1e-12)


def test_roots_take_few_steps_from_any_bound_and_shape():
    # Means of 2,000 ramps: smooth but for their pieces, concave, convex, or neither.
    generator = np.random.default_rng(8)
    places = np.stack([generator.beta(*shape, 2000) for shape in ((1, 9), (9, 1), (0.2, 0.2))])
    bound, calls = np.linspace(0.02, 0.98, 40) * np.ones((3, 1)), []

    def mean(w):
        calls.append(w)
        line = (places[:, None] + 0.3 - w[..., None]) / 0.1
        on = (line > 0) & (line < 1)
        return np.clip(line, 0, 1).mean(axis=-1), -on.mean(axis=-1) / 0.1

    roots = find_roots(mean, bound, bound)
    np.testing.assert_allclose(mean(roots)[0], bound, atol=1e-12)
    assert len(calls) < 15


def test_lines_are_judged_by_what_they_decide():
    generator = np.random.default_rng(5)
    n, n_groups = 400, 3
    score, code = generator.uniform(-1, 1, n).round(2), generator.integers(n_groups, size=n)
    y, weight = generator.integers(2, size=n), generator.random(n)
    labelled = build_problem(score, 2 * code + y, 2 * n_groups, weight)
    centre = generator.choice(score, (n_groups, 4))
    level, slope = generator.random((n_groups, 4)), np.array([2.0, -3.0, 1e7, -1e12])
    lines = [
        Lines(centre[k], level[k], slope, np.zeros((4, 1)), np.zeros(4)) for k in range(n_groups)
    ]
    accuracy, gap = judge_lines(labelled, lines)
    counted, _ = judge_lines(labelled, lines, (0.25, 1.0))
    for i in range(4):
        h = np.clip(level[code, i] + slope[i] * (score - centre[code, i]), 0, 1)
        right = np.average(np.where(y == 1, h, 1 - h), weights=weight)
        rates = [np.average(h[code == k], weights=weight[code == k]) for k in range(n_groups)]
        assert accuracy[i] == pytest.approx(right, abs=1e-12)
        share = np.average(np.where(y == 1, h, 1 - h), weights=weight * np.where(y == 1, 1, 0.25))
        assert counted[i] == pytest.approx(share, abs=1e-12)
        assert gap[i] == pytest.approx(np.ptp(rates), abs=1e-12)


SCORE = np.array([-0.5, 0.2, 0.6, 0.9])
CODE = np.array([0, 0, 1, 1])


def test_the_gap_tells_a_wrong_multiplier():
    # Of the right solution the gap is 0; the dual at any other multiplier is lower.
    score = np.linspace(-0.9, 0.9, 40)
    member = score > 0.1
    code = np.zeros(40, dtype=np.int64)
    found = solve_covariance(score, member, code, 1, width=0.3, budget=0.01)
    assert abs(found.gap) < 1e-14
    z = member - member.mean()

    def dual(w):
        excess = score - w * z
        ramp = np.clip(excess, 0, 0.3)
        return -np.mean(ramp**2 / 0.6 + np.maximum(excess - 0.3, 0)) - 0.01 * abs(w)

    w = found.multiplier[0]
    assert dual(w) == pytest.approx(found.objective, abs=1e-14)
    assert all(dual(w + step) < dual(w) for step in (-0.1, -0.01, 0.01, 0.1))


def test_a_cell_without_rows_has_no_rate():
    # Of the second group all are members.
    member = np.array([False, True, True, True])
    found = solve_covariance(SCORE, member, CODE, 2, width=0.5, budget=0.0)
    h = found.rule.probability(SCORE, cross(member, CODE))
    assert np.isnan(found.rate[2])
    np.testing.assert_allclose(found.rate[[0, 1, 3]], [h[0], h[1], h[2:].mean()], atol=1e-14)
    assert found.converged


def solve(rows: Rows):
    problem = build_problem(rows.score, rows.code, rows.n_groups, rows.weight)
    return solve_exact(problem, rows.width, rows.rate, rows.budget)


@pytest.mark.parametrize("seed", range(120))
def test_exact_equals_the_programme_over_h(seed):
    rows = make_rows(seed, n=9, n_groups=1 + seed % 2)
    found = solve(rows)
    h = found.rule.probability(rows.score, rows.code)
    assert found.objective == pytest.approx(objective(rows, h), abs=1e-12)
    means = group_means(rows, np.ones(rows.score.size), rates=False)
    ends = [np.full(rows.n_groups, rows.rate + sign * rows.budget / 2) for sign in (-1, 1)]
    assert found.objective == pytest.approx(find_best(rows, means, *ends), abs=1e-6)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(5, 40), n_groups=st.integers(1, 5))
def test_what_the_optimum_satisfies(seed, n, n_groups):
    rows = make_rows(seed, n=n, n_groups=n_groups)
    found = solve(rows)
    h = found.rule.probability(rows.score, rows.code)
    rates = group_rates(rows, h)
    assert found.rate == pytest.approx(rates, abs=1e-9)
    assert (rates >= rows.rate - rows.budget / 2 - 1e-9).all()
    assert (rates <= rows.rate + rows.budget / 2 + 1e-9).all()
    assert found.objective == pytest.approx(objective(rows, h), abs=1e-12)
    assert found.gap == pytest.approx(0, abs=1e-10)
    t = found.rule.threshold
    assert (t[~found.binding] == 0).all()
    if rows.width > 0:
        assert (found.rule.coin == 0).all()
        # Of all t that meet the constraint this one is nearest to 0.
        nearer = ramp(rows.score, 0.999 * t[rows.code], rows.width)
        away = np.abs(group_rates(rows, nearer) - rows.rate) - rows.budget / 2
        moved = np.abs(t) > 1e-6
        assert (away[moved] > 1e-9).all()


@pytest.mark.parametrize("seed", range(20))
def test_exact_equals_a_grid_of_thresholds(seed):
    rows = make_rows(seed, n=15, n_groups=1, width=0.2)
    grid = np.linspace(-1.3, 1.1, 24_001)
    h = ramp(rows.score[None, :], grid[:, None], rows.width)
    rates = h @ rows.weight / rows.weight.sum()
    values = (rows.width / 2 * h**2 - h * rows.score) @ rows.weight / rows.weight.sum()
    allowed = np.abs(rates - rows.rate) <= rows.budget / 2 + 6e-4
    found = solve(rows)
    assert found.objective == pytest.approx(values[allowed].min(), abs=2e-3)
    best = np.abs(grid[allowed]).min()
    assert abs(found.rule.threshold[0]) == pytest.approx(best, abs=0.03 if rows.budget else 0.05)


@pytest.mark.parametrize("width", [0.0, 1e-6, 1e-3, 0.01, 0.1, 0.5, 1.0])
def test_example_1_of_the_paper(width):
    # p(x) = 1/2, 1/3, 1/6 and f = −1, 0, 1; the middle point is of group 1, the last of group 0.
    score = np.array([-1.0, -1.0, 0.0, 1.0])
    code = np.array([0, 1, 1, 0])
    weight = np.array([1 / 4, 1 / 4, 1 / 3, 1 / 6])
    found = solve_exact(build_problem(score, code, 2, weight), width, 2 / 5)
    assert found.rule.probability(score, code) == pytest.approx([0, 0, 0.7, 1], abs=1e-9)
    assert found.rate == pytest.approx([0.4, 0.4], abs=1e-9)
    if width == 0:
        assert found.rule.threshold.tolist() == [0, 0]
        assert found.rule.coin == pytest.approx([0, 0.7])
    # Without constraints group 1 would choose nothing, and group 0 its last point, as it does.
    assert found.binding.tolist() == [False, True]


def test_width_0_is_the_limit_under_parity():
    for seed in range(60):
        rows = make_rows(seed, n=20, n_groups=3, width=1e-6)
        problem = build_problem(rows.score, rows.code, 3, rows.weight)
        narrow = solve_exact(problem, 1e-6, rows.rate, rows.budget).rule
        limit = solve_exact(problem, 0.0, rows.rate, rows.budget).rule
        h = narrow.probability(rows.score, rows.code)
        assert limit.probability(rows.score, rows.code) == pytest.approx(h, abs=1e-4)


def test_interval_of_roots_gives_its_end_nearest_to_0():
    problem = build_problem(np.array([-0.9, 0.5, 0.8, 0.9]), np.zeros(4, dtype=int), 1)
    # Half of the rows: every t in [0.5, 0.7] chooses 0.8 and 0.9 alone.
    assert solve_exact(problem, 0.1, 0.5).rule.threshold == pytest.approx([0.5])
    mirrored = build_problem(np.array([-0.9, -0.8, -0.5, 0.9]), np.zeros(4, dtype=int), 1)
    assert solve_exact(mirrored, 0.1, 0.5).rule.threshold == pytest.approx([-0.6])
    assert solve_exact(problem, 0.0, 0.5).rule.to_json() == {
        "width": 0.0, "thresholds": [0.5], "coins": [0.0],
    }  # fmt: skip
    assert solve_exact(mirrored, 0.0, 0.5).rule.to_json() == {
        "width": 0.0, "thresholds": [-0.5], "coins": [1.0],
    }  # fmt: skip


@pytest.mark.parametrize("width", [0.0, 0.3])
def test_ends_of_the_range(width):
    score = np.array([-1.0, -0.5, 0.0, 0.2, 1.0])
    code = np.zeros(5, dtype=int)
    problem = build_problem(score, code, 1)
    for rate, h in ((0.0, np.zeros(5)), (1.0, np.ones(5))):
        found = solve_exact(problem, width, rate)
        assert found.rule.probability(score, code) == pytest.approx(h)
        assert found.binding.all()
    for rate in (0.0, 0.4, 1.0):
        # Both bounds lie outside 0 to 1, so nothing binds.
        free = solve_exact(problem, width, rate, budget=2.0)
        assert free.rule.threshold.tolist() == [0]
        assert not free.binding.any()


@pytest.mark.parametrize("value", [-1.0, -0.3, 0.0, 0.4, 1.0])
@pytest.mark.parametrize("width", [0.0, 0.05, 2.0])
@pytest.mark.parametrize("rate", [0.0, 0.35, 1.0])
def test_constant_scores(value, width, rate):
    score, code = np.full(7, value), np.zeros(7, dtype=int)
    found = solve_exact(build_problem(score, code, 1), width, rate)
    assert found.rule.probability(score, code) == pytest.approx(np.full(7, rate))
    assert found.gap == pytest.approx(0, abs=1e-12)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_order_copies_and_labels_of_groups_do_not_matter(seed):
    rows = make_rows(seed, n=20, n_groups=3)
    generator = np.random.default_rng(seed)
    counts = generator.integers(1, 4, 20)
    plain = solve_exact(
        build_problem(rows.score, rows.code, 3, counts.astype(float)),
        rows.width, rows.rate, rows.budget,
    )  # fmt: skip
    copies = generator.permutation(np.repeat(np.arange(20), counts))
    relabelled = np.array([2, 0, 1])
    again = solve_exact(
        build_problem(rows.score[copies], relabelled[rows.code[copies]], 3),
        rows.width, rows.rate, rows.budget,
    )  # fmt: skip
    assert again.rule.threshold[relabelled] == pytest.approx(plain.rule.threshold, abs=1e-9)
    assert again.rule.coin[relabelled] == pytest.approx(plain.rule.coin, abs=1e-9)
    assert again.objective == pytest.approx(plain.objective, abs=1e-12)


def test_scale_of_the_weights_does_not_matter():
    rows = make_rows(2, n=30)
    for weight in (rows.weight, np.ones(30)):
        assert build_problem(rows.score, rows.code, 2, 3 * weight).total == pytest.approx(
            3 * weight.sum()
        )
        results = [
            solve_exact(build_problem(rows.score, rows.code, 2, unit * weight), 0.1, 0.3)
            for unit in (1.0, 1e-3, 1e6)
        ]
        for each in results[1:]:
            assert each.rule.threshold == pytest.approx(results[0].rule.threshold, abs=1e-9)
            assert each.objective == pytest.approx(results[0].objective)


def test_rows_without_weight_are_as_if_absent():
    rows = make_rows(3, n=30)
    weight = np.where(np.arange(30) % 3 == 2, 0.0, 1.0 + np.arange(30) % 2)
    kept = weight > 0
    for width in (0.0, 0.2):
        whole = solve_exact(build_problem(rows.score, rows.code, 2, weight), width, 0.4)
        part = solve_exact(
            build_problem(rows.score[kept], rows.code[kept], 2, weight[kept]), width, 0.4
        )
        assert whole.rule.threshold == pytest.approx(part.rule.threshold)
        assert whole.rule.coin == pytest.approx(part.rule.coin)


def test_a_group_without_rows_is_left_alone():
    rows = make_rows(0, n=30)
    for width in (0.0, 0.2):
        two = solve_exact(build_problem(rows.score, rows.code, 2), width, 0.4)
        three = solve_exact(build_problem(rows.score, 2 * rows.code, 3), width, 0.4)
        assert three.rule.threshold.tolist() == [two.rule.threshold[0], 0, two.rule.threshold[1]]
        assert np.isnan(three.rate).tolist() == [False, True, False]
        assert three.objective == pytest.approx(two.objective)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), cut=st.sampled_from([-0.75, -0.25, 0.5]))
def test_a_cut_shifts_the_scores(seed, cut):
    rows = make_rows(seed, n=25, n_groups=2)
    one, shifted = (
        solve_ramp(
            build_problem(score, rows.code, 2, rows.weight),
            *("parity", rows.width, rows.rate, rows.budget, own),
        )
        for score, own in ((rows.score, cut), (rows.score - cut, 0.0))
    )
    np.testing.assert_allclose(one.rule.threshold, shifted.rule.threshold + cut, atol=1e-9)
    np.testing.assert_allclose(one.rule.coin, shifted.rule.coin, atol=1e-9)
    for name in ("rate", "objective", "dual_value"):
        np.testing.assert_allclose(getattr(one, name), getattr(shifted, name), atol=1e-9)
    assert (one.binding == shifted.binding).all()


@pytest.mark.parametrize("namespace", namespaces())
@pytest.mark.parametrize("seed", range(6))
def test_all_candidates_are_every_single_solution_on_every_backend(namespace, seed):
    xp = namespace()
    rows = make_rows(seed, n=25, n_groups=3)
    widths, rates = (0.0, 0.01, 0.3, 1.0), (0.0, 0.2, 0.55, 1.0)
    width, rate = (axis.ravel() for axis in np.meshgrid(widths, rates))
    problem = build_problem(rows.score, rows.code, 3, rows.weight)
    moved = build_problem(*(xp.asarray(each) for each in (rows.score, rows.code)), 3,
                          xp.asarray(rows.weight))  # fmt: skip
    lines = draw_lines(moved, "parity", width, rate[:, None], rows.budget)
    for i in range(width.size):
        single = solve_exact(problem, width[i], rate[i], rows.budget)
        picked = [Lines(*(each[[i]] for each in line)) for line in lines]
        found = solve_ramp(moved, "parity", width[i], rate[i], rows.budget, lines=picked)
        assert found.rule.width == width[i]
        assert found.rule.threshold == pytest.approx(single.rule.threshold, abs=1e-9)
        assert found.rule.coin == pytest.approx(single.rule.coin, abs=1e-9)
        assert found.rate == pytest.approx(single.rate, abs=1e-9)
        assert found.binding.tolist() == single.binding.tolist()
        assert found.objective == pytest.approx(single.objective, abs=1e-12)
        assert found.dual_value == pytest.approx(single.dual_value, abs=1e-9)


def test_single_precision_is_summed_in_double():
    generator = np.random.default_rng(0)
    score = generator.uniform(-1, 1, 100_000).astype(np.float32)
    code = generator.integers(2, size=score.size)
    rough = solve_exact(build_problem(score, code, 2), 0.1, 0.3)
    exact = solve_exact(build_problem(score.astype(np.float64), code, 2), 0.1, 0.3)
    assert rough.rule.threshold.tolist() == exact.rule.threshold.tolist()


def test_large_problems_close_the_gap():
    generator = np.random.default_rng(1)
    score = 2 * generator.beta(2, 3, 300_000) - 1
    code = generator.integers(4, size=score.size)
    weight = generator.exponential(size=score.size)
    for width in (0.0, 1e-4, 0.3):
        found = solve_exact(build_problem(score, code, 4, weight), width, 0.37, 0.01)
        h = found.rule.probability(score, code)
        rates = np.bincount(code, weight * h) / np.bincount(code, weight)
        assert np.abs(rates - 0.37).max() <= 0.005 + 1e-9
        assert abs(found.gap) < 1e-9
