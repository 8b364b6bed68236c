"""Validity of the nodes of a tree that was read from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

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


def refuse_broken_trees(learner: Any) -> None:
    """Raise StoreError where a fitted learner of scikit-learn has a tree that is inconsistent."""
    for part in np.ravel(getattr(learner, "estimators_", [learner])):
        tree = getattr(part, "tree_", None)
        if tree is not None and not is_downward(
            tree.children_left,
            tree.children_right,
            tree.children_left != LEAF,
            tree.feature,
            learner.n_features_in_,
        ):
            raise StoreError(
                "A saved learner has trees with nodes that lead nowhere.",
                "Train it again, or restore the folder from where it was saved.",
            )
