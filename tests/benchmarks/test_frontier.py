from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from benchmarks import frontier
from benchmarks.frontier import OURS, PROGRAM, TABLES, Peer, describe, gather
from benchmarks.peer.decide import PARTS, decide_all


@pytest.fixture(scope="module")
def given():
    return gather(TABLES["communities"], 0, "thresholds")


def test_rows_go_to_one_part_each_and_labels_are_cut_at_their_median(given):
    sizes = [len(given[f"y_{part}"]) for part in PARTS]
    assert sum(sizes) == 1994
    assert sizes[:3] == [599, 200, 199]
    # Rows at the median itself are below.
    assert 0.45 < given["y_train"].mean() <= 0.5
    assert set(given["group_test"]) == {0, 1}
    assert all(len(given[f"{name}_{part}"]) == n for name in ("X", "row", "group")
               for part, n in zip(PARTS, sizes, strict=True))  # fmt: skip


def test_protected_columns_are_hidden_where_groups_are_not_known(given):
    blind = gather(TABLES["communities"], 0, "training")
    assert blind["X_test"].shape[1] < given["X_test"].shape[1]
    for part in PARTS:
        assert (blind[f"y_{part}"] == given[f"y_{part}"]).all()
        assert (blind[f"group_{part}"] == given[f"group_{part}"]).all()


@pytest.mark.parametrize(("track", "name"), [("thresholds", "group_thresholds")])
def test_ours_keeps_its_budgets_on_the_rows_that_it_is_fitted_on(given, track, name):
    arrays = ("y_{}", "group_{}", "score_{}_accuracy", "score_{}_balanced_accuracy")
    fitted = given | {
        each.format("validation"): given[each.format("calibration")] for each in arrays
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


@pytest.mark.once
def test_a_peer_answers_in_its_own_process_and_results_are_described(given):
    given = given | {"budgets": np.array([0.0, 0.05])}
    # fairlearn is in this environment too.
    with Peer("fairlearn", sys.executable) as peer:
        decided = peer.decide(given)
    kept = json.loads(json.dumps(describe(given, decided), allow_nan=False))
    assert kept["failed"] == []
    assert np.array(kept["test_objective"])[0].min() > 0.5
    # It has one rule for equalized odds.
    assert kept["test_gap"][2][0][1:] == [None]


def test_a_study_s_settings_are_candidates_with_the_gaps_of_their_criteria(given, monkeypatch):
    measures = {"accuracy": "", "balanced_accuracy": "", "selection_rate_difference": "majority",
                "tpr_difference": "majority", "fpr_difference": "majority"}  # fmt: skip
    rows = [
        {"method": "gbdt", "setting": setting, "part": part, "group": group, "measure": measure,
         "value": 0.1 * i + (setting == "b") + 10 * (part == "test")}
        for setting in "ab" for part in ("train", "validation", "test")
        for i, (measure, group) in enumerate(measures.items())
    ]  # fmt: skip
    points = pd.DataFrame(rows)
    monkeypatch.setattr(frontier, "run_default", lambda *_: (points, 7.0))
    found = frontier.search(TABLES["communities"], 0, given)
    assert found["seconds"] == [[7.0, 7.0]] * 3
    assert found["test_objective"][0] == [[10.0, 11.0], [10.1, 11.1]]
    # Selection rates, true positive rates, the larger of both.
    assert [row[0] for row in found["validation_gap"]] == [[0.2, 1.2], [0.3, 1.3], [0.4, 1.4]]
    # A rate of no rows is no measure of the study.
    points = points[points["measure"] != "tpr_difference"]
    found = frontier.search(TABLES["communities"], 0, given)
    assert [row[0] for row in found["validation_gap"]] == [[0.2, 1.2], [None] * 2, [None] * 2]


def test_the_seconds_of_a_study_are_those_without_anything_kept(monkeypatch):
    homes = []

    def run_study(path, home):
        homes.append(home)
        assert not (home / "data" / "cache" / "store").exists()
        return SimpleNamespace(points=path.stem, facts={"seconds": 7.0})

    monkeypatch.setattr(frontier, "run_study", run_study)
    frontier.run_default.cache_clear()
    # Tables of one dataset share its study.
    for _ in range(2):
        found = frontier.run_default("german", 3, "accuracy")
        assert found == ("scoreboard-german-3-accuracy", 7.0)
    frontier.run_default.cache_clear()
    assert len(homes) == 1
    assert not homes[0].exists()


def test_cuts_are_the_best_of_all():
    generator = np.random.default_rng(0)
    score, y = generator.integers(6, size=40) / 6, generator.integers(2, size=40)
    for objective in ("accuracy", "balanced_accuracy"):
        cut, _ = frontier.find_cut(score, y, objective)
        weight = np.where(y == 1, 1 / y.mean(), 1 / (1 - y.mean()))
        weight = weight if objective == "balanced_accuracy" else np.ones(40)
        reached = [weight @ ((score >= each) == y) for each in np.unique(score)]
        assert weight @ ((score >= cut) == y) == pytest.approx(max(reached), abs=1e-12)


def test_a_missing_environment_says_what_makes_it(tmp_path):
    with pytest.raises(SystemExit, match="make peers"):
        Peer("fairlearn", tmp_path / "python")


def test_the_peer_s_program_imports_nothing_of_ours():
    assert "fairfrontier" not in PROGRAM.read_text()
