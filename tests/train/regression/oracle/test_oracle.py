import numpy as np
import pytest
from scipy.special import logit
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.regression.loss import logistic, square
from fairfrontier.train.regression.oracle.logistic import LogisticRegressor
from fairfrontier.train.regression.oracle.oracle import (
    GroupSquareOracle,
    LearnerOracle,
    LeastSquaresOracle,
    LogisticOracle,
    TreeOracle,
    WeightedOracle,
    make_learner,
    weigh_copies,
)
from fairfrontier.train.regression.parity import build_parity, find_costs
from tests.train.regression.made import draw_rows


def pose(n=250, seed=0, multiplier=None):
    X, y, group = draw_rows(n, seed)
    rng = np.random.default_rng(seed)
    weight = rng.random(n) + 0.5
    problem = build_parity(y, group, weight, loss=square(), budget=0.1, n_grid=20)
    if multiplier is None:
        multiplier = rng.normal(0, 0.02, (2, 20))
    return X, y, group, weight, problem, find_costs(problem, multiplier)


def test_least_squares_from_the_cache_equals_fitting_anew():
    X, _, _, weight, problem, _ = pose()
    oracle = LeastSquaresOracle(X, weight, problem.cell, problem.n_cells)
    for seed in range(3):
        multiplier = np.random.default_rng(seed).normal(0, 0.05, (2, 20))
        costs = find_costs(problem, multiplier)
        response = oracle.respond(costs)
        anew = LinearRegression().fit(X, costs.targets, sample_weight=weight)
        np.testing.assert_allclose(response.predictor.coefficient, anew.coef_, atol=1e-10)
        np.testing.assert_allclose(response.score, anew.predict(X), atol=1e-10)
        np.testing.assert_array_equal(response.predictor.score(X), response.score)


@pytest.mark.parametrize("sharpness", [5.0, 2.0])
def test_weights_of_copies_meet_the_derivative_condition(sharpness):
    target = np.linspace(0.02, 0.98, 25)
    weight = weigh_copies(target, sharpness)
    value = logistic(sharpness).value
    zero, one = np.zeros(25), np.ones(25)

    def mixed(u):
        return (1 - weight) * value(zero, u) + weight * value(one, u)

    step = 1e-5
    np.testing.assert_allclose(
        (mixed(target + step) - mixed(target - step)) / (2 * step), 0, atol=1e-8
    )
    fine = np.linspace(0, 1, 2001)[:, None]
    np.testing.assert_allclose(fine[mixed(fine).argmin(axis=0), 0], target, atol=6e-4)
    # What the predictor makes of the probability is U again.
    np.testing.assert_allclose(0.5 + logit(weight) / (2 * sharpness), target, atol=1e-12)


def test_the_authors_weights_miss_the_target():
    authors = weigh_copies(np.array([0.1]), 5.0, "authors")
    assert 0.5 + logit(authors[0]) / 10 == pytest.approx(0.28, abs=0.001)


def test_logistic_oracle_reaches_targets_that_are_linear():
    X, _, _, weight, _, costs = pose()
    oracle = LogisticOracle(LogisticRegressor(X, 1e-9), weight, 5.0)
    beta = np.array([0.05, -0.04, 0.02, 0.0])
    target = 0.5 + X @ beta
    response = oracle.fit(weigh_copies(target, 5.0), weight)
    np.testing.assert_allclose(response.score, target, atol=1e-5)
    assert np.isfinite(oracle.respond(costs).score).all()


@pytest.mark.parametrize("sharpness", [0.0, 5.0])
def test_trees_on_shares_equal_trees_on_copies(sharpness):
    X, _, _, weight, _, costs = pose()
    small = {"n_estimators": 5, "max_depth": 2}
    oracle = TreeOracle(X, weight, sharpness=sharpness, **small)
    response = oracle.respond(costs)
    np.testing.assert_allclose(response.predictor.score(X), response.score, atol=1e-6)
    if not sharpness:
        assert np.corrcoef(response.score, costs.targets)[0, 1] > 0.5
        return
    share = weigh_copies(costs.targets, 5.0)
    copies = TreeOracle(np.vstack([X, X]), np.tile(weight, 2), sharpness=sharpness, **small)
    twice = copies.fit(
        np.repeat([0.0, 1.0], len(X)), np.concatenate([weight * (1 - share), weight * share])
    )
    np.testing.assert_allclose(twice.predictor.score(X), response.score, atol=1e-4)


