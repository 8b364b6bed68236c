from __future__ import annotations

import copy
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import yaml

from fairfrontier.prepare.config.dataset import DatasetConfig, expand_rest, read_dataset
from fairfrontier.prepare.level import level_text
from fairfrontier.prepare.loader import load
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError
from tests.prepare.conftest import HOUSING


def change(path, value):
    data = copy.deepcopy(HOUSING)
    *steps, last = path.split(".")
    section = data
    for step in steps:
        section = section.setdefault(step, {})
    section[last] = value
    return data


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2, "2"),
        (2.0, "2"),
        ("2", "2"),
        (2.5, "2.5"),
        ("2.0", "2"),
        ("v2.0", "v2.0"),
        (True, "True"),
        ("x", "x"),
        (-1, "-1"),
        (Decimal("0E-10"), "0"),
        (Decimal("-1.0000000000"), "-1"),
        (Decimal("0.2500"), "0.25"),
        (Decimal("0.0000000100"), "0.00000001"),
        (Decimal(f"{10**35 + 1}.50"), f"{10**35 + 1}.5"),
        (np.float32(2.0), "2"),
    ],
)
def test_levels_are_text(value, text):
    assert level_text(value) == text


def test_the_example_is_valid_and_frozen():
    config = parse(DatasetConfig, HOUSING, "housing.yaml")
    assert config.protected == {"origin": "auto", "age": "auto"}
    assert config.features.binary == {"owner": "True"}
    assert config.counterfactuals["city"] == {"city": None}
    assert config.counterfactuals["who"]["age"] == ("20", "60")
    with pytest.raises(ValueError, match="frozen"):
        config.dataset = "other"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("lable", {}, "there is no key 'lable' here. Did you mean 'label'"),
        ("label.task", "ordinal", "label.task: .*'binary'"),
        ("label.range", [0, 1], "label: range belongs to a regression label"),
        ("label", {"column": "a", "task": "regression", "range": [1, 0]}, "lowest < highest"),
        ("label", {"column": "a", "task": "multiclass", "positive": 1}, "belong to a binary"),
        ("source.sha256", "abc", "source.sha256"),
        ("source", {"path": "a", "missing": ["NA", False]}, "a mark is a truth value"),
        ("groups.origin", {}, "give either column"),
        ("rows", {"keep": {"age": {"at_least": None}}}, "a condition needs one of in, not"),
        ("groups.origin", {"column": "a", "below": [3, 2]}, "below do not rise"),
        ("source", {"path": "t.csv", "thousands": "."}, "are the same mark"),
        ("groups.a=b", {"column": "a"}, "without =; its column may have any"),
        ("groups.x", {"cross": ["origin", "ago"]}, "crosses 'ago'. Did you mean 'age'"),
        ("features.groups", ["orgin"], "features.groups names no group 'orgin'. .*'origin'"),
        ("split", {"kind": "random"}, "split.train: this key is missing. Add it"),
        ("split", {"kind": "random", "train": 0.8, "test": 0.3}, "add up to 1.1"),
        ("split", {"kind": "random", "train": "most"}, "must be a count, a share"),
        ("split", {"kind": "per_group", "train": 0.5}, "per_group needs it"),
        (
            "split",
            {"kind": "column", "column": "city", "train": ["a", 1], "test": [1.0, "b"]},
            "'1' is named twice, and a row is in one part alone",
        ),
        ("perturb.noisy_groups", {"origin×age": {"share": 0.2}}, "is a cross product"),
        ("perturb.drop", {"where": {"groups": {"og": "x"}}, "probability": 0.5}, "no group 'og'"),
        ("features.passthrough", ["verdict"], "features uses 'verdict', which is the label"),
    ],
)
def test_every_mistake_names_file_key_and_mend(path, value, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse(DatasetConfig, change(path, value), "housing.yaml")
    assert str(caught.value).startswith("housing.yaml: ")
    assert caught.value.mend


def test_a_dataset_is_read_where_its_table_may_not_be(monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)
    parse(DatasetConfig, change("source.path", "/secret/a.csv"), "housing.yaml")


def test_stratified_needs_classes():
    data = change("label", {"column": "points", "task": "regression"})
    data["split"] = {"kind": "stratified", "train": 0.8, "test": 0.2}
    with pytest.raises(ConfigError):
        parse(DatasetConfig, data, "housing.yaml")


def test_files_that_are_no_yaml(tmp_path):
    path = tmp_path / "x.yaml"
    with pytest.raises(ConfigError):
        read_dataset(path)
    path.write_text("a: [1, 2", encoding="utf-8")
    with pytest.raises(ConfigError):
        read_dataset(path)
    path.write_text("- a\n- b\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        read_dataset(path)
    path.write_text("", encoding="utf-8")
    with pytest.raises(ConfigError):
        read_dataset(path)


def test_extends_takes_whole_sections_from_another_dataset(tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({**HOUSING, "dataset": "base"}))
    own = {"dataset": "own", "extends": "base", "split": {"kind": "random", "train": 0.5}}
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(own))
    config = read_dataset(path)
    assert config.dataset == "own"
    assert config.split.parts == {"train": 0.5}
    assert config.label.column == "verdict"
    path.write_text(yaml.safe_dump({**own, "extends": "bsae"}))
    with pytest.raises(ConfigError, match="Did you mean 'base'"):
        read_dataset(path)
    path.write_text(yaml.safe_dump({**own, "extends": "own"}))
    with pytest.raises(ConfigError):
        read_dataset(path)


def test_shape_leaves_out_prose_and_paths():
    config = parse(DatasetConfig, {**HOUSING, "notes": "a", "description": "b"}, "x")
    other = copy.deepcopy(HOUSING)
    other["source"]["path"] = "elsewhere.csv"
    assert config.shape() == parse(DatasetConfig, other, "x").shape()
    other["split"]["train"] = 0.5
    assert config.shape() != parse(DatasetConfig, other, "x").shape()


def test_rest_leaves_out_what_is_used():
    config = parse(DatasetConfig, change("features.numeric", "rest"), "x")
    columns = ["income", "age", "city", "owner", "origin", "verdict", "points"]
    assert expand_rest(config, columns).features.numeric == ("income", "points")
    assert "part" in expand_rest(config, [*columns, "part"]).features.numeric


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"protected": [{}]}, "protected: a list of protected attributes holds names"),
        ({"groups": {"o": {"column": "origin", "levels": [["x"]]}}}, "holds text and numbers"),
        (
            {"split": {"kind": "column", "column": "city", "train": [["Ulm"]], "test": "Bonn"}},
            "train must be a level of city, or a list of levels",
        ),
        ({"source": {"path": "people.csv", "separator": "\n"}}, "source.separator"),
        ({"counterfactuals": {"a/b": {"city": "all"}}}, "counterfactuals.a/b"),
    ],
)
def test_values_that_no_table_can_have_are_refused_when_the_file_is_read(
    project, sections, message
):
    with pytest.raises(ConfigError, match=message):
        read_dataset(project(**sections))


