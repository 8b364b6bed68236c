from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from threading import Timer

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from sklearn.base import clone

from fairfrontier import learn
from fairfrontier.models.individual.budro import round as rounds
from fairfrontier.models.individual.budro.estimator import BuDRO
from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.runtime.cluster.executor import MEETING, computing_on
from fairfrontier.runtime.cluster.open import open_cluster
from fairfrontier.runtime.errors import ClusterError, ConfigError, DataError, InputError
from fairfrontier.similarity.fair_metric import FairMetric
from tests.models.tables import make_split

CUTS = (130, 0, 1, 169)
SMALL = {"n_estimators": 3, "max_depth": 4, "learning_rate": 0.3, "budget": 0.2}
STOCHASTIC = {"steps": 5, "batch_size": 40, "dual_learning_rate": 0.01}


@pytest.fixture(scope="module")
def rows():
    """Rows, labels, weights and a metric of theirs."""
    split = make_split(600)
    weight = np.random.default_rng(0).integers(1, 4, 300) / 2.0
    return split.train.X, split.train.y, weight, learn("subspace", split)


@pytest.fixture(scope="module")
def client():
    """Three workers in this process, for what needs no processes."""
    # Without an address Dask would ask for port 8787.
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, n_workers=3, **options) as client:
        yield client


@pytest.fixture(scope="module")
def processes():
    """Two worker processes."""
    with open_cluster(ClusterConfig(kind="local", workers=2, threads=1)) as client:
        client.wait_for_workers(2, timeout=120)
        yield client


def cut(array, cuts=CUTS):
    return da.from_array(array, chunks=(cuts, *((size,) for size in array.shape[1:])))


def place(array, cuts, client, workers):
    """Return the array persisted in contiguous pieces, one on each of the workers named."""
    starts = np.cumsum((0, *cuts))
    pieces = [
        client.persist(cut(array[start : start + size], (size,)), workers=[worker])
        for start, size, worker in zip(starts, cuts, workers, strict=False)
    ]
    return da.concatenate(pieces)


def assert_same(local, spread, X):
    for name, wanted in local.history_.items():
        np.testing.assert_allclose(spread.history_[name], wanted, rtol=1e-9, atol=1e-12)
    assert spread.booster_.get_dump() == local.booster_.get_dump()
    assert np.array_equal(spread.classes_, local.classes_)
    np.testing.assert_allclose(spread.predict_proba(X), local.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"column_share": 0.1, "variant": "authors"},
        {"solver": "sgd", **STOCHASTIC},
        {"solver": "sinkhorn", "entropy_weight": 1e-3},
        {"solver": "sinkhorn_sgd", "entropy_weight": 1e-3, **STOCHASTIC},
        {"scale_pos_weight": 2.0, "reg_lambda": 0.1},
        {"n_estimators": 1},
    ],
    ids=lambda each: "-".join(map(str, each.values())),
)
def test_the_result_is_that_of_one_process(client, rows, parameters):
    X, y, weight, metric = rows
    local = BuDRO(**{**SMALL, **parameters}).fit(X, y, metric=metric, sample_weight=weight)
    spread = clone(local).fit(
        cut(X), cut(y), metric=metric, sample_weight=cut(weight), client=client
    )
    assert_same(local, spread, X)
    assert np.ptp(local.predict_proba(X)[:, 1]) > 0.1 or local.n_estimators == 1


def test_three_classes_and_coincident_rows(client, rows):
    X, y, _, metric = rows
    X, y = np.round(X[:, :3]) + 0.0, y + ((y == 1) & (X[:, 2] > 0.5))
    metric = FairMetric(metric.sigma[:3, :3], np.eye(3)[:, 1:], np.zeros((0, 3)))
    local = BuDRO(**SMALL).fit(X, y, metric=metric)
    spread = BuDRO(**SMALL).fit(cut(X), y, metric=metric, client=client)
    assert spread.classes_.tolist() == [0, 1, 2]
    assert_same(local, spread, X)


def test_a_worker_whose_partition_is_empty_is_left_out(client, rows):
    X, y, _, metric = rows
    local = BuDRO(**SMALL).fit(X, y, metric=metric)
    spread = BuDRO(**SMALL).fit(cut(X, (120, 0, 180)), y, metric=metric, client=client)
    assert_same(local, spread, X)


