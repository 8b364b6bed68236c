from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from fairfrontier.models.registry import METHODS
from fairfrontier.models.thresholds.group_thresholds import GroupThresholds
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import MethodFile, RunOptions
from fairfrontier.study.run import check_options

STUDY = {
    "dataset": "loans",
    "methods": {"gbdt": {}, "parity": {"method": "gbdt", "then": "group_thresholds"}},
    "search": {"trials": 4},
    "frontier": {"fairness": ["selection_rate_difference:origin"]},
}


SPACES = {name: MethodFile.read(name, Path("nowhere")).space for name in METHODS.all()}


def read(home: Path, method: str, space: str, **changes):
    folder = home / "conf/methods"
    folder.mkdir(exist_ok=True)
    (folder / f"{method}.yaml").write_text(f"method: {method}\nspace: {space}\n")
    (home / "conf/studies/made.yaml").write_text(yaml.safe_dump(STUDY | changes, sort_keys=False))
    return check_options(RunOptions(study="made", conf=home))


@pytest.mark.parametrize(
    ("method", "space", "message"),
    [
        ("gbdt", "{max_depth: {low: -5, high: 8}}", r"max_depth has -5, which gbdt refuses"),
        ("gbdt", "{colsample_bytree: {low: 0.5, high: 3}}", r"colsample_bytree has 3.0, .*1"),
        ("group_thresholds", "{bound: {low: -0.1, high: 0.2, loose: high}}", r"bound has -0.1"),
    ],
)
def test_a_space_that_its_method_refuses_is_bad_input(home, method, space, message):
    with pytest.raises(ConfigError, match=rf"conf/methods/{method}.yaml: space.{message}"):
        read(home, method, space)


def test_a_rule_behind_the_best_method_is_held_to_its_space(home):
    methods = {"gbdt": {}, "parity": {"method": "best", "then": "group_thresholds"}}
    with pytest.raises(ConfigError, match=r"group_thresholds.yaml: space.bound has -1"):
        read(home, "group_thresholds", "{bound: {low: -1, high: 2, loose: high}}", methods=methods)


@pytest.mark.parametrize(
    ("own", "wanted"),
    [({}, {"criterion": "equalized_odds"}), ({"criterion": "equalized_odds"}, {})],
    ids=["taken in the row", "taken by itself"],
)
def test_an_end_is_taken_that_is_refused_beside_other_values_alone(home, monkeypatch, own, wanted):
    check, names = GroupThresholds.check, {"criterion": "parity", **own}

    def refuse(self):
        check(self)
        if self.bound == 0.9 and self.criterion == names["criterion"]:
            raise ConfigError("Both are too much.", "Give one.")

    monkeypatch.setattr(GroupThresholds, "check", refuse)
    then = {"method": "group_thresholds", **own, **wanted}
    methods = {"gbdt": {}, "parity": {"method": "gbdt", "then": then}}
    read(home, "group_thresholds", "{bound: {low: 0.0, high: 0.9, loose: high}}", methods=methods)


def test_rows_of_a_search_are_left_out_of_the_plan(home):
    _, plan = read(home, "gbdt", "{max_depth: {low: 2, high: 8}}", methods={"gbdt": {}, "fixed": {
        "method": "random_forest", "max_depth": 3, "min_samples_leaf": 2}})  # fmt: skip
    assert [planned.group.method for planned in plan] == ["fixed"]


def test_listed_values_of_a_row_are_refused_by_its_key(home):
    then = {"method": "group_thresholds", "bound": [0.1, -1]}
    methods = {"gbdt": {}, "parity": {"method": "gbdt", "then": then}}
    with pytest.raises(ConfigError, match=r"methods.parity.then: The parameter 'bound' .* is -1"):
        read(home, "group_thresholds", "{bound: {low: 0, high: 1, loose: high}}", methods=methods)


def test_every_method_with_something_to_search_has_a_space():
    without = {name for name, space in SPACES.items() if not space}
    assert without == {"constant", "ensemble", "residual_shift", "seo", "shift_inference"}


@pytest.mark.parametrize("method", [name for name, space in SPACES.items() if space])
def test_a_method_takes_its_whole_space(method):
    cls, space = METHODS.find(method), SPACES[method]
    for ends in itertools.product((0.0, 0.5, 1.0), repeat=len(space)):
        values = zip(space.items(), ends, strict=True)
        cls(**{**cls.example, **{name: each.at(end) for (name, each), end in values}}).check()


@pytest.mark.parametrize("method", [name for name, space in SPACES.items() if space])
def test_a_space_has_one_budget_at_most(method):
    assert sum(each.loose is not None for each in SPACES[method].values()) <= 1
