"""Ensembles are made of the best settings that a search tried."""

from __future__ import annotations

import numpy as np
import pytest

from tests.study.search.test_search import begin, pretend


def find_members(tried):
    """Return the settings that ensembles were tried with."""
    return [setting["settings"] for label, setting in tried if "settings" in setting]


def score(setting):
    """Return the objective of `pretend` at a loose bound."""
    depth, rate = setting.get("max_depth", 6), setting.get("learning_rate", 0.3)
    return -0.01 * (depth - 5) ** 2 - abs(np.log10(rate / 0.05)) / 10


def test_an_ensemble_is_of_the_best_settings_of_the_best_learner(home):
    methods = {"linear": {}, "gbdt": {"n_estimators": 90}, "ensemble": {}}
    search, tried = begin(home, methods=methods), []
    outcome = search.run(pretend(tried))
    # One trial is left by the shares.
    assert outcome.trials == len(tried) == 39
    assert [label for label, _ in tried].index("ensemble") == 38
    ((members),) = find_members(tried)
    assert tried[-1][1]["learner"] == "gbdt"
    assert all(member["n_estimators"] == 90 for member in members)
    trees = sorted((score(s) for label, s in tried if label == "gbdt"), reverse=True)
    assert [score(member) for member in members] == pytest.approx(trees[:5])
    (planned,) = (p for p in outcome.planned.values() if p.group.estimator == "ensemble")
    assert planned.group.members[0].parameters["settings"] == members


def test_an_ensemble_may_name_its_learner_and_have_a_rule(home):
    then = {"method": "group_thresholds", "attributes": "origin"}
    methods = {
        "linear": {}, "gbdt": {}, "ruled": {"method": "ensemble", "learner": "linear", "then": then}
    }  # fmt: skip
    search, tried = begin(home, methods=methods), []
    outcome = search.run(pretend(tried))
    members = find_members(tried)
    assert members[0] == members[-1]
    assert all(set(member) <= {"penalty"} for member in members[0])
    ruled = {p.group.estimator for p in outcome.planned.values() if p.group.then}
    assert ruled == {"ensemble"}
    assert outcome.trials == 40


@pytest.mark.parametrize(
    "methods",
    [
        {"gbdt": {"n_estimators": [50, 90]}, "ensemble": {}},
        {"gbdt": {}, "ensemble": {"learner": "linear"}},
        {"gbdt": {}, "ensemble": {"settings": [[{"max_depth": 2}, {"max_depth": 3}]]}},
    ],
    ids=["of a sweep", "of a learner that is not tried", "of its own"],
)
def test_ensembles_that_a_search_does_not_make(home, methods):
    search, tried = begin(home, methods=methods, search={"trials": 8}), []
    search.run(pretend(tried))
    assert not find_members(tried)


@pytest.mark.parametrize(("lead", "behind"), [(0.03, "ensemble"), (-1.0, "linear")])
def test_a_rule_stands_behind_the_ensemble_of_the_best_learner(home, lead, behind):
    rule = {"method": "best", "then": "group_thresholds"}
    methods = {"linear": {}, "gbdt": {}, "ensemble": {}, "parity": rule}
    search, tried = begin(home, methods=methods), []
    measure = pretend(tried)

    def evaluate(plans):
        tables = measure(plans)
        ensemble = ["settings" in plan[0].group.members[0].parameters for plan in plans]
        return [
            t.assign(value=t["value"] + lead * e) for t, e in zip(tables, ensemble, strict=True)
        ]

    outcome = search.run(evaluate)
    ruled = [p.group for p in outcome.planned.values() if p.group.then]
    assert {group.estimator for group in ruled} == {behind}
    assert {label for label, _ in tried} == {"linear", "gbdt", "ensemble", f"parity ({behind})"}


def test_two_ensembles_of_one_learner(home):
    methods = {"gbdt": {}, "ensemble": {}, "again": {"method": "ensemble", "random_state": 1}}
    tried = []
    begin(home, methods=methods).run(pretend(tried))
    assert [label for label, setting in tried if "settings" in setting] == ["ensemble", "again"]