def test_rows_of_weight_0_are_left_out(client, rows):
    X, y, weight, metric = rows
    weight = np.where((np.arange(300) < 130) | (np.arange(300) % 3 == 0), 0.0, weight)
    kept = weight > 0
    local = BuDRO(**SMALL).fit(X[kept], y[kept], metric=metric, sample_weight=weight[kept])
    spread = BuDRO(**SMALL).fit(
        cut(X), cut(y), metric=metric, sample_weight=cut(weight), client=client
    )
    assert_same(local, spread, X)


def test_a_model_of_workers_is_saved_as_any(client, rows, tmp_path):
    X, y, _, metric = rows
    model = BuDRO(**SMALL).fit(cut(X), y, metric=metric, client=client)
    again = BuDRO.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert all(np.array_equal(again.history_[key], model.history_[key]) for key in model.history_)


def test_progress_is_told_every_round_and_may_end_the_fit(client, rows, monkeypatch):
    X, y, _, metric = rows
    calls = []

    def tell(*step):
        calls.append(step)
        if step == (4, 20):
            raise InterruptedError

    model = BuDRO(**{**SMALL, "n_estimators": 6})
    model.fit(cut(X), y, metric=metric, client=client, progress=tell)
    assert calls == [(done, 6) for done in range(1, 7)]
    model.set_params(n_estimators=20)
    monkeypatch.setattr(rounds, "SPELL", 1e-9)
    with pytest.raises(InterruptedError):
        model.fit(cut(X), y, metric=metric, client=client, progress=tell)
    assert len(calls) == 10


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_with_sources_the_optimum_of_all_rows_lies_between_the_bounds(client, rows, variant):
    X, y, weight, metric = rows
    setting = {**SMALL, "solver": "exact", "variant": variant, "tolerance": 1e-6}
    local = BuDRO(**setting).fit(X, y, metric=metric, sample_weight=weight)
    model = BuDRO(**setting, sources=20)
    model.fit(cut(X), y, metric=metric, sample_weight=weight, client=client)
    assert model.report_ == pytest.approx(local.report_)
    found = model.history_
    # Where the budget does not bind, as in the first worst case, the next trees are the same.
    best, low = local.history_["objective"][:2], found["objective"][:2]
    assert np.all(low <= best + 1e-6)
    assert np.all(best <= low + found["gap"][:2] + 1e-6)
    assert found["gap"][1] > 0
    assert np.all(found["cost"] <= model.report_["budget"] + 1e-9)
    assert model.predict_proba(X).shape == (300, 2)


def test_arrays_in_memory_are_fitted_here_though_there_is_a_client(client, rows):
    X, y, weight, metric = rows
    local = BuDRO(**SMALL).fit(X, y, metric=metric, sample_weight=weight)
    same = BuDRO(**SMALL).fit(X, y, metric=metric, sample_weight=weight, client=client)
    assert same.predict_proba(X).tobytes() == local.predict_proba(X).tobytes()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"tree_method": "exact"}, "exact needs all rows"), ({"budget": -1.0}, "budget")],
)
def test_what_needs_all_rows_is_refused(client, rows, parameters, message):
    X, y, _, metric = rows
    with pytest.raises(ConfigError, match=message):
        BuDRO(**{**SMALL, **parameters}).fit(cut(X), y, metric=metric, client=client)


def test_faults_of_the_rows_are_told(client, rows):
    X, y, _, metric = rows
    model = BuDRO(**SMALL)
    with pytest.raises(ConfigError):
        model.fit(cut(X), y, metric=metric)
    with pytest.raises(DataError):
        model.fit(cut(X), y[1:], metric=metric, client=client)
    with pytest.raises(InputError):
        model.fit(cut(X), y, metric=metric, sample_weight=np.zeros(300), client=client)
    thrice = y + ((y == 1) & (X[:, 2] > 0.5))
    with pytest.raises(ConfigError, match="3 classes"):
        clone(model).set_params(scale_pos_weight=2.0).fit(
            cut(X), thrice, metric=metric, client=client
        )


