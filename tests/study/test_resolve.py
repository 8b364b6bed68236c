from __future__ import annotations

from pathlib import Path

import pytest

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.expand import expand, load_study
from tests.project import DATASET, make_project

STUDY = """
dataset: loans
methods:
  gbdt: {}
  linear: {}
  nn: {}
  kept: {method: gbdt, scale_pos_weight: 3}
  ruled: {method: gbdt, then: {method: reject_option, attributes: origin}}
frontier: {fairness: [gap_rms:origin]}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    parts = "split: {kind: random, train: 0.4, calibration: 0.2, validation: 0.2, test: 0.2}"
    dataset = DATASET.replace("split: {kind: random, train: 0.6, test: 0.4}", parts)
    return make_project(tmp_path_factory.mktemp("project"), dataset=dataset)


def read(home: Path, text: str):
    path = home / "conf/studies/made.yaml"
    path.write_text(text)
    resolved = load_study("made", home=home)
    return resolved.study, {p.group.method: p.group for p in expand(resolved)}


def test_class_weights_and_rules_of_all_methods_serve_one_objective(home):
    study, groups = read(home, STUDY)
    assert (study.objective, study.frontier.accuracy) == ("balanced_accuracy",) * 2
    parameters = {name: group.members[0].parameters for name, group in groups.items()}
    assert parameters["gbdt"]["scale_pos_weight"] == "balanced"
    assert parameters["linear"]["class_weight"] == "balanced"
    assert parameters["nn"]["balanced"] is True
    # What a row says itself stays.
    assert parameters["kept"]["scale_pos_weight"] == 3
    assert groups["ruled"].then["objective"] == "balanced_accuracy"
    assert {group.objective for group in groups.values()} == {"balanced_accuracy"}
    # They are no setting of a row.
    assert "scale_pos_weight" not in groups["gbdt"].members[0].setting

    study, groups = read(home, f"objective: accuracy\n{STUDY}")
    assert study.frontier.accuracy == "accuracy"
    parameters = {name: group.members[0].parameters for name, group in groups.items()}
    assert parameters["gbdt"]["scale_pos_weight"] == 1
    assert parameters["linear"]["class_weight"] is None
    assert parameters["nn"]["balanced"] is False
    assert groups["ruled"].then["objective"] == "accuracy"


def test_own_leaves_methods_as_they_are(home):
    study, groups = read(home, f"objective: own\n{STUDY}")
    assert study.frontier.accuracy == "balanced_accuracy"
    assert {group.objective for group in groups.values()} == {None}
    assert "scale_pos_weight" not in groups["gbdt"].members[0].parameters
    assert "objective" not in groups["ruled"].then


def test_the_objective_is_the_measure_of_the_frontier(home):
    accuracy = STUDY.replace("{fairness", "{accuracy: f1, fairness")
    study, groups = read(home, accuracy)
    assert study.objective == "f1"
    assert groups["ruled"].then["objective"] == "balanced_accuracy"
    _, groups = read(home, accuracy.replace("reject_option", "group_thresholds"))
    assert groups["ruled"].then["objective"] == "f1"
    with pytest.raises(ConfigError, match=r"frontier\.accuracy is 'f1', and the objective"):
        read(home, f"objective: accuracy\n{accuracy}")


def test_costs_are_measured(home):
    text = "objective: {costs: {false_positive: 1, false_negative: 5}}\n" + STUDY
    study, groups = read(home, text)
    assert study.frontier.accuracy == "error_cost"
    assert groups["gbdt"].objective == {"costs": {"false_positive": 1, "false_negative": 5}}
    assert groups["ruled"].then["objective"] == groups["gbdt"].objective
    # The cut of gbdt serves the costs, and the class weight of fair_gbm, which keeps its cut.
    _, groups = read(home, text.replace("nn: {}", "fair_gbm: {}"))
    weights = {
        name: groups[name].members[0].parameters["scale_pos_weight"]
        for name in ("gbdt", "fair_gbm")
    }
    assert weights == {"gbdt": 1, "fair_gbm": 5}


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("accurcy", r"objective names the unknown measure 'accurcy'. Did you mean 'accuracy'"),
        ("rmse", r"objective names 'rmse', which is for regression labels"),
        ("selection_rate", r"objective names 'selection_rate', of which no value is better"),
        ("{costs: {false_positive: 1}}", r"objective: The objective .* is no objective"),
        ("{costs: {false_positive: 1, false_negative: -1}}", "with numbers above 0"),
        ("[accuracy]", "objective"),
        ("3", "objective"),
    ],
)
def test_what_is_no_objective_is_refused_by_key(home, objective, message):
    with pytest.raises(ConfigError, match=message):
        read(home, f"objective: {objective}\n{STUDY}")


def test_a_rule_that_cannot_serve_costs_is_refused_before_training(home):
    costs = "objective: {costs: {false_positive: 1, false_negative: 5}}\n"
    with pytest.raises(ConfigError, match=r"methods.ruled.then: The parameter 'objective'"):
        read(home, costs + STUDY.replace("reject_option", "hardt"))


def test_a_rule_that_names_an_attribute_twice_is_refused_before_training(home):
    with pytest.raises(ConfigError, match=r"methods.ruled.then: attributes names an attribute tw"):
        read(home, STUDY.replace("attributes: origin", "attributes: [[origin, origin]]"))
