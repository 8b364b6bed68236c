from __future__ import annotations

import time

import numpy as np
import pytest

from fairfrontier.models.regression.estimator import FairRegression, TimedOracle


class Answer:
    """An oracle that answers by a function."""

    exact = True

    def __init__(self, function):
        self.respond = self.minimise = function


def test_calls_and_their_seconds_add_up():
    watch = TimedOracle(Answer(lambda seconds: time.sleep(seconds) or seconds))
    assert [watch.respond(0.01), watch.minimise(0.02)] == [0.01, 0.02]
    assert watch.exact
    assert watch.calls == 2
    assert 0.03 <= watch.seconds < 0.5


def test_a_call_that_fails_is_counted():
    watch = TimedOracle(Answer(lambda x: 1 / x))
    with pytest.raises(ZeroDivisionError):
        watch.minimise(0)
    assert watch.calls == 1


def test_a_fit_reports_its_calls():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 2)), rng.integers(0, 2, (60, 1))
    y = np.clip(0.5 + 0.2 * X[:, 0] + 0.1 * groups[:, 0], 0, 1)
    for constraint in ("statistical_parity", "bounded_group_loss"):
        model = FairRegression(constraint=constraint, budget=0.2, n_grid=8, iterations=3)
        report = model.fit(X, y, sensitive_features=groups).report_
        assert report["oracle_calls"] == model.calls_ > 0
        assert 0 < report["oracle_seconds"] < 10
        assert report["iterations"] == model.iterations_
