from __future__ import annotations

import numpy as np

from fairfrontier import create


def test_all_rows_get_the_shares_and_the_cut_makes_the_better_decision():
    X, y = np.random.default_rng(0).normal(size=(5, 2)), np.array([0, 0, 1, 1, 0])
    model = create("constant").fit(X, y, sample_weight=np.array([1.0, 0.0, 2.0, 0.0, 1.0]))
    assert model.predict_proba(X[:2]).tolist() == [[0.5, 0.5]] * 2
    model.fit(X, y)
    assert model.predict(X).tolist() == [0] * 5
    costs = {"costs": {"false_positive": 1, "false_negative": 5}}
    model.tune_cut(model.predict_proba(X)[:, 1], y, np.ones(5), costs)
    assert model.predict(X).tolist() == [1] * 5
