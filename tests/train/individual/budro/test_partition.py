import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.train.individual.budro.partition import split_points


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 200), st.integers(1, 40), st.sampled_from([None, 1]))
def test_blocks_hold_every_point_once_and_are_no_larger_than_told(seed, n, largest, levels):
    point = np.random.default_rng(seed).normal(size=(n, 3))
    point = point if levels is None else np.round(point)
    order, start = split_points(point, largest)
    assert np.array_equal(np.sort(order), np.arange(n))
    assert start[0] == 0
    sizes = np.diff(np.append(start, n))
    assert sizes.min() >= 1
    assert sizes.max() <= largest


def test_a_block_is_more_compact_than_the_whole():
    point = np.random.default_rng(0).normal(size=(4000, 3))
    order, start = split_points(point, 40)
    spread = np.mean([part.var(axis=0).sum() for part in np.split(point[order], start[1:])])
    assert spread < 0.2 * point.var(axis=0).sum()


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_a_category_stays_together(share):
    kind = np.arange(100) < 100 * share
    order, start = split_points(kind[:, None].astype(float), 80)
    assert [len(set(part)) for part in np.split(kind[order], start[1:])] == [1, 1]
