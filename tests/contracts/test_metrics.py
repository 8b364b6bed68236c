"""What every registered learner of fair metrics keeps to."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import numpy as np
import pytest

from fairfrontier.models.registry import METHODS, create
from fairfrontier.prepare.split import Split
from fairfrontier.similarity.fair_metric import FairMetric
from fairfrontier.similarity.registry import METRICS
from fairfrontier.similarity.registry import learn as learn_fully

TASKS = ("binary", "multiclass", "regression")
every_case = pytest.mark.parametrize(
    ("name", "task"), [(name, task) for name in METRICS.all() for task in TASKS]
)


@cache
def learnt(name: str, split: Split) -> FairMetric:
    """Return a metric that several tests look at and none changes."""
    return learn(name, split)


def learn(name: str, split: Split, **parameters: Any) -> FairMetric:
    """Learn with the defaults, but for the length of a descent."""
    if "iterations" in inspect.signature(METRICS.find(name)).parameters:
        parameters = {"iterations": 1000, **parameters}
    return learn_fully(name, split, **parameters)


def test_there_are_metrics():
    assert {"subspace", "face", "explore"} <= set(METRICS.all())


@pytest.mark.parametrize("name", METRICS.all())
def test_says_what_it_is(name):
    assert "References" in METRICS.all()[name].__doc__


@every_case
def test_is_a_pseudometric(name, task, tiny):
    metric = learnt(name, tiny[task])
    d = tiny[task].train.X.shape[1]
    assert metric.sigma.shape == (d, d)
    np.testing.assert_allclose(metric.sigma, metric.sigma.T, atol=1e-12)
    assert np.linalg.eigvalsh(metric.sigma).min() > -1e-10
    np.testing.assert_allclose(metric.basis @ metric.basis.T, metric.sigma, atol=1e-10)
    free = metric.directions
    np.testing.assert_allclose(free @ free.T, np.eye(len(free)), atol=1e-10)
    np.testing.assert_allclose(free @ metric.sigma, 0.0, atol=1e-10)


@every_case
def test_distances_agree_with_their_definition(name, task, tiny):
    metric = learnt(name, tiny[task])
    x = tiny[task].train.X
    first, second = x[:20], x[20:40]
    expected = np.einsum("ni,ij,nj->n", first - second, metric.sigma, first - second)
    np.testing.assert_allclose(metric.distance(first, second), expected, atol=1e-10)
    embedded = ((metric.embed(first) - metric.embed(second)) ** 2).sum(axis=1)
    np.testing.assert_allclose(embedded, expected, atol=1e-10)
    np.testing.assert_allclose(metric.project(first), first @ metric.sigma, atol=1e-10)


@every_case
def test_same_split_same_metric_and_nothing_is_changed(name, task, tiny):
    split = tiny[task]
    before = {key: each.copy() for key, each in vars(split.train).items() if _is_array(each)}
    first, second = learnt(name, split), learn(name, split)
    assert first.sigma.tobytes() == second.sigma.tobytes()
    for key, each in before.items():
        np.testing.assert_array_equal(getattr(split.train, key), each, err_msg=key)


@every_case
def test_saved_and_loaded(name, task, tiny, tmp_path):
    metric = learnt(name, tiny[task])
    loaded = FairMetric.load(metric.save(tmp_path / "metric.npz"))
    for key in ("sigma", "basis", "directions"):
        np.testing.assert_array_equal(getattr(loaded, key), getattr(metric, key))


@pytest.mark.parametrize("method", ["budro", "project"])
@pytest.mark.parametrize("name", METRICS.all())
def test_trees_take_any_metric(name, method, tiny):
    part = tiny["binary"].train
    model = create(method, **METHODS.all()[method].example)
    model.fit(part.X, part.y, metric=learnt(name, tiny["binary"]))
    found = model.predict_proba(part.X)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    # A tree learnt something: not every row has the same chance.
    assert np.ptp(found[:, 1]) > 0.05


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)
