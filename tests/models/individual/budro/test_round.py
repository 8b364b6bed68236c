from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from fairfrontier import learn
from fairfrontier.models.individual.budro.estimator import BuDRO
from fairfrontier.models.individual.budro.round import BoostingState, WorkerGroup
from tests.models.tables import make_split


def begin(workers=None):
    split = make_split(160)
    X, y = split.train.X, split.train.y
    model = BuDRO(solver="sgd", steps=4, batch_size=20, max_depth=3, n_estimators=6)
    return BoostingState(
        model.setting(), X, y, learn("subspace", split).embed(X), np.ones(80), workers
    )


def alone(values):
    return values


@pytest.mark.parametrize("workers", [None, WorkerGroup(0, 1, alone, np.arange(80))])
def test_rounds_that_were_stored_on_the_way_go_on_the_same(workers):
    whole = begin(workers)
    whole = whole.advance(5)
    parts = begin(workers)
    for count in (2, 0, 3):
        # As what Dask moves or spills: the matrix is made again.
        parts = deepcopy(parts).advance(count)
    assert parts.iteration == whole.iteration == 6
    for name, wanted in whole.finish().history.items():
        assert np.array_equal(parts.finish().history[name], wanted)
    assert parts.booster.get_dump() == whole.booster.get_dump()


def test_what_was_advanced_keeps_its_history():
    rounds = begin()
    later = rounds.advance(2)
    assert (len(rounds.worst_cases.table), len(later.worst_cases.table)) == (0, 2)
    assert later.data is rounds.data
    assert deepcopy(later).data is None


def test_matrices_are_made_anew_together():
    workers = WorkerGroup(0, 1, alone, np.arange(80))
    rounds = begin(workers)
    assert rounds.advance(0).data is rounds.data
    # Another process has none.
    rounds.workers = replace(workers, add_up=lambda values: values + 1.0)
    assert rounds.advance(0).data is None
