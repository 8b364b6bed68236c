from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.thresholds.ramp import draw_lines, judge_lines, solve_exact
from fairfrontier.models.thresholds.threshold import ScoreHistogram, build_problem, merge_runs
from fairfrontier.runtime.arrays import to_numpy
from tests.models.thresholds.made import group_rates, make_rows, ramp
from tests.namespaces import namespaces


@given(st.lists(st.lists(st.integers(-3, 9)), min_size=1, max_size=4))
def test_runs_are_merged_without_copies(runs):
    runs = [np.sort(np.array(run, dtype=np.float64)) for run in runs]
    np.testing.assert_array_equal(merge_runs(runs), np.unique(np.concatenate(runs)))


def count(rows, bins, y=None):
    empty = ScoreHistogram(rows.n_groups, bins)
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
    histogram = ScoreHistogram(1, bins).add(score, code)
    rule = solve_exact(histogram.problem(), width, rate).rule
    assert abs(rule.threshold[0] - exact.rule.threshold[0]) <= 1 / bins + 1e-12


@pytest.mark.parametrize("bins", [1, 7, 100])
def test_what_piles_up_at_the_ends_is_exact(bins):
    score = np.repeat([-1.0, 1.0], [30, 70])
    code = np.arange(100) % 3
    for rate in (0.0, 0.4, 0.9, 1.0):
        exact = solve_exact(build_problem(score, code, 3), 0.2, rate)
        histogram = ScoreHistogram(3, bins).add(score, code)
        result = solve_exact(histogram.problem(), 0.2, rate)
        assert result.rule.threshold == pytest.approx(exact.rule.threshold, abs=1e-12)
        assert result.rate == pytest.approx(exact.rate)


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_and_their_order_change_nothing(weighted):
    rows = make_rows(1, n=200, n_groups=3)
    y = np.random.default_rng(0).integers(2, size=200)
    weight = rows.weight if weighted else None
    assert (rows.weight % 1 == 0).all()
    whole = ScoreHistogram(3, 50).add(rows.score, rows.code, weight, y)
    pieces = [
        ScoreHistogram(3, 50).add(
            rows.score[each], rows.code[each], None if weight is None else weight[each], y[each]
        )
        for each in np.array_split(np.random.default_rng(1).permutation(200), 7)
    ]
    left = ScoreHistogram(3, 50)
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
    empty = ScoreHistogram(2, 10)
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
    other = ScoreHistogram(2, bins).add(*arrays)
    assert to_numpy(other.mass).tobytes() == plain.mass.tobytes()
    assert to_numpy(other.positive).tobytes() == plain.positive.tobytes()
    ours, theirs = (solve_exact(each.problem(), 0.1, 0.4).rule for each in (plain, other))
    assert theirs.threshold == pytest.approx(ours.threshold, abs=1e-12)


def test_accuracy_comes_from_the_bins():
    generator = np.random.default_rng(5)
    score = 2 * generator.beta(2, 3, 20_000) - 1
    code = generator.integers(2, size=score.size)
    y = (generator.random(score.size) < (1 + score) / 2).astype(np.int64)
    histogram = ScoreHistogram(2, 4096).add(score, code, None, y)
    widths, rates = (0.05, 0.5), (0.3, 0.4)
    width, rate = (axis.ravel() for axis in np.meshgrid(widths, rates))
    lines = draw_lines(histogram.problem(), "parity", width, rate[:, None], 0.0)
    binned, _ = judge_lines(histogram.labelled(), lines)
    exact, _ = judge_lines(build_problem(score, 2 * code + y, 4), lines)
    assert np.abs(binned - exact).max() <= 1 / 4096 / 0.05
    assert np.abs(binned - exact).max() <= 1e-4


def test_memory_does_not_grow_with_the_rows():
    generator = np.random.default_rng(0)
    histogram = ScoreHistogram(2, 1 << 12)
    tracemalloc.start()
    for _ in range(20):
        score = generator.uniform(-1, 1, 10_000)
        histogram = histogram.add(score, generator.integers(2, size=10_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert histogram.rows == 200_000
    assert peak < 200_000 * 8


def test_what_cannot_be_solved_is_refused():
    score, code = np.array([0.1, -0.2]), np.array([0, 1])
    with pytest.raises(ValueError, match="no labels"):
        ScoreHistogram(2, 10).add(score, code).labelled()
    with pytest.raises(ValueError, match="no rows"):
        ScoreHistogram(2, 10).problem()
