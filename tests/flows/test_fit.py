"""tasks/fit.py, which needs Prefect and so is tested here."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from distributed import CancelledError, KilledWorker
from prefect.states import Failed

from fairfrontier.runtime.errors import ClusterError, ConfigError
from fairfrontier.runtime.store import Store
from tasks import fit as task
from tasks.fit import find_stored, fit_group, is_infrastructure_fault


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (ClusterError("No worker.", "Wait."), True),
        (KilledWorker("fit", None, 3), True),
        (CancelledError("fit"), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (ConfigError("Wrong.", "Mend it."), False),
        (ValueError("NaN"), False),
        (MemoryError(), False),
    ],
)
def test_only_faults_of_the_infrastructure_are_tried_again(error, retried):
    assert is_infrastructure_fault(None, None, Failed(data=error)) is retried


def test_prefects_cache_asks_the_store_and_believes_only_what_verifies(tmp_path):
    store = Store(tmp_path)
    key = store.key("fit", {"a": 1})
    asked = {"key": key, "place": SimpleNamespace(store=store)}
    assert find_stored(None, asked) is None
    with store.writing("fit", key, {"a": 1}) as folder:
        (folder / "scores").write_text("1")
    first = find_stored(None, asked)
    assert first is not None
    assert first.startswith(key)
    (store.path("fit", key) / "scores").write_text("2")
    assert find_stored(None, asked) is None


@pytest.mark.parametrize(("workers", "spread"), [(False, False), (True, False), (True, True)])
def test_what_a_fit_warns_of_is_noted_wherever_it_runs(monkeypatch, workers, spread):
    noted, ran = [], []

    def fit_telling(group, store, home, client=None):
        ran.append((store, home, client is not None))
        return "key", ("It did not converge.",)

    class Client:
        def submit(self, function, *arguments, pure):
            assert not pure
            future = Future()
            future.release = lambda: None
            future.set_result(function(*arguments))
            return future

    monkeypatch.setattr(task, "fit_telling", fit_telling)
    monkeypatch.setattr(task.registry, "find", lambda _: SimpleNamespace(distributed=spread))
    group = SimpleNamespace(estimator="mine")
    place = SimpleNamespace(
        store="store",
        home="home",
        client=Client() if workers else None,
        watch=lambda _: nullcontext(),
        note=lambda *remark: noted.append(remark),
    )
    assert fit_group.fn("row", "loans", "0", "key", group, place) == "key"
    assert noted == [(group, ("It did not converge.",))]
    assert ran == [("store", "home", spread)]
