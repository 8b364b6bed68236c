import json
import warnings

import numpy as np
import pytest
import skops.io
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from fairfrontier.models.baseline.random_forest import RandomForest
from fairfrontier.models.persistence import _digest
from fairfrontier.runtime.errors import ConfigError, StoreError
from tests.models.tables import make_split


def fit(n_estimators=5, **parameters):
    split = make_split(200)
    model = RandomForest(n_estimators=n_estimators, max_depth=4, **parameters)
    return split, model.fit(split.train.X, split.train.y)


def replace_forest(folder, forest):
    """Put another forest into a saved model, digest and all."""
    skops.io.dump(forest, folder / "forest.skops")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["forest.skops"] = _digest(folder / "forest.skops")
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_it_is_scikit_learns_forest():
    split, model = fit(random_state=3)
    weight = np.random.default_rng(0).exponential(size=len(split.train.y))
    weighted = RandomForest(n_estimators=5, max_depth=4, min_samples_leaf=2, random_state=3)
    weighted.fit(split.train.X, split.train.y, sample_weight=weight)
    for ours, leaf, each in [(model, 1, None), (weighted, 2, weight)]:
        peer = RandomForestClassifier(5, max_depth=4, min_samples_leaf=leaf, random_state=3)
        peer.fit(split.train.X, split.train.y, sample_weight=each)
        assert np.array_equal(ours.predict_proba(split.test.X), peer.predict_proba(split.test.X))


def test_threads_change_nothing():
    split, one = fit(n_estimators=20)
    _, two = fit(n_estimators=20, n_jobs=2)
    assert np.array_equal(one.predict_proba(split.test.X), two.predict_proba(split.test.X))


def test_it_comes_back_the_same_and_without_a_warning(tmp_path):
    split, model = fit()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        back = RandomForest.load(model.save(tmp_path / "model"))
    assert np.array_equal(back.predict_proba(split.test.X), model.predict_proba(split.test.X))
    assert back.n_features_in_ == model.n_features_in_


def test_another_learner_is_refused(tmp_path):
    split, model = fit()
    folder = model.save(tmp_path / "model")
    y = split.train.y.astype(float)
    replace_forest(folder, RandomForestRegressor(2).fit(split.train.X, y))
    with pytest.raises(StoreError):
        RandomForest.load(folder)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_estimators": 0},
        {"max_depth": 0},
        {"min_samples_leaf": 0},
        {"n_jobs": 0},
        {"random_state": -1},
    ],
)
def test_parameters_that_cannot_be(wrong):
    split = make_split(50)
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RandomForest(**wrong).fit(split.train.X, split.train.y)
