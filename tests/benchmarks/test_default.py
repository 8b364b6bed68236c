from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from benchmarks import default
from benchmarks.default import (
    choose_consistent,
    describe,
    fit_xgboost,
    list_contenders,
    read_results,
    record,
    summarise,
    write_study,
)
from fairfrontier import evaluate, load
from fairfrontier.runtime.home import find_home
from fairfrontier.study.config import ACCURACY


def make_row(method, objective, consistency, error=0.01):
    """Return a row whose test values are its validation values less .1."""
    values = {"objective": objective, "objective_error": error}
    values |= dict.fromkeys(default.CONSISTENCY, consistency)
    test = {name: value - 0.1 for name, value in values.items()}
    return {"method": method, "setting": "", "validation": values, "test": test}


def test_the_metric_is_that_of_the_tables_own_study():
    home = find_home()
    assert write_study("german", 3, "alone", home) == {"dataset": "german", "seeds": [3]}
    asked = write_study("compas", 0, "metric", home)
    assert asked["metric"]["name"] == "subspace"
    assert asked["metric"]["regress"] == ["race"]
    assert list(write_study("adult", 0, "net", home)["methods"]) == ["nn"]
    assert list_contenders("communities") == ["alone", "xgboost"]


def test_values_are_oriented_and_means_over_the_sets():
    columns = ["measure", "group", "value", "low", "high"]
    rows = [
        [ACCURACY, "", 0.8, 0.75, 0.85],
        [ACCURACY, "sex=Female", 0.1, 0.0, 1.0],
        ["consistency", "sex", 0.9, 0.8, 1.0],
        ["consistency", "race", 0.7, 0.6, 0.8],
        ["counterfactual_score_gap", "sex", 0.2, 0.1, 0.3],
    ]
    points = pd.concat(
        [pd.DataFrame(rows, columns=columns).assign(part=part) for part in ("validation", "test")]
    ).assign(method="gbdt", setting="{}")
    (found,) = describe(points)
    assert found["test"] == found["validation"]
    assert found["test"]["objective"] == pytest.approx(0.8)
    assert found["test"]["objective_error"] == pytest.approx(0.1 / 3.92)
    assert found["test"]["consistency"] == pytest.approx(0.8)
    assert found["test"]["counterfactual_score_gap"] == pytest.approx(-0.2)


def test_the_most_consistent_row_at_the_plain_models_objective_is_chosen():
    plain = make_row("gbdt", 0.8, 0.5)
    rows = [make_row("budro", 0.795, 0.6), make_row("budro", 0.85, 0.55), make_row("budro", 0.7, 1)]
    assert choose_consistent(rows, plain) is rows[0]
    # Where none has that objective, the one with the best.
    assert choose_consistent(rows, make_row("gbdt", 0.9, 0.5)) is rows[1]


def test_kept_results_are_compared_by_seed_and_recorded(tmp_path):
    folder = tmp_path / "kept" / "german"
    folder.mkdir(parents=True)
    for seed, gain in enumerate((0.0, 0.02)):
        kept = {
            "alone": [make_row("gbdt", 0.8 + gain, 0.5), make_row("linear", 0.7, 0.9)],
            "metric": [make_row("budro", 0.8, 0.7), make_row("sensei", 0.6, 0.8)],
            "xgboost": [make_row("xgboost", 0.8, 0.5)],
            "net": [make_row("nn", 0.7, 0.5)],
        }
        for name, rows in kept.items():
            (folder / f"{seed}-{name}.json").write_text(json.dumps(rows))
    # A seed without the peer is left out.
    (folder / "2-alone.json").write_text("[]")
    judged = read_results(tmp_path / "kept")
    summary = summarise(judged)
    assert set(summary["seeds"]) == {2}
    cells = summary.set_index(["study", "row", "measure"])["difference"]
    assert cells["alone", "best", "objective"] == pytest.approx(0.01)
    assert cells["metric", "budro", "consistency"] == pytest.approx(0.2)
    assert cells["metric", "sensei", "objective"] == pytest.approx(-0.1)
    record(judged, tmp_path)
    path = tmp_path / "data" / "reference" / "runs" / "default.json"
    kept = json.loads(path.read_text())
    assert len(kept["cells"]) == len(summary)
    assert kept["columns"][0] == "table"
    # The splits of a later run are added to those that were recorded.
    later = judged[(judged["study"] == "alone") & (judged["seed"] == 1)].assign(seed=2)
    again = record(later, tmp_path)
    assert again.groupby("study")["seeds"].max().to_dict() == {"alone": 3, "metric": 2}
    # A study without splits stays as it was recorded.
    path.with_suffix(".csv").unlink()
    last = record(later, tmp_path)
    assert len(last) == len(summary)
    assert last.groupby("study")["seeds"].max().to_dict() == {"alone": 1, "metric": 2}


def test_the_peer_is_the_best_of_its_trials_on_validation(monkeypatch):
    split = load("law-sample", seed=0, select_on="validation")
    losses = []
    for trials in (1, 3):
        monkeypatch.setattr(default, "TRIALS", trials)
        found = evaluate(fit_xgboost(split, 0), split.validation, ["rmse"])
        losses.append(float(found["value"].iloc[0]))
    assert losses[1] <= losses[0]


def test_the_peers_cut_is_the_best_on_validation(monkeypatch):
    monkeypatch.setattr("benchmarks.frontier.TRIALS", 1)
    split = load("german", seed=0, select_on="validation")
    model = fit_xgboost(split, 0)
    part = split.validation
    found = evaluate(model, part, [ACCURACY])["value"].iloc[0]
    score = model.predict_proba(part.X)[:, 1]
    cuts = [score >= cut for cut in np.unique(score)]
    best = max((cut[part.y == 1].mean() + 1 - cut[part.y == 0].mean()) / 2 for cut in cuts)
    assert found == pytest.approx(best)
