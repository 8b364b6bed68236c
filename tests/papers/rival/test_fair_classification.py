from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fairlearn.metrics import demographic_parity_difference
from scipy.special import expit

from fairfrontier import create
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import predict_part
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.errors import ConfigError, DataError
from papers.rival.fair_classification import FairClassification
from tests.models.tables import make_split


@pytest.fixture(scope="module")
def split() -> Split:
    made = make_split(n=400)
    parts = {
        name: replace(part, y=part.y.astype(np.float64), classes=()) for name, part in made.parts()
    }
    return made.replace(task="regression", favourable=None, **parts)


def fit(split, **parameters):
    train = split.train
    return create("fair_classification", **{"max_iter": 8, "n_estimators": 10, **parameters}).fit(
        train.X, train.y, sensitive_features=train.groups
    )


def expected_decisions(model, X):
    return (model.predict_components(X) >= 0.5) @ model.probability_


@pytest.mark.parametrize("learner", ["linear", "xgboost"])
def test_decisions_at_one_half_are_within_the_budget(split, learner):
    model = fit(split, learner=learner, budget=0.02)
    train = split.train
    share = expected_decisions(model, train.X)
    gap = [share[train.groups[:, 0] == code].mean() - share.mean() for code in (0, 1)]
    assert np.abs(gap).max() <= 2 * (0.02 + model.report_["gap"])
    free = fit(split, learner=learner, budget=1.0)
    decided = expected_decisions(free, train.X) >= 0.5
    apart = demographic_parity_difference(train.y, decided, sensitive_features=train.groups[:, 0])
    assert apart > 0.15
    assert np.abs(gap).max() < apart / 2


def test_a_budget_of_one_is_logistic_regression(split):
    free = fit(split, budget=1.0, penalty=1e-3)
    assert free.probability_.tolist() == [1.0]
    plain = create("linear_regression", loss="logistic", penalty=1e-3)
    plain.fit(split.train.X, split.train.y)
    np.testing.assert_allclose(free.predict(split.test.X), plain.predict(split.test.X), atol=1e-4)


def test_what_is_drawn_is_what_is_predicted(split):
    model = fit(split, budget=0.01)
    assert model.probability_.size > 1
    assert model.probability_.sum() == pytest.approx(1)
    X = split.test.X
    margin = X @ model.coefficient_.T + model.intercept_
    u = model.predict_components(X)
    np.testing.assert_allclose(expit(5 * (2 * u - 1)), np.clip(expit(margin), expit(-5), expit(5)))
    np.testing.assert_allclose(model.predict(X), u @ model.probability_)
    found = predict_part(model, split.test)
    np.testing.assert_array_equal(found.components, u)
    table = tabulate(found, split.test, ["disparity", "logistic_loss"])
    assert table["value"].notna().all()


def test_groups_may_be_named_otherwise(split):
    model = fit(split, budget=0.05)
    train = split.train
    renamed = create("fair_classification", budget=0.05, max_iter=8)
    renamed.fit(train.X, train.y, sensitive_features=5 - 3 * train.groups)
    np.testing.assert_allclose(
        renamed.predict(split.test.X), model.predict(split.test.X), atol=0.02
    )


def test_the_grid_gives_one_classifier_within_the_budget_where_it_can(split):
    train = split.train
    for budget in (0.05, 0.1):
        model = fit(split, solver="grid_search", budget=budget)
        assert model.probability_.tolist() == [1.0]
        assert model.report_["oracle_calls"] == 20
        share = expected_decisions(model, train.X)
        gap = [share[train.groups[:, 0] == code].mean() - share.mean() for code in (0, 1)]
        assert np.abs(gap).max() <= budget + 1e-9
    # Nothing is within a budget of 0 but by chance: the nearest is taken.
    nearest = fit(split, solver="grid_search", budget=0.0, grid_size=5)
    assert np.isfinite(nearest.predict(split.test.X)).all()


def test_a_classifier_that_decides_alike_everywhere_is_kept(split, tmp_path):
    model = create("fair_classification")
    model.n_features_in_, model.coefficient_, model.intercept_ = (
        5,
        np.zeros((2, 5)),
        np.array([np.inf, -np.inf]),
    )
    model.n_iter_ = 1
    model.probability_, model.boosters_ = np.array([0.5, 0.5]), (None, None)
    for each in (model, type(model).load(model.save(tmp_path / "model"))):
        np.testing.assert_array_equal(each.predict_components(split.test.X[:3]), [[1, 0]] * 3)
        np.testing.assert_array_equal(each.predict(split.test.X[:3]), 0.5)


def test_trees_are_saved_beside_constants(split, tmp_path):
    model = fit(split, learner="xgboost", budget=0.02, n_estimators=5)
    loaded = type(model).load(model.save(tmp_path / "model"))
    X = split.test.X
    assert loaded.predict_components(X).tobytes() == model.predict_components(X).tobytes()


def test_what_cannot_be_fitted(split):
    with pytest.raises(DataError, match="one class only: below 2"):
        fit(split, threshold=2.0)
    with pytest.raises(ConfigError, match="a number from 0 to 1"):
        fit(split, budget=2.0)
    for name in ("tolerance", "n_estimators", "max_depth", "gamma"):
        with pytest.raises(ConfigError, match=f"'{name}' of 'fair_classification' is -1"):
            fit(split, **{name: -1})
    with pytest.raises(ConfigError, match="a number from 1e-9 to 1"):
        fit(split, tolerance=1e30)
    weighed = replace(split.train, weight=np.arange(split.train.n_samples, dtype=float))
    reason = create("fair_classification").supports(split.replace(train=weighed))
    assert reason == "fair_classification takes no case weights, and made has some."


def test_budgets_choose_from_one_grid(split, monkeypatch):
    trained = []
    make = FairClassification._search

    def count(model, *rows):
        trained.append(model.budget)
        return make(model, *rows)

    monkeypatch.setattr(FairClassification, "_search", count)
    train = split.train
    data = {"X": train.X, "y": train.y, "sensitive_features": train.groups}
    budgets = (0.02, 0.1, 1.0)
    models = [create("fair_classification", solver="grid_search", budget=each) for each in budgets]
    other = {**data, "sensitive_features": 1 - train.groups}
    FairClassification.fit_batch([*models, models[0].__class__(solver="grid_search")],
                                 [data, data, data, other])  # fmt: skip
    assert trained == [0.02, 0.05]
    assert len({model.structure() for model in models}) == 1
    for model in models:
        alone = fit(split, solver="grid_search", budget=model.budget)
        np.testing.assert_array_equal(model.predict(split.test.X), alone.predict(split.test.X))
        assert model.report_["oracle_calls"] == 20
    coefficients = {model.coefficient_.tobytes() for model in models}
    assert len(coefficients) > 1
    descents = [create("fair_classification", budget=each).structure() for each in budgets]
    assert len(set(descents)) == 3
