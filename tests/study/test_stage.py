from __future__ import annotations

from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from fairfrontier.study import run
from fairfrontier.study.run import RunContext, fit_group
from fairfrontier.study.search import InterruptedRun


class Client:
    """Runs what is submitted at once."""

    status = "running"

    def submit(self, function, *arguments, pure):
        assert not pure
        future = Future()
        future.release = lambda: None
        future.set_result(function(*arguments))
        return future

    def close(self):
        """Nothing is open."""


@pytest.mark.parametrize(
    ("workers", "spread", "in_files"),
    [(False, False, False), (True, False, False), (True, True, False), (True, False, True)],
)
def test_what_a_fit_warns_of_is_noted_wherever_it_runs(monkeypatch, workers, spread, in_files):
    noted, ran = [], []

    def fit_with_warnings(group, store, home, client=None):
        ran.append((store, home, client is not None))
        return "key", ("It did not converge.",)

    monkeypatch.setattr(run, "fit_with_warnings", fit_with_warnings)
    monkeypatch.setattr(run.METHODS, "find", lambda _: SimpleNamespace(distributed=spread))
    group = SimpleNamespace(
        estimator="mine", method="row", seeds=(0,), is_collection=lambda _: in_files
    )
    observer = SimpleNamespace(
        watch=lambda _: nullcontext(), note=lambda *remark: noted.append(remark)
    )
    context = RunContext("store", "home", Client() if workers else None, observer)
    assert fit_group(context, group, "key") == "key"
    assert noted == [("row", ("It did not converge.",))]
    # The whole cluster is at hand where a method, or the rows, need it.
    assert ran == [("store", "home", spread or in_files)]


def test_no_fit_starts_in_a_run_that_was_interrupted():
    context = RunContext("store", "home", Client())
    context.stop()
    with pytest.raises(InterruptedRun, match="row/0 was not started"):
        fit_group(context, SimpleNamespace(estimator="mine", method="row", seeds=(0,)), "key")
