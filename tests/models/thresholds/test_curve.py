import numpy as np
import pytest
from sklearn.metrics import roc_curve

from fairfrontier.models.thresholds.curve import build_curves, weigh_objective
from tests.models.thresholds.tables import draw_table


@pytest.mark.parametrize("decimals", [1, 8])
def test_cuts_are_the_roc_curve(decimals):
    generator = np.random.default_rng(0)
    score, code = generator.random(300).round(decimals), generator.integers(3, size=300)
    y, weight = generator.integers(2, size=300), generator.integers(1, 4, 300).astype(float)
    for k, curve in enumerate(build_curves(score, y, code, 3, weight)):
        own = code == k
        fpr, tpr, _ = roc_curve(y[own], score[own], sample_weight=weight[own],
                                drop_intermediate=False)  # fmt: skip
        np.testing.assert_allclose(curve.rate(2), fpr, atol=1e-12)
        np.testing.assert_allclose(curve.rate(1), tpr, atol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_the_hull_is_concave_and_above_every_cut(seed):
    for curve in build_curves(*draw_table(seed, n=60)):
        x, y = curve.negative[curve.hull], curve.positive[curve.hull]
        assert (curve.hull[0], curve.hull[-1]) == (0, curve.score.size)
        turn = np.diff(x)[1:] * np.diff(y)[:-1] - np.diff(x)[:-1] * np.diff(y)[1:]
        assert (turn >= -1e-12).all()
        for i, j in zip(curve.hull[:-1], curve.hull[1:], strict=True):
            between = slice(i, j + 1)
            run, rise = curve.negative[j] - curve.negative[i], curve.positive[j] - curve.positive[i]
            above = rise * (curve.negative[between] - curve.negative[i])
            assert (above - run * (curve.positive[between] - curve.positive[i]) >= -1e-12).all()


@pytest.mark.parametrize("seed", range(8))
def test_thresholds_choose_what_their_cut_says(seed):
    score, y, code, n_groups, _ = draw_table(seed)
    for k, curve in enumerate(build_curves(score, y, code, n_groups)):
        own = code == k
        for cut in range(curve.score.size + 1):
            chosen = own & (score > curve.threshold(cut))
            assert curve.positive[cut] == pytest.approx(y[chosen].sum())
            assert curve.negative[cut] == pytest.approx((1 - y[chosen]).sum())


def test_a_threshold_is_between_neighbouring_floats():
    high = np.nextafter(0.5, 1)
    (curve,) = build_curves(np.array([0.5, high]), np.array([0, 1]), np.zeros(2, int), 1)
    assert curve.threshold(1) == 0.5


def test_weights_count_rows_and_order_does_not_matter():
    score, y, code, n_groups, _ = draw_table(1, n=40)
    counts = np.random.default_rng(3).integers(0, 4, 40)
    weighted = build_curves(score, y, code, n_groups, counts.astype(float))
    rows = np.random.default_rng(4).permutation(np.repeat(np.arange(40), counts))
    repeated = build_curves(score[rows], y[rows], code[rows], n_groups)
    for one, two in zip(weighted, repeated, strict=True):
        for name in ("score", "positive", "negative", "hull"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_objectives_are_what_they_say():
    y, h = np.array([1, 1, 1, 0, 0]), np.array([1, 0, 1, 1, 0])
    true, false = (h * y).sum(), (h * (1 - y)).sum()

    def value(objective, **theta):
        gain = weigh_objective(objective, 3.0, 2.0, **theta)
        return gain.constant + gain.positive * true - gain.negative * false

    assert value("accuracy") == pytest.approx(3 / 5)
    assert value("balanced_accuracy") == pytest.approx((2 / 3 + 1 / 2) / 2)
    costs = {"costs": {"false_positive": 1.0, "false_negative": 5.0}}
    assert value(costs) == pytest.approx(-(1 + 5) / 5)
    assert value("f1", theta=4 / 6) == pytest.approx(0.0)
