from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.study.frontier import build_frontier, find_pareto, list_fits, orient, summarise
from tests.study.synthetic import make_plan, make_points, make_study

# Few distinct values, so that ties and equal points are common.
SCORE = st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, float("nan"), float("inf"), float("-inf")])


def dominated(points: np.ndarray) -> np.ndarray:
    """Compare every pair, by the definition."""
    found = np.zeros(len(points), dtype=bool)
    for p, q in itertools.permutations(range(len(points)), 2):
        if np.isnan(points[[p, q]]).any():
            continue
        if (points[q] >= points[p]).all() and (points[q] > points[p]).any():
            found[p] = True
    return found


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4).flatmap(lambda k: st.lists(st.tuples(*[SCORE] * k), max_size=12)))
def test_pareto_is_what_no_pair_dominates(rows):
    points = np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else 2)
    expected = ~dominated(points) & ~np.isnan(points).any(axis=1)
    np.testing.assert_array_equal(find_pareto(points), expected)


def test_pareto_of_many_pairs_agrees_with_the_general_scan():
    points = np.random.default_rng(0).normal(size=(2000, 2)).round(1)
    with_constant = np.column_stack([points, np.ones(len(points))])
    np.testing.assert_array_equal(find_pareto(points), find_pareto(with_constant))


def test_equal_points_are_all_kept_and_nan_dominates_nothing():
    points = np.array([[1.0, 0.5], [1.0, 0.5], [0.9, 0.5], [2.0, np.nan], [np.nan, 2.0]])
    assert find_pareto(points).tolist() == [True, True, False, False, False]
    assert find_pareto(np.empty((0, 2))).tolist() == []


def test_directions():
    values = np.array([0.2, -0.4, np.nan])
    np.testing.assert_array_equal(orient("consistency:spouse", values), values)
    np.testing.assert_array_equal(orient("gap_rms:sex", values), -values)
    np.testing.assert_array_equal(orient("log_loss", values), -values)
    np.testing.assert_array_equal(orient("tpr_gap:sex", values), [-0.2, -0.4, np.nan])
    np.testing.assert_array_equal(orient("selection_rate_ratio:sex", values), values)
    with pytest.raises(ConfigError):
        orient("selection_rate:sex=Female", values)


def point(method: str, seed: int, part: str, measure: str, group: str, value: float) -> tuple:
    return ("toy", method, "{}", seed, part, measure, group, value, 50, value - 0.1, value + 0.2)


COLUMNS = ["dataset", "method", "setting", "seed", "part", "measure", "group", "value", "n", "low",
           "high"]  # fmt: skip


def table(rows: list[tuple]) -> tuple[pd.DataFrame, pd.DataFrame]:
    points = pd.DataFrame(rows, columns=COLUMNS)
    return points, points[["method", "setting", "seed"]].drop_duplicates()


def test_means_and_t_intervals_over_seeds():
    values = [0.6, 0.7, 0.74]
    points, fits = table([point("a", s, "test", "auc", "", v) for s, v in enumerate(values)])
    row = summarise(points, fits, "test").iloc[0]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert (row["value"], row["sd"]) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert (row["low"], row["high"]) == pytest.approx((low, high))
    assert (row["n_seeds"], row["n"]) == (3, 50)


def test_one_seed_keeps_its_own_interval():
    points, fits = table([point("a", 0, "test", "auc", "", 0.6)])
    row = summarise(points, fits, "test").iloc[0]
    assert (row["low"], row["high"]) == pytest.approx((0.5, 0.8))
    assert np.isnan(row["sd"])


def test_intervals_of_shares_stay_within_0_and_1_and_others_do_not():
    rows = [point("a", s, "test", "auc", "", v) for s, v in enumerate([0.9, 1.0])]
    rows += [point("a", s, "test", "log_loss", "", v) for s, v in enumerate([0.9, 1.1])]
    points, fits = table(rows)
    found = summarise(points, fits, "test").set_index("name")
    assert found.loc["auc", "high"] == 1.0
    assert found.loc["log_loss", "high"] > 2.0


def test_a_nan_on_one_split_makes_the_mean_nan():
    points, fits = table(
        [point("a", s, "test", "auc", "", v) for s, v in enumerate([0.6, np.nan, 0.7])]
    )
    row = summarise(points, fits, "test").iloc[0]
    assert row[["value", "sd", "low", "high"]].isna().all()


def test_only_the_fits_of_the_block_count():
    points, fits = table([point(m, 0, "test", "auc", "", 0.6) for m in ("a", "b")])
    assert summarise(points, fits.loc[fits["method"] == "b"], "test")["method"].tolist() == ["b"]


