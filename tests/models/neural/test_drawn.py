"""Rows that minibatches draw are those of the whole table, by their numbers in it."""

from __future__ import annotations

import dask.array as da
import numpy as np

from fairfrontier.models.neural.estimator import gather_rows
from fairfrontier.runtime.cluster.executor import computing_on

X = np.random.default_rng(0).normal(size=(20, 3))


def test_rows_have_the_numbers_of_the_whole_table():
    drawn = np.zeros(20, dtype=bool)
    drawn[[2, 7, 8, 19]] = True
    with computing_on(None):
        found = gather_rows({"X": da.from_array(X, chunks=(6, 3)), "y": None}, drawn, "float64")[
            "X"
        ]
    assert found.shape == (20, 3)
    assert len(found) == 20
    rows = np.array([19, 2, 8, 2])
    np.testing.assert_array_equal(found[rows], X[rows])
    np.testing.assert_array_equal(found.values, X[drawn])
