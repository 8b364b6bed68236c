"""No array of a saved model makes predictions take memory that its file has not."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fairfrontier.runtime.errors import StoreError
from fairfrontier.train.layout import COMMON, FLAGS, LAYOUTS, check_layout
from fairfrontier.train.persistence import State, read_state, restoring
from fairfrontier.train.registry import METHODS, load_model
from tests.contracts.test_methods import SCORERS, answer, every_case, fit, fitted, make, splits_for
from tests.train.test_persistence import sign


def read_arrays(folder):
    """Return the arrays of a saved model."""
    with np.load(folder / "arrays.npz") as stored:
        return dict(stored)


def store_arrays(folder, arrays):
    """Give a saved model other arrays, and digests that fit."""
    np.savez(folder / "arrays.npz", **arrays)
    sign(folder)


def restore(model, parameters, state):
    """Make a model of altered arrays, as ``load`` does of those that it has read."""
    with restoring(Path("model")):
        check_layout(model.name, parameters, state)
        found = type(model)(**parameters)
        found.unpack_state(state)
    return found


def alter(name, array):
    """Yield arrays that broadcast to more than this one, hold nothing, or have smaller numbers."""
    yield np.repeat(array[None], 3, axis=0)
    yield array[..., None]
    # Groups may be of any number of attributes.
    for axis in range(1 if name == "cells" else array.ndim):
        yield np.repeat(array, 3, axis=axis)
        yield np.take(array, [], axis=axis)
    if name not in (*COMMON, *FLAGS) and "classes_" not in name:
        yield np.zeros(array.shape, np.int8)


def is_used(method, name):
    """Return whether an array has a layout, which predictions rely on."""
    family = name.rpartition("_")[0] if name.rpartition("_")[2].isdigit() else name
    layout = COMMON | LAYOUTS.get(method, {}) | {"parameter": (), "probability": ()}
    return name in layout or family in layout


@every_case
def test_arrays_of_other_shapes_are_refused_or_not_used(name, task, tiny, tmp_path):
    splits = splits_for(name, tiny)
    model, part = fitted(name, task, tuple(splits.items())), splits[task].test
    parameters, state = read_state(model.save(tmp_path / "model"), name)
    expected = answer(restore(model, parameters, state), part)
    for key, array in state.arrays.items():
        inner = key.partition("_")[2] if key[0].isdigit() else key
        method = model.learner if inner != key else name
        for altered in alter(key, array):
            given = model, parameters, replace(state, arrays={**state.arrays, key: altered})
            if is_used(method, inner):
                with pytest.raises(StoreError):
                    restore(*given)
                continue
            try:
                found = restore(*given)
            except StoreError:
                continue
            assert np.array_equal(answer(found, part), expected), key


def test_arrays_of_other_shapes_are_refused_in_files(tiny, tmp_path):
    folder = fit(make("linear"), tiny["binary"]).save(tmp_path / "model")
    arrays = read_arrays(folder)
    store_arrays(folder, {**arrays, "coefficient": arrays["coefficient"][..., None]})
    with pytest.raises(StoreError, match="its arrays cannot be right"):
        load_model(folder)


def test_a_model_within_a_model_has_its_classes(tiny, tmp_path):
    folder = fit(make("reductions"), tiny["binary"]).save(tmp_path / "model")
    arrays = read_arrays(folder)
    more = {
        key: np.resize(arrays[key], (9, *arrays[key].shape[1:])) for key in arrays if key[0] == "0"
    }
    store_arrays(folder, {**arrays, **more})
    with pytest.raises(StoreError, match="its classes cannot be right"):
        load_model(folder)


def test_no_more_classes_than_a_model_may_have_are_saved(tmp_path):
    # scikit-learn warns of labels that are as many as half the rows.
    y = np.repeat(np.arange(2**13 + 1), 2)
    X = np.zeros((len(y), 1))
    with pytest.raises(StoreError, match="would not be read again: its classes cannot be right"):
        make("constant").fit(X, y).save(tmp_path / "model")
    assert not [*tmp_path.iterdir()]


def test_a_class_is_no_longer_than_it_may_be(tiny, tmp_path):
    part = tiny["binary"].train
    for letters in (1000, 2000):
        y = np.where(part.y == 1, "y" * letters, "n")
        model = make("constant").fit(part.X, y)
        if letters == 1000:
            assert load_model(model.save(tmp_path / "model")).classes_.tolist() == ["n", "y" * 1000]
            continue
        with pytest.raises(StoreError, match="its classes cannot be right"):
            model.save(tmp_path / "other")


@pytest.mark.parametrize(
    ("name", "claimed"),
    [
        ("fair_regression", {"n_grid": 2**30}),
        ("hardt", {"attributes": [0, 2000]}),
        ("randomized_threshold", {"within": 2000}),
    ],
)
def test_a_parameter_claims_no_more_room_than_there_may_be(name, claimed, tiny, tmp_path):
    (task,) = METHODS.find(name).task
    folder = fit(make(name), splits_for(name, tiny)[task]).save(tmp_path / "model")
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["parameters"] |= claimed
    path.write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=f"its {next(iter(claimed))} cannot be right"):
        load_model(folder)


@pytest.mark.parametrize("name", SCORERS)
def test_rules_for_labels_of_text_come_back(name, tiny, tmp_path):
    part = splits_for(name, tiny)["binary"].train
    model = make(name).fit(part.X, np.array(["no", "yes"])[part.y], groups=part.groups)
    back = load_model(model.save(tmp_path / "rule"))
    assert np.array_equal(answer(back, part), answer(model, part))


@pytest.mark.parametrize("value", ["sex", ["sex", "race"], {"sex": 1}, [[1], [1, 2]]])
def test_parameters_and_arrays_of_other_packages_are_theirs(value):
    arrays = {"parameter_scale": np.ones(3), "coefficient": np.ones((2, 2, 2))}
    state = State(arrays=arrays, facts={"classifiers": [{"name": "theirs"}]})
    check_layout("theirs", {"attributes": value, "n_grid": value}, state)


@pytest.mark.parametrize("name", ["nn", "noisy_unconstrained"])
def test_a_net_has_no_layer_without_units(name, tiny, tmp_path):
    split = tiny["binary"]
    folder = fit(make(name), split).save(tmp_path / "model")
    arrays = read_arrays(folder)
    last = arrays.pop(max(key for key in arrays if key.startswith("parameter_")))
    kept = {key: each for key, each in arrays.items() if not key.startswith("parameter_")}
    wide, outputs = 10**8, last.shape[-1]
    widths = [len(split.feature_names), 0, wide, 0, outputs]
    net = [np.zeros((1, *pair)) for pair in itertools.pairwise(widths)]
    # A bias of one number is that of all units.
    net += [np.zeros((1, 1, min(width, outputs))) for width in widths[1:]]
    store_arrays(folder, kept | {f"parameter_{i}": each for i, each in enumerate(net)})
    with pytest.raises(StoreError, match="its network cannot be right"):
        load_model(folder)
