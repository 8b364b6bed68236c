import numpy as np
import pytest
import xgboost

from fairfrontier.models.individual.budro.solver import boost_step, evaluate_losses, predict_margin
from fairfrontier.models.tree.boosting import balance_classes

TREE = {
    "max_depth": 4,
    "reg_lambda": 0.01,
    "learning_rate": 0.3,
    "seed": 0,
    "nthread": 1,
    "base_score": 0.5,
    "min_child_weight": 1e-6,
}
OBJECTIVES = {
    2: {"objective": "binary:logistic"},
    3: {"objective": "multi:softprob", "num_class": 3},
}


def grow(X, weight, rounds, scale, parameters):
    """Boost rounds of one step on the n original rows."""
    data = xgboost.DMatrix(X)
    booster = xgboost.Booster(parameters, [data])
    for iteration in range(rounds):
        boost_step(booster, data, iteration, weight, scale)
    return booster


@pytest.mark.parametrize("tree_method", ["exact", "hist"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_step_equals_repeated_weighted_data(tree_method, n_classes):
    generator = np.random.default_rng(0)
    n = 120
    # Fewer distinct values than bins: only then does hist choose the same cuts.
    X = np.round(generator.normal(size=(n, 4)), 1)
    weight = generator.exponential(size=(n, n_classes)) / n
    weight[::3, 0] = 0
    scale = np.array([1.0, 2.5, 0.7])[:n_classes]
    parameters = {**TREE, **OBJECTIVES[n_classes], "tree_method": tree_method}
    booster = grow(X, weight, 3, scale, parameters)
    repeated = xgboost.DMatrix(
        np.vstack([X] * n_classes),
        np.repeat(np.arange(float(n_classes)), n),
        weight=(weight * scale).T.reshape(-1),
    )
    plain = xgboost.train(parameters, repeated, 3)
    ours = booster.predict(xgboost.DMatrix(X), output_margin=True)
    theirs = plain.predict(xgboost.DMatrix(X), output_margin=True)
    assert np.ptp(ours) > 0.1
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_a_factor_is_scale_pos_weight():
    generator = np.random.default_rng(1)
    X = np.round(generator.normal(size=(90, 3)), 1)
    label = generator.integers(2, size=90)
    parameters = {**TREE, **OBJECTIVES[2], "tree_method": "hist"}
    weight = np.eye(2)[label] / 90
    booster = grow(X, weight, 3, np.array([1.0, 2.5]), parameters)
    data = xgboost.DMatrix(X, label, weight=np.full(90, 1 / 90))
    plain = xgboost.train({**parameters, "scale_pos_weight": 2.5}, data, 3)
    ours = booster.predict(data, output_margin=True)
    assert ours == pytest.approx(plain.predict(data, output_margin=True), abs=1e-5)


def test_losses_are_minus_log_probabilities():
    margin = np.array([[0.5, -1.0, 2.0], [300.0, 0.0, -300.0]])
    loss = evaluate_losses(margin)
    p = np.exp(margin[0]) / np.exp(margin[0]).sum()
    assert loss[0] == pytest.approx(-np.log(p))
    assert loss[1] == pytest.approx([0.0, 300.0, 600.0])
    binary = evaluate_losses(np.array([1.5, -800.0]))
    assert binary[0] == pytest.approx(-np.log([1 / (1 + np.exp(1.5)), 1 / (1 + np.exp(-1.5))]))
    assert binary[1] == pytest.approx([0.0, 800.0])


def test_balanced_classes_weigh_as_the_first():
    y = np.array([0, 0, 0, 2, 2, 3])
    weight = np.array([1.0, 1, 1, 2, 2, 0.5])
    factor = balance_classes(y, weight, 4)
    assert factor == pytest.approx([1.0, 1.0, 3 / 4, 6.0])


def test_margins_of_several_classes_are_columns():
    X = np.arange(6.0)[:, None]
    data = xgboost.DMatrix(X)
    booster = xgboost.Booster({**TREE, **OBJECTIVES[3]}, [data])
    boost_step(booster, data, 0, np.eye(3)[[0, 0, 1, 1, 2, 2]], np.ones(3))
    margin = predict_margin(booster, data)
    assert margin.shape == (6, 3)
    assert margin.dtype == np.float64
    assert np.array_equal(margin.argmax(axis=1), [0, 0, 1, 1, 2, 2])
