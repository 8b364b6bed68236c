from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.prepare.config.section import SplitRule
from fairfrontier.prepare.splitting.plan import carve_validation, part_sizes, partition, split_seed
from fairfrontier.runtime.errors import ConfigError, DataError

SHARES = {"train": 0.5, "calibration": 0.1, "validation": 0.15, "test": 0.25}


@settings(max_examples=40)
@given(
    kind=st.sampled_from(["permutation", "random", "stratified", "per_group"]),
    n=st.integers(60, 200),
    seed=st.integers(0, 50),
    names=st.sets(st.sampled_from(["calibration", "validation", "test"]), min_size=1),
)
def test_parts_are_disjoint_cover_all_rows_and_have_their_sizes(kind, n, seed, names):
    draw = np.random.default_rng(n)
    y, groups = draw.integers(0, 2, n), draw.integers(0, 2, n)
    share = 1 / (len(names) + 1)
    extra = {"group": "g"} if kind == "per_group" else {}
    rule = SplitRule(kind=kind, train=share, **dict.fromkeys(names, share), **extra)
    parts = partition(rule, n, seed, y=y, groups=groups)
    rows = np.concatenate(list(parts.values()))
    assert np.array_equal(np.sort(rows), np.arange(n))
    slack = 2 if kind == "per_group" else 1
    assert all(abs(part.size - share * n) <= slack for part in parts.values())
    again = partition(rule, n, seed, y=y, groups=groups)
    assert all(np.array_equal(parts[name], again[name]) for name in parts)
    if kind == "stratified":
        assert all(abs(y[part].sum() - y.mean() * part.size) <= 1.5 for part in parts.values())
    if kind == "per_group":
        for part in parts.values():
            assert abs((groups[part] == 0).sum() - share * (groups == 0).sum()) <= 1


def test_permutation_is_the_authors_rule():
    rule = SplitRule(kind="permutation", train=7, test="rest", seeds=[63811, 4])
    np.random.seed(4)  # noqa: NPY002
    order = np.random.permutation(10)  # noqa: NPY002
    parts = partition(rule, 10, 1)
    assert np.array_equal(parts["train"], order[:7])
    assert np.array_equal(parts["test"], order[7:])
    assert [split_seed(rule, seed) for seed in (0, 1, 2, 9)] == [63811, 4, 2, 9]


def test_counts_may_leave_rows_over():
    parts = partition(SplitRule(kind="random", train=5, test=3), 20, 0)
    assert {name: part.size for name, part in parts.items()} == {"train": 5, "test": 3}
    y = np.arange(20) % 2
    parts = partition(SplitRule(kind="stratified", train=6, test=4), 20, 0, y=y)
    assert {name: part.size for name, part in parts.items()} == {"train": 6, "test": 4}
    assert not set(parts["train"]) & set(parts["test"])
    assert y[parts["test"]].sum() == 2
    alone = partition(SplitRule(kind="stratified", train=10), 20, 0, y=y)["train"]
    assert (alone.size, y[alone].sum()) == (10, 5)


def test_the_parts_of_a_column():
    column = pd.Series(["a", "b", "c", "a"])
    rule = SplitRule(kind="column", column="x", train=["a"], test=["b", "c"])
    parts = partition(rule, 4, 0, column=column)
    assert parts["train"].tolist() == [0, 3]
    assert parts["test"].tolist() == [1, 2]
    with pytest.raises(ConfigError, match="holds no level 'dd'"):
        partition(SplitRule(kind="column", column="x", train="dd"), 4, 0, column=column)


def test_parts_without_rows_are_refused():
    with pytest.raises(DataError, match="asks for 11 rows, and the table has 10"):
        part_sizes({"train": 8, "test": 3}, 10, "f")
    with pytest.raises(DataError, match=r"split.test is left without rows"):
        part_sizes({"train": 10, "test": "rest"}, 10, "f")
    with pytest.raises(DataError, match=r"split.test is left without rows"):
        part_sizes({"train": 0.9, "test": 0.1}, 3, "f")
    with pytest.raises(DataError):
        partition(SplitRule(kind="stratified", train=0.5, test=0.5), 4, 0, y=np.array([0, 0, 0, 1]))


@pytest.mark.parametrize("classes", [True, False])
def test_validation_is_carved_in_trains_order(classes):
    rule = SplitRule(kind="random", train=0.8, test="rest", validation_share=0.25)
    train = np.random.default_rng(0).permutation(100)
    y = np.arange(100) % 2
    keep, taken = carve_validation(rule, train, y if classes else None, 3, "f")
    assert (keep.size, taken.size) == (75, 25)
    assert set(keep) | set(taken) == set(range(100))
    place = np.argsort(train)
    assert (np.diff(place[keep]) > 0).all()
    assert (np.diff(place[taken]) > 0).all()
    if classes:
        assert abs(y[taken].sum() - 12.5) < 1
