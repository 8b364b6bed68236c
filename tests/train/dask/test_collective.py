from __future__ import annotations

import numpy as np
from distributed import Client
from xgboost.dask import CommunicatorContext

from fairfrontier.train.dask.collective import add_up, convene
from fairfrontier.train.dask.placement import Placement


def total(number, peers):
    with CommunicatorContext(**peers):
        return add_up(np.array([[number, 1.0]])), add_up(np.array(number))


def test_workers_meet_and_know_the_sum():
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, n_workers=3, **options) as client:
        held = [
            (address, client.submit(float, number, workers=[address], pure=False))
            for number, address in enumerate(sorted(client.nthreads()))
        ]
        placed = Placement(client, held, timeout=30.0)
        for _ in range(2):
            for pair, single in placed.call(total, convene(placed)):
                assert pair.tolist() == [[3.0, 3.0]]
                assert single.shape == ()
                assert single == 3.0
        placed.release()
