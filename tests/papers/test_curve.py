from __future__ import annotations

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st

from fairfrontier.runtime.store import canonical_json
from papers.curve import Curve, find_envelope, trace_curves


def make(rows: dict[str, list[tuple[float, float, float, float]]], seeds: int = 1):
    """Return points and fits: a row's settings with loss and disparity on train and on test."""
    points, fits = [], []
    for label, settings in rows.items():
        for place, values in enumerate(settings):
            setting = canonical_json({"budget": place})
            for seed in range(seeds):
                fits.append((label, setting, seed))
                cells = zip(
                    ("train", "train", "test", "test"),
                    ("rmse", "disparity", "rmse", "disparity"),
                    values,
                    strict=True,
                )
                for part, measure, value in cells:
                    # Seeds lie on either side of the mean.
                    moved = value + 0.01 * (seed - (seeds - 1) / 2)
                    group = "sex" if measure == "disparity" else ""
                    points.append((label, setting, seed, part, measure, group, moved))
    table = pd.DataFrame(
        points, columns=["method", "setting", "seed", "part", "measure", "group", "value"]
    )
    table = table.assign(n=10, low=np.nan, high=np.nan)
    return table, pd.DataFrame(fits, columns=["method", "setting", "seed"])


def trace(rows, **more):
    return trace_curves(*make(rows, **more), "rmse", "disparity:sex", "train")


def test_train_chooses_and_test_is_reported():
    # The second setting is above the segment on train, however good it is on test.
    found = trace({"fair": [(1, 0.4, 1.1, 0.45), (2.9, 0.3, 0, 0), (3, 0.1, 3.2, 0.12)]})
    assert [json.loads(each)["budget"] for each in found["fair"].settings] == [0, 2]
    assert found["fair"].cost.tolist() == [1.1, 3.2]
    assert found["fair"].harm.tolist() == [0.45, 0.12]


def test_means_over_the_seeds_are_taken():
    rows = {"fair": [(1, 0.4, 1.1, 0.45), (3, 0.1, 3.2, 0.12)], "plain": [(1, 0.5, 1, 0.5)]}
    one, several = trace(rows), trace(rows, seeds=4)
    assert set(several) == {"fair", "plain"}
    for label, curve in several.items():
        np.testing.assert_allclose(curve.cost, one[label].cost)
        np.testing.assert_allclose(curve.harm, one[label].harm)


def test_settings_without_numbers_are_left_out():
    points, fits = make({"fair": [(1, 0.4, 1.1, 0.45), (3, 0.1, np.nan, 0.12)]})
    found = trace_curves(points, fits, "rmse", "disparity:sex", "train")
    assert found["fair"].cost.tolist() == [1.1]
    assert trace_curves(points, fits, "rmse", "disparity:race", "train") == {}


def test_between_two_settings_is_what_drawing_gives():
    curve = Curve(("a", "b", "c"), np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.1]))
    for share in (0.0, 0.25, 0.8, 1.0):
        harm = (1 - share) * 0.3 + share * 0.1
        assert curve.find_cost(harm) == pytest.approx((1 - share) * 2 + share * 4)
    assert curve.find_cost(0.7) == 1.0
    assert curve.find_cost(0.05) == np.inf
    assert Curve((), np.zeros(0), np.zeros(0)).find_cost(1) == np.inf


def test_a_cheaper_setting_further_on_does_not_count():
    # On test the curve turns back: what is asked is where it first does no more harm.
    curve = Curve(("a", "b", "c"), np.array([1.0, 3.0, 2.0]), np.array([0.5, 0.1, 0.2]))
    assert curve.find_cost(0.3) == pytest.approx(2.0)
    assert curve.find_cost(0.1) == 3.0


# Few distinct values, so that ties, equal points and points on a segment are common.
POINT = st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, float("nan")])] * 2)


def attained(cost, harm, kept, at):
    """Return the least cost of two points, or a draw between them, at a harm of at most ``at``."""
    best = np.inf
    for i, j in itertools.product(kept, repeat=2):
        apart = harm[i] - harm[j]
        crossing = (at - harm[j]) / apart if apart else 0.0
        for share in {0.0, 1.0, min(max(crossing, 0.0), 1.0)}:
            if share * harm[i] + (1 - share) * harm[j] <= at + 1e-12:
                best = min(best, share * cost[i] + (1 - share) * cost[j])
    return best


@trying(max_examples=60, deadline=None)
@given(st.lists(POINT, max_size=7))
def test_corners_attain_all_that_the_points_attain_and_none_can_be_spared(points):
    cost, harm = np.array(points, dtype=np.float64).reshape(-1, 2).T
    known = [i for i in range(len(points)) if not np.isnan([cost[i], harm[i]]).any()]
    corners = find_envelope(cost, harm)
    assert set(corners) <= set(known)
    assert bool(known) == bool(len(corners))
    for at in sorted(set(harm[known])):
        expected = pytest.approx(attained(cost, harm, known, at), abs=1e-9)
        assert attained(cost, harm, corners, at) == expected
    for corner in corners:
        others = [each for each in corners if each != corner]
        assert attained(cost, harm, others, harm[corner]) > cost[corner] + 1e-9
    assert (np.diff(harm[corners]) > 0).all()
    assert (np.diff(cost[corners]) < 0).all()


def test_a_point_above_the_segment_of_its_neighbours_is_left_out():
    cost, harm = np.array([1.0, 0.6, 0.0, 0.9]), np.array([0.0, 0.5, 1.0, 0.05])
    assert find_envelope(cost, harm).tolist() == [0, 3, 2]
    assert find_envelope(cost[:3], harm[:3]).tolist() == [0, 2]
    assert find_envelope(np.array([1.0, 1.0]), np.array([0.5, 0.5])).tolist() == [0]
