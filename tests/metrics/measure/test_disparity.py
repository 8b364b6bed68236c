from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, wasserstein_distance

from fairfrontier.metrics.measure.performance import find_distances
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from tests.metrics.made import make_part, make_regression, make_rows, mix

# Few distinct values, so that ties between rows, regressors and groups are common.
ROW = st.tuples(
    st.lists(st.sampled_from([-1.0, 0.0, 0.1, 0.5, 0.500001, 1.0]), min_size=3, max_size=3),
    st.integers(0, 2),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
)


def by_definition(
    values: np.ndarray, probability: np.ndarray, codes: np.ndarray, weight: np.ndarray, level: int
) -> float:
    """Compare P(f ≥ z | A = a) and P(f ≥ z) at every value, between all of them, and outside."""
    points = np.unique(values)
    z = np.concatenate([points, (points[1:] + points[:-1]) / 2, [points[0] - 1, points[-1] + 1]])
    reached = (values[:, :, None] >= z) * probability[None, :, None]
    share = reached.sum(axis=1)
    rows = codes == level
    if not weight[rows].sum() > 0:
        return math.nan
    inside = np.average(share[rows], axis=0, weights=weight[rows])
    return float(np.abs(inside - np.average(share, axis=0, weights=weight)).max())


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12), st.sampled_from([(1, 0, 0), (0.25, 0.25, 0.5)]))
def test_distances_by_their_definition(rows, probability):
    values = np.array([row[0] for row in rows])
    codes = np.array([row[1] for row in rows])
    weight = np.array([row[2] for row in rows])
    share = np.array(probability, dtype=np.float64)
    if not weight.sum() > 0:
        return
    found = find_distances(values, share, codes, 3, weight)
    expected = [by_definition(values, share, codes, weight, level) for level in range(3)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_equals_kolmogorov_and_smirnov():
    part, prediction = make_regression(400)
    table = tabulate(prediction, part, ["disparity"]).set_index("group")["value"]
    for level in range(3):
        rows = part.group("attribute1") == level
        expected = ks_2samp(prediction.score[rows], prediction.score).statistic
        assert table[f"attribute1=level{level}"] == pytest.approx(expected, abs=1e-12)
    assert table["attribute1"] == max(table[f"attribute1=level{level}"] for level in range(3))


def test_weights_count_rows_and_names_and_order_do_not_matter():
    part, prediction = make_regression(120)
    rng = np.random.default_rng(5)
    values = np.column_stack([prediction.score, rng.random(120).round(1)])
    share, codes = np.array([0.3, 0.7]), part.group("attribute1")
    counts = rng.integers(1, 4, 120)
    weighted = find_distances(values, share, codes, 3, counts.astype(float))
    rows = rng.permutation(np.repeat(np.arange(120), counts))
    repeated = find_distances(values[rows], share, codes[rows], 3, np.ones(rows.size))
    np.testing.assert_allclose(weighted, repeated, atol=1e-12)
    other = find_distances(values[:, ::-1], share[::-1], 2 - codes, 3, counts.astype(float))
    np.testing.assert_allclose(weighted, other[::-1], atol=1e-12)
    # Any increasing map of the predictions leaves their order, and so the distances.
    mapped = find_distances(np.exp(3 * values), share, codes, 3, counts.astype(float))
    np.testing.assert_allclose(weighted, mapped, atol=1e-12)


def test_a_draw_hides_what_its_mean_shows():
    # Both groups are given 0 or 1 by a fair coin of regressors; each regressor tells them apart.
    codes = np.repeat([0, 1], 20)
    components = np.column_stack([codes, 1 - codes]).astype(float)
    part = make_part(np.zeros(40), codes[:, None], {"sex": "FM"}, classes=())
    table = tabulate(mix(components, np.array([0.5, 0.5])), part, ["disparity"])
    np.testing.assert_allclose(table["value"], 0.0, atol=1e-12)
    leaning = tabulate(mix(components, np.array([0.9, 0.1])), part, ["disparity"])
    np.testing.assert_allclose(leaning["value"], 0.4, atol=1e-12)


def test_scores_of_a_classifier_are_compared_at_every_threshold():
    y, groups, score, attributes = make_rows(300)
    part = make_part(y, groups, attributes)
    plain = tabulate(Prediction(score, np.zeros(300)), part, ["disparity"])
    rows = part.group("attribute0") == 1
    expected = ks_2samp(score[rows], score).statistic
    assert plain.set_index("group")["value"]["attribute0=level1"] == pytest.approx(expected)
    behind = Prediction(score, np.zeros(300), components=np.ones((300, 1)), probability=np.ones(1))
    assert (tabulate(behind, part, ["disparity"])["value"] == 0).all()


def test_rounding_is_no_disparity():
    codes = np.repeat([0, 1], 30)
    score = 0.3 + 1e-16 * np.arange(60)
    assert len(np.unique(score)) > 1
    np.testing.assert_allclose(
        find_distances(score[:, None], np.ones(1), codes, 2, np.ones(60)), 0.0, atol=1e-12
    )


def test_the_largest_disparity_is_bounded_by_its_levels():
    part, prediction = make_regression(200)
    table = tabulate(prediction, part, ["disparity"]).set_index("group")
    levels = table.loc[[f"attribute1=level{k}" for k in range(3)]]
    for end in ("value", "low", "high"):
        assert table.loc["attribute1", end] == levels[end].max()
    n = np.bincount(part.group("attribute1"))
    # Of the level's and the other rows' distributions, as the level's own rows are in both.
    root = (1 - n / 200) * np.sqrt(1 / n + 1 / (200 - n))
    np.testing.assert_allclose(levels["high"] - levels["value"], 1.959964 * root / 2, rtol=1e-6)
    reach = math.sqrt(math.log(2 * 3 / 0.05) / 2) * root
    np.testing.assert_allclose(levels["low"], np.maximum(levels["value"] - reach, 0), atol=1e-12)


def test_a_level_of_few_rows_is_not_estimable():
    y = np.zeros(53)
    part = make_part(y, np.r_[np.zeros(50), np.ones(3)][:, None], {"sex": "FM"}, classes=())
    score = np.r_[np.zeros(50), np.ones(3)][:, None]
    table = tabulate(mix(np.hstack([score, score]), np.array([0.5, 0.5])), part, ["disparity"])
    value = table.set_index("group")["value"]
    assert math.isnan(value["sex=M"])
    assert value["sex"] == value["sex=F"] == pytest.approx(3 / 53)
    alone = tabulate(
        mix(np.hstack([score, score]), np.array([0.5, 0.5])), part, ["disparity"], minimum=60
    )
    assert alone["value"].isna().all()


@pytest.mark.parametrize("mixed", [False, True])
def test_distances_between_levels_equal_those_of_scipy(mixed):
    part, prediction = make_regression(400)
    if mixed:
        prediction = mix(np.stack([prediction.score, prediction.score**2], 1), np.array([0.7, 0.3]))
    part = replace(part, weight=np.random.default_rng(2).uniform(0.5, 2, part.n_samples))
    names = ["kolmogorov_smirnov", "wasserstein"]
    table = tabulate(prediction, part, names).set_index(["measure", "group"])
    values, chance = prediction.outcomes
    for attribute, levels in part.attributes.items():
        rows = [part.group(attribute) == code for code in range(len(levels))]
        pairs = [
            [(values[r].ravel(), np.outer(part.weight[r], chance).ravel()) for r in (one, other)]
            for one, other in itertools.combinations(rows, 2)
        ]
        area = max(wasserstein_distance(a, b, u, v) for (a, u), (b, v) in pairs)
        assert table.loc[("wasserstein", attribute), "value"] == pytest.approx(area)
        steep = max(
            abs(np.average(a <= z, weights=u) - np.average(b <= z, weights=v))
            for (a, u), (b, v) in pairs
            for z in values.ravel()
        )
        found = table.loc[("kolmogorov_smirnov", attribute)]
        assert found["value"] == pytest.approx(steep)
        assert found["low"] <= found["value"] <= found["high"]
    unweighted = tabulate(prediction, replace(part, weight=np.ones(part.n_samples)), names[:1])
    if not mixed:
        score = [prediction.score[part.group("attribute0") == k] for k in range(2)]
        found = unweighted.set_index("group")["value"]["attribute0"]
        assert found == pytest.approx(ks_2samp(*score).statistic)


def test_residuals_and_ratios_of_errors_by_their_definition():
    part, prediction = make_regression(500)
    names = ["mean_residual", "mean_residual_difference", "mae_ratio", "rmse_ratio"]
    table = tabulate(prediction, part, names).set_index(["measure", "group"])
    residual = part.y - prediction.score
    for attribute, levels in part.attributes.items():
        by = [residual[part.group(attribute) == code] for code in range(len(levels))]
        mean, mae, square = (
            np.array([np.mean(f(each)) for each in by]) for f in (np.array, np.abs, np.square)
        )
        found = table.xs(attribute, level="group")
        assert found["value"]["mean_residual_difference"] == pytest.approx(np.ptp(mean))
        assert found["value"]["mae_ratio"] == pytest.approx(mae.min() / mae.max())
        assert found["value"]["rmse_ratio"] == pytest.approx(np.sqrt(square.min() / square.max()))
        assert (found["low"] <= found["value"]).all()
        assert (found["value"] <= found["high"]).all()
        own = table["value"]["mean_residual", f"{attribute}={levels[0]}"]
        assert own == pytest.approx(mean[0])
