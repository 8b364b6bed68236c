import numpy as np
import pytest

from fairfrontier.models.baseline.reweigh import Reweigh, independence_weights
from tests.models.tables import make_split


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
