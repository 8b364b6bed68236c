from __future__ import annotations

import numpy as np

from fairfrontier.models.regression.estimator import FairRegression


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