def agree(model, X, y, metric, weight, client):
    """Fit in this process, and on one worker, on two and so on."""
    local = clone(model).fit(X, y, metric=metric, sample_weight=weight)
    workers = sorted(client.nthreads())
    for count in range(1, len(workers) + 1):
        cuts = (len(y) // count,) * count
        placed = [place(each, cuts, client, workers) for each in (X, y, weight)]
        spread = clone(model).fit(
            placed[0], placed[1], metric=metric, sample_weight=placed[2], client=client
        )
        assert_same(local, spread, X)


@pytest.mark.once
def test_one_and_two_processes_agree(processes, rows):
    X, y, weight, metric = rows
    agree(BuDRO(**SMALL), X, y, metric, weight, processes)


@pytest.mark.parametrize("parameters", [{}, {"solver": "sgd", **STOCHASTIC}])
def test_one_two_and_three_workers_agree_where_rows_tie(client, parameters):
    generator = np.random.default_rng(0)
    # A grid that the embedding turns: many rows are equally good but for its last digits. All
    # columns are enough for bounds, those of one of three workers are not.
    X = generator.integers(4, size=(3000, 6)).astype(np.float64)
    y = X @ generator.normal(size=6) + generator.normal(scale=0.5, size=3000)
    turn = np.linalg.qr(generator.normal(size=(6, 6)))[0]
    metric = FairMetric(turn @ turn.T, turn, np.zeros((0, 6)))
    y = (y > np.median(y)).astype(np.int64)
    agree(BuDRO(**{**SMALL, **parameters}), X, y, metric, np.ones(3000), client)


def arm(name):
    """Run on a worker: let its process die where that name of XGBoost's Dask module is used."""
    import xgboost.dask

    def die(**_):
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(xgboost.dask, name, die)


@pytest.mark.once
def test_a_process_that_dies_before_the_others_meet_it_costs_one_try(processes, rows):
    X, y, weight, metric = rows
    model = BuDRO(**SMALL)
    local = clone(model).fit(X, y, metric=metric, sample_weight=weight)
    before = processes.run(os.getpid)
    processes.run(arm, "CommunicatorContext", workers=[min(before)])
    begun = time.monotonic()
    model.fit(cut(X), y, metric=metric, sample_weight=weight, client=processes)
    assert_same(local, model, X)
    # The others were stuck, and nobody waited until they gave up.
    assert time.monotonic() - begun < MEETING
    assert not set(before.values()) & set(processes.run(os.getpid).values())


@pytest.mark.slow
def test_processes_that_die_at_any_time_end_the_fit_or_cost_one_try(processes, rows):
    X, y, weight, metric = rows
    model = BuDRO(**{**SMALL, "n_estimators": 60, "solver": "sinkhorn"})
    local = clone(model).fit(X, y, metric=metric, sample_weight=weight)

    def kill():
        with suppress(ValueError, OSError):
            os.kill(min(processes.run(os.getpid).values()), signal.SIGKILL)

    for delay in (0.3, 1.0, 2.0, 4.0):
        processes.wait_for_workers(2, timeout=60)
        killer = Timer(delay, kill)
        killer.start()
        model.fit(cut(X), y, metric=metric, sample_weight=weight, client=processes)
        killer.join()
        assert_same(local, model, X)
    with pytest.raises(ClusterError, match="budro lost a worker that held rows, and again"):
        model.fit(
            cut(X),
            y,
            metric=metric,
            sample_weight=weight,
            client=processes,
            progress=lambda *_: kill(),
        )


@pytest.mark.parametrize("lazy", [True, False])
def test_validation_rows_end_a_fit_wherever_they_are(rows, client, lazy):
    X, y, _, metric = rows
    part = make_split(600).test
    options = {**SMALL, "n_estimators": 40, "learning_rate": 0.9, "early_stopping": 3}
    inside = BuDRO(**options).fit(X, y, metric=metric, validation=part)
    watched = replace(part, X=da.from_array(part.X, chunks=(100, -1))) if lazy else part
    with computing_on(client):
        model = BuDRO(**options).fit(
            cut(X), cut(y), metric=metric, validation=watched, client=client
        )
    assert model.report_["rounds"] == inside.report_["rounds"] < 40