@pytest.mark.parametrize(
    ("learner", "sharpness"),
    [(DecisionTreeRegressor(max_depth=3), 0.0), (DecisionTreeClassifier(max_depth=3), 5.0)],
)
def test_any_learner_of_scikit_learn_serves(learner, sharpness):
    X, _, _, weight, _, costs = pose()
    response = LearnerOracle(X, weight, learner, sharpness).respond(costs)
    assert response.score.shape == (250,)
    assert not hasattr(learner, "tree_")
    if not sharpness:
        anew = DecisionTreeRegressor(max_depth=3).fit(X, costs.targets, sample_weight=weight)
        np.testing.assert_allclose(response.score, anew.predict(X), atol=1e-12)


def test_group_factors_weigh_rows():
    X, y, group, weight, _, _ = pose()
    factor = np.array([0.3, 2.0])
    rows = weight * factor[group]
    anew = LinearRegression().fit(X, y, sample_weight=rows).predict(X)
    ours = GroupSquareOracle(X, y, weight, group, 2).minimise(factor)
    np.testing.assert_allclose(ours.score, anew, atol=1e-10)
    plain = LearnerOracle(X, weight, LinearRegression())
    other = WeightedOracle(plain.fit, y, weight, group).minimise(factor)
    np.testing.assert_allclose(other.score, anew, atol=1e-10)


def test_learners_by_name_and_by_object():
    made = make_learner("random_forest", classifier=True, random_state=3, n_jobs=1)
    assert type(made).__name__ == "RandomForestClassifier"
    assert made.random_state == 3
    ridge = Ridge()
    assert make_learner(ridge, classifier=False, random_state=0, n_jobs=1) is ridge
    with pytest.raises(ConfigError, match="Did you mean 'random_forest'"):
        make_learner("random_forst", classifier=False, random_state=0, n_jobs=1)
    with pytest.raises(ConfigError, match="predict_proba"):
        make_learner(ridge, classifier=True, random_state=0, n_jobs=1)


def test_factors_do_not_change_the_weight_of_all_rows():
    X, y, group, weight, _, _ = pose()
    # A penalty of the learner's own would feel it.
    learner = LearnerOracle(X, weight, Ridge(alpha=50.0))
    oracle = WeightedOracle(learner.fit, y, weight, group)
    once, often = (oracle.minimise(np.full(2, factor)).score for factor in (1.0, 20.0))
    np.testing.assert_allclose(often, once, atol=1e-12)
    np.testing.assert_allclose(once, learner.fit(y, weight).score, atol=1e-12)


@pytest.mark.parametrize(("sharpness", "settings"), [(0.0, (4, 200, 1.0)), (5.0, (3, 150, 2.0))])
def test_trees_are_those_of_the_paper(sharpness, settings):
    oracle = TreeOracle(np.zeros((2, 1)), np.ones(2), sharpness=sharpness)
    parameters = oracle.parameters
    assert (parameters["max_depth"], oracle.rounds, parameters["gamma"]) == settings


def test_the_authors_weights_are_asked_for_by_name():
    X, _, _, weight, _, costs = pose()
    share = {"variant": "authors"}
    tree = DecisionTreeClassifier(max_depth=2)
    small = {"sharpness": 5.0, "n_estimators": 3, "max_depth": 2}
    for coded, paper in (
        tuple(
            LogisticOracle(LogisticRegressor(X, 1e-3), weight, 5.0, **each) for each in (share, {})
        ),
        (TreeOracle(X, weight, **small, **share), TreeOracle(X, weight, **small)),
        (LearnerOracle(X, weight, tree, 5.0, **share), LearnerOracle(X, weight, tree, 5.0)),
    ):
        found = coded.respond(costs).score
        np.testing.assert_allclose(found, paper.fit(costs.targets, weight).score, atol=1e-6)
        right = weigh_copies(costs.targets, 5.0)
        np.testing.assert_allclose(
            paper.respond(costs).score, paper.fit(right, weight).score, atol=1e-6
        )
        assert np.abs(found - paper.respond(costs).score).max() > 0.01
