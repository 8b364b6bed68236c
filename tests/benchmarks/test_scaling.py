from __future__ import annotations

import numpy as np
import pytest
from distributed import Client

from benchmarks.scaling import agree_on_history, measure_budro, measure_trees


class History:
    def __init__(self, value):
        self.history_ = dict.fromkeys(("eta", "cost", "objective"), np.array([value]))


@pytest.mark.once
def test_fits_on_one_and_two_workers_are_measured_and_agree():
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, n_workers=2, **options) as client:
        told = {"client": client, "processes": (1, 2), "repeat": 1}
        records = measure_budro(300, 3, 1, **told) + measure_trees(400, 1, **told)
    assert [each.peer for each in records] == 2 * ["in memory, no Dask", *2 * ["1 process(es)"]]
    assert [each.ratio for each in records[1::3]] == [1.0, 1.0]
    assert all(each.ours_seconds > 0 for each in records)


def test_fits_that_differ_stop_the_run():
    agree_on_history(History(1.0), History(1.0 + 1e-9))
    with pytest.raises(AssertionError, match="eta"):
        agree_on_history(History(1.0), History(1.01))
