from __future__ import annotations

import os
import signal
import time
from threading import Timer

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from sklearn.base import clone

from fairfrontier.models.regression.estimator import FairRegression, FairRegressionClassifier
from fairfrontier.runtime.cluster import executor
from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.runtime.cluster.executor import MEETING
from fairfrontier.runtime.cluster.open import open_cluster
from fairfrontier.runtime.errors import ClusterError, ConfigError, DataError, InputError
from tests.models.regression.made import classes, draw_rows

CUTS = (70, 1, 100, 69)
SMALL = {"n_grid": 10, "iterations": 4, "attribute": 1, "budget": 0.04}
BOUNDED = {"constraint": "bounded_group_loss"}
TREES = {"learner": "xgboost", "n_estimators": 2, "max_depth": 3, "iterations": 2}


def open_threads(workers):
    # Without an address Dask would ask for port 8787.
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    return Client(processes=False, set_as_default=False, n_workers=workers, **options)


@pytest.fixture(scope="module")
def client():
    """Three workers in this process, for what needs no processes."""
    with open_threads(3) as client:
        yield client


def draw():
    X, y, group = draw_rows(240, n_groups=3)
    weight = np.random.default_rng(1).integers(0, 4, 240) / 2.0
    # Codes with a gap.
    return X, y, np.stack([np.zeros_like(group), group + (group == 2)], axis=1), weight


def cut(array, cuts=CUTS):
    return da.from_array(array, chunks=(cuts, *((size,) for size in array.shape[1:])))


def fit_both(client, rows, cuts=CUTS, **parameters):
    X, y, groups, weight = rows
    parameters = {**SMALL, **parameters}
    kind = FairRegressionClassifier if y.dtype == np.int64 else FairRegression
    local = kind(**parameters).fit(X, y, sensitive_features=groups, sample_weight=weight)
    spread = kind(**parameters).fit(
        cut(X, cuts),
        cut(y, cuts),
        sensitive_features=cut(groups, cuts),
        sample_weight=None if weight is None else cut(weight, cuts),
        client=client,
    )
    return local, spread


def bound_rounding_of_gap(model, n):
    """Return by how much orders of summation may part two gaps of the same game.

    The gap is max_λ L − min_f L, each loss + λᵀ(g − b) with ‖λ‖₁ ≤ B: where they meet nothing of
    its digits remains. Losses (at most 1) and g are means over n rows, right to (n + K) u of their
    size with the sum over the K groups; two fits have two values each.
    """
    if model.constraint == "bounded_group_loss":
        radius = 100 / max(model.budget, 1e-3)
    else:
        radius = 1 / max(model.budget, 0.01)
    size = 1 + radius * (np.max(model.group_value_) + model.budget)
    terms = n + len(model.levels_)
    return 4 * terms * np.finfo(np.float64).eps / 2 * size


def assert_same(local, spread, X):
    np.testing.assert_array_equal(spread.levels_, local.levels_)
    assert spread.calls_ == local.calls_
    for name in ("loss_", "probability_", "multiplier_", "group_value_", "reachable_"):
        found, wanted = getattr(spread, name), getattr(local, name)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12, err_msg=name)
    rounding = bound_rounding_of_gap(local, len(X))
    np.testing.assert_allclose(spread.gap_, local.gap_, rtol=1e-9, atol=rounding)
    assert spread.exact_ == local.exact_
    if local.predictors_:
        found, wanted = (
            np.stack([each.score(X) for each in model.predictors_]) for model in (spread, local)
        )
        np.testing.assert_allclose(found, wanted, atol=1e-9)
        np.testing.assert_allclose(spread.predict(X), local.predict(X), atol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "to"),
    [
        ({}, None),
        ({"oracle": "lr", "variant": "authors", "iterations": 2}, None),
        ({"oracle": "ls", "loss": "absolute", "inflation": 0.1}, classes),
        ({"iterations": 2}, classes),
        ({**BOUNDED, "budget": 0.12}, None),
        ({**BOUNDED, "budget": 0.001, "iterations": 2}, None),
        ({**BOUNDED, "budget": 0.2, "oracle": "lr", "iterations": 2}, classes),
        ({**BOUNDED, "budget": 0.1, "oracle": "lr", "loss": "square", "iterations": 2}, None),
        ({**TREES, **BOUNDED, "budget": 0.1, "oracle": "lr"}, None),
        (TREES, None),
        (TREES, classes),
        ({**TREES, **BOUNDED, "budget": 0.1}, None),
    ],
    ids=lambda each: "-".join(map(str, each.values())) if isinstance(each, dict) else None,
)
def test_the_result_is_that_of_one_process(client, parameters, to):
    X, y, groups, weight = draw()
    y = y if to is None else to(y)
    assert_same(*fit_both(client, (X, y, groups, weight), **parameters), X)


