from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.thresholds.ramp import (
    Lines,
    draw_lines,
    find_roots,
    integrate,
    judge_lines,
    solve_exact,
)
from fairfrontier.models.thresholds.threshold import build_problem
from tests.models.thresholds.made import Rows, group_rates, make_rows, objective, ramp
from tests.models.thresholds.programme import find_best, group_means
from tests.namespaces import namespaces


@pytest.mark.parametrize("slope", [3.0, 0.2, 1e6])
@pytest.mark.parametrize("level", [-0.4, 0.0, 0.3, 1.0, 1.7])
def test_moments_are_sums_over_rows(level, slope):
    generator = np.random.default_rng(3)
    score = np.round(generator.uniform(-1, 1, 60), 1)
    weight = generator.integers(0, 3, 60).astype(float)
    (segment,) = build_problem(score, np.zeros(60, dtype=np.int64), 1, weight).segments
    chosen, mass = integrate(segment.share, np.array([level]), np.array([slope]))
    line = level + slope * score
    h, share = np.clip(line, 0, 1), weight / weight.sum()
    on = (line > 0) & (line < 1)
    # Rows at an end of the ramp may count as on it.
    ends = np.isclose(line, 0, atol=1e-9) | np.isclose(line, 1, atol=1e-9)
    assert chosen == pytest.approx(share @ h, abs=1e-9)
    assert share @ (on & ~ends) - 1e-12 <= mass[0] <= share @ (on | ends) + 1e-12


def test_roots_are_those_nearest_to_zero_and_nan_bounds_nothing():
    # Falling, with a flat piece from −1 to 1, a jump of slope, and a value that is never reached.
    def mean(w):
        value = np.where(w < -1, 0.5 - (w + 1), np.where(w > 1, 0.5 - 3 * (w - 1), 0.5))
        return value, np.where(w < -1, -1.0, np.where(w > 1, -3.0, 0.0))

    low = np.array([0.4, 0.8, 0.0, np.nan])
    high = np.array([0.6, 0.9, 0.2, np.nan])
    np.testing.assert_allclose(find_roots(mean, low, high), [0.0, -1.3, 1.1, 0.0], atol=1e-12)


def test_of_a_flat_piece_the_nearest_end_is_the_root():
    def mean(w):
        return np.clip(2.0 - w, 1.0, None) - np.clip(w - 5.0, 0.0, None), -1.0 * ((w < 1) | (w > 5))

    bound = np.array([1.0])
    assert find_roots(mean, bound - 1, bound) == pytest.approx(1.0, abs=1e-12)


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
    coin, slope = generator.random((n_groups, 4)), np.array([2.0, 1e7, 1e12, np.inf])
    lines = [Lines(centre[k], coin[k], slope, np.zeros(4)) for k in range(n_groups)]
    accuracy, gap = judge_lines(labelled, lines)
    counted, _ = judge_lines(labelled, lines, (0.25, 1.0))
    for i in range(4):
        away = score - centre[code, i]
        with np.errstate(invalid="ignore"):
            h = np.where(away == 0, 0.0, np.clip(slope[i] * away, 0, 1))
        h = np.where((away == 0) & (i == 3), coin[code, i], h)
        right = np.average(np.where(y == 1, h, 1 - h), weights=weight)
        rates = [np.average(h[code == k], weights=weight[code == k]) for k in range(n_groups)]
        assert accuracy[i] == pytest.approx(right, abs=1e-12)
        share = np.average(np.where(y == 1, h, 1 - h), weights=weight * np.where(y == 1, 1, 0.25))
        assert counted[i] == pytest.approx(share, abs=1e-12)
        assert gap[i] == pytest.approx(np.ptp(rates), abs=1e-12)


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
        solve_exact(
            build_problem(score, rows.code, 2, rows.weight),
            *(rows.width, rows.rate, rows.budget, own),
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
    lines = draw_lines(moved, width, rate, rows.budget)
    for i in range(width.size):
        single = solve_exact(problem, width[i], rate[i], rows.budget)
        picked = [Lines(*(each[[i]] for each in line)) for line in lines]
        found = solve_exact(moved, width[i], rate[i], rows.budget, lines=picked)
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
