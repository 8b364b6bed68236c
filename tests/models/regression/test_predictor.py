from dataclasses import replace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fairfrontier.models.persistence import read_state, write_state
from fairfrontier.models.regression.estimator import take_block
from fairfrontier.models.regression.oracle import LearnerOracle, Targets, TreeOracle
from fairfrontier.models.regression.predictor import (
    ConstantPredictor,
    LearnerPredictor,
    LinearPredictor,
    restore_predictors,
    score_all,
    store_predictors,
)
from fairfrontier.runtime.cluster.executor import open_rows


def make():
    rng = np.random.default_rng(0)
    X, u = rng.normal(size=(80, 2)), rng.random(80)
    rows, targets = open_rows(X, y=u, weight=np.ones(80)), Targets(None, 80.0)
    learner = LearnerOracle(take_block(rows), DecisionTreeRegressor(max_depth=2))
    return X, (
        ConstantPredictor(0.4),
        LinearPredictor(np.array([0.3, 2.0]), 0.5),
        TreeOracle(rows, 80.0, sharpness=5.0, n_estimators=3).fit(targets),
        learner.fit(targets),
    )


def test_predictors_of_all_kinds_come_back_from_disk(tmp_path):
    X, predictors = make()
    state = store_predictors(predictors)
    state = replace(state, facts={**state.facts, "n_features_in_": X.shape[1]})
    folder = write_state(tmp_path / "model", "mixture", {}, state)
    again = restore_predictors(read_state(folder, "mixture")[1])
    before, after = score_all(predictors, X), score_all(again, X)
    np.testing.assert_array_equal(before, after)
    assert before.shape == (80, 4)
    assert before.min() >= 0
    assert before.max() <= 1


@pytest.mark.parametrize("label", [0, 1])
def test_a_classifier_that_saw_one_class_says_it(label):
    X = np.zeros((5, 1))
    learner = DecisionTreeClassifier().fit(X, np.full(5, label))
    np.testing.assert_array_equal(LearnerPredictor(learner, 5.0).score(X), label)
