from __future__ import annotations

import json
import os
import resource

import numpy as np
import pytest
import xgboost

from fairfrontier.runtime.errors import StoreError
from fairfrontier.train.booster import MOST_LEVELS, check_booster, parse_ubj, read_booster
from fairfrontier.train.persistence import State, write_state

MUTATIONS = int(os.environ.get("FUZZ", "500"))
FEATURES = 4


def grow(tmp_path, **parameters):
    """Return a path with a booster, and the booster."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, FEATURES))
    data = xgboost.DMatrix(X, (X[:, 0] + rng.normal(size=200) > 0).astype(int))
    booster = xgboost.train({"max_depth": 3, "nthread": 1, **parameters}, data, 3)
    booster.save_model(tmp_path / "trees.ubj")
    return tmp_path / "trees.ubj", booster, data


def of_features(booster):
    """Return the state of a model with this booster."""
    return State(boosters={"trees": booster}, facts={"n_features_in_": FEATURES})


@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "binary:logistic"},
        {"objective": "multi:softprob", "num_class": 3},
        {"objective": "reg:squarederror", "tree_method": "exact", "gamma": 2.0},
        {"objective": "binary:logistic", "num_parallel_tree": 2},
        {"max_depth": 0, "grow_policy": "lossguide", "max_leaves": 9},
    ],
)
def test_what_xgboost_wrote_is_read(tmp_path, parameters):
    path, booster, data = grow(tmp_path, **parameters)
    assert np.array_equal(read_booster(path, FEATURES).predict(data), booster.predict(data))
    assert set(parse_ubj(path.read_bytes())) == {"learner", "version"}


def replace(path, name, old, new):
    """Replace a number in the first tree's array of that name."""
    content = bytearray(path.read_bytes())
    start = content.index(name.encode()) + len(name)
    assert content[start : start + 2] == b"[$"
    kind = {"l": ">i4", "U": ">u1", "d": ">f4"}[chr(content[start + 2])]
    count = int.from_bytes(content[start + 5 : start + 13], "big")
    array = np.frombuffer(content, kind, count, start + 13)
    position = np.flatnonzero(array == old)[0]
    array[position] = new
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("left_children", 1, 10_000_000),
        ("left_children", 1, 0),
        ("left_children", 1, -2),
        ("right_children", 2, 1),
        ("right_children", -1, 5),
        ("parents", 0, 7),
        ("parents", 2**31 - 1, 3),
        ("split_type", 0, 1),
    ],
)
def test_trees_that_lead_nowhere_are_refused(tmp_path, name, old, new):
    path, *_ = grow(tmp_path)
    replace(path, name, old, new)
    with pytest.raises(ValueError, match="tree 0"):
        read_booster(path, FEATURES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"num_featureSL" + (1).to_bytes(8, "big") + b"4", b"1"),
        (b"num_nodesSL", b"num_nodesSI"),
        (b"gbtree", b"gbtred"),
        (b"tree_info", b"tree_inf0"),
        (b"left_children", b"left_childrem"),
    ],
)
def test_facts_that_disagree_are_refused(tmp_path, old, new):
    path, *_ = grow(tmp_path)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, old[: len(old) - len(new)] + new))
    with pytest.raises(ValueError, match=r"cannot be right|holds no booster|cut off"):
        read_booster(path, FEATURES)


def test_a_booster_has_no_more_outputs_than_trees(tmp_path):
    path, *_ = grow(tmp_path, objective="multi:softprob", num_class=3)
    booster = parse_ubj(path.read_bytes())
    claimed = booster["learner"]["learner_model_param"]
    claimed.update(num_class="9", base_score="[5E-1]")
    check_booster(booster, FEATURES)
    claimed["num_class"] = "10"
    with pytest.raises(ValueError, match="num_class"):
        check_booster(booster, FEATURES)


def test_a_booster_has_at_most_one_feature_more_than_its_model(tmp_path):
    path, *_ = grow(tmp_path)
    read_booster(path, FEATURES - 1)
    with pytest.raises(ValueError, match="num_feature cannot be right"):
        read_booster(path, FEATURES - 2)


def make_chain(levels):
    """Return a booster of which one tree turns right so many times, and left never."""
    rows = xgboost.DMatrix(np.eye(2), [0, 1])
    parameters = {"objective": "binary:logistic", "nthread": 1, "min_child_weight": 0}
    model = json.loads(xgboost.train(parameters, rows, 1).save_raw("json"))
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    n_nodes = 2 * levels + 1
    number, inner = np.arange(n_nodes), np.arange(n_nodes) % 2 == 0
    inner[-1] = False
    tree["left_children"] = np.where(inner, number + 1, -1).tolist()
    tree["right_children"] = np.where(inner, number + 2, -1).tolist()
    tree["parents"] = [2**31 - 1, *((number[1:] - 1) // 2 * 2).tolist()]
    tree["tree_param"]["num_nodes"] = str(n_nodes)
    for name in ("default_left", "split_indices", "split_type"):
        tree[name] = [0] * n_nodes
    for name in ("base_weights", "loss_changes", "split_conditions", "sum_hessian"):
        tree[name] = [1.0] * n_nodes
    return xgboost.Booster(model_file=bytearray(json.dumps(model).encode()))


def test_a_chain_that_would_overflow_the_stack_is_neither_read_nor_saved(tmp_path):
    path = tmp_path / "trees.ubj"
    make_chain(MOST_LEVELS).save_model(path)
    read_booster(path, FEATURES).predict(xgboost.DMatrix(np.eye(2)), pred_contribs=True)
    chain = make_chain(MOST_LEVELS + 1)
    chain.save_model(path)
    with pytest.raises(StoreError, match="more than 1,000 levels"):
        read_booster(path, FEATURES)
    with pytest.raises(StoreError, match="more than 1,000 levels"):
        write_state(tmp_path / "model", "gbdt", {}, of_features(chain))
    assert not (tmp_path / "model").exists()


def test_a_full_disk_is_one_sentence(tmp_path):
    path, booster, _ = grow(tmp_path)
    write_state(tmp_path / "whole", "gbdt", {}, of_features(booster))
    assert (tmp_path / "whole/trees.ubj").read_bytes() == path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 2, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"The model cannot be written to .*: File too large"):
            write_state(tmp_path / "model", "gbdt", {}, of_features(booster))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "model").exists()


def test_a_tree_that_takes_the_place_of_another_is_refused(tmp_path):
    path, *_ = grow(tmp_path)
    content, first = bytearray(path.read_bytes()), b"idi\x00"
    assert content.count(first) == 1
    content[content.index(first) + 3] = 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="id of tree 0"):
        read_booster(path, FEATURES)


def test_no_mutation_ends_the_process(tmp_path):
    path, _, data = grow(tmp_path, objective="multi:softprob", num_class=3)
    content = np.frombuffer(path.read_bytes(), np.uint8)
    rng = np.random.default_rng(MUTATIONS)
    refused = 0
    for _ in range(MUTATIONS):
        changed = content.copy()
        where = rng.integers(len(content), size=rng.integers(1, 4))
        changed[where] = rng.choice([0, 1, 2, 127, 128, 255, ord("L"), ord("[")], size=where.size)
        path.write_bytes(
            changed[: rng.choice([len(changed), rng.integers(len(changed))], p=[0.9, 0.1])]
        )
        try:
            read_booster(path, FEATURES).predict(data)
        except ValueError:
            refused += 1
    assert refused > MUTATIONS / 4
