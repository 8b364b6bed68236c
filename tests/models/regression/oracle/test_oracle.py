import numpy as np
import pytest
from scipy.special import logit
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fairfrontier.models.regression.estimator import take_block
from fairfrontier.models.regression.loss import logistic, square
from fairfrontier.models.regression.oracle import (
    GroupSquareOracle,
    LearnerOracle,
    LeastSquaresOracle,
    LogisticOracle,
    LogisticRegressor,
    Targets,
    TreeOracle,
    WeightedOracle,
    make_learner,
    weigh_copies,
)
from fairfrontier.models.regression.problem import build_parity, find_costs
from fairfrontier.runtime.cluster.executor import open_rows
from fairfrontier.runtime.errors import ConfigError
from tests.models.regression.made import draw_rows, read


def pose(n=250, seed=0, multiplier=None):
    X, y, group = draw_rows(n, seed)
    rng = np.random.default_rng(seed)
    weight = rng.random(n) + 0.5
    rows = open_rows(X, y=y)
    problem = build_parity(rows, y, group, weight, loss=square(), budget=0.1, n_grid=20)
    if multiplier is None:
        multiplier = rng.normal(0, 0.02, (2, 20))
    return X, y, group, weight, problem, find_costs(problem, multiplier)


def aim(problem, costs):
    """Return U of each row."""
    return costs.target.reshape(-1)[read(problem, "cell")]


def tell(problem, label):
    """Return the rows of a problem with labels, and targets that leave these as they are."""
    rows = problem.rows.attach(y=label)
    return rows, Targets(None, float(read(problem, "weight").sum()))


def test_least_squares_from_the_cache_equals_fitting_anew():
    X, _, _, weight, problem, _ = pose()
    oracle = LeastSquaresOracle(problem.rows, problem.n_cells)
    for seed in range(3):
        multiplier = np.random.default_rng(seed).normal(0, 0.05, (2, 20))
        costs = find_costs(problem, multiplier)
        predictor = oracle.respond(costs)
        anew = LinearRegression().fit(X, aim(problem, costs), sample_weight=weight)
        np.testing.assert_allclose(predictor.coefficient, anew.coef_, atol=1e-10)
        np.testing.assert_allclose(predictor.score(X), anew.predict(X), atol=1e-10)


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
    X, _, _, weight, problem, costs = pose()
    beta = np.array([0.05, -0.04, 0.02, 0.0])
    target = 0.5 + X @ beta
    rows, targets = tell(problem, weigh_copies(target, 5.0))
    oracle = LogisticOracle(LogisticRegressor(rows, 1e-9), weight.sum(), 5.0)
    np.testing.assert_allclose(oracle.fit(targets).score(X), target, atol=1e-5)
    assert np.isfinite(oracle.respond(costs).score(X)).all()


@pytest.mark.parametrize("sharpness", [0.0, 5.0])
def test_trees_on_shares_equal_trees_on_copies(sharpness):
    X, _, _, weight, problem, costs = pose()
    small = {"n_estimators": 5, "max_depth": 2}
    oracle = TreeOracle(problem.rows, weight.sum(), sharpness=sharpness, **small)
    score = oracle.respond(costs).score(X)
    if not sharpness:
        assert np.corrcoef(score, aim(problem, costs))[0, 1] > 0.5
        return
    share = weigh_copies(aim(problem, costs), 5.0)
    both = np.concatenate([weight * (1 - share), weight * share])
    rows = open_rows(np.vstack([X, X]), y=np.repeat([0.0, 1.0], len(X)), weight=both)
    copies = TreeOracle(rows, both.sum(), sharpness=sharpness, **small)
    twice = copies.fit(Targets(None, both.sum()))
    np.testing.assert_allclose(twice.score(X), score, atol=1e-4)


