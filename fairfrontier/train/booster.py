"""Boosters of XGBoost from files, checked first: its own reader follows broken indices."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.foreign.claim import require
from fairfrontier.train.node import LEAF, is_downward

# Markers of numbers in UBJSON, and of their types, which are big-endian.
NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
DEPTH = 32
# A number as XGBoost writes it, and what its boosters that are saved here were trained for.
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(E-?[0-9]+)?")
OBJECTIVES = ("binary:logistic", "multi:softprob", "reg:squarederror")
ARRAYS = (
    *("base_weights", "default_left", "left_children", "loss_changes", "parents"),
    *("right_children", "split_conditions", "split_indices", "split_type", "sum_hessian"),
)
CATEGORIES = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
# XGBoost follows a tree by recursion, and attributes values in memory that grows with its square.
MOST_LEVELS = 1000


def read_booster(path: Path, n_features: int) -> Any:
    """Return the booster in a UBJ file of a model; errors as `check_file`."""
    import xgboost

    return xgboost.Booster(model_file=bytearray(check_file(path, n_features)))


def check_file(path: Path, n_features: int) -> bytes:
    """Return the content of a UBJ file that XGBoost may read, of a model of so many features.

    Raises
    ------
    ValueError
        When the file is no booster of plain trees, or its trees lead nowhere.
    StoreError
        When a tree is so deep that XGBoost would end the process.
    """
    content = path.read_bytes()
    try:
        check_booster(parse_ubj(content), n_features)
    except (struct.error, KeyError, TypeError, IndexError, RecursionError, OverflowError) as error:
        raise ValueError(f"{path} holds no booster: {error!r}") from error
    return content


def parse_ubj(content: bytes) -> Any:
    """Return the value that UBJSON holds, arrays of numbers as NumPy arrays; raise ValueError."""
    reader = _Reader(content)
    value = reader.read_value(reader.read_marker(), 0)
    if reader.position != len(content):
        raise ValueError("something follows the end")
    return value


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content, self.position = content, 0

    def read_bytes(self, count: int) -> bytes:
        if not 0 <= count <= len(self.content) - self.position:
            raise ValueError("it is cut off")
        self.position += count
        return self.content[self.position - count : self.position]

    def read_marker(self) -> str:
        return self.read_bytes(1).decode("latin-1")

    def read_number(self, marker: str) -> Any:
        kind = np.dtype(NUMBERS[marker])
        return np.frombuffer(self.read_bytes(kind.itemsize), kind)[0].item()

    def read_text(self) -> str:
        return self.read_bytes(int(self.read_number(self.read_marker()))).decode()

    def read_value(self, marker: str, depth: int) -> Any:
        if depth > DEPTH:
            raise ValueError("it is nested too deep")
        match marker:
            case "S":
                return self.read_text()
            case "T" | "F" | "Z":
                return {"T": True, "F": False, "Z": None}[marker]
            case "[":
                return self.read_array(depth)
            case "{":
                return self.read_object(depth)
        return self.read_number(marker)

    def read_array(self, depth: int) -> Any:
        marker = self.read_marker()
        kind = None
        if marker == "$":
            kind = np.dtype(NUMBERS[self.read_marker()])
            marker = self.read_marker()
        if marker == "#":
            count = int(self.read_number(self.read_marker()))
            if kind is not None:
                return np.frombuffer(self.read_bytes(count * kind.itemsize), kind)
            if not 0 <= count <= len(self.content) - self.position:
                raise ValueError("it is cut off")
            return [self.read_value(self.read_marker(), depth + 1) for _ in range(count)]
        values = []
        while marker != "]":
            values.append(self.read_value(marker, depth + 1))
            marker = self.read_marker()
        return values

    def read_object(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while (marker := self.read_marker()) != "}":
            name = self.read_bytes(int(self.read_number(marker))).decode()
            if name in values:
                raise ValueError(f"{name} occurs twice")
            values[name] = self.read_value(self.read_marker(), depth + 1)
        return values


def check_booster(booster: Mapping[str, Any], most: int) -> None:
    """Raise ValueError, KeyError, TypeError or StoreError unless a booster is of sound trees.

    ``most`` is how many features the model has.
    """
    learner = booster["learner"]
    parameters = learner["learner_model_param"]
    n_features, n_classes = int(parameters["num_feature"]), int(parameters["num_class"])
    # Predictions make room for all that it claims; the label may be one more (`LinearPost`).
    require(0 <= n_features <= most + 1, "num_feature")
    require(n_classes >= 0, "num_class")
    require(int(parameters["num_target"]) == 1, "num_target")
    # XGBoost reads a number to where it ends, and Python's float takes more for one.
    score = parameters["base_score"].removeprefix("[").removesuffix("]").split(",")
    require(all(map(NUMBER.fullmatch, score)), "base_score")
    require(len(score) in (1, max(n_classes, 1)), "base_score")
    require(learner["objective"]["name"] in OBJECTIVES, "objective")
    names = learner["feature_names"], learner["feature_types"]
    require(all(len(each) in (0, n_features) for each in names), "feature names")
    require(learner["gradient_booster"]["name"] == "gbtree", "kind of booster")
    model = learner["gradient_booster"]["model"]
    trees, outputs = model["trees"], np.asarray(model["tree_info"])
    require(int(model["gbtree_model_param"]["num_trees"]) == len(trees), "num_trees")
    require(int(model["gbtree_model_param"]["num_parallel_tree"]) > 0, "num_parallel_tree")
    require(len(outputs) == len(trees), "tree_info")
    # A round grows a tree for every class, and predictions make room for all that it claims.
    require(n_classes <= max(len(trees), 1), "num_class")
    require(bool(((outputs >= 0) & (outputs < max(n_classes, 1))).all()), "tree_info")
    rounds = np.asarray(model["iteration_indptr"])
    require(len(rounds) > 0 and rounds[0] == 0 and rounds[-1] == len(trees), "iteration_indptr")
    require(bool((np.diff(rounds) >= 0).all()), "iteration_indptr")
    require(not any(len(each) for each in model.get("cats", {}).values()), "categories")
    for number, tree in enumerate(trees):
        # XGBoost puts a tree where its id says, and leaves the other places empty.
        require(int(tree["id"]) == number, f"id of tree {number}")
        require(_is_consistent(tree, n_features), f"tree {number}")


def _is_consistent(tree: Mapping[str, Any], n_features: int) -> bool:
    parameters = tree["tree_param"]
    count = int(parameters["num_nodes"])
    arrays = {name: np.asarray(tree[name]) for name in ARRAYS}
    if count < 1 or any(array.shape != (count,) for array in arrays.values()):
        return False
    # num_feature of trees is that of the booster; leaves hold one number.
    if int(parameters["num_feature"]) != n_features or parameters["size_leaf_vector"] not in "01":
        return False
    if arrays["split_type"].any() or any(len(tree[name]) for name in CATEGORIES):
        return False
    left, right = arrays["left_children"], arrays["right_children"]
    inner = left != LEAF
    if not is_downward(left, right, inner, arrays["split_indices"], n_features):
        return False
    number = np.flatnonzero(inner)
    parents = arrays["parents"]
    own = np.array_equal(parents[left[inner]], number) and np.array_equal(
        parents[right[inner]], number
    )
    if not own or int(parents[0]) != 2**31 - 1 or (left[inner] == right[inner]).any():
        return False
    _refuse_depth(left, right)
    return True


def _refuse_depth(left: np.ndarray, right: np.ndarray) -> None:
    """Raise StoreError where a tree of which every node has one parent is too deep."""
    level = np.array([0])
    for _ in range(MOST_LEVELS + 1):
        level = level[left[level] != LEAF]
        level = np.concatenate([left[level], right[level]])
        if not level.size:
            return
    raise StoreError(
        f"A tree of the booster has more than {MOST_LEVELS:,} levels, on which XGBoost may end the "
        "process.",
        f"Train it with a max_depth from 1 to {MOST_LEVELS:,}.",
    )
