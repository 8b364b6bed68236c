"""A study that names a dataset and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.finder import list_names
from fairfrontier.study.check import load_study
from fairfrontier.study.config import RunOptions, read_study
from fairfrontier.study.run import start_study
from tests.project import ROOT, make_project


@pytest.fixture
def home(tmp_path) -> Path:
    return make_project(tmp_path)


def read(home: Path, text: str):
    path = home / "conf/studies/made.yaml"
    path.write_text(text)
    return read_study("made", "default", home)[0]


def test_methods_measures_and_a_search_are_chosen_for_the_dataset(home):
    study = read(home, "dataset: loans\n")
    assert list(study.methods) == [
        "linear", "gbdt", "random_forest", "ensemble", "parity origin", "odds origin",
        "fair_gbm origin", "linear_post origin",
    ]  # fmt: skip
    assert study.methods["parity origin"].method == "best"
    assert study.methods["linear_post origin"].parameters["criterion"] == "parity"
    assert study.frontier.fairness == (
        "selection_rate_difference:origin", "gap_max:origin", "consistency:origin"
    )  # fmt: skip
    assert study.objective == study.frontier.accuracy == "balanced_accuracy"
    assert study.search.trials == 150
    assert start_study(RunOptions(study="made", conf=home)).plan == ()


def test_a_metric_adds_methods_of_individual_fairness(home):
    study = read(home, "dataset: loans\nmetric: {name: subspace}\nobjective: accuracy\n")
    assert {"budro", "sensei"} <= set(study.methods)
    assert study.frontier.accuracy == "accuracy"


def test_what_a_study_says_itself_stays(home):
    text = "dataset: loans\nmethods: {linear: {}}\nfrontier: {accuracy: auc}\n"
    study = read(home, text)
    assert (list(study.methods), study.search) == (["linear"], None)
    assert study.frontier.accuracy == "auc"
    assert len(study.frontier.fairness) == 3


def test_the_yaml_of_a_dataset_is_a_study_of_it(home):
    path = home / "conf/datasets/loans.yaml"
    study, _ = read_study(str(path), "default", home)
    assert study.study == "loans-default"
    assert Path(study.dataset) == path


def test_a_dataset_without_groups_and_counterfactuals_has_no_fairness(home):
    path = home / "conf/datasets/loans.yaml"
    content = yaml.safe_load(path.read_text())
    for key in ("groups", "counterfactuals", "protected"):
        content.pop(key, None)
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError):
        read(home, "dataset: loans\n")


@pytest.mark.parametrize("name", sorted(list_names("dataset", ROOT)))
def test_every_built_in_dataset_has_one(name, tmp_path):
    dataset = read_dataset(list_names("dataset", ROOT)[name], ROOT)
    path = tmp_path / "alone.yaml"
    metric = "metric: {name: subspace}\n" if dataset.protected else ""
    path.write_text(f"dataset: {name}\n{metric}")
    if not dataset.groups and not dataset.set_names:
        with pytest.raises(ConfigError):
            load_study(path, home=ROOT)
        return
    resolved = load_study(path, home=ROOT)
    assert resolved.study.search is not None
    assert resolved.study.frontier.fairness


def test_several_classes_are_learnt_by_methods_that_learn_them(home):
    path = home / "conf/datasets/loans.yaml"
    label = "label: {column: outcome, positive: repaid, favourable: repaid}"
    several = path.read_text().replace(label, "label: {column: job, task: multiclass}")
    path.write_text(several.replace("[region, job]", "[region]"))
    rows = read(home, "dataset: loans\n").methods
    assert list(rows)[:4] == ["linear", "gbdt", "random_forest", "ensemble"]
    assert {row.method for name, row in rows.items() if " " in name} == {"reweigh", "linear_post"}
