from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fairfrontier import load
from fairfrontier.models.fit.group import FitGroup, Member
from fairfrontier.models.fit.key import key
from fairfrontier.models.prediction import predict_part
from fairfrontier.models.registry import load_model
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import Store
from fairfrontier.study.points import points_key, read_counts, tabulate_group
from tests.study.planned import change, make_home, plan

ROOT = Path(__file__).resolve().parents[2]


def test_levels_count_from_the_minimum_on(tmp_path):
    store = Store(tmp_path)
    # Of the test part of this split, nine rows are young and a bad risk.
    member = Member(8, {"n_estimators": 3}, {})
    group = FitGroup("german", "row", "gbdt", None, None, "train", 1, (member,), minimum=9)
    others = [dataclasses.replace(group, minimum=number) for number in (10, 1)]
    # Training does not see it, and measuring does.
    assert {key(each, store, ROOT) for each in others} == {key(group, store, ROOT)}
    assert len({points_key("fit", each, store, ROOT) for each in (group, *others)}) == 3
    gaps = []
    for each in (group, *others):
        table = tabulate_group(each, store, ROOT)
        found = table[
            (table.part == "test") & (table.measure == "gap_max") & (table.group == "age")
        ]
        gaps.append(found.value.item())
    split = load("german", seed=8, home=ROOT)
    model = load_model(store.path("fit", key(group, store, ROOT)) / "model-0")
    y, age = split.test.y, split.test.group("age")
    right = predict_part(model, split.test).decision == y
    assert ((y == 1) & (age == 0)).sum() == 9
    rates = [[right[(y == k) & (age == g)].mean() for g in (0, 1)] for k in (0, 1)]
    expected = np.abs(np.diff(rates)).max()
    np.testing.assert_allclose(gaps, [expected, np.nan, expected], rtol=1e-12)


def test_scores_on_test_are_counted_beside_the_points(tmp_path):
    store = Store(tmp_path)
    members = tuple(Member(8, {"n_estimators": n}, {"n_estimators": n}) for n in (2, 3))
    group = FitGroup("german", "row", "gbdt", None, None, "train", 1, members)
    assert read_counts(group, store, ROOT) is None
    tabulate_group(group, store, ROOT)
    counts = read_counts(group, store, ROOT)
    part = load("german", seed=8, home=ROOT).test
    model = load_model(store.path("fit", key(group, store, ROOT)) / "model-1")
    high = predict_part(model, part).score >= 0.5
    found = counts[(counts.setting == '{"n_estimators":3}') & (counts.bin >= 10)]
    sums = found.groupby("group")[["n", "positive"]].sum()
    for name, rows in (("", high), ("age=young", high & (part.group("age") == 0))):
        assert sums.loc[name].tolist() == [rows.sum(), part.y[rows].sum()]


def test_the_study_names_the_minimum(tmp_path, monkeypatch):
    home = make_home(tmp_path, monkeypatch)
    assert {each.group.minimum for each in plan(home).values()} == {10}
    change(home, "minimum", value=1)
    assert {each.group.minimum for each in plan(home).values()} == {1}
    change(home, "minimum", value=0)
    with pytest.raises(ConfigError):
        plan(home)