@pytest.mark.parametrize(
    ("learner", "sharpness"),
    [(DecisionTreeRegressor(max_depth=3), 0.0), (DecisionTreeClassifier(max_depth=3), 5.0)],
)
def test_any_learner_of_scikit_learn_serves(learner, sharpness):
    X, _, _, weight, problem, costs = pose()
    predictor = LearnerOracle(take_block(problem.rows), learner, sharpness).respond(costs)
    assert predictor.score(X).shape == (250,)
    assert not hasattr(learner, "tree_")
    if not sharpness:
        target = aim(problem, costs)
        anew = DecisionTreeRegressor(max_depth=3).fit(X, target, sample_weight=weight)
        np.testing.assert_allclose(predictor.score(X), anew.predict(X), atol=1e-12)


def test_group_factors_weigh_rows():
    X, y, group, weight, problem, _ = pose()
    factor = np.array([0.3, 2.0])
    rows = weight * factor[group]
    anew = LinearRegression().fit(X, y, sample_weight=rows).predict(X)
    ours = GroupSquareOracle(problem.rows, 2).respond(factor)
    np.testing.assert_allclose(ours.score(X), anew, atol=1e-10)
    plain = LearnerOracle(take_block(problem.rows), LinearRegression())
    other = WeightedOracle(plain.fit, weight, group).respond(factor)
    np.testing.assert_allclose(other.score(X), anew, atol=1e-10)


def test_learners_by_name_and_by_object():
    made = make_learner("random_forest", classifier=True, random_state=3, n_jobs=1)
    assert type(made).__name__ == "RandomForestClassifier"
    assert made.random_state == 3
    ridge = Ridge()
    assert make_learner(ridge, classifier=False, random_state=0, n_jobs=1) is ridge
    with pytest.raises(ConfigError, match="Did you mean 'random_forest'"):
        make_learner("random_forst", classifier=False, random_state=0, n_jobs=1)
    with pytest.raises(ConfigError):
        make_learner(ridge, classifier=True, random_state=0, n_jobs=1)


def test_factors_do_not_change_the_weight_of_all_rows():
    X, y, group, weight, problem, _ = pose()
    # A penalty of the learner's own would feel it.
    learner = LearnerOracle(take_block(problem.rows), Ridge(alpha=50.0))
    oracle = WeightedOracle(learner.fit, weight, group)
    once, often = (oracle.respond(np.full(2, factor)).score(X) for factor in (1.0, 20.0))
    np.testing.assert_allclose(often, once, atol=1e-12)
    plain = Ridge(alpha=50.0).fit(X, y, sample_weight=weight).predict(X)
    np.testing.assert_allclose(once, plain, atol=1e-12)


@pytest.mark.parametrize(("sharpness", "settings"), [(0.0, (4, 200, 1.0)), (5.0, (3, 150, 2.0))])
def test_trees_are_those_of_the_paper(sharpness, settings):
    oracle = TreeOracle(open_rows(np.zeros((2, 1))), 2.0, sharpness=sharpness)
    parameters = oracle.parameters
    assert (parameters["max_depth"], oracle.rounds, parameters["gamma"]) == settings


def test_the_authors_weights_are_asked_for_by_name():
    X, _, _, weight, problem, costs = pose()
    share, rows, total = {"variant": "authors"}, problem.rows, weight.sum()
    tree, block = DecisionTreeClassifier(max_depth=2), take_block(problem.rows)
    small = {"sharpness": 5.0, "n_estimators": 3, "max_depth": 2}
    regressors = [LogisticRegressor(rows, 1e-3) for _ in range(2)]
    for coded, paper in (
        (
            LogisticOracle(regressors[0], total, 5.0, **share),
            LogisticOracle(regressors[1], total, 5.0),
        ),
        (TreeOracle(rows, total, **small, **share), TreeOracle(rows, total, **small)),
        (LearnerOracle(block, tree, 5.0, **share), LearnerOracle(block, tree, 5.0)),
    ):
        found, target = coded.respond(costs).score(X), costs.target.reshape(-1)
        same = paper.fit(Targets(target, total)).score(X)
        np.testing.assert_allclose(found, same, atol=1e-6)
        right = paper.fit(Targets(weigh_copies(target, 5.0), total)).score(X)
        np.testing.assert_allclose(paper.respond(costs).score(X), right, atol=1e-6)
        assert np.abs(found - paper.respond(costs).score(X)).max() > 0.01
