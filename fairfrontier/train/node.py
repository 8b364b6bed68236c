"""Validity of the trees in what was read from a file: scikit-learn follows them unchecked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.tree._tree import Tree

from fairfrontier.runtime.errors import StoreError

LEAF = -1


def is_downward(
    left: np.ndarray, right: np.ndarray, inner: np.ndarray, feature: np.ndarray, n_features: int
) -> bool:
    """Return whether every path down a tree ends in one of its leaves, on existing features.

    All arrays have shape (n_nodes,): children, -1 in leaves; whether a node is not a leaf; and the
    feature that it splits. Trees are numbered downwards, so children with higher numbers rule out
    cycles. O(n_nodes).
    """
    number = np.arange(len(left))
    for child in (left, right):
        below = (child > number) & (child < len(left))
        if not np.array_equal(below, inner) or (child[~inner] != LEAF).any():
            return False
    split = feature[inner]
    return not bool(((split < 0) | (split >= n_features)).any())


def is_tree(args: Any, state: Any) -> bool:
    """Return whether the arguments and the state of a Tree of scikit-learn make a sound one."""
    n_features, n_classes, n_outputs = args
    nodes, values = np.asarray(state["nodes"]), np.asarray(state["values"])
    numbers = (n_features, n_outputs, state["node_count"], state["max_depth"])
    if n_classes.ndim != 1 or n_classes.dtype != np.int64 or n_classes.min(initial=1) < 1:
        return False
    shape = (state["node_count"], n_outputs, n_classes.max(initial=0))
    if any(type(number) is not int for number in numbers) or n_classes.shape != (n_outputs,):
        return False
    if nodes.dtype.names is None or nodes.shape != shape[:1] or values.shape != shape:
        return False
    left, right = nodes["left_child"], nodes["right_child"]
    return nodes.size > 0 and is_downward(left, right, left != LEAF, nodes["feature"], n_features)


def is_valid(learner: Any) -> bool:
    """Return whether trees in a learner lead to leaves, and what is ours in it ``is_sound``."""
    return all(_is_valid_part(part) for part in find_parts(learner))


def _is_valid_part(part: Any) -> bool:
    if isinstance(part, Tree):
        return is_tree(*part.__reduce__()[1:])
    # Learners of our own know what their predictions believe.
    if hasattr(type(part), "is_sound") and not part.is_sound():
        return False
    # The rows that reach a tree are checked against what its owners say, not against the tree.
    below = [part.tree_.n_features] if hasattr(part, "tree_") else []
    estimators = np.asarray(getattr(part, "estimators_", []))
    below += [tree.n_features_in_ for tree in estimators.ravel()]
    # Boosting adds up a column of trees for every output; SciPy follows indices unchecked, too.
    single = estimators.ndim < 2 or estimators.shape[1] == 1
    return single and not issparse(part) and all(n <= part.n_features_in_ for n in below)


def find_parts(learner: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Yield an object and, recursively, all objects in it but arrays, containers and scalars."""
    seen = set() if seen is None else seen
    if id(learner) in seen or isinstance(learner, str | bytes | int | float | type(None)):
        return
    seen.add(id(learner))
    if isinstance(learner, np.ndarray):
        parts = learner.ravel().tolist() if learner.dtype == object else []
    elif isinstance(learner, Mapping):
        parts = list(learner.values())
    elif isinstance(learner, list | tuple):
        parts = list(learner)
    else:
        yield learner
        parts = list(getattr(learner, "__dict__", {}).values())
    for part in parts:
        yield from find_parts(part, seen)


def refuse_broken_trees(learner: Any) -> None:
    """Raise StoreError where a fitted learner of scikit-learn has a tree that is inconsistent."""
    if not is_valid(learner):
        raise StoreError(
            "A saved learner has trees with nodes that lead nowhere.",
            "Train it again, or restore the folder from where it was saved.",
        )
