from __future__ import annotations

import sys

import numpy as np
import pytest

from benchmarks import frontier
from benchmarks.postprocess import (
    check_parity,
    judge,
    measure_against_fairlearn,
    measure_against_peers,
    measure_descent,
    measure_large,
)


def test_both_sides_are_measured_at_parity():
    (record,) = measure_against_fairlearn(2000, repeat=1)
    assert record.case == "chosen and fitted"
    assert record.ratio > 0


@pytest.mark.once
def test_peers_in_their_environments_are_judged_by_accuracy_and_gap(tmp_path, monkeypatch):
    # fairlearn is in this environment too, and an absolute path stays as it is.
    monkeypatch.setattr(frontier, "RULES", {"fairlearn": sys.prefix})
    records = measure_against_peers(4000, tmp_path, repeat=1)
    assert [each.case.split(":")[0] for each in records] == list(frontier.CRITERIA)
    assert all(each.ratio > 0 for each in records)
    reached = [
        [float(each.rpartition(" at ")[2]) for each in (record.case, record.peer)]
        for record in records
    ]
    # A grid of fairlearn's is coarser than its bound; its odds are equal, up to the grid.
    assert np.all(np.array(reached) < [0.02001, 0.03])


def test_accuracy_and_gap_are_expectations():
    h, code, y = np.array([1, 0.5, 0, 0.5]), np.array([0, 0, 1, 1]), np.array([1, 0, 1, 0])
    assert judge(h, code, y, "parity") == "0.5000 at 0.5000"
    assert judge(h, code, y, "equal_opportunity") == "0.5000 at 1.0000"
    assert judge(h, code, y, "average_odds") == "0.5000 at 0.5000"


@pytest.mark.once
def test_sorting_streaming_and_descents_are_measured():
    records = measure_large(5000, "numpy", repeat=1) + measure_descent(2000, "numpy", repeat=1)
    assert [each.peer for each in records] == [
        "np.sort", "np.sort", "ours, exact", "np.sort", "projected SGD", "authors' schedule",
    ]  # fmt: skip
    assert all(each.n and each.ratio > 0 for each in records)


def test_a_gap_is_an_error():
    check_parity("ours", np.array([0.3, 0.3005]))
    with pytest.raises(AssertionError, match="theirs leaves"):
        check_parity("theirs", np.array([0.3, 0.302]))
