from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from benchmarks import frontier
from benchmarks.frontier import OURS, PROGRAM, TABLES, Peer, gather, keep
from benchmarks.peer.decide import PARTS, decide_all


@pytest.fixture(scope="module")
def given():
    return gather(TABLES["communities"], seed=0, blind=False)


def test_rows_go_to_one_part_each_and_labels_are_cut_at_their_median(given):
    sizes = [len(given[f"y_{part}"]) for part in PARTS]
    assert sum(sizes) == 1994
    assert sizes[:3] == [599, 200, 199]
    # Rows at the median itself are below.
    assert 0.45 < given["y_train"].mean() <= 0.5
    assert set(given["group_test"]) == {0, 1}
    assert all(len(given[f"{name}_{part}"]) == n for name in ("X", "score", "group")
               for part, n in zip(PARTS, sizes, strict=True))  # fmt: skip


def test_protected_columns_are_hidden_where_groups_are_not_known(given):
    blind = gather(TABLES["communities"], seed=0, blind=True)
    assert blind["X_test"].shape[1] < given["X_test"].shape[1]
    for part in PARTS:
        assert (blind[f"y_{part}"] == given[f"y_{part}"]).all()
        assert (blind[f"group_{part}"] == given[f"group_{part}"]).all()


@pytest.mark.parametrize(("track", "name"), [("thresholds", "group_thresholds")])
def test_ours_keeps_its_budgets_on_the_rows_that_it_is_fitted_on(given, track, name):
    fitted = given | {
        f"{kind}_validation": given[f"{kind}_calibration"] for kind in ("y", "score", "group")
    }
    decided = decide_all(fitted, OURS[track][name])
    assert not decided["failed"].size
    found = frontier.measure(
        decided["validation"].astype(float), fitted["y_validation"], fitted["group_validation"]
    )
    # Probabilities are kept in single precision.
    assert (found["gap"] <= given["budgets"] + 1e-6).all()
    assert (np.diff(found["objective"], axis=-1) >= -1e-6).all()


def test_what_fails_is_a_sentence_and_what_is_not_offered_has_no_seconds(given):
    def fit(_given, criterion, _objective):
        if criterion == "parity":
            raise ValueError("cannot")
        if criterion == "equalized_odds":
            yield lambda part: np.ones(len(given[f"y_{part}"]))

    decided = decide_all(given, fit)
    assert decided["failed"].tolist() == [
        f"parity, {objective}: ValueError: cannot"
        for objective in ("accuracy", "balanced_accuracy")
    ]
    assert np.isnan(decided["seconds"]).tolist() == [[False] * 2, [True] * 2, [False] * 2]
    assert (decided["test"][2, :, 0] == 1).all()
    assert np.isnan(decided["test"][2, :, 1:]).all()


def test_a_peer_answers_in_its_own_process_and_results_are_kept(given, tmp_path):
    given = given | {"budgets": np.array([0.0, 0.05])}
    # fairlearn is in this environment too.
    with Peer("fairlearn", sys.executable) as peer:
        decided = peer.decide(given)
    keep(tmp_path / "0-fairlearn.json", given, decided)
    kept = json.loads((tmp_path / "0-fairlearn.json").read_text())
    assert kept["failed"] == []
    assert np.array(kept["test_objective"])[0].min() > 0.5
    # It has one rule for equalized odds.
    assert kept["test_gap"][2][0][1:] == [None]


def test_a_missing_environment_says_what_makes_it(tmp_path):
    with pytest.raises(SystemExit, match="make peers"):
        Peer("fairlearn", tmp_path / "python")


def test_the_peer_s_program_imports_nothing_of_ours():
    assert "fairfrontier" not in PROGRAM.read_text()
