from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import xgboost
from distributed import Client

from fairfrontier.train.dask.boosting import boost_partitions, grow_plainly

PARAMETERS = {"objective": "binary:logistic", "max_depth": 3, "tree_method": "hist", "nthread": 1}


@pytest.fixture(scope="module")
def client():
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, n_workers=2, **options) as client:
        yield client


def test_as_many_bins_as_values_make_the_trees_exact(client):
    generator = np.random.default_rng(1)
    X = generator.normal(size=(9000, 2)).astype(np.float32)
    y = (X.sum(axis=1) + generator.normal(size=9000) > 0).astype(np.int64)
    weight = np.ones(9000)
    rows, lazy = xgboost.DMatrix(X, y, weight=weight), da.from_array(X, chunks=((5000, 4000), 2))
    gaps = {}
    for bins in (256, 9000):
        parameters = PARAMETERS | {"max_bin": bins}
        grow, keywords = grow_plainly(parameters, 5), {"name": "mine", "max_bin": bins}
        booster, _ = boost_partitions(grow, lazy, y, weight, client=client, **keywords)
        expected = xgboost.train(parameters, xgboost.DMatrix(X, y, weight=weight, nthread=1), 5)
        gaps[bins] = np.abs(booster.predict(rows) - expected.predict(rows)).max()
    # With fewer, quantiles of workers' rows are others.
    assert gaps[9000] < 1e-6 < gaps[256]


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_trees_are_those_of_the_rows_in_memory(client, spread, share):
    parameters = PARAMETERS | {"colsample_bytree": share}
    generator = np.random.default_rng(0)
    X = generator.integers(0, 40, size=(400, 3)).astype(np.float64)
    y = (X[:, 0] + X[:, 1] + generator.normal(0, 10, 400) > 40).astype(np.int64)
    weight = generator.integers(1, 4, 400) / 2.0
    lazy = da.from_array(X, chunks=((150, 90, 160), 3))
    workers = client if spread else None
    grow = grow_plainly(parameters, 5)
    booster, _ = boost_partitions(grow, lazy, y, weight, client=workers, name="mine")
    expected = xgboost.train(parameters, xgboost.DMatrix(X, y, weight=weight, nthread=1), 5)
    rows = xgboost.DMatrix(X, nthread=1)
    np.testing.assert_allclose(booster.predict(rows), expected.predict(rows), atol=1e-6)
