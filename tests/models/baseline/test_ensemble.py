"""An ensemble predicts the mean of what its members predict on their own."""

from __future__ import annotations

import numpy as np
import pytest

from fairfrontier import create
from fairfrontier.models.registry import load_model
from fairfrontier.runtime.errors import ConfigError, InputError
from tests.models.tables import make_split

TREES = [{"n_estimators": 4, "max_depth": depth} for depth in (1, 2, 3)]


@pytest.mark.parametrize(
    ("learner", "settings"),
    [
        ("gbdt", TREES),
        ("gbdt", [{}]),
        ("linear", [{"penalty": 0.01}, {"penalty": 1.0}]),
        ("random_forest", [{"n_estimators": 3}, {"n_estimators": 3, "max_depth": 2}]),
    ],
)
def test_probabilities_are_the_members_mean(learner, settings, tmp_path):
    train = make_split().train
    weight = np.random.default_rng(0).uniform(0.5, 2.0, train.n_samples)
    model = create("ensemble", learner=learner, settings=settings, random_state=3)
    model.fit(train.X, train.y, sample_weight=weight)
    alone = []
    for setting in settings:
        seed = {} if learner == "linear" else {"random_state": 3}
        member = create(learner, **setting, **seed).fit(train.X, train.y, sample_weight=weight)
        alone.append(member.predict_proba(train.X))
    np.testing.assert_allclose(model.predict_proba(train.X), np.mean(alone, axis=0), atol=1e-15)
    again = load_model(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict_proba(train.X), model.predict_proba(train.X))


@pytest.mark.parametrize("order", [TREES, TREES[::-1]])
def test_the_order_of_members_is_no_matter(order):
    train = make_split().train
    ours, theirs = (
        create("ensemble", settings=settings).fit(train.X, train.y) for settings in (TREES, order)
    )
    np.testing.assert_allclose(ours.predict_proba(train.X), theirs.predict_proba(train.X))


def test_classes_weigh_what_the_objective_says():
    train = make_split().train
    y = train.y * (np.arange(train.n_samples) % 3 == 0)
    serving = create("ensemble", settings=TREES, objective="balanced_accuracy").fit(train.X, y)
    weighted = [{**setting, "scale_pos_weight": "balanced"} for setting in TREES]
    stated = create("ensemble", settings=weighted).fit(train.X, y)
    plain = create("ensemble", settings=TREES).fit(train.X, y)
    chances = [model.predict_proba(train.X)[:, 1] for model in (serving, stated, plain)]
    assert np.array_equal(chances[0], chances[1])
    assert chances[2].mean() < chances[0].mean()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"settings": []}, "'settings' of 'ensemble'"),
        ({"settings": "deep"}, "'settings' of 'ensemble'"),
        ({"settings": [3]}, "'settings' of 'ensemble'"),
        ({"settings": [{"max_depth": -1}]}, "'max_depth' of 'gbdt'"),
        ({"settings": [{"depth": 3}]}, "no parameter 'depth'"),
        ({"learner": "fair_gbm"}, "'fair_gbm' of 'ensemble' needs sensitive_features"),
        ({"learner": "ensembel"}, "ensembel"),
        ({"objective": "fairness"}, "no objective 'fairness'"),
    ],
    ids=str,
)
def test_what_is_no_ensemble_is_refused(parameters, said):
    with pytest.raises(ConfigError, match=said):
        create("ensemble", **parameters).check()


def test_a_learner_refuses_what_it_cannot_take():
    X = np.array([[0.0, np.nan], [1.0, 1.0]])
    with pytest.raises(InputError):
        create("ensemble", learner="linear").fit(X, [0, 1])
    create("ensemble").fit(X, [0, 1])
