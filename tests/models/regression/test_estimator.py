import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import QuantileRegressor, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fairfrontier.models.regression.estimator import FairRegression
from fairfrontier.models.regression.loss import define_loss, find_loss
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from tests.models.regression.made import SMALL, classes, draw_rows, fit
from tests.models.tables import make_split


def test_labels_of_any_range_are_scaled_there_and_back():
    X, _, model = fit()
    _, _, wide = fit(lambda y: 20.0 + 30.0 * y, label_range=(20.0, 50.0))
    np.testing.assert_allclose(wide.predict(X), 20 + 30 * model.predict(X), atol=1e-9)
    assert wide.loss_ == pytest.approx(model.loss_)
    with pytest.raises(DataError):
        fit(lambda y: 20.0 + 30.0 * y)
    counted = fit(lambda y: 10.0 + 10.0 * y, loss="poisson", label_range=(10.0, 20.0))[2]
    assert counted.resolved_loss.scale == pytest.approx(1.0)


@pytest.mark.parametrize("loss", ["absolute", "quantile", "poisson"])
@pytest.mark.parametrize("oracle", ["ls", "lr", "cs", "envelope"])
def test_every_loss_goes_with_every_oracle(loss, oracle):
    X, groups, model = fit(loss=loss, oracle=oracle, iterations=4)
    assert model.disparity(X, groups).max() <= 0.04 + 1e-7
    assert not model.exact_
    free = fit(loss=loss, oracle=oracle, iterations=4, budget=1.0)[2]
    assert free.disparity(X, groups).max() > 0.1
    assert free.loss_ <= model.loss_


@pytest.mark.parametrize(
    ("learner", "oracle"), [("xgboost", "ls"), ("xgboost", "lr"), ("decision_tree", "ls")]
)
def test_trees_are_trained_and_saved(learner, oracle, tmp_path):
    y = classes if oracle == "lr" else None
    trees = {"n_estimators": 4, "max_depth": 2, "iterations": 3}
    X, groups, model = fit(y, learner=learner, oracle=oracle, **trees)
    assert model.disparity(X, groups).max() <= 0.04 + 1e-7
    loaded = type(model).load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_components(X), model.predict_components(X))
    np.testing.assert_array_equal(loaded.sample(X), model.sample(X))


def test_objects_serve_python_callers_and_are_not_saved(tmp_path):
    loss = define_loss("fourth", lambda y, u: abs(y - u) ** 4, lipschitz=4.0, xp=np)
    _, _, model = fit(loss=loss, learner=Ridge(), oracle="ls")
    assert len(model.predictors_) > 0
    with pytest.raises(StoreError):
        model.save(tmp_path / "model")


def test_bounded_group_loss_keeps_groups_below_their_bounds(tmp_path):
    bounded = {"constraint": "bounded_group_loss", "budget": 1.0}
    X, _, free = fit(**bounded)
    worst = free.group_value_.max()
    assert free.exact_
    bounds = np.where(free.group_value_ == worst, 0.5 * (worst + free.alone_.max()), 1.0).tolist()
    _, _, model = fit(**{**bounded, "budget": bounds, "radius": 1e4})
    assert model.group_value_.max() < worst - 1e-7
    assert model.loss_ > free.loss_
    _, y, group = draw_rows(240)
    rows = ((y[:, None] - model.predict_components(X)) ** 2 / 2) @ model.probability_
    means = [rows[group == a].mean() for a in (0, 1)]
    np.testing.assert_allclose(means, model.group_value_, atol=1e-12)
    impossible = fit(**{**bounded, "budget": 0.0, "radius": 1e4})[2]
    assert impossible.predictors_ == ()
    assert (impossible.reachable_ > 0).all()
    with pytest.raises(DataError, match=r"Budgets that can be met are 0\.00"):
        impossible.predict(X)
    assert "Budgets that can be met are 0.00" in impossible.infeasible_
    assert model.infeasible_ is None
    loaded = FairRegression.load(impossible.save(tmp_path / "none"))
    assert loaded.loss_ == np.inf
    json.dumps(loaded.get_params())


@pytest.mark.parametrize("learner", ["linear", "decision_tree"])
def test_bounded_group_loss_of_classes(learner):
    X, _, model = fit(classes, constraint="bounded_group_loss", budget=0.2, learner=learner)
    assert not model.exact_
    assert (model.group_value_ <= 0.2).all()
    assert model.predict_proba(X).shape == (240, 2)


def test_rows_without_weight_do_not_count():
    X, y, group = draw_rows(240)
    groups = group[:, None].copy()
    weight = np.ones(240)
    weight[:40] = 0.0
    groups[:40] = 7
    make = {"budget": 0.04, **SMALL}
    one = FairRegression(**make).fit(X, y, sensitive_features=groups, sample_weight=weight)
    other = FairRegression(**make).fit(X[40:], y[40:], sensitive_features=groups[40:])
    np.testing.assert_allclose(one.predict(X), other.predict(X), atol=1e-12)
    np.testing.assert_array_equal(one.levels_, [0, 1])


def test_budgets_belong_to_codes():
    model = fit(budget=[0.01, 0.3])[2]
    assert model.group_value_[0] <= 0.01 + 1e-7
    with pytest.raises(ConfigError, match="1 budgets"):
        fit(budget=[0.01])


