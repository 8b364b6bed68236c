from __future__ import annotations

import numpy as np
import pytest

from benchmarks.postprocess import (
    check_parity,
    measure_against_fairlearn,
    measure_descent,
    measure_large,
)


def test_both_sides_are_measured_at_parity():
    (record,) = measure_against_fairlearn(2000, repeat=1)
    assert record.case == "chosen and fitted"
    assert record.ratio > 0


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
