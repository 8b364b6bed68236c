from __future__ import annotations

from types import SimpleNamespace

import pytest
from distributed import CancelledError, KilledWorker
from prefect.states import Failed

from fairfrontier.runtime.errors import ClusterError, ConfigError
from fairfrontier.runtime.store import Store
from tasks.fit import find_stored
from tasks.retry import is_infrastructure_fault


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
    asked = {"key": key, "context": SimpleNamespace(store=store)}
    assert find_stored(None, asked) is None
    with store.writing("fit", key, {"a": 1}) as folder:
        (folder / "scores").write_text("1")
    first = find_stored(None, asked)
    assert first is not None
    assert first.startswith(key)
    (store.path("fit", key) / "scores").write_text("2")
    assert find_stored(None, asked) is None
