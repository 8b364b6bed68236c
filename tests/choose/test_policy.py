"""Policies choose what a search through all points finds."""

from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.choose.policy import apply_policy
from fairfrontier.runtime.errors import ConfigError


def dominated(scores: np.ndarray, i: int) -> bool:
    """Return whether another point is as good in all, and better in one."""
    return any((other >= scores[i]).all() and (other > scores[i]).any() for other in scores)


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_policies_choose_what_all_points_compared_give(seed, width):
    rng = np.random.default_rng(seed)
    direction = np.abs(rng.normal(size=(30, width)))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    scores = np.round(direction * rng.uniform(0.7, 1, (30, 1)), 2)
    front = [i for i in range(30) if not dominated(scores, i)]
    assert len(front) > 3
    low = scores[front].min(axis=0)
    high = scores[front].max(axis=0)
    scaled = (scores - low) / (high - low)

    # The distance to the plane through the ideal points of each score alone.
    def distance(i: int) -> float:
        return (scaled[i].sum() - 1) / np.sqrt(width)

    assert apply_policy("knee", scores) == max(front, key=distance)
    ideal = min(front, key=lambda i: np.linalg.norm(1 - scaled[i]))
    assert apply_policy("closest-to-ideal", scores) == ideal
    for tolerance in (0.0, 0.1, 1.0):
        near = [i for i in front if scores[i, 0] >= scores[:, 0].max() - tolerance - 1e-12]
        wanted = max(near, key=lambda i: scaled[i, 1:].mean())
        assert apply_policy(f"least-disparity-within={tolerance}", scores) == wanted
    if width == 2:
        near = np.flatnonzero(scores[:, 0] >= scores[:, 0].max() - 0.1 - 1e-12)
        chosen = apply_policy("least-disparity-within=0.1", scores)
        assert scores[chosen, 1] == scores[near, 1].max()


def test_a_frontier_of_one_point_is_that_point():
    scores = np.array([[0.5, 0.5], [0.9, 0.9], [0.9, 0.1]])
    for policy in ("knee", "closest-to-ideal", "least-disparity-within=0.01"):
        assert apply_policy(policy, scores) == 1


@pytest.mark.parametrize("policy", ["elbow", "least-disparity-within", "least-disparity-within=.."])
def test_another_policy_is_refused(policy):
    with pytest.raises(ConfigError, match="There is no policy"):
        apply_policy(policy, np.zeros((2, 2)))


def test_one_score_alone_is_its_best():
    assert apply_policy("least-disparity-within=0.1", np.array([[1.0], [2.0]])) == 1
