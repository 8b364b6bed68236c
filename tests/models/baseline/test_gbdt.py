import numpy as np
import pytest
import xgboost

from fairfrontier.models.baseline.gbdt import GBDT
from fairfrontier.models.tree.boosting import positive_weight
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


def test_balanced_weighs_both_classes_alike():
    y, weight = np.array([0, 0, 0, 1]), np.array([1.0, 1.0, 2.0, 0.5])
    assert positive_weight("balanced", y, weight) == pytest.approx(8.0)
    assert positive_weight(3, y, weight) == 3.0
