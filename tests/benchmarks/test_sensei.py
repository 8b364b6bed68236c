from __future__ import annotations

import numpy as np
import pytest

from benchmarks.sensei import PROGRAM, Problem, check_equal, find_ours, measure_sweep


def test_a_sweep_is_measured():
    (record,) = measure_sweep(20, models=2, attack_steps=4, backend="numpy", repeat=1)
    assert record.case == "2 models, 20 rows each"
    assert record.ratio > 0


def test_steps_train_and_attacks_move():
    problem = Problem(2, 50, "numpy", (3, 3))
    losses = [problem.step() for _ in range(60)]
    assert losses[-1] < losses[0]
    assert np.abs(find_ours(problem, 20) - problem.x[0]).max() > 5e-3


def test_the_peer_s_program_is_there_and_imports_nothing_of_ours():
    assert "fairfrontier" not in PROGRAM.read_text()


def test_disagreement_is_an_error():
    ours = np.zeros((100, 41))
    theirs = ours.copy()
    theirs[0, :20] = 1.0
    check_equal(ours, theirs)
    with pytest.raises(AssertionError, match="differ"):
        check_equal(ours, theirs + 0.01)
