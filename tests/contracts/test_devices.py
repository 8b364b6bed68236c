"""Methods take arrays on a device, and those that compute on one learn the same there."""

from __future__ import annotations

import inspect

import dask.array as da
import numpy as np
import pytest

from fairfrontier.models.registry import METHODS
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.cluster.config import load_cluster
from fairfrontier.runtime.cluster.open import open_cluster
from tests.contracts.test_methods import CASES, answer, fit, keywords, make, splits_for
from tests.namespaces import devices, load_cupy

ROWS = ("sensitive_features", "true_groups", "sample_weight")
SPREAD = [
    (name, task)
    for name, task in CASES
    if METHODS.all()[name].takes_blocks and "counterfactuals" not in METHODS.all()[name].fit_needs
]
COMPUTING = [(name, task) for name, task in CASES if "cupy" in METHODS.all()[name].backends]


@pytest.mark.parametrize("namespace", devices())
@pytest.mark.parametrize(("name", "task"), CASES)
def test_arrays_on_a_device_are_taken(namespace, name, task, tiny):
    move = namespace().asarray
    split = splits_for(name, tiny)[task]
    part, given = split.train, keywords(make(name), split, split.train)
    there = {key: move(value) if key in ROWS else value for key, value in given.items()}
    model = make(name).fit(move(part.X), move(part.y), **there)
    kept = {"sensitive_features": part.groups, "ids": part.ids}
    needed = {key: kept[key] for key in sorted(model.predict_needs)}
    ask = model.predict_proba if part.classes else model.predict
    found = ask(move(part.X), **{key: move(value) for key, value in needed.items()})
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, answer(fit(make(name), split), part))


@pytest.mark.parametrize("namespace", devices())
@pytest.mark.parametrize("name", ["gbdt", "linear", "nn", "group_thresholds"])
def test_dask_arrays_on_a_device_are_taken(namespace, name, tiny):
    split, move = splits_for(name, tiny)["binary"], namespace().asarray
    part, given = split.train, keywords(make(name), split, split.train)

    def spread(array):
        lazy = da.from_array(array, chunks=(len(array) // 2, -1)[: array.ndim])
        return lazy.map_blocks(move, meta=move(np.empty((0,) * array.ndim, dtype=array.dtype)))

    groups = dict.fromkeys(sorted(make(name).predict_needs & {"sensitive_features"}), part.groups)
    own = dict.fromkeys(sorted(make(name).predict_needs & {"ids"}), part.ids)
    there = {key: spread(value) if key in ROWS else value for key, value in given.items()}
    model = make(name).fit(spread(part.X), spread(part.y), **there)
    found = model.predict_proba(spread(part.X), **{k: spread(v) for k, v in groups.items()}, **own)
    # Sums over blocks are rounded in another order than those over all rows.
    np.testing.assert_allclose(found, answer(fit(make(name), split), part), rtol=0, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "task"), COMPUTING)
def test_a_device_learns_the_same(name, task, tiny):
    load_cupy()
    split = splits_for(name, tiny)[task]
    known = inspect.signature(METHODS.all()[name]).parameters
    precise = {"dtype": "float64"} if "dtype" in known else {}
    here, there = (
        answer(fit(make(name, backend=each, **precise), split), split.validation)
        for each in ("numpy", "cupy")
    )
    assert to_numpy(there) == pytest.approx(here, abs=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "task"), SPREAD)
def test_partitions_on_a_device_are_taken(name, task, tiny, client):
    move, part = load_cupy().asarray, tiny[task].train
    given = keywords(make(name), tiny[task], part)
    given = {key: given[key] for key in given.keys() - {"validation", "counterfactuals"}}
    own = {"client": client} if "client" in METHODS.all()[name].fit_takes else {}
    X = da.from_array(part.X, chunks=(part.n_samples // 3, part.X.shape[1]))
    here, there = (make(name).fit(each, part.y, **given, **own) for each in (X, X.map_blocks(move)))
    assert np.array_equal(answer(there, part), answer(here, part))


@pytest.mark.gpu
def test_workers_on_devices_train_there_as_one_process_does(tiny):
    move, part = load_cupy().asarray, tiny["binary"].train
    pytest.importorskip("dask_cuda")
    given = {"metric": keywords(make("budro"), tiny["binary"], part)["metric"]}
    X = da.from_array(part.X, chunks=(part.n_samples // 3, part.X.shape[1])).map_blocks(move)
    with open_cluster(load_cluster("cuda")) as client:
        assert client.cluster.scheduler_address.startswith("tls://127.0.0.1:")
        spread = make("budro", backend="cupy").fit(X, part.y, **given, client=client)
    alone = make("budro", backend="cupy").fit(part.X, part.y, **given)
    assert answer(spread, part) == pytest.approx(answer(alone, part), abs=1e-6)
