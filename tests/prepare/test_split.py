from __future__ import annotations

import copy

import numpy as np

from fairfrontier import load


def test_parts_come_in_order_and_replace_copies(project, tmp_path):
    split = load(project(), home=tmp_path)
    assert [name for name, _ in split.parts()] == ["train", "calibration", "test"]
    less = split.replace(calibration=None)
    assert [name for name, _ in less.parts()] == ["train", "test"]
    assert split.calibration is not None


def test_a_split_can_be_sent_to_another_process(project, tmp_path):
    # Deep copies and workers go through the same protocol.
    split = load(project(), home=tmp_path)
    twin = copy.deepcopy(split)
    assert np.array_equal(twin.train.X, split.train.X)
    (one, *_), (other, *_) = twin.test.counterfactuals["city"], split.test.counterfactuals["city"]
    assert np.array_equal(one.X, other.X)


def test_take_keeps_the_order_asked_for_and_renames(project, tmp_path):
    train = load(project(), home=tmp_path).train
    few = train.take(np.array([3, 0, 2]), name="fold")
    assert few.name == "fold"
    assert few.n_samples == 3
    assert np.array_equal(few.group("origin"), train.group("origin")[[3, 0, 2]])
