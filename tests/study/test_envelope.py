from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.study.envelope import find_envelope

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


@settings(max_examples=60, deadline=None)
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
