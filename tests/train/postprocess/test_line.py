import numpy as np
import pytest

from fairfrontier.train.postprocess.line import Lines, Stack, find_roots, integrate, judge_lines
from fairfrontier.train.postprocess.threshold import build_problem


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
