import numpy as np
import pytest

from fairfrontier.train.node import is_downward

# Node 0 asks feature 1, its right child 2 asks feature 0; the rest are leaves.
LEFT = np.array([1, -1, 3, -1, -1])
RIGHT = np.array([2, -1, 4, -1, -1])
FEATURE = np.array([1, -2, 0, -2, -2])


def ask(left=LEFT, right=RIGHT, feature=FEATURE, n_features=2):
    return is_downward(left, right, left != -1, feature, n_features)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def test_a_tree_holds_together():
    assert ask()
    assert ask(np.array([-1]), np.array([-1]), np.array([-2]), 0)


@pytest.mark.parametrize(
    "damage",
    [
        {"left": changed(LEFT, 2, 0)},  # a circle
        {"left": changed(LEFT, 2, 2)},
        {"right": changed(RIGHT, 0, 5)},  # past the end
        {"right": changed(RIGHT, 2, -7)},
        {"right": changed(RIGHT, 1, 3)},  # half a leaf
        {"left": changed(LEFT, 1, -2)},
        {"feature": changed(FEATURE, 0, 2)},
        {"feature": changed(FEATURE, 2, -1)},
    ],
)
def test_damage_is_seen(damage):
    assert not ask(**damage)