@pytest.mark.parametrize(
    "changes",
    [
        {"constraint": "parity"},
        {"oracle": "svm"},
        {"oracle": "cs", "learner": "xgboost"},
        {"oracle": "cs", "constraint": "bounded_group_loss"},
        {"oracle": "envelope", "learner": "ridge"},
        {"oracle": "envelope", "constraint": "bounded_group_loss"},
        {"budget": -0.1},
        {"budget": []},
        {"n_grid": 0},
        {"iterations": 0},
        {"radius": 0.0},
        {"penalty": 0.0},
        {"inflation": -1.0},
        {"label_range": [1.0]},
        {"variant": "other"},
        {"loss": "sqare"},
        {"learner": "forest"},
    ],
)
def test_parameters_that_cannot_be_are_named(changes):
    with pytest.raises(ConfigError):
        fit(**changes)


def test_rows_that_cannot_be_are_named():
    with pytest.raises(DataError):
        fit(attribute=0)
    with pytest.raises(DataError, match="given 3 classes"):
        fit(lambda y: (3 * y).astype(int))
    with pytest.raises(DataError):
        fit(loss="logistic")


def test_splits_that_cannot_be_learnt_are_skipped_with_a_reason():
    split = make_split(40)
    y = draw_rows(len(split.train.y))[1]
    for labels, parameters, reason in (
        (y, {}, None),
        (y, {"loss": "logistic"}, "between the two"),
        ((y > 0.5).astype(float), {"loss": "logistic"}, None),
        (3 * y, {}, "label_range"),
        (3 * y, {"label_range": (0.0, 3.0)}, None),
        (y, {"attribute": 5}, "no attribute"),
    ):
        part = replace(split.train, y=labels, classes=())
        refusal = FairRegression(**parameters).supports(
            split.replace(train=part, task="regression")
        )
        assert refusal is None if reason is None else reason in refusal


@pytest.mark.parametrize("tau", [0.9, 0.5])
def test_lopsided_losses_are_answered_by_the_envelope(tau):
    X, y, group = draw_rows(400)
    free = {"loss": "quantile", "shape": tau, "budget": 1.0}
    model = FairRegression(**free).fit(X, y, sensitive_features=group[:, None])
    best = QuantileRegressor(quantile=tau, alpha=0.0, solver="highs").fit(X, y).predict(X)
    value = find_loss("quantile", tau).value
    least, constant = value(y, best).mean(), value(y, np.quantile(y, tau)).mean()
    # Rounding costs a part of a step; least squares ends at the constant and finds no gap.
    assert model.loss_ < least + 0.15 * (constant - least)
    means = FairRegression(**free, oracle="ls").fit(X, y, sensitive_features=group[:, None])
    assert means.loss_ > model.loss_ if tau == 0.9 else means.loss_ < constant
    assert means.gap_ < means.loss_
    assert not means.exact_


def test_bounded_group_loss_of_quantiles_by_a_learner_that_minimises_them():
    X, y, group = draw_rows(150)
    learner = QuantileRegressor(quantile=0.9, alpha=0.0, solver="highs")
    bounded = {"constraint": "bounded_group_loss", "loss": "quantile", "shape": 0.9, "budget": 1.0}
    losses = [
        FairRegression(**bounded, learner=each).fit(X, y, sensitive_features=group[:, None]).loss_
        for each in (learner, "linear")
    ]
    direct = find_loss("quantile", 0.9).value(y, learner.fit(X, y).predict(X).clip(0, 1)).mean()
    assert losses[0] == pytest.approx(direct, rel=1e-3)
    assert losses[0] < losses[1]


@pytest.mark.parametrize(
    ("classifier", "regressor"),
    [
        ("linear", "linear"),
        (DecisionTreeClassifier(max_depth=3), DecisionTreeRegressor(max_depth=3)),
    ],
)
def test_classifiers_predict_labels_and_not_their_probabilities(classifier, regressor):
    # Bounded group loss asks for the labels themselves: ½ + logit(p) / (2C) is to be y.
    X, y, group = draw_rows(400)
    bounded = {"constraint": "bounded_group_loss", "loss": "square", "budget": 1.0}
    models = [
        FairRegression(**bounded, oracle=oracle, learner=each).fit(
            X, y, sensitive_features=group[:, None]
        )
        for oracle, each in (("lr", classifier), ("ls", regressor))
    ]
    assert models[0].loss_ < 1.1 * models[1].loss_
    assert models[0].predict(X).mean() == pytest.approx(y.mean(), abs=0.01)


def test_weights_that_are_shares_are_refused():
    X, y, group = draw_rows(60)
    for constraint in ("statistical_parity", "bounded_group_loss"):
        with pytest.raises(DataError, match="numbers of rows"):
            FairRegression(constraint=constraint).fit(
                X, y, sensitive_features=group[:, None], sample_weight=np.full(60, 1 / 60)
            )


def test_budgets_are_counted_by_codes_and_not_by_places():
    X, y, group = draw_rows(240)
    make = {"budget": [0.3, 0.0, 0.2], **SMALL}
    model = FairRegression(**make).fit(X, y, sensitive_features=2 * group[:, None])
    terms = model.find_terms(model.levels_)
    np.testing.assert_array_equal(terms["budget"], [0.3, 0.2])
    assert model.group_value_.max() > 0.1
