from __future__ import annotations

import sys
from copy import deepcopy

import numpy as np
import pytest
from distributed.spill import SpillBuffer

from fairfrontier import learn
from fairfrontier.models.individual.budro.estimator import BuDRO
from fairfrontier.models.individual.budro.round import SharedState
from fairfrontier.models.individual.budro.shared import Process
from fairfrontier.runtime.errors import ClusterError
from tests.models.tables import make_split


def begin(tree_method="hist", stops=(30, 50)):
    split = make_split(160)
    X, y = split.train.X, split.train.y
    model = BuDRO(solver="exact", sources=20, max_depth=3, n_estimators=6, tree_method=tree_method)
    z = learn("subspace", split).embed(X).astype(np.float32)
    batches = np.split(X.astype(np.float32), stops)
    process = Process(0, 1, lambda values: values)
    return SharedState(model.setting(), batches, y, z, np.ones(80), process, 20)


@pytest.mark.parametrize("tree_method", ["hist", "approx"])
def test_rows_in_batches_give_the_trees_of_rows_in_one_piece(tree_method):
    batches, whole = (begin(tree_method, stops).advance(3) for stops in ([30, 50], []))
    assert batches.booster.get_dump() == whole.booster.get_dump()


def test_bins_are_kept_in_place_of_the_rows():
    state = begin()
    assert state.batches == []
    assert state.advance(2).iteration == 3
    # As Dask would spill it: it keeps in memory what it cannot store.
    with pytest.raises(ClusterError, match="do not fit into a worker's memory"):
        deepcopy(state)


def test_dask_keeps_bins_in_memory(tmp_path):
    spilling = SpillBuffer(str(tmp_path), target=10 * sys.getsizeof(begin()))
    spilling["rows"] = state = begin()
    assert spilling.evict() == -1
    assert spilling["rows"] is state


def test_without_bins_rows_are_kept_and_stored_rounds_go_on_the_same():
    state = begin("approx")
    stored = deepcopy(state)
    assert sum(map(len, stored.batches)) == 80
    assert stored.advance(3).booster.get_dump() == state.advance(3).booster.get_dump()