def cross(attributes):
    groups = {f"g{k}": {"column": "city"} for k in range(attributes)}
    return groups | {"all": {"cross": list(groups)}}


@pytest.mark.parametrize(
    ("sections", "limit", "message"),
    [
        ({"groups": cross(24)}, None, "groups.all: cross makes 281,474,976,710,656 combinations"),
        ({"groups": {"city": {"column": "city"}}}, {"levels": 3}, "column 'city' has 4 levels"),
        (
            {"groups": {"age": {"column": "age", "below": [30, 40, 50]}}},
            {"levels": 3},
            "groups.age: below makes 4 bands, and limits.levels is 3",
        ),
        ({}, {"levels": 3}, "features.categorical: column 'city' has 4 levels"),
        ({}, {"features": 6}, "features makes 7 columns of X, and limits.features is 6"),
        ({"label": {"column": "points", "task": "multiclass"}}, {"levels": 49}, "has 50 classes"),
        (
            {"counterfactuals": {"c": {"age": [*range(40)], "income": [*range(40)]}}},
            None,
            "counterfactuals.c makes 1,600 variants of a row, and limits.levels is 1,000",
        ),
    ],
)
def test_what_would_fill_the_memory_is_refused_with_the_key_that_raises_the_limit(
    project, tmp_path, sections, limit, message
):
    few = {"groups": {"origin": {"column": "origin"}}, "protected": [], "counterfactuals": {}}
    limits = {} if limit is None else {"limits": limit}
    path = project(**{**few, **sections, **limits})
    with pytest.raises(ConfigError, match=f"{message}.*raise limits"):
        load(path, home=tmp_path)


def test_limits_do_not_change_the_digest_of_a_split(project):
    before = read_dataset(project()).shape()
    source = {**HOUSING["source"], "unpacked": 7, "width": 500}
    assert read_dataset(project(source=source, limits={"levels": 50})).shape() == before


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"protected": {"origin": "continuous"}, "drop": "origin"}, "protected: .*'origin'"),
        ({"features": {"numeric": ["age"], "levels": {"city": ["Ulm"]}}}, "'city' is no categ"),
        (
            {"features": {"categorical": "rest", "levels": {"verdict": ["x"]}}},
            "'verdict' is no categ",
        ),
    ],
)
def test_columns_are_used_as_what_they_are(project, tmp_path, people, sections, message):
    frame = people.rename(columns={sections.pop("drop", ""): "from"})
    groups = {"origin": {"column": "from" if "from" in frame else "origin"}}
    few = {"groups": groups, "counterfactuals": {}, "protected": []}
    with pytest.raises(ConfigError, match=message):
        load(project(frame, **{**few, **sections}), home=tmp_path)


@pytest.mark.parametrize("level", ["old", "nan", "1_0"])
def test_a_counterfactual_of_a_numeric_column_is_a_number(project, tmp_path, level):
    path = project(counterfactuals={"c": {"income": [level]}})
    with pytest.raises(ConfigError, match=f"counterfactuals.c.income: '{level}' is no number"):
        load(path, home=tmp_path)
