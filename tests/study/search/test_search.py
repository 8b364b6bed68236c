"""Settings are searched for the objective first, then budgets between the largest steps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from fairfrontier.models.baseline.gbdt import GBDT
from fairfrontier.models.registry import METHODS
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import Dimension, MethodRow, RunOptions, read_study
from fairfrontier.study.frontier import NO_MEMBERS, NO_MODEL, NO_TRIAL, UNTRIED, Searched
from fairfrontier.study.resolve import Resolver
from fairfrontier.study.run import start_study
from fairfrontier.study.search import BATCH, HOPELESS, Search, list_searched

RULE = {"method": "group_thresholds", "attributes": "origin"}
STUDY = {
    "dataset": "loans",
    "methods": {
        "gbdt": {},
        "shallow": {"method": "gbdt", "max_depth": 2},
        "parity": {
            "method": "gbdt",
            "then": {"method": "group_thresholds", "attributes": "origin"},
        },
        "listed": {"method": "gbdt", "then": {"method": "group_thresholds", "bound": [0.0, 0.1]}},
    },
    "search": {"trials": 40},
    "frontier": {"fairness": ["selection_rate_difference:origin"]},
}


def begin(home: Path, **changes) -> Search:
    content = STUDY | changes
    (home / "conf/studies/made.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    study, path = read_study("made", "default", home)
    return Search(study, study.search, Resolver(study, home, str(path)))


def pretend(trials, n=10**6):
    """Return what measures settings by a formula: a peak at depth 5, and a dial that costs."""

    def evaluate(plans):
        assert len(plans) <= 4 * BATCH
        results = []
        for plan in plans:
            group = plan[0].group
            member = group.members[0]
            depth = member.parameters.get("max_depth", 6)
            rate = member.parameters.get("learning_rate", 0.3)
            bound = (group.then or {}).get("bound", 0.2)
            trials.append((group.method, dict(member.setting)))
            accuracy = 0.9 - 0.01 * (depth - 5) ** 2 - abs(np.log10(rate / 0.05)) / 10
            accuracy -= 2 * (0.2 - bound) ** 2
            values = {"balanced_accuracy": accuracy, "selection_rate_difference": bound}
            results.append(
                pd.DataFrame(
                    [
                        (group.method, json.dumps(dict(member.setting)), 0, "validation", name,
                         "" if name == "balanced_accuracy" else "origin", value, n, value, value)
                        for name, value in values.items()
                    ],
                    columns=["method", "setting", "seed", "part", "measure", "group", "value", "n",
                             "low", "high"],
                )
            )  # fmt: skip
        return results

    return evaluate


def test_half_of_the_trials_tune_and_the_others_divide_the_largest_steps(home):
    search, tried = begin(home), []
    outcome = search.run(pretend(tried))
    assert outcome.trials == len(tried) == 40
    assert not outcome.failed
    tuned = [setting for label, setting in tried if label == "gbdt"]
    # Two bases share the first half: four trials each, and twelve by their five and four
    # parameters. The rows of one base share its settings.
    assert len(tuned) == 4 + 6
    assert tuned[0] == {"select_on": "validation"}
    assert sum(label == "shallow" for label, _ in tried) == 4 + 5
    assert all(setting["max_depth"] == 2 for label, setting in tried if label == "shallow")
    assert [s["then.bound"] for label, s in tried if label == "listed"] == [0.1, 0.0]

    def objective(setting):
        depth, rate = setting.get("max_depth", 6), setting.get("learning_rate", 0.3)
        return -0.01 * (depth - 5) ** 2 - abs(np.log10(rate / 0.05)) / 10

    best = max(tuned, key=objective)
    ruled = [setting for label, setting in tried if label == "parity"]
    assert all(s.get("max_depth") == best.get("max_depth") for s in ruled)
    bounds = [setting["then.bound"] for setting in ruled]
    assert bounds[:3] == [0.2, 0.1, 0.0]
    assert len(set(bounds)) == len(bounds) == 19
    # The curve is steepest at its tight end, where budgets stand closest.
    gaps = np.diff(sorted(bounds))
    assert gaps[0] <= gaps[-1]


@pytest.mark.parametrize(("trials", "shares"), [(40, [4 + 27, 4 + 4]), (6, [3, 3]), (1, [1, 1])])
def test_bases_with_more_parameters_get_more_trials(home, trials, shares):
    tried = []
    search = begin(home, methods={"gbdt": {}, "linear": {}}, search={"trials": trials})
    search.run(pretend(tried))
    assert [sum(label == name for label, _ in tried) for name in ("gbdt", "linear")] == shares


def test_it_ends_when_steps_are_below_the_resolution(home):
    search, tried = begin(home, search={"trials": 60, "resolution": 0.06}), []
    search.run(pretend(tried))
    bounds = sorted(setting["then.bound"] for label, setting in tried if label == "parity")
    assert bounds == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])


def test_steps_that_chance_alone_makes_are_not_divided(home):
    search, tried = begin(home, search={"trials": 60}), []
    # On 300 rows rates of two halves differ by .058, however equal they are.
    search.run(pretend(tried, n=300))
    bounds = sorted(setting["then.bound"] for label, setting in tried if label == "parity")
    assert bounds == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])


def test_the_same_seed_tries_the_same(home):
    runs = []
    for seed in (0, 0, 1):
        runs.append([])
        begin(home, search={"trials": 16, "seed": seed}).run(pretend(runs[-1]))
    assert runs[0] == runs[1] != runs[2]


def test_a_trial_that_fails_is_skipped_and_counted(home):
    search, tried = begin(home, methods={"gbdt": {}}), []
    measure = pretend(tried)

    def evaluate(plans):
        results = measure(plans)
        return ["it diverged" if tried[0] is tried[-len(plans)] else results[0], *results[1:]]

    outcome = search.run(evaluate)
    assert outcome.failed == [("gbdt", "it diverged")]
    # Without budgets all trials tune.
    assert outcome.trials == 40
    # It is none of the study's settings.
    assert len(outcome.planned) == 39


def test_a_row_with_a_sweep_counts_by_its_best_setting(home):
    search = begin(home, methods={"gbdt": {"n_estimators": [50, 100]}}, search={"trials": 8})
    measure, told = pretend([]), []

    def evaluate(plans):
        results = []
        for plan in plans:
            frames = [measure([[planned]])[0] for planned in plan]
            frames[1] = frames[1].assign(value=frames[1]["value"] / 2)
            results.append(pd.concat(frames))
            told.append((search._read(results[-1]), search._read(frames[0])))
        return results

    outcome = search.run(evaluate)
    assert (outcome.trials, len(outcome.planned)) == (8, 16)
    assert all((both == best).all() for both, best in told)


def test_a_row_that_nothing_supports_is_shown_as_skipped(home):
    search = begin(home)
    outcome = search.run(lambda plans: [pd.DataFrame() for _ in plans])
    assert not outcome.failed
    assert {planned.group.method for planned in outcome.planned.values()} == {"gbdt", "shallow"}
    assert outcome.absent == dict.fromkeys(("parity", "listed"), NO_MODEL)


def test_rows_whose_trials_all_fail_are_absent_with_the_reason(home):
    methods = {**STUDY["methods"], "ensemble": {}, "ruled": {"method": "best", "then": RULE}}
    search = begin(home, methods=methods, search={"trials": 10})
    outcome = search.run(lambda plans: ["it diverged."] * len(plans))
    assert outcome.trials == len(outcome.failed) == 4
    assert not outcome.planned
    told = NO_TRIAL.format(count=2, reason="it diverged.")
    assert outcome.absent == {
        "gbdt": told, "shallow": told, "parity": NO_MODEL, "listed": NO_MODEL,
        "ensemble": NO_MEMBERS, "ruled": NO_MODEL,
    }  # fmt: skip


class Paired(GBDT):
    """Refuses deep trees of many rounds, each of which it takes."""

    def check(self):
        super().check()
        if self.max_depth and self.max_depth > 5 and self.learning_rate > 0.1:
            raise ConfigError("They do not go together.", "Give others.")


def test_a_proposal_refused_in_combination_is_a_failed_trial(home, monkeypatch):
    monkeypatch.setitem(METHODS.all(), "gbdt", Paired)
    monkeypatch.setitem(METHODS._entries, "gbdt", Paired)
    row = {"method": "gbdt", "learning_rate": 0.05}
    search, tried = begin(home, methods={"gbdt": row}, search={"trials": 12}), []
    rounds = [{}, {"max_depth": 7, "learning_rate": 0.2}, {"max_depth": 3}]
    rows = [("gbdt", MethodRow.model_validate(row | each), True) for each in rounds]
    values = search._try(rows, pretend(tried))
    assert [value is None for value in values] == [False, True, False]
    assert len(tried) == 2
    ((label, reason),) = search.outcome.failed
    assert (label, search.outcome.trials) == ("gbdt", 3)
    assert "They do not go together." in reason
    # Nothing is evaluated where all are refused.
    assert search._try(rows[1:2], lambda _: 1 / 0) == [None]


def test_by_minutes_a_row_that_always_fails_is_given_up(home):
    search = begin(home, methods={"gbdt": {}}, search={"minutes": 10})
    assert search.run(lambda plans: ["no"] * len(plans)).trials == HOPELESS


def test_a_search_with_nothing_to_choose_is_refused(home):
    fixed = {"n_estimators": 9, "max_depth": 3, "learning_rate": 0.1, "reg_lambda": 1.0}
    fixed |= {"min_child_weight": 1.0, "colsample_bytree": 1.0}
    content = STUDY | {"methods": {"gbdt": fixed}}
    (home / "conf/studies/made.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError):
        start_study(RunOptions(study="made", conf=home))


def test_a_space_that_names_no_parameter_is_refused(home):
    folder = home / "conf/methods"
    folder.mkdir(exist_ok=True)
    (folder / "gbdt.yaml").write_text("method: gbdt\nspace: {max_deph: {low: 1, high: 3}}\n")
    with pytest.raises(ConfigError, match=r"gbdt.yaml: space: gbdt takes no parameter 'max_deph'"):
        begin(home)


@pytest.mark.parametrize(
    "search", [{}, {"trials": 3, "minutes": 1}, {"trials": 0}, {"minutes": -1}, {"trials": 2.5}],
    ids=str,
)  # fmt: skip
def test_a_search_ends_by_trials_or_by_minutes(home, search):
    with pytest.raises(ConfigError):
        begin(home, search=search)


def test_by_minutes_it_ends_after_a_round_at_least(home):
    search, tried = begin(home, search={"minutes": 1e-9}), []
    search.run(pretend(tried))
    assert [label for label, _ in tried] == ["gbdt"] * BATCH + ["shallow"] * BATCH


def test_a_rule_stands_behind_the_best_method(home):
    methods = {"linear": {}, "gbdt": {}, "parity": {"method": "best", "then": "group_thresholds"}}
    search, tried = begin(home, methods=methods), []
    outcome = search.run(pretend(tried))
    # Of the formula trees can reach the peak, and a linear model has no depth.
    labels = {label for label, _ in tried}
    assert labels == {"linear", "gbdt", "parity (gbdt)"}
    shown = {p.group.estimator for p in outcome.planned.values() if p.group.then}
    assert shown == {"gbdt"}
    assert outcome.absent == {}


@pytest.mark.parametrize("method", ["gbdt", "best"])
@pytest.mark.parametrize(
    "rule",
    [{"method": "shift_inference"}, {"method": "hardt", "criterion": "equalized_odds"},
     {"method": "hardt", "tolerance": 0.1}],
    ids=["no budget", "refused beside its criterion", "given"],
)  # fmt: skip
def test_a_rule_without_a_budget_is_tried_once_behind_the_best_settings(home, method, rule):
    ruled = {"method": method, "then": {**rule, "attributes": "origin"}}
    search, tried = begin(home, methods={"gbdt": {}, "odds": ruled}, search={"trials": 9}), []
    outcome = search.run(pretend(tried))
    assert outcome.absent == {}
    # No row has budgets, for which trials would be kept.
    assert [label.split()[0] for label, _ in tried] == ["gbdt"] * 8 + ["odds"]
    # Its own setting adds only its rule to one that was tuned.
    tuned = [setting.items() for label, setting in tried if label == "gbdt"]
    assert any(each <= tried[-1][1].items() for each in tuned)


@pytest.mark.parametrize(
    ("criterion", "dial"),
    [("parity", "tolerance"), ("equal_opportunity", "tolerance"), ("equalized_odds", None),
     (["parity", "equalized_odds"], None)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("method", ["gbdt", "best"])
def test_a_budget_is_searched_where_the_other_values_of_its_row_take_it(
    home, method, criterion, dial
):
    ruled = {"method": method, "then": {"method": "hardt", "criterion": criterion}}
    search = begin(home, methods={"gbdt": {}, "ruled": ruled})
    (row,) = (row for row in search.rows if row.label == "ruled")
    assert (row.dial and row.dial[0]) == dial


@pytest.mark.parametrize(("guarded", "kind"), [(True, "local"), (False, "inline")])
def test_a_search_alone_is_spread_over_processes(home, monkeypatch, guarded, kind):
    begin(home, methods={"gbdt": {}})
    monkeypatch.setattr("fairfrontier.study.run.can_start_processes", lambda: guarded)
    run = start_study(RunOptions(study="made", conf=home))
    assert not run.plan
    assert run.cluster.kind == kind


def test_rows_whose_turn_does_not_come_are_named(home):
    methods = {"linear": {}, "gbdt": {}, "parity": {"method": "best", "then": "group_thresholds"}}
    outcome = begin(home, methods=methods, search={"trials": 2}).run(pretend([]))
    assert outcome.absent == {"parity (linear)": UNTRIED}
    run = start_study(RunOptions(study="made", conf=home))
    run = replace(run, searched=Searched(2, 2, 2, (), outcome.absent))
    assert run.list_skipped() == {"parity (linear)": UNTRIED}


@pytest.mark.parametrize(
    "changes",
    [{"search": None}, {"methods": {"parity": {"method": "best"}}}],
    ids=["without a search", "without a rule"],
)
def test_best_is_for_rules_in_a_search(home, changes):
    methods = {"parity": {"method": "best", "then": "group_thresholds"}}
    content = STUDY | {"methods": methods} | changes
    (home / "conf/studies/made.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError):
        start_study(RunOptions(study="made", conf=home))


def test_a_rule_behind_the_best_method_is_checked_before_the_search(home):
    then = {"method": "group_thresholds", "attribute": "sex"}
    content = STUDY | {"methods": {"gbdt": {}, "parity": {"method": "best", "then": then}}}
    (home / "conf/studies/made.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"methods.parity.then: .* no parameter 'attribute'"):
        start_study(RunOptions(study="made", conf=home))


def test_a_grid_is_not_searched(home):
    swept = {"method": "budro", "grid": "figure3", "metric": {"name": "subspace"}}
    search = begin(home, methods={"gbdt": {}, "swept": swept})
    labels = [row.label for row in list_searched(search.study, search.resolver)]
    assert labels == ["gbdt"]


def test_budgets_are_searched_as_shares_unless_a_row_gives_them(home):
    rows = {
        "free": {"method": "budro"},
        "raw": {"method": "budro", "budget": 0.1},
        "listed": {"method": "budro", "budget": [0.1, 0.4]},
    }
    search = begin(home, methods=rows, metric={"name": "subspace"})
    dials = {row.label: (row.dial and row.dial[0], row.listed) for row in search.rows}
    assert dials == {
        "free": ("budget_share", ()), "raw": (None, ()), "listed": ("budget", (0.1, 0.4))
    }  # fmt: skip
    (free,) = (row for row in search.rows if row.label == "free")
    assert 0 < free.set_dial(1.0)["budget_share"] < free.set_dial(0.0)["budget_share"] < 1


def test_the_budget_of_a_rule_is_fixed_by_its_own_row_and_preset_alone(home):
    def thresholds(**rule):
        return {"then": {"method": "group_thresholds", "attributes": "origin", **rule}}

    rows = {
        "given": {"method": "gbdt", **thresholds(preset="equal")},
        "free": {"method": "fair_gbm", "bound": 0.05, "attributes": "origin", **thresholds()},
    }
    dials = {row.label: row.dial and row.dial[0] for row in begin(home, methods=rows).rows}
    assert dials == {"given": None, "free": "bound"}


def test_positions_of_a_dial():
    low = Dimension(low=0.001, high=1.0, log=True, loose="low")
    assert [low.at(p) for p in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.03162, 0.001])
    high = Dimension(low=0.0, high=0.2, loose="high")
    assert [high.at(p) for p in (0.0, 0.5, 1.0)] == pytest.approx([0.0, 0.1, 0.2])
    assert Dimension(low=2, high=8, loose="high").at(0.4) == 4


@pytest.mark.parametrize(
    "content",
    [
        {"low": 2, "high": 1},
        {"low": 0, "high": 1, "log": True},
        {"choices": [1, 2], "loose": "low"},
    ],
    ids=str,
)
def test_what_is_no_space_is_refused(content):
    with pytest.raises(ValueError, match="no range and no list"):
        Dimension.model_validate(content)