def two_parts(rows: dict[str, tuple[float, float, float, float]]) -> pd.DataFrame:
    """Build the frontier of (accuracy, gap) on validation and on test."""
    points, fits = table(
        [
            point(method, 0, part, measure, group, value)
            for method, values in rows.items()
            for part, measure, group, value in (
                ("validation", "auc", "", values[0]),
                ("validation", "gap_rms", "sex", values[1]),
                ("test", "auc", "", values[2]),
                ("test", "gap_rms", "sex", values[3]),
            )
        ]
    )
    return build_frontier(points, fits, "auc", ["gap_rms:sex"], "validation")


def test_chosen_on_validation_reported_on_test():
    # On test `good` loses to `lucky` in both; it stays chosen.
    found = two_parts({"good": (0.8, 0.1, 0.7, 0.3), "lucky": (0.7, 0.2, 0.9, 0.0)})
    assert found["method"].tolist() == ["good", "lucky"]
    assert found["on_frontier"].tolist() == [True, False]
    good = found.iloc[0]
    assert (good["selected_accuracy"], good["selected_fairness"]) == (0.8, 0.1)
    assert (good["accuracy"], good["fairness_value"]) == (0.7, 0.3)
    assert (good["fairness_low"], good["fairness_high"]) == pytest.approx((0.2, 0.5))


def test_a_smaller_gap_is_better():
    found = two_parts({"a": (0.8, 0.2, 0.8, 0.2), "b": (0.8, 0.1, 0.8, 0.1)})
    assert dict(zip(found["method"], found["on_frontier"], strict=True)) == {"a": False, "b": True}


def test_a_smaller_loss_is_better_and_comes_first():
    losses = {"a": 0.3, "b": 0.1, "c": 0.2}
    gaps = {"a": 0.0, "b": 0.2, "c": 0.3}
    points, fits = table(
        [
            point(method, 0, part, measure, group, values[method])
            for method in losses
            for part in ("train", "test")
            for measure, group, values in (("rmse", "", losses), ("disparity", "sex", gaps))
        ]
    )
    found = build_frontier(points, fits, "rmse", ["disparity:sex"], "train")
    assert found["method"].tolist() == ["b", "a", "c"]
    assert found["on_frontier"].tolist() == [True, True, False]


def test_a_setting_that_cannot_be_estimated_is_not_on_the_frontier():
    found = two_parts({"a": (0.9, np.nan, 0.9, 0.1), "b": (0.8, 0.1, 0.8, 0.1)})
    assert dict(zip(found["method"], found["on_frontier"], strict=True)) == {"a": False, "b": True}
    assert not found["on_joint_frontier"][found["method"] == "a"].any()


def test_the_joint_frontier_holds_every_single_one_without_ties():
    study = make_study()
    plan = make_plan(study)
    found = build_frontier(
        make_points(plan),
        list_fits(plan, "frontier"),
        study.frontier.accuracy,
        study.frontier.fairness,
        study.select_on,
    )
    assert len(found) == 4 * 9
    assert found["fairness"].drop_duplicates().tolist() == list(study.frontier.fairness)
    assert (found["on_joint_frontier"] | ~found["on_frontier"]).all()
    assert (found["n_seeds"] == 3).all()
    joint = found.drop_duplicates(["method", "setting"])
    wide = found.pivot_table(
        index=["method", "setting"], columns="fairness", values="selected_fairness"
    )
    accuracy = joint.set_index(["method", "setting"])["selected_accuracy"].reindex(wide.index)
    scores = np.column_stack(
        [accuracy, *(orient(name, wide[name].to_numpy()) for name in study.frontier.fairness)]
    )
    expected = dict(zip(wide.index, ~dominated(scores), strict=True))
    for row in joint.itertuples():
        assert row.on_joint_frontier == expected[row.method, row.setting]


def test_the_order_of_the_points_does_not_matter():
    study = make_study()
    plan = make_plan(study)
    points = make_points(plan)
    asked = (
        list_fits(plan, "frontier"),
        study.frontier.accuracy,
        study.frontier.fairness,
        study.select_on,
    )
    shuffled = points.sample(frac=1.0, random_state=3)
    pd.testing.assert_frame_equal(build_frontier(points, *asked), build_frontier(shuffled, *asked))


def test_a_missing_part_or_measure_is_said():
    points, fits = table([point("a", 0, "test", "auc", "", 0.6)])
    with pytest.raises(DataError):
        build_frontier(points, fits, "auc", ["gap_rms:sex"], "validation")
    with pytest.raises(DataError):
        build_frontier(points, fits, "auc", ["gap_rms:sex"], "test")
