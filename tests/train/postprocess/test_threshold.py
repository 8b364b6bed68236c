from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.train.postprocess.threshold import (
    ScoreHistogram,
    build_problem,
    expect_accuracy,
    merge_runs,
    solve_exact,
    solve_grid,
)
from tests.namespaces import namespaces
from tests.train.postprocess.made import Rows, group_rates, make_rows, objective, ramp
from tests.train.postprocess.programme import find_best, group_means


def solve(rows: Rows):
    problem = build_problem(rows.score, rows.code, rows.n_groups, rows.weight)
    return solve_exact(problem, rows.width, rows.rate, rows.budget)


@given(st.lists(st.lists(st.integers(-3, 9)), min_size=1, max_size=4))
def test_runs_are_merged_without_copies(runs):
    runs = [np.sort(np.array(run, dtype=np.float64)) for run in runs]
    np.testing.assert_array_equal(merge_runs(runs), np.unique(np.concatenate(runs)))


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


def test_width_0_is_the_limit():
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
    grid, shifted = (
        solve_grid(build_problem(score, rows.code, 2, rows.weight), *settings)
        for score, settings in (
            (rows.score, ((rows.width,), (rows.rate,), rows.budget, cut)),
            (rows.score - cut, ((rows.width,), (rows.rate,), rows.budget)),
        )
    )
    np.testing.assert_allclose(grid.threshold, shifted.threshold + cut, atol=1e-9)
    for name in ("coin", "rate", "objective", "dual_value"):
        np.testing.assert_allclose(getattr(grid, name), getattr(shifted, name), atol=1e-9)
    assert (grid.binding == shifted.binding).all()


@pytest.mark.parametrize("namespace", namespaces())
@pytest.mark.parametrize("seed", range(6))
def test_the_grid_is_every_single_solution_on_every_backend(namespace, seed):
    xp = namespace()
    rows = make_rows(seed, n=25, n_groups=3)
    widths, rates = (0.0, 0.01, 0.3, 1.0), (0.0, 0.2, 0.55, 1.0)
    problem = build_problem(rows.score, rows.code, 3, rows.weight)
    grid = solve_grid(
        build_problem(*(xp.asarray(each) for each in (rows.score, rows.code)), 3,
                      xp.asarray(rows.weight)),
        widths, rates, rows.budget,
    )  # fmt: skip
    for i, width in enumerate(widths):
        for j, rate in enumerate(rates):
            single, picked = solve_exact(problem, width, rate, rows.budget), grid.pick(i, j)
            assert picked.rule.width == width
            assert picked.rule.threshold == pytest.approx(single.rule.threshold, abs=1e-9)
            assert picked.rule.coin == pytest.approx(single.rule.coin, abs=1e-9)
            assert picked.rate == pytest.approx(single.rate, abs=1e-9)
            assert picked.binding.tolist() == single.binding.tolist()
            assert picked.objective == pytest.approx(single.objective, abs=1e-12)
            assert picked.dual_value == pytest.approx(single.dual_value, abs=1e-9)


@pytest.mark.parametrize("namespace", namespaces())
@pytest.mark.parametrize("budget", [0.0, 0.2])
def test_accuracy_of_a_grid_row_by_row(namespace, budget):
    xp = namespace()
    rows = make_rows(5, n=60, n_groups=3)
    fresh = make_rows(8, n=50, n_groups=3)
    y = np.random.default_rng(0).integers(2, size=50)
    widths, rates = (0.0, 0.1, 0.7), (0.2, 0.5)
    grid = solve_grid(build_problem(rows.score, rows.code, 3, rows.weight), widths, rates, budget)
    labelled = build_problem(
        *(xp.asarray(each) for each in (fresh.score, 2 * fresh.code + y)), 6,
        xp.asarray(fresh.weight),
    )  # fmt: skip
    accuracy, gap = expect_accuracy(labelled, grid)
    counted, _ = expect_accuracy(labelled, grid, (0.25, 1.0))
    for i in range(3):
        for j in range(2):
            h = grid.pick(i, j).rule.probability(fresh.score, fresh.code)
            right = np.average(np.where(y == 1, h, 1 - h), weights=fresh.weight)
            assert accuracy[i, j] == pytest.approx(right)
            share = fresh.weight * np.where(y == 1, 1, 0.25)
            right = np.average(np.where(y == 1, h, 1 - h), weights=share)
            assert counted[i, j] == pytest.approx(right)
            assert gap[i, j] == pytest.approx(np.ptp(group_rates(fresh, h)))


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


