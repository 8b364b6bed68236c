from __future__ import annotations

from pathlib import Path

import pytest

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.check import load_study
from fairfrontier.study.resolve import expand
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

LISTED = r"Choose among: accuracy, balanced_accuracy, f1, auc, log_loss, \{costs: [^}]*\}\}"


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
    served = {"group_thresholds": "f1", "shift_inference": "f1"}
    for rule, objective in {**served, "randomized_threshold": "balanced_accuracy"}.items():
        _, groups = read(home, accuracy.replace("reject_option", rule))
        assert groups["ruled"].then["objective"] == objective
        _, groups = read(home, f"objective: own\n{accuracy}".replace("reject_option", rule))
        assert "objective" not in groups["ruled"].then
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
        ("accurcy", r"is 'accurcy', .* binary task. Did you mean 'accuracy'"),
        ("rmse", rf"is 'rmse', which is no objective of a binary task. {LISTED}, or own\.$"),
        ("tpr", rf"is 'tpr', .* {LISTED}, or own with frontier.accuracy: tpr\.$"),
        ("brier", r"is 'brier', .* are: "),
        ("selection_rate", rf"is 'selection_rate', .* {LISTED}, or own\.$"),
        ("{costs: {false_positive: 1}}", r"objective: The objective .* is no objective"),
        ("[accuracy]", "objective"),
        ("3", "objective"),
    ],
)
def test_what_is_no_objective_is_refused_by_key(home, objective, message):
    with pytest.raises(ConfigError, match=message):
        read(home, f"objective: {objective}\n{STUDY}")


def test_a_rule_that_cannot_serve_costs_is_refused_before_training(home):
    costs = "objective: {costs: {false_positive: 1, false_negative: 5}}\n"
    told = r"methods.ruled.then: hardt serves accuracy and balanced_accuracy only.*group_thresholds"
    ruled = costs + STUDY.replace("reject_option", "hardt")
    with pytest.raises(ConfigError, match=told):
        read(home, ruled)
    # One of its own is the user's choice.
    _, groups = read(home, ruled.replace("hardt,", "hardt, objective: accuracy,"))
    assert groups["ruled"].then["objective"] == "accuracy"


@pytest.mark.parametrize("stated", ["", "objective: tpr\n"])
def test_a_measure_that_is_no_objective_is_traded_where_methods_keep_their_own(home, stated):
    text = STUDY.replace("{fairness", "{accuracy: tpr, fairness")
    with pytest.raises(ConfigError, match=r"is 'tpr', which is no objective"):
        read(home, stated + text)
    study, groups = read(home, f"objective: own\n{text}")
    assert (study.frontier.accuracy, groups["gbdt"].objective) == ("tpr", None)


def write_task(home: Path, label: str, accuracy: str) -> str:
    """Write a dataset of another task, and return a study of it."""
    text = (home / "conf/datasets/loans.yaml").read_text()
    lines = [f"label: {label}" if line.startswith("label:") else line for line in text.splitlines()]
    (home / "conf/datasets/other.yaml").write_text(
        "\n".join(lines)
        .replace("dataset: loans", "dataset: other")
        .replace("numeric: [income, age]", "numeric: [age]")
        .replace("categorical: [region, job]", "categorical: [region]")
        .replace("numeric: median, categorical: category", "numeric: median")
    )
    return (
        "dataset: other\nmethods: {nn: {}}\n"
        f"frontier: {{{accuracy}fairness: ['consistency:origin']}}\n"
    )


def test_objectives_of_several_classes(home):
    text = write_task(home, "{column: job, task: multiclass}", "")
    costs = "objective: {costs: {false_positive: 1, false_negative: 5}}\n"
    told = (
        r"objective gives costs of errors of two classes.*multiclass.*accuracy, balanced_accuracy"
    )
    with pytest.raises(ConfigError, match=told) as caught:
        read(home, costs + text)
    assert "frontier.accuracy" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"'f1', .* multiclass task. Choose among: accuracy,"):
        read(home, "objective: f1\n" + text)
    _, groups = read(home, "objective: log_loss\n" + text)
    assert groups["nn"].objective == "log_loss"


def test_objectives_of_a_regression(home):
    text = write_task(home, "{column: income, task: regression}", "accuracy: rmse, ")
    text = text.replace("consistency", "disparity").replace("nn", "linear_regression")
    study, groups = read(home, text)
    assert (study.objective, groups["linear_regression"].objective) == ("rmse", None)
    plain = text.replace("accuracy: rmse, ", "")
    costs = "objective: {costs: {false_positive: 1, false_negative: 5}}\n"
    with pytest.raises(ConfigError, match=r"objective gives costs.*regression task.*mae, r2, rmse"):
        read(home, costs + plain)
    with pytest.raises(
        ConfigError, match=r"'balanced_accuracy', .* regression task.*mae, r2, rmse"
    ):
        read(home, plain)
    with pytest.raises(ConfigError, match=r"'mean_prediction', .* regression task.*mae, r2, rmse"):
        read(home, "objective: mean_prediction\n" + plain)


def test_a_regression_among_classifiers_serves_no_objective(home):
    _, groups = read(home, STUDY.replace("nn: {}", "linear_regression: {}"))
    assert groups["linear_regression"].objective == "balanced_accuracy"


@pytest.mark.parametrize("accuracy", ["consistency", "rmse", "selection_rate"])
def test_an_accuracy_is_chosen_among_measures_of_all_rows(home, accuracy):
    dataset = (home / "conf/datasets/loans.yaml").read_text()
    bare = dataset.replace("counterfactuals:\n  origin: {origin: all}\n", "")
    assert bare != dataset
    (home / "conf/datasets/bare.yaml").write_text(bare.replace("dataset: loans", "dataset: bare"))
    text = STUDY.replace("dataset: loans", "objective: own\ndataset: bare")
    with pytest.raises(
        ConfigError, match=r"Choose among: accuracy, auc, [a-z_0-9, ]*tpr\.$"
    ) as caught:
        read(home, text.replace("{fairness", f"{{accuracy: {accuracy}, fairness"))
    assert "selection_rate_difference" not in str(caught.value)


def test_a_rule_that_names_an_attribute_twice_is_refused_before_training(home):
    with pytest.raises(ConfigError):
        read(home, STUDY.replace("attributes: origin", "attributes: [[origin, origin]]"))
