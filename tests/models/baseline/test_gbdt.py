from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import xgboost
from scipy.special import expit, logit

from fairfrontier import create, learn
from fairfrontier.models.baseline.gbdt import GBDT, Project, Reweigh, independence_weights
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.models.tables import make_split


def test_gbdt_is_xgboost():
    split = make_split(300)
    model = GBDT(n_estimators=7, scale_pos_weight=2.0).fit(split.train.X, split.train.y)
    plain = xgboost.train(
        {"objective": "binary:logistic", "scale_pos_weight": 2.0, "nthread": 1},
        xgboost.DMatrix(split.train.X, split.train.y),
        7,
    )
    expected = plain.predict(xgboost.DMatrix(split.test.X))
    assert model.predict_proba(split.test.X)[:, 1] == pytest.approx(expected, abs=1e-6)


def test_several_classes_are_xgboosts_softmax_and_may_weigh_the_same(tmp_path):
    split = make_split(400)
    X = split.train.X
    y = np.digitize(X[:, 0] + X[:, 1], [-1.0, 1.5])
    names = np.array(["low", "middle", "top"])
    model = GBDT(n_estimators=7).fit(X, names[y])
    native = {"objective": "multi:softprob", "num_class": 3, "nthread": 1}
    plain = xgboost.train(native, xgboost.DMatrix(X, y), 7)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba, plain.predict(xgboost.DMatrix(X)), atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), names[proba.argmax(axis=1)])
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(GBDT.load(tmp_path / "model").predict_proba(X), proba)
    blocks = GBDT(n_estimators=7).fit(da.from_array(X, chunks=(150, -1)), y)
    np.testing.assert_allclose(blocks.predict_proba(X), proba, atol=1e-6)
    # One leaf with equal class weights predicts a third of each.
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    stump = {"max_depth": 1, "min_child_weight": 1e9, "n_estimators": 200, "reg_lambda": 0.0}
    equal = GBDT(scale_pos_weight="balanced", **stump).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(equal.predict_proba(X), 1 / 3, atol=1e-3)
    with pytest.raises(ConfigError, match="balanced or 1"):
        GBDT(scale_pos_weight=2.0).fit(X, y)


def make_rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, size=(n, 2)).astype(float)
    y = np.clip(0.2 + 0.4 * X[:, 0] + 0.2 * X[:, 0] * X[:, 1] + rng.normal(0, 0.05, n), 0, 1)
    return X, y


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_enough_trees_predict_the_mean_of_every_cell(loss):
    X, y = make_rows()
    model = create("gbdt_regression", loss=loss, n_estimators=200, reg_lambda=0.0)
    found = model.fit(X, y).predict(X)
    cell = (2 * X[:, 0] + X[:, 1]).astype(int)
    mean = (np.bincount(cell, y) / np.bincount(cell))[cell]
    if loss == "logistic":
        # Both losses are least at the mean; what is predicted then stands for that probability.
        np.testing.assert_allclose(expit(5 * (2 * found - 1)), mean, atol=1e-4)
        np.testing.assert_allclose(found, 0.5 + logit(mean) / 10, atol=1e-4)
    else:
        # XGBoost splits no cell for a gain below 1e-6, which is n r² of its mean residual r.
        np.testing.assert_allclose(found, mean, atol=np.sqrt(2e-6 / np.bincount(cell).min()))


def test_gamma_stops_splits_that_gain_little():
    X, y = make_rows()
    deep = create("gbdt_regression", n_estimators=3).fit(X, y).predict(X)
    shallow = create("gbdt_regression", n_estimators=3, gamma=1e6).fit(X, y).predict(X)
    assert len(np.unique(deep)) > 2
    assert len(np.unique(shallow)) == 1


def test_what_cannot_be_fitted():
    X, y = make_rows()
    with pytest.raises(DataError):
        create("gbdt_regression", loss="logistic").fit(X, 3 * y)
    with pytest.raises(ConfigError):
        create("gbdt_regression", loss="absolute").fit(X, y)


def test_project_is_blind_to_movement_along_the_sensitive_directions():
    split = make_split(400)
    metric = learn("subspace", split)
    model = Project(n_estimators=10).fit(split.train.X, split.train.y, metric=metric)
    flipped = split.test.X.copy()
    flipped[:, 0] = 1 - flipped[:, 0]
    assert np.array_equal(model.predict(split.test.X), model.predict(flipped))
    moved = split.test.X + 3.0 * metric.directions[0] - 2.0 * metric.directions[1]
    assert np.mean(model.predict(split.test.X) == model.predict(moved)) > 0.99


def test_weights_make_group_and_label_independent():
    generator = np.random.default_rng(0)
    group = generator.integers(3, size=500)
    y = (generator.random(500) < 0.2 + 0.2 * group).astype(np.int64)
    weight = generator.exponential(size=500)
    w = weight * independence_weights(group, y, weight)
    joint = np.zeros((3, 2))
    np.add.at(joint, (group, y), w)
    joint /= joint.sum()
    assert joint == pytest.approx(np.outer(joint.sum(1), joint.sum(0)))
    assert w.sum() == pytest.approx(weight.sum())


def test_a_cell_without_rows_is_no_division_by_zero():
    group, y = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    assert np.isfinite(independence_weights(group, y, np.ones(4))).all()


def test_reweighing_narrows_the_selection_gap():
    split = make_split(2000)
    settings = {"n_estimators": 20, "max_depth": 3}

    def gap(model):
        decision, sex = model.predict(split.test.X), split.test.group("sex")
        return abs(decision[sex == 0].mean() - decision[sex == 1].mean())

    plain = Reweigh(**settings).fit(
        split.train.X, split.train.y, sensitive_features=np.zeros((1000, 1), dtype=np.int64)
    )
    weighed = Reweigh(**settings).fit(
        split.train.X, split.train.y, sensitive_features=split.train.groups
    )
    assert gap(weighed) < gap(plain)