@pytest.mark.parametrize(
    ("code", "weight"), [([0, 2], None), ([-1, 0], None), ([0], None), ([0, 1], [1.0])]
)
def test_rows_that_do_not_fit_are_refused(code, weight):
    weight = None if weight is None else np.array(weight)
    with pytest.raises(ValueError, match="codes"):
        build_problem(np.array([0.1, 0.2]), np.array(code), 2, weight)


def count(rows, bins, y=None):
    empty = ScoreHistogram.empty(rows.n_groups, bins)
    return empty.add(rows.score, rows.code, rows.weight, y)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), bins=st.integers(1, 200), width=st.floats(0.01, 2.0))
def test_errors_stay_within_their_bounds(seed, bins, width):
    rows = make_rows(seed, n=30, n_groups=3, width=width)
    result = solve_exact(count(rows, bins).problem(), width, rows.rate, rows.budget)
    rule = result.rule
    reached = group_rates(rows, rule.probability(rows.score, rows.code))
    half = 1.0 / bins
    assert np.abs(reached - result.rate).max() <= half / width + 1e-9
    excess = np.abs(reached - rows.rate) - rows.budget / 2
    assert excess.max() <= half / width + 1e-9
    # An exact root lies within half a bin of each threshold that is not 0: on one side the mean
    # is at least the bound, on the other at most.
    for k, t in enumerate(rule.threshold):
        score, weight = rows.score[rows.code == k], rows.weight[rows.code == k]
        if t != 0:
            end = rows.rate + np.sign(t) * rows.budget / 2
            below = np.average(ramp(score, t - half, width), weights=weight)
            above = np.average(ramp(score, t + half, width), weights=weight)
            assert above - 1e-9 <= end <= below + 1e-9


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), bins=st.integers(4, 400))
def test_a_unique_root_is_found_to_half_a_bin(seed, bins):
    generator = np.random.default_rng(seed)
    score = np.concatenate([generator.uniform(-1, 1, 200), np.linspace(-1, 1, 41)])
    rate, width = generator.uniform(0.02, 0.98), generator.uniform(0.06, 1)
    code = np.zeros(score.size, dtype=int)
    exact = solve_exact(build_problem(score, code, 1), width, rate)
    histogram = ScoreHistogram.empty(1, bins).add(score, code)
    rule = solve_exact(histogram.problem(), width, rate).rule
    assert abs(rule.threshold[0] - exact.rule.threshold[0]) <= 1 / bins + 1e-12


@pytest.mark.parametrize("bins", [1, 7, 100])
def test_what_piles_up_at_the_ends_is_exact(bins):
    score = np.repeat([-1.0, 1.0], [30, 70])
    code = np.arange(100) % 3
    for rate in (0.0, 0.4, 0.9, 1.0):
        exact = solve_exact(build_problem(score, code, 3), 0.2, rate)
        histogram = ScoreHistogram.empty(3, bins).add(score, code)
        result = solve_exact(histogram.problem(), 0.2, rate)
        assert result.rule.threshold == pytest.approx(exact.rule.threshold, abs=1e-12)
        assert result.rate == pytest.approx(exact.rate)


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_and_their_order_change_nothing(weighted):
    rows = make_rows(1, n=200, n_groups=3)
    y = np.random.default_rng(0).integers(2, size=200)
    weight = rows.weight if weighted else None
    assert (rows.weight % 1 == 0).all()
    whole = ScoreHistogram.empty(3, 50).add(rows.score, rows.code, weight, y)
    pieces = [
        ScoreHistogram.empty(3, 50).add(
            rows.score[each], rows.code[each], None if weight is None else weight[each], y[each]
        )
        for each in np.array_split(np.random.default_rng(1).permutation(200), 7)
    ]
    left = ScoreHistogram.empty(3, 50)
    for piece in pieces:
        left = left.merge(piece)
    right = pieces[-1]
    for piece in reversed(pieces[:-1]):
        right = piece.merge(right)
    for merged in (left, right):
        assert merged.rows == whole.rows == 200
        assert merged.mass.tobytes() == whole.mass.tobytes()
        assert merged.positive.tobytes() == whole.positive.tobytes()
    held = rows.weight if weighted else np.ones(200)
    assert whole.mass.sum(axis=1) == pytest.approx(np.bincount(rows.code, held))
    assert whole.positive.sum() == pytest.approx(y @ held)


