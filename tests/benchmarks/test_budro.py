from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import budro
from benchmarks.budro import Dense, Rounds, compare_solvers, measure_sizes


def test_both_solvers_and_their_dense_peers_are_measured_and_agree():
    records = compare_solvers(600, 2, "numpy")
    assert [each.peer for each in records] == ["dense Algorithm 2", "dense Algorithm 7"]
    assert all(each.n == 600 and each.ratio > 0 and each.ours_peak_mib > 0 for each in records)


def test_disagreement_is_an_error(monkeypatch):
    monkeypatch.setattr(Dense, "run_sgd", lambda *given: [1.0, 1.0])
    with pytest.raises(AssertionError):
        compare_solvers(300, 2, "numpy")


def test_sizes_without_a_peer_are_measured_alone(monkeypatch):
    monkeypatch.setattr(budro, "DENSE_ENTRIES", 300**2)
    small, large = (measure_sizes(n, 3, "numpy") for n in (300, 400))
    assert [each.case for each in large] == [
        f"{solver}, {which} round" for solver in ("sgd", "exact") for which in ("first", "later")
    ]
    assert all(each.ratio > 0 for each in small)
    assert all(math.isnan(each.ratio) and each.ours_seconds > 0 for each in large)


def test_losses_grow_from_round_to_round():
    losses = Rounds(300, 4, "numpy").losses
    spread = [float(np.std(each)) for each in losses]
    assert spread == sorted(spread)
