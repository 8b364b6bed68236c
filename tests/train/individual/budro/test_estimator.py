import numpy as np
import pytest
import xgboost

from tasks.metric import learn
from tasks.runtime.errors import ConfigError
from tasks.train.individual.budro.estimator import BuDRO
from tasks.train.individual.budro.objective import boost_step
from tests.train.tables import make_split

TREE = {"max_depth": 4, "reg_lambda": 0.01, "learning_rate": 0.3, "seed": 0, "nthread": 1}


def grow(X, weight, rounds, scale, tree_method):
    """Boost rounds of one step on the n original rows."""
    data = xgboost.DMatrix(X)
    parameters = {**TREE, "tree_method": tree_method, "base_score": 0.5, "min_child_weight": 1e-6}
    booster = xgboost.Booster({**parameters, "objective": "binary:logistic"}, [data])
    for iteration in range(rounds):
        boost_step(booster, data, iteration, weight, np.array([1.0, scale]))
    return booster


@pytest.mark.parametrize("tree_method", ["exact", "hist"])
def test_a_step_equals_doubled_weighted_data(tree_method):
    generator = np.random.default_rng(0)
    n = 120
    # Fewer distinct values than bins: only then does hist choose the same cuts.
    X = np.round(generator.normal(size=(n, 4)), 1)
    weight = generator.exponential(size=(n, 2)) / n
    weight[::3, 0] = 0
    booster = grow(X, weight, 3, 2.5, tree_method)
    doubled = xgboost.DMatrix(
        np.vstack([X, X]), np.repeat([0.0, 1.0], n), weight=weight.T.reshape(-1)
    )
    plain = xgboost.train(
        {
            **TREE,
            "tree_method": tree_method,
            "base_score": 0.5,
            "min_child_weight": 1e-6,
            "objective": "binary:logistic",
            "scale_pos_weight": 2.5,
        },
        doubled,
        3,
    )
    ours = booster.predict(xgboost.DMatrix(X), output_margin=True)
    theirs = plain.predict(xgboost.DMatrix(X), output_margin=True)
    assert np.ptp(ours) > 0.1
    assert ours == pytest.approx(theirs, abs=1e-5)


def fit(split, **parameters):
    metric = learn("subspace", split)
    settings = {"n_estimators": 25, "max_depth": 4, "learning_rate": 0.3, **parameters}
    return BuDRO(**settings).fit(split.train.X, split.train.y, metric=metric)


def test_budget_buys_consistency():
    split = make_split(600)
    greedy, fair = fit(split, budget=0.0), fit(split, budget=0.5)
    shift = [
        np.abs(
            model.predict_proba(split.test.X)[:, 1]
            - model.predict_proba(split.test.X * [0, 1, 1, 1, 1])[:, 1]
        ).mean()
        for model in (greedy, fair)
    ]
    assert shift[1] <= shift[0]
    assert fair.history_["cost"][1:] == pytest.approx(np.full(23, 0.5), abs=1e-6)
    assert np.all(fair.history_["gap"] <= 1e-3 * fair.history_["objective"] + 1e-9)


def test_adversarial_loss_falls_over_the_rounds():
    history = fit(make_split(400), budget=0.1, learning_rate=0.1).history_
    assert history["objective"][-1] < history["objective"][0]


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_the_first_round_of_each_variant(variant):
    split = make_split(200)
    model = fit(split, variant=variant, n_estimators=1)
    distinct = np.unique(model.predict_proba(split.train.X)[:, 1]).size
    assert (distinct == 1) == (variant == "paper")


def test_sgd_runs_and_repeats_itself():
    split = make_split(200)
    settings = {"solver": "sgd", "n_estimators": 6, "steps": 5, "batch_size": 20}
    first, again = fit(split, **settings), fit(split, **settings)
    other = fit(split, **settings, random_state=1)
    assert np.array_equal(first.history_["eta"], again.history_["eta"])
    assert not np.array_equal(first.history_["eta"], other.history_["eta"])


def test_progress_is_told_every_round():
    split, told = make_split(80), []
    BuDRO(n_estimators=4, max_depth=2).fit(
        split.train.X,
        split.train.y,
        metric=learn("subspace", split),
        progress=lambda *step: told.append(step),
    )
    assert told == [(2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"budget": -0.1}, "budget"),
        ({"budget": float("nan")}, "budget"),
        ({"solver": "x"}, "solver"),
        ({"variant": "x"}, "variant"),
    ],
)
def test_what_cannot_be_is_said(parameters, word):
    with pytest.raises(ConfigError, match=word):
        fit(make_split(60), **parameters)
