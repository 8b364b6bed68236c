from __future__ import annotations

import numpy as np
import pytest

from fairfrontier import load
from fairfrontier.runtime.errors import ConfigError

RULE = {"kind": "column", "column": "part", "train": "old", "test": "new"}
FEATURES = {
    "numeric": ["income"],
    "quantile": {"columns": ["age"], "bins": 3},
    "categorical": ["city", "origin"],
    "binary": {"owner": True},
    "groups": ["age"],
}
SETS = {
    "city": {"city": "all"},
    "owner": {"owner": "all"},
    "who": {"origin": ["north", "south"], "age": [20, 60]},
    "mixed": {"origin": "west", "owner": [True, False], "income": [100.5]},
}


@pytest.mark.parametrize("name", SETS)
def test_variants_equal_the_edited_table_encoded_from_scratch(project, tmp_path, people, name):
    people["part"] = np.where(np.arange(400) < 250, "old", "new")
    sections = {"split": RULE, "features": FEATURES, "counterfactuals": SETS}
    split = load(project(people, **sections), home=tmp_path)
    variants = list(split.test.counterfactuals[name])
    assert [each.name for each in variants] == list(split.test.counterfactuals[name].names)
    before = split.test.X.copy()
    for variant in variants:
        edited = people.copy()
        for cell in variant.name.split(", "):
            column, level = cell.split("=")
            value = {"True": True, "False": False}.get(level, level)
            if column in ("age", "income"):
                value = float(level)
            # A missing cell is a level of its own, written as the file writes it.
            value = None if value == "missing" else value
            # Only test rows are edited: encoders see the same training rows.
            edited.loc[(edited["part"] == "new") & edited["age"].notna(), column] = value
        again = load(project(edited, **sections), home=tmp_path).test
        assert np.array_equal(variant.X, again.X), variant.name
        assert np.array_equal(variant.groups, again.groups), variant.name
        assert not np.array_equal(variant.X, split.test.X)
    assert np.array_equal(split.test.X, before)


def test_sets_are_cartesian_products_in_order(project, tmp_path):
    test = load(project(counterfactuals=SETS), home=tmp_path).test
    assert test.counterfactuals["who"].names == (
        "origin=north, age=20", "origin=north, age=60",
        "origin=south, age=20", "origin=south, age=60",
    )  # fmt: skip
    assert test.counterfactuals["city"].names == (
        "city=Bonn", "city=Köln", "city=Ulm", "city=missing",
    )  # fmt: skip
    assert len(test.counterfactuals["city"]) == 4


def test_groups_and_their_cross_products_follow_the_flip(project, tmp_path):
    test = load(project(), home=tmp_path).test
    names = test.attributes["origin×age"]
    for variant in test.counterfactuals["who"]:
        origin, age = (cell.split("=")[1] for cell in variant.name.split(", "))
        level = "young" if float(age) < 30 else "older"
        assert {names[code] for code in variant.groups[:, 2]} == {f"{origin}×{level}"}


def test_a_crossed_feature_is_not_edited(project, tmp_path):
    features = {**FEATURES, "groups": ["origin×age"]}
    path = project(features=features, counterfactuals={"one": {"origin": "all"}})
    with pytest.raises(ConfigError, match=r"counterfactuals\.one: .* crossed of origin and age"):
        load(path, home=tmp_path)
    load(project(features=features, counterfactuals={"city": SETS["city"]}), home=tmp_path)


def test_one_version_is_compared_with_nothing(project, tmp_path):
    path = project(counterfactuals={"one": {"city": ["Ulm"]}})
    with pytest.raises(ConfigError, match=r"counterfactuals\.one makes one version of a row"):
        load(path, home=tmp_path)


def test_variants_are_made_one_at_a_time(project, tmp_path):
    test = load(project(), home=tmp_path).test
    variants = test.counterfactuals["city"]
    assert variants.X is test.X
    assert iter(variants) is not iter(variants)
    first = next(iter(variants))
    first.X[:] = 9
    assert not (test.X == 9).all()