def test_partitions_may_be_empty_permuted_and_on_any_number_of_workers(client):
    X, y, groups, weight = draw()
    order = np.concatenate([np.arange(171, 240), np.arange(70, 171), np.arange(70)])
    local = FairRegression(**SMALL).fit(X, y, sensitive_features=groups, sample_weight=weight)
    workers = sorted(client.nthreads())
    blocks = cut(X[order], (69, 101, 70))
    others = [cut(each[order], (69, 101, 70)) for each in (y, groups, weight)]
    for count in (1, 2, 3):
        pieces = [client.persist(blocks.blocks[i], workers=[workers[i % count]]) for i in range(3)]
        spread = FairRegression(**SMALL).fit(
            da.concatenate(pieces),
            others[0],
            sensitive_features=others[1],
            sample_weight=others[2],
            client=client,
        )
        assert_same(local, spread, X)
    # Every row of the second partition has weight 0.
    weight = np.where((np.arange(240) >= 70) & (np.arange(240) < 171), 0.0, weight)
    assert_same(*fit_both(client, (X, y, groups, weight)), X)


def test_the_hessian_is_estimated_from_the_rows_that_one_process_takes(client):
    X, y, group = draw_rows(4500, seed=3)
    rows = (X, y, np.stack([group, group], axis=1), None)
    local, spread = fit_both(client, rows, (1500, 1, 2001, 998), oracle="lr", iterations=2)
    assert_same(local, spread, X)


def test_rows_stay_where_they_are_and_predictions_are_made_there(client):
    X, y, group = draw_rows(6000, seed=1)
    X = np.hstack([X, np.random.default_rng(0).normal(size=(6000, 30))])
    groups = np.stack([group, group], axis=1)
    workers = sorted(client.nthreads())
    pieces = [
        client.persist(cut(X[start : start + 2000], (2000,)), workers=[workers[start // 2000]])
        for start in (0, 2000, 4000)
    ]
    lazy = da.concatenate(pieces)
    client.gather(client.compute([lazy[:1].sum(), lazy[2000:2001].sum(), lazy[-1:].sum()]))

    def sent():
        totals = client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
        return sum(totals.values())

    before = sent()
    model = FairRegression(**{**SMALL, "iterations": 2}).fit(
        lazy, y, sensitive_features=groups, client=client
    )
    assert sent() - before < X.nbytes / 8
    made = lazy.map_blocks(model.predict, drop_axis=1, meta=np.empty(0))
    np.testing.assert_allclose(client.compute(made).result(), model.predict(X), atol=1e-12)


def test_blocks_are_computed_here_without_workers():
    X, y, groups, weight = draw()
    local = FairRegression(**SMALL).fit(X, y, sensitive_features=groups, sample_weight=weight)
    lazy = clone(local).fit(cut(X), y, sensitive_features=cut(groups), sample_weight=cut(weight))
    assert_same(local, lazy, X)


def test_arrays_in_memory_are_fitted_here_though_there_is_a_client(client):
    X, y, groups, _ = draw()
    local = FairRegression(**SMALL).fit(X, y, sensitive_features=groups)
    same = FairRegression(**SMALL).fit(X, y, sensitive_features=groups, client=client)
    assert same.predict(X).tobytes() == local.predict(X).tobytes()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"oracle": "cs"}, "oracle cs"),
        ({"oracle": "envelope"}, "oracle envelope"),
        ({"learner": "ridge"}, "learner 'ridge'"),
        ({"loss": "absolute"}, "oracle envelope"),
    ],
)
def test_what_needs_all_rows_is_refused(client, parameters, message):
    with pytest.raises(ConfigError, match=message):
        fit_both(client, draw(), **parameters)


