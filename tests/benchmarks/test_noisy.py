from __future__ import annotations

import numpy as np
import pytest

from benchmarks.noisy import cap, compare_grid, compare_inner, compare_single
from fairfrontier.models.noisy.rate import project_capped_simplex
from tests.models.noisy.test_estimator import make_part


def test_the_peer_trains_the_same_model():
    (record,) = compare_single(make_part(), 30, "numpy")
    assert record.ratio > 0


@pytest.mark.once
def test_grids_and_inner_players_are_measured():
    part = make_part()
    (grid,) = compare_grid(part, "naive", 10, "numpy")
    assert grid.case == "naive, 12 rates at once"
    (inner,) = compare_inner(part, "dro", 10, "numpy")
    assert inner.case.startswith("dro, exact (")


@pytest.mark.parametrize("seed", range(5))
def test_the_peer_projects_as_we_do(seed):
    point = np.random.default_rng(seed).normal(size=4)
    np.testing.assert_allclose(cap(point), project_capped_simplex(point, 1.0), atol=1e-12)
