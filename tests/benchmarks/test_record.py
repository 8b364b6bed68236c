from __future__ import annotations

import json

import numpy as np
import pytest
from rich.console import Console

from benchmarks.record import Timed, compare, measure_call, show_records, write_records
from fairfrontier.runtime.errors import StoreError

KEYS = [
    "case", "n", "ours_seconds", "peer", "peer_seconds", "ratio", "ours_peak_mib",
    "peer_peak_mib", "backend",
]  # fmt: skip


def test_peak_is_what_the_call_held_at_once():
    before = np.zeros(2**20)

    def call() -> float:
        for _ in range(3):
            total = float(np.ones(2**20).sum() + before.sum())
        return total

    timed = measure_call(call, repeat=2)
    assert timed.result == 2**20
    assert timed.seconds > 0
    assert timed.peak_mib == pytest.approx(8, abs=0.1)


def test_records_are_written_and_shown(tmp_path):
    record = compare("small", 10, Timed(0.5, 1.0, None), "peer 1.0", Timed(2.0, 4.0, None))
    path = write_records("example", [record], tmp_path / "benchmarks")
    (found,) = json.loads(path.read_text())
    assert list(found) == KEYS
    assert found["ratio"] == 4.0
    assert [each.name for each in path.parent.iterdir()] == ["example.json"]
    console = Console(record=True, width=120)
    show_records("Example", [record], console)
    assert "4.0×" in console.export_text()


def test_what_was_not_measured_is_null_and_a_dash(tmp_path):
    nothing = Timed(float("nan"), float("nan"), None)
    record = compare("alone", 10, Timed(0.5, 1.0, None), "none", nothing)
    (found,) = json.loads(write_records("example", [record], tmp_path).read_text())
    assert (found["peer_seconds"], found["ratio"], found["ours_seconds"]) == (None, None, 0.5)
    console = Console(record=True, width=120)
    show_records("Example", [record], console)
    assert console.export_text().count("–") == 3


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError):
        write_records("example", [], tmp_path / "taken")