def test_faults_of_the_rows_are_told(client):
    X, y, groups, weight = draw()
    model = FairRegression(**SMALL)
    with pytest.raises(DataError):
        model.fit(cut(X), 2 * y, sensitive_features=groups, client=client)
    with pytest.raises(DataError):
        model.fit(cut(X), y[1:], sensitive_features=groups[1:], client=client)
    with pytest.raises(DataError):
        model.fit(cut(X), y, sensitive_features=0 * groups, client=client)
    with pytest.raises(InputError):
        model.fit(cut(X), y, sensitive_features=groups, sample_weight=0 * weight, client=client)
    with pytest.raises(DataError):
        FairRegression(**SMALL, loss="logistic").fit(
            cut(X), y, sensitive_features=groups, client=client
        )


class Loss:
    """Progress of a fit on which workers that hold rows are lost, a given number of times."""

    def __init__(self, lose, times):
        self.lose, self.times = lose, times

    def __call__(self, done, total):
        if self.times and done < total:
            self.times -= 1
            self.lose()


@pytest.mark.once
def test_a_lost_worker_costs_one_try_and_a_second_ends_the_fit():
    X, y, groups, weight = draw()
    # Without convergence there is progress to tell.
    model = FairRegression(**{**SMALL, "tolerance": 1e-12})
    local = clone(model).fit(X, y, sensitive_features=groups, sample_weight=weight)
    with open_threads(4) as client:

        def lose():
            address = min(client.nthreads())
            client.sync(client.cluster.scheduler.remove_worker, address, stimulus_id="lost")

        arguments = (cut(X), cut(y), cut(groups), cut(weight), client)
        once = Loss(lose, 1)
        model.fit(
            *arguments[:2],
            sensitive_features=arguments[2],
            sample_weight=arguments[3],
            client=client,
            progress=once,
        )
        assert once.times == 0
        assert len(client.nthreads()) == 3
        assert_same(local, model, X)
        with pytest.raises(ClusterError):
            model.fit(
                *arguments[:2],
                sensitive_features=arguments[2],
                sample_weight=arguments[3],
                client=client,
                progress=Loss(lose, 2),
            )
        assert len(client.nthreads()) == 1
        assert client.nthreads().keys() == client.run(os.getpid).keys()


def test_a_worker_that_never_answers_ends_the_fit(client, monkeypatch):
    X, y, groups, _ = draw()
    monkeypatch.setattr(executor, "LOOK", 0.05)
    monkeypatch.setattr(executor, "TIMEOUT", 0.2)
    slow = cut(X).map_blocks(wait_a_while, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(ClusterError):
        FairRegression(**SMALL).fit(slow, y, sensitive_features=groups, client=client)


def wait_a_while(block):
    time.sleep(0.7)
    return block


def arm():
    """Run on a worker: let its process die where it is to meet the others and grow trees."""
    import xgboost.dask

    def die(**_):
        os.kill(os.getpid(), signal.SIGKILL)

    xgboost.dask.CommunicatorContext = die


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [{"oracle": "lr"}, {**TREES, "n_estimators": 300}])
def test_processes_agree_and_survive_the_death_of_one(parameters):
    X, y, groups, weight = draw()
    model = FairRegression(**{**SMALL, **parameters, "iterations": 2})
    local = clone(model).fit(X, y, sensitive_features=groups, sample_weight=weight)
    with open_cluster(ClusterConfig(kind="local", workers=2, threads=1)) as client:
        client.wait_for_workers(2, timeout=120)
        arguments = (cut(X), cut(y), cut(groups), cut(weight), client)
        model.fit(
            *arguments[:2],
            sensitive_features=arguments[2],
            sample_weight=arguments[3],
            client=client,
        )
        assert_same(local, model, X)
        processes = client.run(os.getpid)
        killer = Timer(0.3, os.kill, (processes[min(processes)], signal.SIGKILL))
        killer.start()
        model.fit(
            *arguments[:2],
            sensitive_features=arguments[2],
            sample_weight=arguments[3],
            client=client,
        )
        killer.join()
        assert_same(local, model, X)
        while min(processes) in client.nthreads():  # The scheduler hears of it later.
            time.sleep(0.1)
        client.wait_for_workers(2, timeout=120)
        client.run(arm, workers=[min(client.nthreads())])
        begun = time.monotonic()
        model.fit(
            *arguments[:2],
            sensitive_features=arguments[2],
            sample_weight=arguments[3],
            client=client,
        )
        assert_same(local, model, X)
        # The other was stuck where they were to meet, and nobody waited until it gave up.
        assert time.monotonic() - begun < MEETING