def test_an_empty_batch_adds_nothing():
    empty = ScoreHistogram.empty(2, 10)
    none = np.zeros(0)
    assert empty.add(none, none.astype(int)).rows == 0
    one = empty.add(np.array([0.1]), np.array([1]))
    assert one.merge(empty) is one
    assert empty.merge(one) is one


def test_input_stays_as_it_was():
    rows = make_rows(4, n=50)
    first = count(rows, 20)
    before = first.mass.copy()
    first.add(rows.score, rows.code)
    assert first.mass.tobytes() == before.tobytes()


@pytest.mark.parametrize("namespace", namespaces())
@pytest.mark.parametrize("bins", [30, 3000])
def test_every_backend_counts_alike(namespace, bins):
    xp = namespace()
    rows = make_rows(1, n=150, n_groups=2)
    y = (rows.score > 0).astype(np.int64)
    plain = count(rows, bins, y)
    arrays = [xp.asarray(each) for each in (rows.score, rows.code, rows.weight, y)]
    other = ScoreHistogram.empty(2, bins).add(*arrays)
    assert to_numpy(other.mass).tobytes() == plain.mass.tobytes()
    assert to_numpy(other.positive).tobytes() == plain.positive.tobytes()
    ours, theirs = (solve_exact(each.problem(), 0.1, 0.4).rule for each in (plain, other))
    assert theirs.threshold == pytest.approx(ours.threshold, abs=1e-12)


def test_accuracy_comes_from_the_bins():
    generator = np.random.default_rng(5)
    score = 2 * generator.beta(2, 3, 20_000) - 1
    code = generator.integers(2, size=score.size)
    y = (generator.random(score.size) < (1 + score) / 2).astype(np.int64)
    histogram = ScoreHistogram.empty(2, 4096).add(score, code, None, y)
    widths, rates = (0.05, 0.5), (0.3, 0.4)
    grid = solve_grid(histogram.problem(), widths, rates)
    binned, _ = expect_accuracy(histogram.labelled(), grid)
    exact, _ = expect_accuracy(build_problem(score, 2 * code + y, 4), grid)
    assert np.abs(binned - exact).max() <= 1 / 4096 / 0.05
    assert np.abs(binned - exact).max() <= 1e-4


def test_memory_does_not_grow_with_the_rows():
    generator = np.random.default_rng(0)
    histogram = ScoreHistogram.empty(2, 1 << 12)
    tracemalloc.start()
    for _ in range(20):
        score = generator.uniform(-1, 1, 10_000)
        histogram = histogram.add(score, generator.integers(2, size=10_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert histogram.rows == 200_000
    assert peak < 200_000 * 8


def test_what_cannot_be_counted_or_solved_is_refused():
    score, code = np.array([0.1, -0.2]), np.array([0, 1])
    held = ScoreHistogram.empty(2, 10).add(score, code)
    with pytest.raises(ValueError, match="codes"):
        held.add(score, np.array([0, 2]))
    with pytest.raises(ValueError, match="labels"):
        held.add(score, code, None, np.array([0, 1]))
    with pytest.raises(ValueError, match="other groups or bins"):
        held.merge(ScoreHistogram.empty(2, 11))
    with pytest.raises(ValueError, match="no labels"):
        held.labelled()
    with pytest.raises(ValueError, match="no rows"):
        ScoreHistogram.empty(2, 10).problem()
    with pytest.raises(ValueError, match="bins"):
        ScoreHistogram.empty(0, 10)
