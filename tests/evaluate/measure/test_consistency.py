from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from fairfrontier.evaluate.verb import tabulate
from fairfrontier.prepare.split import Variant
from fairfrontier.train.prediction import Prediction
from tests.evaluate.made import MadeSet, make_part


def consistency(decisions, weight=None, classes=("no", "yes"), rows=None, n=None):
    """Return the row of one counterfactual set whose variants got these decisions."""
    decisions = np.asarray(decisions, dtype=float)
    n = decisions.shape[1] if n is None else n
    variants = tuple(Variant(str(v), np.zeros((n, 1)), np.zeros((n, 0))) for v in range(3))
    part = make_part(
        np.zeros(n, dtype=int),
        np.zeros((n, 0)),
        {},
        weight=weight,
        classes=classes,
        counterfactuals={"spouse": MadeSet(variants, rows)},
    )
    found = {"spouse": tuple((str(v), each) for v, each in enumerate(decisions))}
    prediction = Prediction(np.zeros(n), np.zeros(n), found)
    return tabulate(prediction, part, ["consistency"]).iloc[0]


def test_share_of_rows_with_one_decision():
    decisions = np.random.default_rng(0).random((3, 500)) < 0.9
    same = sum(len(set(row)) == 1 for row in decisions.T.tolist())
    row = consistency(decisions)
    assert row["group"] == "spouse"
    assert row["n"] == 500
    assert row["value"] == pytest.approx(same / 500)
    interval = binomtest(same, 500).proportion_ci(method="wilson")
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))


def test_random_decisions_share_their_draws():
    rng = np.random.default_rng(0)
    chance = rng.random((3, 40))
    row = consistency(chance)
    drawn = rng.random((20000, 1, 40)) < chance
    same = (drawn.all(axis=1) | ~drawn.any(axis=1)).mean()
    assert row["value"] == pytest.approx(same, abs=0.004)
    assert row["value"] == pytest.approx(np.mean(1 - np.ptp(chance, axis=0)))


def test_classes_agree_or_do_not():
    decisions = [[0, 1, 2, 2, 0], [0, 2, 2, 0, 0]]
    assert consistency(decisions, classes=("a", "b", "c"))["value"] == pytest.approx(3 / 5)


def test_weights_count():
    row = consistency([[0, 1, 1], [0, 1, 0]], weight=[1, 2, 5])
    assert row["value"] == pytest.approx(3 / 8)


def test_all_the_same_keeps_a_bound_below_one():
    row = consistency(np.ones((2, 30)))
    assert row["value"] == row["high"] == 1.0
    assert row["low"] == pytest.approx(binomtest(30, 30).proportion_ci(method="wilson").low)


def test_no_rows_is_not_estimable():
    row = consistency(np.ones((2, 0)))
    assert row["n"] == 0
    assert np.isnan(row["value"])


def test_rows_without_versions_do_not_count():
    rows = np.array([0, 2, 9])
    weight = np.arange(1.0, 13.0)
    row = consistency([[0, 1, 1], [0, 1, 0]], weight=weight, rows=rows, n=12)
    assert row["value"] == pytest.approx((1 + 3) / (1 + 3 + 10))
    assert row["n"] == 3
