from __future__ import annotations

import json
import sys
import tracemalloc

import numpy as np
import pytest

from benchmarks import budro
from benchmarks.budro import Dense, Rounds, Run, measure_rounds
from benchmarks.record import write_records

PARTS = ["first round", "later round", "3 rounds"]


@pytest.mark.once
def test_both_solvers_and_their_dense_peers_are_measured_and_agree():
    tables = measure_rounds(600, 3, "numpy")
    assert list(tables) == [f"against dense matrices {each}" for each in ("as written", "tuned")]
    for records in tables.values():
        assert [each.case for each in records] == [
            f"{solver}, {part}" for solver in ("sgd", "exact") for part in PARTS
        ]
        assert all(each.n == 600 and each.ratio > 0 for each in records)
        # C in single precision.
        assert all(each.peer_peak_mib > 600**2 * 4 / 2**20 for each in records)


def test_parts_of_a_run():
    assert list(Run([0.0] * 3, [5.0, 1.0, 2.0]).parts().items()) == [
        ("first round", 5.0), ("later round", 1.5), ("3 rounds", 8.0),
    ]  # fmt: skip


def test_disagreement_is_an_error(monkeypatch):
    monkeypatch.setattr(Dense, "run", lambda *given: Run([1.0, 1.0], [1.0, 1.0]))
    with pytest.raises(AssertionError):
        measure_rounds(300, 2, "numpy")


@pytest.mark.once
def test_nothing_is_timed_while_memory_is_traced(monkeypatch):
    # Where each was called, and for how many rounds; what is timed is whole and comes untraced.
    told = {"ours": [], "peer": [], "making": []}
    ours, peer, making = Rounds.run, Dense.run, Dense.__init__

    def note(name, rounds):
        told[name].append((tracemalloc.is_tracing(), rounds))

    monkeypatch.setattr(
        Rounds, "run", lambda *given: note("ours", (given[2:] or (3,))[0]) or ours(*given)
    )
    monkeypatch.setattr(Dense, "run", lambda *given: note("peer", len(given[2])) or peer(*given))
    monkeypatch.setattr(Dense, "__init__", lambda *given: note("making", 0) or making(*given))
    measure_rounds(600, 3, "numpy")
    assert sorted(told["ours"]) == [(False, 3)] * 2 + [(True, 2)] * 2
    assert sorted(told["peer"]) == [(False, 3)] * 4 + [(True, 2)] * 4
    assert told["making"] == [(True, 0), (False, 0)]


def test_the_tuned_peer_moves_as_the_other_does():
    given = Rounds(400, 1, "numpy")
    dense = Dense(given.z, given.label)
    gain = dense._order(given.losses[0])
    for rows in (np.arange(400), np.array([3, 3, 50, 390]), np.array([399])):
        for one, other in zip(
            dense.move(gain, rows, 0.2), dense.tune().move(gain, rows, 0.2), strict=True
        ):
            assert one == pytest.approx(other, abs=1e-5)


def test_dense_rounds_need_few_passes(monkeypatch):
    given = Rounds(600, 2, "numpy")
    dense = Dense(given.z, given.label)
    asked, explore = [], Dense.explore
    monkeypatch.setattr(Dense, "explore", lambda *told: asked.append(told[2]) or explore(*told))
    dense.run("exact", given.losses, given.samples)
    assert 2 <= len(asked) < 25


def test_sizes_without_a_peer_and_without_xgboost_are_written_as_json(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(budro.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(
        budro, "write_records", lambda name, records: write_records(name, records, tmp_path)
    )
    monkeypatch.setattr(sys, "argv", ["budro", "--rows", "400", "--dense", "300", "--rounds", "3"])
    budro.main()
    assert "fits on Adult are left out" in capsys.readouterr().out
    found = json.loads((tmp_path / "budro.json").read_text())
    assert [each["case"] for each in found[:3]] == [f"sgd, {part}" for part in PARTS]
    assert all(each["ratio"] is None and each["ours_seconds"] > 0 for each in found)


def test_losses_grow_from_round_to_round():
    losses = Rounds(300, 4, "numpy").losses
    spread = [float(np.std(each)) for each in losses]
    assert spread == sorted(spread)
