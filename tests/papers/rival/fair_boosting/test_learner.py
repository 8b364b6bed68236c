import numpy as np
import pytest
from sklearn.ensemble import BaggingRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from fairfrontier.runtime.errors import ConfigError
from papers.rival.fair_boosting.learner import (
    LEARNERS,
    fit_learner,
    make_learner,
    predict_rows,
    weight_keyword,
)

GENERATOR = np.random.default_rng(0)
X = np.column_stack([GENERATOR.normal(size=(90, 3)), GENERATOR.integers(2, size=(90, 2))])
Y = X[:, 0] + np.abs(X[:, 1]) + X[:, 3]


@pytest.mark.parametrize("name", LEARNERS)
def test_named_learners_learn_answer_row_by_row_and_can_be_kept(name):
    learner = fit_learner(make_learner(name, None), X, Y, None, 0)
    answer = predict_rows(learner, X)
    assert answer.dtype == np.float64
    assert np.corrcoef(answer, Y)[0, 1] > 0.5
    rows = np.array([7, 3, 80])
    assert predict_rows(learner, X[rows]) == pytest.approx(answer[rows], rel=1e-13)
    assert len(predict_rows(learner, X[:0])) == 0


def test_what_there_is_not_is_said():
    with pytest.raises(ConfigError, match="'stump'"):
        make_learner("stmup", None)
    with pytest.raises(ConfigError, match="'max_depth'"):
        make_learner("tree", {"max_deph": 3})
    with pytest.raises(ConfigError):
        make_learner(3, None)
    with pytest.raises(ConfigError, match="'epsilon'"):
        make_learner(SVR(), {"epsilom": 0.2})
    with pytest.raises(ConfigError):
        make_learner("tree", [3])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("tree", {"max_depth": -1}),
        ("stump", {"criterion": "x"}),
        ("linear", {"alpha": -1.0}),
        ("k_neighbors", {"n_neighbors": 0}),
        ("k_neighbors", {"algorithm": "kd_tree"}),
        ("k_neighbors", {"algorithm": "auto"}),
        ("spline", {"n_knots": 1}),
        ("spline", {"n_knots": 2.5}),
        ("spline", {"degree": -1}),
        ("spline", {"reg_lambda": np.nan}),
        ("newton_tree", {"max_depth": -1}),
        ("newton_tree", {"max_depth": True}),
        ("newton_tree", {"ties": "foo"}),
        ("newton_tree", {"reg_lambda": -1.0}),
        ("newton_tree", {"gamma": np.inf}),
        ("newton_tree", {"min_child_weight": "x"}),
        (SVR(), {"C": -1.0}),
    ],
)
def test_parameters_that_cannot_be_are_refused_before_any_fit(name, parameters):
    with pytest.raises(ConfigError, match=f"'{next(iter(parameters))}'"):
        make_learner(name, parameters)


def test_objects_are_copied():
    own = SVR(C=2.0)
    made = make_learner(own, {"epsilon": 0.2})
    assert (made.C, made.epsilon, own.epsilon) == (2.0, 0.2, 0.1)
    assert fit_learner(own, X, Y, None, 0) is not own
    assert not hasattr(own, "support_")


def test_weights_reach_the_last_step_of_a_pipeline():
    template = make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=2))
    assert weight_keyword(template) == "decisiontreeregressor__sample_weight"
    assert weight_keyword(make_pipeline(KNeighborsRegressor())) is None
    assert weight_keyword(KNeighborsRegressor()) is None
    weight = np.where(X[:, 3] == 1, 50.0, 0.1)
    plain, heavy = (fit_learner(template, X, Y, each, 0) for each in (None, weight))
    assert np.abs(predict_rows(plain, X) - predict_rows(heavy, X)).max() > 0.01


def test_the_seed_reaches_what_is_random():
    template = make_pipeline(BaggingRegressor(n_estimators=3))
    first, again, other = (predict_rows(fit_learner(template, X, Y, None, s), X) for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
