import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.runtime.errors import ConfigError
from papers.rival.fair_boosting.newton_tree import NewtonTree


def make(n=150, seed=0, levels=None):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 4))
    if levels:
        X = np.round(X * levels) / levels
    target = X[:, 0] - X[:, 1] * X[:, 2] + generator.normal(size=n)
    return X, target, generator.exponential(size=n)


def grow_xgboost(X, target, weight, tree_method="exact", **parameters):
    """Return XGBoost's one tree for ½ Σ w (t − v)², whose derivatives are −w t and w."""
    data = xgboost.DMatrix(X, target, weight=weight)
    parameters = {
        "tree_method": tree_method,
        "learning_rate": 1.0,
        "base_score": 0.0,
        "reg_lambda": 1.0,
        "min_child_weight": 0.0,
        "nthread": 1,
        **parameters,
    }
    return xgboost.train(parameters, data, 1)


CASES = [
    {"max_depth": 1},
    {"max_depth": 4, "reg_lambda": 0.0},
    {"max_depth": 6, "reg_lambda": 3.0, "min_child_weight": 4.0},
    {"max_depth": 5, "gamma": 3.0, "reg_lambda": 0.5},
    {"max_depth": 3, "gamma": 1e6},
]


@pytest.mark.parametrize("parameters", CASES)
def test_the_tree_is_xgboosts(parameters):
    X, target, weight = make()
    ours = NewtonTree(**parameters).fit(X, target, weight)
    theirs = grow_xgboost(X, target, weight, **parameters)
    new = np.random.default_rng(1).normal(size=(500, 4))
    for rows in (X, new):
        wanted = theirs.predict(xgboost.DMatrix(rows))
        assert ours.predict(rows) == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert len(ours.feature_) == len(theirs.trees_to_dataframe())


def test_hist_parts_the_training_rows_alike():
    X, target, weight = make(levels=10)
    ours = NewtonTree(max_depth=5).fit(X, target, weight)
    theirs = grow_xgboost(X, target, weight, tree_method="hist", max_depth=5)
    wanted = theirs.predict(xgboost.DMatrix(X))
    assert np.unique(wanted).size > 10
    assert ours.predict(X) == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def loss(tree, X, target, weight):
    value = tree.predict(X)
    leaves = np.unique(value)
    penalty = tree.reg_lambda * (leaves**2).sum()
    return (weight * (target - value) ** 2).sum() + penalty


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 2.0]))
def test_a_stump_is_the_best_of_all(seed, reg_lambda):
    generator = np.random.default_rng(seed)
    X = generator.integers(4, size=(12, 2)).astype(float)
    target, weight = generator.normal(size=12), generator.exponential(size=12) + 0.1
    found = NewtonTree(max_depth=1, reg_lambda=reg_lambda).fit(X, target, weight)

    def objective(left):
        total = 0.0
        for rows in (left, ~left):
            if rows.any():
                G, H = (weight * target)[rows].sum(), weight[rows].sum() + reg_lambda
                total -= G * G / H
        return total

    everything = np.full(12, fill_value=True)
    brute = min(objective(X[:, j] < cut) for j in range(2) for cut in np.unique(X[:, j]))
    ours = loss(found, X, target, weight) - (weight * target**2).sum()
    # A split that gains nothing is not made.
    assert ours == pytest.approx(min(brute, objective(everything)), abs=1e-5)


def test_rows_without_weight_have_no_say():
    X, target, weight = make()
    weight[::2] = 0
    whole = NewtonTree(max_depth=4).fit(X, target, weight)
    some = NewtonTree(max_depth=4).fit(X[1::2], target[1::2], weight[1::2])
    assert whole.predict(X[1::2]) == pytest.approx(some.predict(X[1::2]), rel=1e-9)
    nothing = NewtonTree().fit(X, target, np.zeros(150))
    assert not nothing.predict(X).any()


def test_without_weights_all_rows_count_once():
    X, target, _ = make()
    plain, ones = NewtonTree().fit(X, target), NewtonTree().fit(X, target, np.ones(150))
    assert np.array_equal(plain.predict(X), ones.predict(X))
    assert len(NewtonTree().fit(X[:1], target[:1]).feature_) == 1


def test_parameters_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="'ties' of NewtonTree"):
        NewtonTree(ties="foo").fit(np.zeros((3, 2)), np.arange(3.0))
